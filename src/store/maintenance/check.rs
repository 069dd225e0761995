//! `cued check`, and the checks before a server uses a file: corruption, and the schema, as another build may have used
//! the same version number.

use std::collections::BTreeSet;
use std::path::Path;

use jiff::Timestamp;
use rusqlite::Connection;

use crate::domain::row_keys::CueKey;
use crate::error::Result;
use crate::store::cues::due_cues;
use crate::store::cues::time_zones::{self, ZonedCue};
use crate::store::db::counters;
use crate::store::db::meta::{self, OverdueCounts};
use crate::store::db::open::{OpenError, SCHEMA, SCHEMA_VERSION, open_for_reading, open_read_only};
use crate::store::maintenance::retention::{self, PageUsage};
use crate::store::{ReadTx, channels};

/// One damaged page can cause thousands, and the first ones are enough to decide on a restore.
const MAX_LISTED_PROBLEMS: usize = 20;

#[derive(Debug)]
pub struct CheckReport {
    pub version: i64,
    pub problems: Vec<String>,
    /// `None` if the content cannot be read, or an earlier version wrote the file.
    pub summary: Option<DatabaseSummary>,
}

#[derive(Debug)]
pub struct DatabaseSummary {
    pub bytes: u64,
    pub free_bytes: u64,
    pub held_since: Option<Timestamp>,
    pub last_seen: Option<Timestamp>,
    pub users: (i64, i64),
    pub cues: Vec<(String, i64)>,
    pub executions: Vec<(String, i64)>,
    pub overdue: OverdueCounts,
    pub next_due: Option<Timestamp>,
}

/// In one snapshot, with the log. Errors: [`OpenError`] if it is no cued database, or a newer version wrote it.
pub fn inspect(path: &Path, now: Timestamp) -> std::result::Result<CheckReport, OpenError> {
    let connection = open_for_reading(path)?;
    let failed = |error: rusqlite::Error| OpenError::from_sqlite(path, error);
    // One transaction, so that all checks see the same snapshot.
    let snapshot = connection.unchecked_transaction().map_err(failed)?;
    let version =
        snapshot.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(failed)?;
    let mut report = CheckReport { version, problems: Vec::new(), summary: None };
    for check in [check_integrity, check_foreign_keys] {
        let mut problems = Vec::new();
        let result = check(&snapshot, &mut problems);
        report.problems.append(&mut problems);
        report.add("cannot read the file", result.map(|()| Vec::new()));
    }
    if version == SCHEMA_VERSION {
        report.add("cannot check the schema", differences(&snapshot));
        report.add("cannot check the counters", counters::discrepancies(&snapshot));
        report.add("cannot check the channels", stuck_channels(&ReadTx::new(&snapshot)));
        match summarize(&ReadTx::new(&snapshot), now) {
            Ok(summary) => report.summary = Some(summary),
            Err(error) => report.problems.push(format!("cannot summarize the content: {error}")),
        }
    }
    Ok(report)
}

