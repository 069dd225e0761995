//! `cued backup`, `cued restore` and `cued check`: copies of the whole database. A restored copy is on hold until
//! `cued promote`; `cued clock` ends the wait after a clock that was ahead. All work beside a running server.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use jiff::Timestamp;

use crate::cli::database::{DatabaseArgs, tz_diff};
use crate::cli::error::{CliError, Result, failed, usage};
use crate::cli::output::{count, print_sentence};
use crate::cli::printable::print_error;
use crate::cli::progress::{self, Bar, size};
use crate::clock::Clock;
use crate::domain::time::{EARLIEST_CLOCK, instant};
use crate::store::OpenError;
use crate::store::db::meta;
use crate::store::db::open::SCHEMA_VERSION;
use crate::store::maintenance::backup::CopyError;
use crate::store::maintenance::check::{CheckReport, DatabaseSummary};
use crate::store::maintenance::{backup, backup_folder, check, clock_accept};

/// One damaged page can cause thousands of problems; the first ones are enough to decide on a restore.
const MAX_LISTED_PROBLEMS: usize = 20;

#[derive(Debug, Args)]
pub struct BackupCommand {
    /// File to create, or a folder for a file named by its time
    #[arg(value_name = "FILE|FOLDER", required_unless_present = "backup_dir")]
    out: Option<PathBuf>,
    /// Folder for the backup if no FILE|FOLDER is given, the same as for `cued serve`
    #[arg(long, env = "CUED_BACKUP_DIR", value_name = "FOLDER")]
    backup_dir: Option<PathBuf>,
    /// In a folder: keep only this many backups, the newest, and delete the older ones after this one is made
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    #[command(flatten)]
    database: DatabaseArgs,
}

impl BackupCommand {
    pub fn run(self) -> Result {
        let db = self.database.existing()?;
        let (now, progress) = (Clock::system().now(), progress::copy_progress("backup"));
        let is_file = self.out.as_ref().is_some_and(|out| !out.is_dir());
        let to = self.out.or(self.backup_dir).unwrap_or_default();
        if is_file {
            if self.keep.is_some() {
                let message =
                    format!("--keep needs a folder, and {} is none: create it first", to.display());
                return Err(usage(message));
            }
            let bytes = backup::copy(db, &to, now, progress).map_err(copy_failed)?;
            return print_backup(db, &to, bytes);
        }
        if !to.is_dir() {
            let fault = if to.exists() { "is no folder" } else { "does not exist" };
            return Err(failed(format!("{} {fault}: create the folder first", to.display())));
        }
        let made = backup_folder::create(db, &to, now, progress).map_err(copy_failed)?;
        print_backup(db, &to.join(&made.name), made.bytes)?;
        let Some(keep) = self.keep else { return Ok(()) };
        let deleted =
            backup_folder::delete_old(&to, usize::try_from(keep).unwrap_or(usize::MAX), &made.name);
        match deleted {
            Ok(0) => Ok(()),
            Ok(deleted) => {
                print_sentence(&format!("deleted {}", count(deleted as u64, "older backup")))
            }
            Err(error) => {
                let folder = to.display();
                Err(failed(format!(
                    "the backup is made, but an older one in {folder} cannot be deleted: {error}"
                )))
            }
        }
    }
}

fn print_backup(db: &Path, to: &Path, bytes: u64) -> Result {
    print_sentence(&format!("backed up {} to {} ({})", db.display(), to.display(), size(bytes)))
}

fn copy_failed(error: CopyError) -> CliError {
    match error {
        CopyError::Exists(_) => failed(format!("{error}: give the backup another name")),
        CopyError::LeftoverFiles(_) => failed(format!("{error}, or give the backup another name")),
        other => failed(other.to_string()),
    }
}

#[derive(Debug, Args)]
pub struct RestoreCommand {
    /// Backup to restore; it is not modified
    #[arg(value_name = "FILE")]
    backup: PathBuf,
    #[command(flatten)]
    database: DatabaseArgs,
    /// Replace an existing database; the old one is kept next to it under a name ending in .replaced
    #[arg(long)]
    replace: bool,
}

