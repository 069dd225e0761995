//! `cued backup`, `cued restore` and `cued check`: copies of the whole database. A restored copy is on hold until
//! `cued promote`; `cued clock` ends the wait after a clock that was ahead. All work beside a running server.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use jiff::Timestamp;

use crate::cli::database::DatabaseArgs;
use crate::cli::error::{CliError, failed};
use crate::cli::output::{count, print_line};
use crate::cli::printable::print_error;
use crate::cli::progress::{self, Bar, size};
use crate::clock::Clock;
use crate::domain::time::{EARLIEST_CLOCK, instant};
use crate::store::db::meta;
use crate::store::db::open::SCHEMA_VERSION;
use crate::store::maintenance::backup::CopyError;
use crate::store::maintenance::check::{CheckReport, DatabaseSummary};
use crate::store::maintenance::{backup, check, clock_accept};

/// One damaged page can cause thousands of problems; the first ones are enough to decide on a restore.
const MAX_LISTED_PROBLEMS: usize = 20;

#[derive(Debug, Args)]
pub struct BackupCommand {
    /// File to create; it must not exist
    #[arg(value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    database: DatabaseArgs,
}

impl BackupCommand {
    pub fn run(self) -> Result<(), CliError> {
        let (db, out) = (self.database.existing()?, self.out);
        let copied = backup::copy(db, &out, Clock::system().now(), progress::copy_progress("backup"));
        let bytes = copied.map_err(|error| match error {
            CopyError::Exists(_) => failed(format!("{error}: give the backup another name")),
            CopyError::LeftoverFiles(_) => failed(format!("{error}, or give the backup another name")),
            other => failed(other.to_string()),
        })?;
        print_line(&format!("backed up {} to {} ({})", db.display(), out.display(), size(bytes)))
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
    pub fn run(self) -> Result<(), CliError> {
        let (backup, db) = (self.backup, self.database.path());
        let now = Clock::system().now();
        verify(&backup, now)?;
        let restored = backup::restore(&backup, db, now, self.replace, progress::copy_progress("restore"));
        let kept = restored.map_err(|error| match error {
            CopyError::Exists(_) => {
                failed(format!("{error}: choose another --db, or add --replace to move it aside"))
            }
            other => failed(other.to_string()),
        })?;
        let has_file = kept.iter().any(|(was, _)| was == db);
        for (was, is) in kept {
            let note = if has_file { "" } else { ": it belongs to a database that no longer exists" };
            print_line(&format!("kept {} as {}{note}", was.display(), is.display()))?;
        }
        print_line(&format!(
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
}

impl CheckCommand {
    pub fn run(self) -> Result<(), CliError> {
        let now = Clock::system().now();
        let report = inspect(&self.file, now)?;
        for line in report_lines(&self.file, &report, now) {
            print_line(&line)?;
        }
        require_no_problems(&self.file, &report)?;
        print_line("result      ok")
    }
}

/// Checks a file and prints its problems to standard error.
pub fn verify(file: &Path, now: Timestamp) -> Result<(), CliError> {
    let report = inspect(file, now)?;
    for problem in listed(&report.problems) {
        // Without standard error the message is lost; the exit code remains.
        drop(print_error(&format!("{problem}\n")));
    }
    require_no_problems(file, &report)
}

/// Reads the whole file; a terminal shows that it is read.
fn inspect(file: &Path, now: Timestamp) -> Result<CheckReport, CliError> {
    let mut bar = Bar::new("check");
    if let Ok(metadata) = file.metadata() {
        bar.say(&format!("reading {}", size(metadata.len())));
    }
    check::inspect(file, now).map_err(|error| failed(error.to_string()))
}

fn require_no_problems(file: &Path, report: &CheckReport) -> Result<(), CliError> {
    match report.problems.len() {
        0 => Ok(()),
        problems => {
            let problems = count(problems as u64, "problem");
            Err(failed(format!("{} failed the check: {problems}", file.display())))
        }
    }
}

fn report_lines(file: &Path, report: &CheckReport, now: Timestamp) -> Vec<String> {
    let mut lines =
        vec![format!("file        {}", file.display()), format!("schema      version {}", report.version)];
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
        format!("executions  {}", count_by_status(&summary.executions)),
        format!(
            "overdue     {}, {} to send or hand to workers",
            count(summary.overdue.cues, "cue"),
            count(summary.overdue.executions, "execution")
        ),
    ];
    lines.extend(summary.next_due.map(|due| format!("next due    {due}")));
    lines.extend(summary.last_seen.map(|seen| match seen > now {
        true => format!(
            "last seen   {seen}: ahead of the clock ({now}); nothing fires by schedule until then, or until `cued clock \
             accept`"
        ),
        false => format!("last seen   {seen}"),
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
    let counted: Vec<String> = statuses.iter().map(|(status, count)| format!("{count} {status}")).collect();
    if counted.is_empty() { "none".to_owned() } else { counted.join(", ") }
}

#[derive(Debug, Args)]
pub struct PromoteCommand {
    #[command(flatten)]
    database: DatabaseArgs,
}

impl PromoteCommand {
    pub fn run(self) -> Result<(), CliError> {
        let now = Clock::system().now();
        let write = self.database.open()?.write(move |tx| Ok((meta::promote(tx)?, meta::overdue(tx, now)?)));
        let db = self.database.path().display();
        let (held_since, overdue) = write.wait()?;
        match held_since {
            None => print_line(&format!("{db} is not on hold: nothing to promote")),
            Some(since) => {
                print_line(&format!("promoted {db} (on hold since {since})"))?;
                print_line(&format!(
                    "overdue: {}, to catch up according to `catch_up`; {}, to send or hand to workers\n\
                     a running server begins within 5 seconds, otherwise the next start does",
                    count(overdue.cues, "cue"),
                    count(overdue.executions, "execution")
                ))
            }
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum ClockAction {
    /// Take the clock of this machine for right: cues fire again, none of their runs twice
    ///
    /// After the clock was ahead, nothing fires by schedule until it has caught up with the newest instant that the
    /// database has seen. This computes the next runs from now on, and cuts the missed runs to those up to now. A run
    /// that has fired ahead of its time does not fire again.
    ///
    /// A clock that has jumped ahead and is not believed yet is believed at once.
    Accept,
}

impl ClockAction {
    pub fn run(self, database: &DatabaseArgs) -> Result<(), CliError> {
        let Self::Accept = self;
        let (store, now) = (database.open()?, Clock::system().now());
        if now < EARLIEST_CLOCK {
            let message = format!("the clock of this machine shows {}: set it first", instant(now));
            return Err(failed(message));
        }
        let accepted = clock_accept::accept(&store, now)?;
        let (db, to) = (database.path().display(), instant(now));
        match accepted.newest {
            None => print_line(&format!("{db} has seen nothing later than {to}: nothing to set back")),
            Some(newest) => print_line(&format!(
                "set {db} back from {} to {to}: {} recomputed, {} of missed runs cut",
                instant(newest),
                count(accepted.cues as u64, "cue"),
                count(accepted.missed as u64, "interval")
            )),
        }?;
        print_line("a running server goes on from its clock within 5 seconds")
    }
}