impl CheckReport {
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
        let lines =
            line.lines().filter(|line| *line != "ok" && !line.starts_with("*** in database"));
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

fn stuck_channels(read: &ReadTx<'_>) -> Result<Vec<String>> {
    let stuck = channels::list_stuck(read)?.into_iter();
    Ok(stuck
        .map(|id| format!("channel {id} has something to tell, but no time to look for it"))
        .collect())
}

fn summarize(read: &ReadTx<'_>, now: Timestamp) -> Result<DatabaseSummary> {
    let page_bytes: i64 = read.one("PRAGMA page_size", ())?;
    let PageUsage { pages, free } = retention::page_usage(read)?;
    let bytes = |pages: i64| u64::try_from(pages * page_bytes).unwrap_or(0);
    Ok(DatabaseSummary {
        bytes: bytes(pages),
        free_bytes: bytes(free),
        held_since: meta::held_since(read)?,
        last_seen: meta::last_seen(read)?,
        users: read.one("SELECT count(*), count(disabled_at) FROM users", ())?,
        cues: read.all("SELECT status, count(*) FROM cues GROUP BY status", ())?,
        // Without those of deleted cues: no reader sees them.
        executions: read.all(
            "SELECT status, count(*) FROM executions WHERE cue_key NOT IN (SELECT cue_key FROM deleted_cues)
              GROUP BY status",
            (),
        )?,
        overdue: meta::overdue(read, now)?,
        next_due: due_cues::next(read)?,
    })
}

/// Cues read at once.
const CUE_BATCH: u32 = 1_000;

/// Calls `visit` for each active cue with a cron expression. Changes nothing, also beside a server.
/// Errors: [`OpenError`], as for [`inspect`]; an earlier version is refused.
pub fn visit_zoned_cues(
    path: &Path,
    mut visit: impl FnMut(ZonedCue),
) -> std::result::Result<(), OpenError> {
    let connection = open_for_reading(path)?;
    let failed = |error: rusqlite::Error| OpenError::from_sqlite(path, error);
    let snapshot = connection.unchecked_transaction().map_err(failed)?;
    let version =
        snapshot.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(failed)?;
    if version < SCHEMA_VERSION {
        return Err(OpenError::Older { path: path.to_owned(), version });
    }
    let (read, mut after) = (ReadTx::new(&snapshot), Some(CueKey::default()));
    while let Some(key) = after {
        let cues = time_zones::list(&read, key, CUE_BATCH)
            .map_err(|error| OpenError::unusable(path, error))?;
        after = cues.last().map(|cue| cue.key);
        cues.into_iter().for_each(&mut visit);
    }
    Ok(())
}

/// Size up to which a file is checked completely (contract §1.5), in less than a second on most disks.
const MAX_FULL_CHECK_BYTES: i64 = 64 << 20;

/// Errors: [`OpenError::Corrupt`], among others. The file is unchanged.
pub(in crate::store) fn check_pages(path: &Path) -> std::result::Result<(), OpenError> {
    let file = open_read_only(path)?;
    match first_problem(&file).map_err(|error| OpenError::from_sqlite(path, error))?.as_str() {
        "ok" => Ok(()),
        problem => Err(OpenError::Corrupt {
            path: path.to_owned(),
            source: problem.replace('\n', " ").into(),
        }),
    }
}

/// The first problem that SQLite finds, or `ok`.
fn first_problem(file: &Connection) -> rusqlite::Result<String> {
    let query = |pragma: &str| file.query_row(pragma, [], |row| row.get::<_, i64>(0));
    if query("PRAGMA page_count")? * query("PRAGMA page_size")? > MAX_FULL_CHECK_BYTES {
        return Ok("ok".to_owned());
    }
    file.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
}

// Litestream creates its two tables in each database that it replicates, so they are passed over. The SQL text is not
// compared: it contains comments, and differs when a migration added a column.
const PARTS: &str = "
    SELECT type || ' ' || name FROM sqlite_schema
     WHERE name NOT GLOB 'sqlite_*' AND NOT (type = 'table' AND name IN ('_litestream_lock', '_litestream_seq'))
    UNION ALL
    SELECT concat('column ', t.name, '.', c.name, ' ', c.type, iif(c.\"notnull\", ' NOT NULL', ''),
                  ' DEFAULT ' || c.dflt_value, iif(c.pk, ' PRIMARY KEY ' || c.pk, ''))
      FROM sqlite_schema t, pragma_table_xinfo(t.name) c
     WHERE t.type = 'table' AND t.name NOT GLOB 'sqlite_*' AND t.sql NOT LIKE 'CREATE VIRTUAL%'
       AND t.name NOT IN ('_litestream_lock', '_litestream_seq')
    UNION ALL
    SELECT concat('column ', c.seqno + 1, ' of index ', i.name, ': ', coalesce(c.name, 'an expression'),
                  iif(c.\"desc\", ' DESC', ''))
      FROM sqlite_schema i, pragma_index_xinfo(i.name) c
     WHERE i.type = 'index' AND c.key AND i.name NOT GLOB 'sqlite_*'";

/// Additional parts are harmless, except a column that rejects the rows of this program. Takes 1 or 2 ms; reads no row.
/// Errors: [`OpenError::SchemaMismatch`], among others. The file is unchanged.
pub(in crate::store) fn check_schema(path: &Path) -> std::result::Result<(), OpenError> {
    match mismatch(&open_read_only(path)?).map_err(|error| OpenError::from_sqlite(path, error))? {
        Some(difference) => Err(OpenError::SchemaMismatch { path: path.to_owned(), difference }),
        None => Ok(()),
    }
}

pub(in crate::store) fn mismatch(file: &Connection) -> rusqlite::Result<Option<String>> {
    let (actual, expected) = (parts(file)?, expected_parts()?);
    let missing = expected.difference(&actual).next().map(|part| format!("missing {part}"));
    let unexpected =
        || actual.difference(&expected).find(|part| is_required_column(part, &expected));
    Ok(missing.or_else(|| unexpected().map(|part| format!("unexpected {part}"))))
}

/// True if `part` is a column of an expected table, and is NOT NULL without a default: an INSERT that omits it fails.
fn is_required_column(part: &str, expected: &BTreeSet<String>) -> bool {
    let table = part.strip_prefix("column ").and_then(|column| column.split_once('.'));
    table.is_some_and(|(table, column)| {
        expected.contains(&format!("table {table}"))
            && column.contains(" NOT NULL")
            && !column.contains(" DEFAULT ")
    })
}

fn differences(file: &Connection) -> Result<Vec<String>> {
    let (actual, expected) = (parts(file)?, expected_parts()?);
    let missing = expected.difference(&actual).map(|part| format!("missing {part}"));
    let unexpected = actual.difference(&expected).map(|part| format!("unexpected {part}"));
    Ok(missing.chain(unexpected).collect())
}

fn expected_parts() -> rusqlite::Result<BTreeSet<String>> {
    let connection = Connection::open_in_memory()?;
    connection.execute_batch(SCHEMA)?;
    parts(&connection)
}

fn parts(file: &Connection) -> rusqlite::Result<BTreeSet<String>> {
    file.prepare(PARTS)?.query_map([], |row| row.get(0))?.collect()
}
