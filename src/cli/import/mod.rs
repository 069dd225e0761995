//! `cued import`: turns the jobs of another scheduler into the files of `cued apply` and `cued work`. It needs no server.

mod crontab;
mod names;

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::cli::client::context::{note_of_unknown_zone, zone_of_machine};
use crate::cli::error::{CliError, Result, cannot, usage};
use crate::cli::import::crontab::{Job, Note};
use crate::cli::input;
use crate::cli::output::table::parse_zone;
use crate::cli::output::{count, print_note, yaml};
use crate::domain::cue::slug::{NAMESPACE_RULE, is_namespace};
use crate::domain::schedule::Zone;
use crate::domain::text::shell_word;

#[derive(Debug, Subcommand)]
pub enum ImportAction {
    /// Write cues.yaml and tasks.yaml from a crontab
    ///
    /// Writes cues.yaml for `cued apply`, and tasks.yaml with the commands for `cued work`. It makes no request. A command keeps its
    /// shell, its variables, its input after % and its folder. The comment above a line becomes the description. A line
    /// that no cue can do (@reboot) is named and left out; after a fault nothing is written.
    Crontab(ImportCrontab),
}

#[derive(Debug, Args)]
pub struct ImportCrontab {
    /// Crontab; - is standard input. Several with --system: /etc/crontab /etc/cron.d/*
    #[arg(value_name = "FILE", default_value = "-")]
    files: Vec<String>,
    /// Each line names a user, as in /etc/crontab; writes a tasks-USER.yaml for each, which only its owner can read: give
    /// it to USER with chown
    #[arg(long)]
    system: bool,
    /// Namespace of the cues and the tasks, so that several machines share an account [default: the name of this machine]
    #[arg(long, value_name = "NAME", value_parser = namespace)]
    namespace: Option<String>,
    /// Time zone of lines without CRON_TZ [default: that of this machine]
    #[arg(long, value_name = "ZONE")]
    tz: Option<String>,
    /// Folder for the files
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    to: PathBuf,
    /// Replace files that exist
    #[arg(long)]
    force: bool,
}

/// A job and its name, unique among all that are imported.
type NamedJob = (String, Job);

/// Tasks in a file of `cued work` (contract §7.4).
const MAX_TASKS: usize = 100;

/// Commands at the same time that the printed `cued work` has at most; cron has no limit.
const MAX_JOBS: usize = 8;

/// cron has none, and `cued work` has 10 minutes by default.
const TIMEOUT: &str = "1d";

/// Less than a day, so that each night without a worker fails, and is told.
const CLAIM_WITHIN_MINUTES: u32 = 23 * 60;

/// Names that systems come with, so that many machines have them.
const COMMON_NAMES: [&str; 5] = ["localhost", "raspberrypi", "debian", "ubuntu", "dietpi"];

const CUES_HEAD: &str = "# From a crontab. Look at it, then: cued apply -f cues.yaml
# cron starts a command again while it still runs: remove `overlap` for that.
# A run that no worker takes in time fails, and you get a message.
";
const TASKS_HEAD: &str =
    "# The commands of a crontab, for `cued work --file`. As under cron, each starts in
# the home folder, and its input is what followed a %, or empty.
";

struct NewFile {
    path: PathBuf,
    text: String,
    /// Only its owner may read it: commands have passwords.
    is_private: bool,
    /// For the summary: what is in it, and the command that comes next.
    content: String,
    next: String,
}

impl ImportAction {
    pub fn run(self) -> Result {
        let Self::Crontab(import) = self;
        import.run()
    }
}

impl ImportCrontab {
    fn run(self) -> Result {
        let zone = self
            .tz
            .as_ref()
            .map_or_else(|| Ok(zone_of_machine()), |name| parse_zone("tz", name))?;
        let (jobs, mut notes) = self.read()?;
        notes.extend(note_of_unknown_zone().filter(|_| self.tz.is_none()));
        let namespace = self.namespace();
        if self.namespace.is_none() && COMMON_NAMES.contains(&namespace.as_str()) {
            notes.push(format!(
                "many machines are called {namespace}: give each its own --namespace"
            ));
        }
        let mut files = vec![self.cues(&jobs, &zone)];
        files.extend(self.tasks(&jobs));
        self.write(&files)?;
        let written =
            files.iter().map(|file| format!("wrote {}: {}", file.path.display(), file.content));
        let next = files.iter().map(|file| format!("  {}", file.next));
        let lines = notes.into_iter().chain(written).chain(["next:".to_owned()]).chain(next);
        print_note(&lines.collect::<Vec<_>>().join("\n"))
    }

