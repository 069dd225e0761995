//! `cued check`: whether a database is sound, and what is in it, whether a server runs or not. Nothing is changed.

use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;

use crate::cli::CliError;
use crate::cli::common::print_line;
use crate::cli::progress::size;
use crate::clock::Clock;
use crate::store::db::open::SCHEMA_VERSION;
use crate::store::maintenance::check;
use crate::store::maintenance::check::{CheckReport, DatabaseSummary};

/// The most problems that are told.
const MAX_LISTED_PROBLEMS: usize = 20;

/// Flags of `cued check`.
#[derive(Debug, Args)]
pub struct CheckCommand {
    /// The file: a server's, or a backup
    #[arg(value_name = "FILE", env = "CUED_DB", default_value = "cued.db")]
    file: PathBuf,
}

impl CheckCommand {
    /// Says what is in the file and what is wrong with it.
    ///
    /// # Errors
    /// When the file is not sound, or not to be read.
    pub fn run(self) -> Result<(), CliError> {
        let now = Clock::system().now();
        let report = check::inspect(&self.file, now).map_err(failed)?;
        for line in lines(&self.file, &report, now) {
            print_line(&line)?;
        }
        verdict(&self.file, &report)?;
        print_line("verdict     sound")
    }
}

/// Makes sure that a file is sound.
///
/// # Errors
/// When it is not, or not to be read.
pub fn sound(file: &Path, now: Timestamp) -> Result<(), CliError> {
    let report = check::inspect(file, now).map_err(failed)?;
    for problem in told(&report.problems) {
        eprintln!("{problem}");
    }
    verdict(file, &report)
}

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::Failed(error.to_string())
}

fn verdict(file: &Path, report: &CheckReport) -> Result<(), CliError> {
    match report.problems.len() {
        0 => Ok(()),
        1 => Err(CliError::Failed(format!("{} is not sound: 1 problem", file.display()))),
        problems => Err(CliError::Failed(format!("{} is not sound: {problems} problems", file.display()))),
    }
}

fn lines(file: &Path, report: &CheckReport, now: Timestamp) -> Vec<String> {
    let mut lines =
        vec![format!("file        {}", file.display()), format!("schema      version {}", report.version)];
    match &report.figures {
        Some(figures) => lines.extend(figure_lines(figures, now)),
        None if report.version < SCHEMA_VERSION => lines.push(
            "            what is in it is counted once `cued serve` has brought it up to date".to_owned(),
        ),
        None => {}
    }
    lines.extend(told(&report.problems).map(|problem| format!("problem     {problem}")));
    lines
}

fn figure_lines(figures: &DatabaseSummary, now: Timestamp) -> Vec<String> {
    let (users, disabled) = figures.users;
    let mut lines = vec![
        format!("size        {}, {} of it free", size(figures.bytes), size(figures.free_bytes)),
        format!("users       {users}, {disabled} of them disabled"),
        format!("cues        {}", counts(&figures.cues)),
        format!("executions  {}", counts(&figures.executions)),
        format!(
            "overdue     {} cues, {} executions to be sent or handed out",
            figures.overdue.cues, figures.overdue.executions
        ),
    ];
    lines.extend(figures.next_due.map(|due| format!("next due    {due}")));
    lines.extend(figures.last_seen.map(|seen| {
        let warning = if seen > now {
            format!(": the clock stands before it, at {now}, and nothing fires by schedule until then")
        } else {
            String::new()
        };
        format!("last seen   {seen}{warning}")
    }));
    lines.extend(
        figures.held_since.map(|since| {
            format!("held        since {since}: a copy that fires nothing until `cued promote`")
        }),
    );
    lines
}

fn told(problems: &[String]) -> impl Iterator<Item = String> {
    let more = problems.len().saturating_sub(MAX_LISTED_PROBLEMS);
    let more = (more > 0).then(|| format!("and {more} more"));
    problems.iter().take(MAX_LISTED_PROBLEMS).cloned().chain(more)
}

fn counts(of: &[(String, i64)]) -> String {
    let counted: Vec<String> = of.iter().map(|(status, count)| format!("{count} {status}")).collect();
    if counted.is_empty() { "none".to_owned() } else { counted.join(", ") }
}
