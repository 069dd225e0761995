//! The check of a whole file, and a summary of its content, for `cued check`. A server may be using the file, which is
//! only read.

use std::path::Path;

use jiff::Timestamp;
use rusqlite::Connection;

use crate::error::Result;
use crate::store::ReadTx;
use crate::store::cues::due_cues;
use crate::store::db::hold;
use crate::store::db::hold::OverdueCounts;
use crate::store::db::open::error::OpenError;
use crate::store::db::open::{SCHEMA_VERSION, open_for_reading};
use crate::store::db::{counters, meta};
use crate::store::maintenance::retention::{self, PageUsage};
use crate::store::maintenance::schema_check;

/// Problems that SQLite's check of the pages reports; twice as many rows without their parent are reported. One damaged
/// page can cause thousands, and the first ones are enough to decide on a restore.
const MAX_LISTED_PROBLEMS: usize = 20;

#[derive(Debug)]
pub struct CheckReport {
    /// The schema version.
    pub version: i64,
    /// One message per problem; empty if the file passed.
    pub problems: Vec<String>,
    /// `None` if the content cannot be read, or an earlier version wrote the file.
    pub summary: Option<DatabaseSummary>,
}

/// The content of a file.
#[derive(Debug)]
pub struct DatabaseSummary {
    /// The size of the database without its write-ahead log.
    pub bytes: u64,
    /// The size of the free pages, included in `bytes`.
    pub free_bytes: u64,
    /// The time of the copy, if the file is on hold.
    pub held_since: Option<Timestamp>,
    /// The latest instant recorded in the file.
    pub last_seen: Option<Timestamp>,
    /// The numbers of users and of disabled users.
    pub users: (i64, i64),
    /// The number of cues of each status that occurs.
    pub cues: Vec<(String, i64)>,
    /// The number of executions of each status that occurs.
    pub executions: Vec<(String, i64)>,
    pub overdue: OverdueCounts,
    /// The earliest next run of a cue.
    pub next_due: Option<Timestamp>,
}

/// Checks the whole file at `path`, including its write-ahead log, in one snapshot.
/// Errors: [`OpenError`] if the file is not a cued database, or a newer version wrote it.
pub fn inspect(path: &Path, now: Timestamp) -> std::result::Result<CheckReport, OpenError> {
    let connection = open_for_reading(path)?;
    let failed = |error: rusqlite::Error| OpenError::from_sqlite(path, error);
    // One transaction, so that all checks see the same snapshot.
    let snapshot = connection.unchecked_transaction().map_err(failed)?;
    let version = snapshot.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(failed)?;
    let mut report = CheckReport { version, problems: Vec::new(), summary: None };
    for check in [check_integrity, check_foreign_keys] {
        let mut problems = Vec::new();
        let result = check(&snapshot, &mut problems);
        report.problems.append(&mut problems);
        report.add("cannot read the file", result.map(|()| Vec::new()));
    }
    if version == SCHEMA_VERSION {
        report.add("cannot check the schema", schema_check::differences(&snapshot));
        report.add("cannot check the counters", counters::discrepancies(&snapshot));
        match summarize(&ReadTx::new(&snapshot), now) {
            Ok(summary) => report.summary = Some(summary),
            Err(error) => report.problems.push(format!("cannot summarize the content: {error}")),
        }
    }
    Ok(report)
}

impl CheckReport {
    /// Adds the problems that a check found, or `failure` with the error that ended the check.
    fn add(&mut self, failure: &str, problems: Result<Vec<String>>) {
        match problems {
            Ok(problems) => self.problems.extend(problems),
            Err(error) => self.problems.push(format!("{failure}: {error}")),
        }
    }
}

/// Adds the problems that SQLite finds in the pages, also those found before an error ends the check.
fn check_integrity(file: &Connection, problems: &mut Vec<String>) -> Result<()> {
    let mut check = file.prepare(&format!("PRAGMA integrity_check({MAX_LISTED_PROBLEMS})"))?;
    for line in check.query_map([], |row| row.get::<_, String>(0))? {
        // The first row may contain many lines, after a heading with the name of the database.
        let line = line?;
        let lines = line.lines().filter(|line| *line != "ok" && !line.starts_with("*** in database"));
        problems.extend(lines.map(str::to_owned));
    }
    Ok(())
}

fn check_foreign_keys(file: &Connection, problems: &mut Vec<String>) -> Result<()> {
    let mut check = file.prepare("PRAGMA foreign_key_check")?;
    let mut orphans = check.query([])?;
    while let Some(orphan) = orphans.next()?.filter(|_| problems.len() < 2 * MAX_LISTED_PROBLEMS) {
        let (table, key, parent): (String, Option<i64>, String) =
            (orphan.get(0)?, orphan.get(1)?, orphan.get(2)?);
        problems.push(format!(
            "row {} of {table} refers to a row of {parent} that does not exist",
            key.unwrap_or(0)
        ));
    }
    Ok(())
}

fn summarize(read: &ReadTx<'_>, now: Timestamp) -> Result<DatabaseSummary> {
    let users = "SELECT count(*), count(disabled_at) FROM users";
    let page_bytes: i64 = read.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    let PageUsage { pages, free } = retention::page_usage(read)?;
    let bytes = |pages: i64| u64::try_from(pages * page_bytes).unwrap_or(0);
    Ok(DatabaseSummary {
        bytes: bytes(pages),
        free_bytes: bytes(free),
        held_since: hold::held_since(read)?,
        last_seen: meta::last_seen(read)?,
        users: read.query_row(users, [], |row| Ok((row.get(0)?, row.get(1)?)))?,
        cues: by_status(read, "SELECT status, count(*) FROM cues GROUP BY status")?,
        // Without those of deleted cues: no reader sees them, although their rows remain until the sweeper deletes
        // them.
        executions: by_status(
            read,
            "SELECT status, count(*) FROM executions WHERE cue_key NOT IN (SELECT cue_key FROM deleted_cues)
              GROUP BY status",
        )?,
        overdue: hold::overdue(read, now)?,
        next_due: due_cues::next(read)?,
    })
}

fn by_status(read: &ReadTx<'_>, sql: &str) -> Result<Vec<(String, i64)>> {
    let mut counts = read.prepare(sql)?;
    let counts = counts.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(counts.collect::<rusqlite::Result<_>>()?)
}