impl RestoreCommand {
    /// Errors: if the backup fails the check or cannot be copied; an existing database is then unchanged.
    pub fn run(self) -> Result {
        let (backup, db) = (self.backup, self.database.path());
        let now = Clock::system().now();
        verify(&backup, now)?;
        let restored =
            backup::restore(&backup, db, now, self.replace, progress::copy_progress("restore"));
        let kept = restored.map_err(|error| match error {
            CopyError::Exists(_) => {
                failed(format!("{error}: choose another --db, or add --replace to move it aside"))
            }
            other => failed(other.to_string()),
        })?;
        let has_file = kept.iter().any(|(was, _)| was == db);
        for (was, is) in kept {
            let note =
                if has_file { "" } else { ": it belongs to a database that no longer exists" };
            print_sentence(&format!("kept {} as {}{note}", was.display(), is.display()))?;
        }
        print_sentence(&format!(
            "restored {db} from {backup}, on hold: `cued serve --db {db}` shows its contents but fires and delivers \
             nothing until `cued promote --db {db}`",
            db = db.display(),
            backup = backup.display()
        ))
    }
}

#[derive(Debug, Args)]
pub struct CheckCommand {
    /// Database file of a server, or a backup
    #[arg(value_name = "FILE", env = "CUED_DB", default_value = "cued.db")]
    file: PathBuf,
    /// List only cues whose runs in the coming year differ between the system's time zone data and the built-in copy; exits
    /// with 8 if there are any
    #[arg(long)]
    tz_diff: bool,
}

impl CheckCommand {
    pub fn run(self) -> Result {
        let now = Clock::system().now();
        if self.tz_diff {
            return tz_diff::compare(&self.file, now);
        }
        let report = inspect(&self.file, now)?;
        for line in report_lines(&self.file, &report, now) {
            print_sentence(&line)?;
        }
        require_no_problems(&self.file, &report)?;
        print_sentence("result      ok")
    }
}

/// Checks a file and prints its problems to standard error.
pub fn verify(file: &Path, now: Timestamp) -> Result {
    let report = inspect(file, now)?;
    for problem in listed(&report.problems) {
        // Without standard error the message is lost; the exit code remains.
        drop(print_error(&format!("{problem}\n")));
    }
    require_no_problems(file, &report)
}

/// Reads the whole file; a terminal shows that it is read.
fn inspect(file: &Path, now: Timestamp) -> Result<CheckReport> {
    let mut bar = Bar::new("check");
    if let Ok(metadata) = file.metadata() {
        bar.say(&format!("reading {}", size(metadata.len())));
    }
    check::inspect(file, now).map_err(|error| match error {
        // The words for `serve` are about a new file, too.
        OpenError::NotOurDatabase { path } => failed(format!(
            "{} is not a cued database: give the database of a server, or a backup of one",
            path.display()
        )),
        error => failed(error.to_string()),
    })
}

fn require_no_problems(file: &Path, report: &CheckReport) -> Result {
    match report.problems.len() {
        0 => Ok(()),
        problems => {
            let problems = count(problems as u64, "problem");
            Err(failed(format!("{} failed the check: {problems}", file.display())))
        }
    }
}

fn report_lines(file: &Path, report: &CheckReport, now: Timestamp) -> Vec<String> {
    let mut lines = vec![
        format!("file        {}", file.display()),
        format!("schema      version {}", report.version),
    ];
    match &report.summary {
        Some(summary) => lines.extend(summary_lines(summary, now)),
        None if report.version < SCHEMA_VERSION => lines.push(
            "            start `cued serve` once to upgrade it; its contents are counted after that"
                .to_owned(),
        ),
        None => {}
    }
    lines.extend(listed(&report.problems).map(|problem| format!("problem     {problem}")));
    lines
}