    /// The jobs of all files, each with a name of its own, and what a person has to know about other lines.
    fn read(&self) -> Result<(Vec<NamedJob>, Vec<String>)> {
        let (mut jobs, mut notes, mut faults, mut skipped) =
            (Vec::new(), Vec::new(), Vec::new(), 0_u64);
        for file in &self.files {
            let is_stdin = file == "-";
            if is_stdin && io::stdin().is_terminal() {
                return Err(usage(
                    "give a FILE, or a crontab in a pipe: crontab -l | cued import crontab -",
                ));
            }
            let source = if is_stdin { file.clone() } else { format!("@{file}") };
            let place = if is_stdin { "crontab" } else { file };
            let crontab = crontab::parse(&input::text("crontab", &source)?, self.system);
            jobs.extend(crontab.jobs);
            for (line, note) in crontab.notes {
                skipped += u64::from(matches!(note, Note::Skipped(_)));
                let list = if matches!(note, Note::Fault(_)) { &mut faults } else { &mut notes };
                let (Note::Fault(text) | Note::Skipped(text) | Note::Differs(text)) = note;
                list.push(format!("{place}:{line}: {text}"));
            }
        }
        if !faults.is_empty() {
            return Err(usage(format!("nothing was written:\n{}", faults.join("\n"))));
        }
        if skipped > 0 {
            let verb = if skipped == 1 { "was" } else { "were" };
            notes.push(format!("{} {verb} not imported", count(skipped, "line")));
        }
        if jobs.is_empty() {
            notes.insert(0, "nothing was written: there is no line to import".to_owned());
            return Err(usage(notes.join("\n")));
        }
        let names = names::names(jobs.iter().map(|job| job.command.as_str()));
        Ok((names.into_iter().zip(jobs).collect(), notes))
    }

    fn cues(&self, jobs: &[NamedJob], zone: &Zone) -> NewFile {
        let mut text = CUES_HEAD.to_owned();
        text += &yaml::ordered(&json!({"namespace": self.namespace()}), &[]);
        text += &format!(
            "defaults:\n  timezone: {}\n  overlap: skip\n  claim_within_minutes: {CLAIM_WITHIN_MINUTES}\ncues:\n",
            zone.name()
        );
        for (name, job) in jobs {
            let mut cue =
                json!({"schedule": job.schedule, "worker": true, "task": self.task(name)});
            if !job.description.is_empty() {
                // `${` would be a variable of `cued apply`.
                cue["description"] = job.description.replace("${", "$${").into();
            }
            if let Some(own) = job.variables.get("CRON_TZ").filter(|own| !own.is_empty()) {
                cue["timezone"] = own.as_str().into();
            }
            if job.variables.get("MAILTO").is_some_and(String::is_empty) {
                cue["on_failure"] = json!({"email": false});
            }
            text += &entry(name, cue, &["description", "schedule", "timezone", "worker", "task"]);
        }
        let path = self.path("cues.yaml");
        let count = count(jobs.len() as u64, "cue");
        let content = format!("{count} in the namespace {}, in {}", self.namespace(), zone.name());
        let next = format!("cued apply -f {}", shell_word(&path.display().to_string()));
        NewFile { path, text, is_private: false, content, next }
    }

    fn namespace(&self) -> String {
        self.namespace.clone().unwrap_or_else(machine)
    }

    /// The name of a task. Workers claim by it in the whole account, so that it has the namespace too.
    fn task(&self, name: &str) -> String {
        format!("{}/{name}", self.namespace())
    }

