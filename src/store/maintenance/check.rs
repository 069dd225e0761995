//! What a look at a whole file finds: whether it is sound, and what is in it. For `cued check`, beside a server that may
//! be running; nothing is changed.

use std::path::Path;

use jiff::Timestamp;
use rusqlite::Connection;

use crate::error::Result;
use crate::store::ReadTx;
use crate::store::cues::due_cues;
use crate::store::db::hold;
use crate::store::db::hold::OverdueCounts;
use crate::store::db::open::error::OpenError;
use crate::store::db::open::{SCHEMA_VERSION, open_to_read};
use crate::store::db::{counters, meta};
use crate::store::maintenance::retention::{self, PageUsage};
use crate::store::maintenance::schema_check;

/// The most that is told of one kind of damage.
const MAX_LISTED_PROBLEMS: usize = 20;

/// What was found.
#[derive(Debug)]
pub struct CheckReport {
    /// The schema's version.
    pub version: i64,
    /// What is wrong, a sentence each; nothing where the file is sound.
    pub problems: Vec<String>,
    /// What is in the file; none where that cannot be read, or an earlier version wrote it.
    pub figures: Option<DatabaseSummary>,
}

/// What is in a file.
#[derive(Debug)]
pub struct DatabaseSummary {
    /// The bytes of the file, but for its write-ahead log.
    pub bytes: u64,
    /// Those of them that hold nothing.
    pub free_bytes: u64,
    /// When the copy was made, where the file is held.
    pub held_since: Option<Timestamp>,
    /// The newest instant that the file has seen.
    pub last_seen: Option<Timestamp>,
    /// How many users there are, and how many of them are disabled.
    pub users: (i64, i64),
    /// How many cues there are of each status that occurs.
    pub cues: Vec<(String, i64)>,
    /// How many executions there are of each status that occurs.
    pub executions: Vec<(String, i64)>,
    /// What is due.
    pub overdue: OverdueCounts,
    /// The instant for which a cue is due, the earliest of them.
    pub next_due: Option<Timestamp>,
}

/// Reads the whole file at `path`, with the write-ahead log that lies beside it, as it is at one moment.
///
/// # Errors
/// [`OpenError`] where it is no file of ours, or of a later version.
pub fn inspect(path: &Path, now: Timestamp) -> std::result::Result<CheckReport, OpenError> {
    let connection = open_to_read(path)?;
    let failed = |error: rusqlite::Error| OpenError::from_sqlite(path, error);
    // One picture for all that is compared.
    let snapshot = connection.unchecked_transaction().map_err(failed)?;
    let version = snapshot.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(failed)?;
    let mut report = CheckReport { version, problems: Vec::new(), figures: None };
    for look in [integrity, orphans] {
        let mut found = Vec::new();
        let looked = look(&snapshot, &mut found);
        report.problems.append(&mut found);
        report.note("the file cannot be read", looked.map(|()| Vec::new()));
    }
    if version == SCHEMA_VERSION {
        report.note("the schema cannot be compared", schema_check::differences(&snapshot));
        report.note("the counters cannot be compared", counters::discrepancies(&snapshot));
        match figures(&ReadTx::new(&snapshot), now) {
            Ok(figures) => report.figures = Some(figures),
            Err(error) => report.problems.push(format!("what is in the file cannot be counted: {error}")),
        }
    }
    Ok(report)
}

impl CheckReport {
    fn note(&mut self, fault: &str, found: Result<Vec<String>>) {
        match found {
            Ok(problems) => self.problems.extend(problems),
            Err(error) => self.problems.push(format!("{fault}: {error}")),
        }
    }
}

/// What SQLite finds in the pages; what it found before a damage that ends its look is told all the same.
fn integrity(file: &Connection, problems: &mut Vec<String>) -> Result<()> {
    let mut check = file.prepare(&format!("PRAGMA integrity_check({MAX_LISTED_PROBLEMS})"))?;
    for line in check.query_map([], |row| row.get::<_, String>(0))? {
        // The first row may hold many lines, below the name of the database.
        let line = line?;
        let found = line.lines().filter(|line| *line != "ok" && !line.starts_with("*** in database"));
        problems.extend(found.map(str::to_owned));
    }
    Ok(())
}

fn orphans(file: &Connection, problems: &mut Vec<String>) -> Result<()> {
    let mut orphans = file.prepare("PRAGMA foreign_key_check")?;
    let mut orphans = orphans.query([])?;
    while let Some(orphan) = orphans.next()?.filter(|_| problems.len() < 2 * MAX_LISTED_PROBLEMS) {
        let (table, key, parent): (String, Option<i64>, String) =
            (orphan.get(0)?, orphan.get(1)?, orphan.get(2)?);
        problems.push(format!(
            "row {} of {table} refers to a row of {parent} that is not there",
            key.unwrap_or(0)
        ));
    }
    Ok(())
}

fn figures(read: &ReadTx<'_>, now: Timestamp) -> Result<DatabaseSummary> {
    let users = "SELECT count(*), count(disabled_at) FROM users";
    let page: i64 = read.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    let PageUsage { pages, free } = retention::space(read)?;
    let bytes = |pages: i64| u64::try_from(pages * page).unwrap_or(0);
    Ok(DatabaseSummary {
        bytes: bytes(pages),
        free_bytes: bytes(free),
        held_since: hold::held_since(read)?,
        last_seen: meta::last_seen(read)?,
        users: read.query_row(users, [], |row| Ok((row.get(0)?, row.get(1)?)))?,
        cues: by_status(read, "SELECT status, count(*) FROM cues GROUP BY status")?,
        // A deleted cue's are gone for everybody, though their rows may be there for a while.
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