fn summary_lines(summary: &DatabaseSummary, now: Timestamp) -> Vec<String> {
    let (users, disabled) = summary.users;
    let mut lines = vec![
        format!("size        {}, {} free", size(summary.bytes), size(summary.free_bytes)),
        format!("users       {users} ({disabled} disabled)"),
        format!("cues        {}", count_by_status(&summary.cues)),
        format!("runs        {}", count_by_status(&summary.executions)),
        format!(
            "overdue     {}, {} to send or hand to workers",
            count(summary.overdue.cues, "cue"),
            count(summary.overdue.executions, "run")
        ),
    ];
    lines.extend(summary.next_due.map(|due| format!("next due    {due}")));
    lines.extend(summary.last_seen.map(|seen| {
        if seen <= now {
            return format!("last seen   {seen}");
        }
        format!(
            "last seen   {seen}: ahead of the clock ({now}); nothing fires by schedule until then, or until `cued clock \
             accept`"
        )
    }));
    lines.extend(summary.held_since.map(|since| {
        format!("on hold     since {since}: nothing fires or is delivered until `cued promote`")
    }));
    lines
}

fn listed(problems: &[String]) -> impl Iterator<Item = String> {
    let more = problems.len().saturating_sub(MAX_LISTED_PROBLEMS);
    let more = (more > 0).then(|| format!("and {more} more"));
    problems.iter().take(MAX_LISTED_PROBLEMS).cloned().chain(more)
}

fn count_by_status(statuses: &[(String, i64)]) -> String {
    let counted: Vec<String> =
        statuses.iter().map(|(status, count)| format!("{count} {status}")).collect();
    if counted.is_empty() { "none".to_owned() } else { counted.join(", ") }
}

#[derive(Debug, Args)]
pub struct PromoteCommand {
    #[command(flatten)]
    database: DatabaseArgs,
}

impl PromoteCommand {
    pub fn run(self) -> Result {
        let now = Clock::system().now();
        let write = self
            .database
            .open()?
            .write(move |tx| Ok((meta::promote(tx)?, meta::overdue(tx, now)?)));
        let db = self.database.path().display();
        let (held_since, overdue) = write.wait()?;
        match held_since {
            None => print_sentence(&format!("{db} is not on hold: nothing to promote")),
            Some(since) => {
                print_sentence(&format!("promoted {db} (on hold since {since})"))?;
                print_sentence(&format!(
                    "{} overdue, to catch up; {} to send or hand to workers\n\
                     a running server begins within 5 seconds, otherwise the next start does",
                    count(overdue.cues, "cue"),
                    count(overdue.executions, "run")
                ))
            }
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum ClockAction {
    /// Trust the system clock again, so that cues fire; no run happens twice
    ///
    /// After the clock was ahead, nothing fires by schedule until it has caught up with the newest instant that the
    /// database has seen. This computes the next runs from now on, and cuts the missed runs to those up to now. A run
    /// that has fired ahead of its time does not fire again.
    ///
    /// A clock that has jumped ahead and is not believed yet is believed at once.
    Accept,
}

impl ClockAction {
    pub fn run(self, database: &DatabaseArgs) -> Result {
        let Self::Accept = self;
        let (store, now) = (database.open()?, Clock::system().now());
        if now < EARLIEST_CLOCK {
            let message = format!("the clock of this machine shows {}: set it first", instant(now));
            return Err(failed(message));
        }
        let accepted = clock_accept::accept(&store, now)?;
        let (db, to) = (database.path().display(), instant(now));
        match accepted.newest {
            None => print_sentence(&format!(
                "{db} contains no time later than {to}: nothing to set back"
            )),
            Some(newest) => print_sentence(&format!(
                "set {db} back from {} to {to}: {} recomputed, {} of missed runs cut",
                instant(newest),
                count(accepted.cues as u64, "cue"),
                count(accepted.missed as u64, "interval")
            )),
        }?;
        print_sentence("a running server goes on from its clock within 5 seconds")
    }
}