    fn tasks(&self, jobs: &[NamedJob]) -> Vec<NewFile> {
        let mut users: BTreeMap<Option<&str>, Vec<&NamedJob>> = BTreeMap::new();
        for job in jobs {
            users.entry(job.1.user.as_deref()).or_default().push(job);
        }
        let mut files = Vec::new();
        for (user, jobs) in users {
            let suffix = user.map(|user| format!("-{user}")).unwrap_or_default();
            for (index, jobs) in jobs.chunks(MAX_TASKS).enumerate() {
                let number = if index == 0 { String::new() } else { format!("-{}", index + 1) };
                let path = self.path(&format!("tasks{suffix}{number}.yaml"));
                let entries =
                    jobs.iter().map(|(name, job)| entry(&self.task(name), task(job), &["run"]));
                let text = format!("{TASKS_HEAD}tasks:\n{}", entries.collect::<String>());
                let mut next =
                    format!("cued work --file {}", shell_word(&path.display().to_string()));
                if jobs.len() > 1 {
                    next += &format!(" --jobs {}", jobs.len().min(MAX_JOBS));
                }
                next += &user.map(|user| format!("  # as {user}")).unwrap_or_default();
                let content = count(jobs.len() as u64, "task");
                files.push(NewFile { path, text, is_private: true, content, next });
            }
        }
        files
    }

    fn path(&self, file: &str) -> PathBuf {
        if self.to == Path::new(".") { PathBuf::from(file) } else { self.to.join(file) }
    }

    fn write(&self, files: &[NewFile]) -> Result {
        let existing =
            files.iter().map(|file| &file.path).find(|path| path.symlink_metadata().is_ok());
        if let Some(path) = existing.filter(|_| !self.force) {
            let path = path.display();
            return Err(usage(format!(
                "{path} exists: --force replaces it, --to writes to another folder"
            )));
        }
        std::fs::create_dir_all(&self.to).map_err(|error| cannot_write(&self.to, error))?;
        // The cues, which are first, come last: they are no use without their tasks.
        for file in files.iter().rev() {
            put(file, self.force).map_err(|error| cannot_write(&file.path, error))?;
        }
        Ok(())
    }
}

/// The cue or the task of a job, as an entry of a list by names.
fn entry(name: &str, value: Value, order: &[&str]) -> String {
    let lines = yaml::ordered(&json!({name: value}), order);
    lines.lines().map(|line| format!("  {line}\n")).collect()
}

/// The command as `cued work` runs it. An outer shell does what cron does before it starts the one of the crontab, which
/// need not know the syntax of sh.
fn task(job: &Job) -> Value {
    let shell = job.variables.get("SHELL").filter(|shell| !shell.is_empty());
    let shell = shell_word(shell.map_or("/bin/sh", String::as_str));
    let mut run = vec!["/bin/sh".to_owned(), "-c".to_owned()];
    if job.input.is_empty() {
        run.extend([format!("cd && exec {shell} -c \"$0\" < /dev/null"), job.command.clone()]);
    } else {
        let start = format!("cd && printf %s \"$1\" | {shell} -c \"$0\"");
        run.extend([start, job.command.clone(), job.input.clone()]);
    }
    let mut task = json!({"run": run, "timeout": TIMEOUT});
    if !job.variables.is_empty() {
        task["env"] = json!(job.variables);
    }
    task
}

/// Writes a file in one step, so that a full disk leaves the old one as it is.
fn put(file: &NewFile, replaces: bool) -> io::Result<()> {
    let mode = Permissions::from_mode(if file.is_private { 0o600 } else { 0o666 });
    let folder = file
        .path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut new = tempfile::Builder::new().permissions(mode).tempfile_in(folder)?;
    new.write_all(file.text.as_bytes())?;
    if replaces {
        new.persist(&file.path)?
    } else {
        new.persist_noclobber(&file.path)?
    };
    Ok(())
}

fn cannot_write(path: &Path, error: io::Error) -> CliError {
    cannot(&format!("write {}", path.display()), error)
}

/// The name of this machine, without its domain, as a namespace.
fn machine() -> String {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy();
    names::slug(name.split('.').next().unwrap_or_default())
}

fn namespace(text: &str) -> Result<String, String> {
    if is_namespace(text) { Ok(text.to_owned()) } else { Err(NAMESPACE_RULE.to_owned()) }
}
