//! From the schema of an earlier version to the present one, step by step, in one transaction: it succeeds as a whole
//! or leaves the file as it was. A copy of the file is made before.

use std::path::Path;

use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags};

use crate::error::{Error, Result};
use crate::store::ReadTx;
use crate::store::db::meta;
use crate::store::db::open::error::OpenError;
use crate::store::db::open::{BUSY_TIMEOUT, SCHEMA_VERSION};
use crate::store::maintenance::backup;

/// What makes a file of version `to` out of one of the version before.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// The version that the file has afterwards.
    pub to: i64,
    /// What is to be done.
    pub sql: &'static str,
}

/// All steps, oldest first. Version 1 was the first. A step stays as it is for good: it was run on people's files.
const STEPS: &[Migration] = &[];

/// Brings a file of an earlier version up to date, for the server that holds its lock.
///
/// # Errors
/// [`OpenError::MigrationFailed`]; the file is then as it was.
pub fn bring_up_to_date(path: &Path) -> std::result::Result<(), OpenError> {
    run(path, STEPS, SCHEMA_VERSION)
}

fn run(path: &Path, steps: &[Migration], target: i64) -> std::result::Result<(), OpenError> {
    let access = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection =
        Connection::open_with_flags(path, access).map_err(|error| OpenError::from_sqlite(path, &error))?;
    let from = version(&connection).map_err(|error| OpenError::from_sqlite(path, &error))?;
    if from == target {
        return Ok(());
    }
    let stuck = |reason: String| OpenError::MigrationFailed { path: path.to_owned(), version: from, reason };
    let seen = meta::last_seen(&ReadTx::new(&connection)).map_err(|error| stuck(error.to_string()))?;
    let now = seen.unwrap_or(Timestamp::UNIX_EPOCH);
    let kept = backup::snapshot(&connection, path, &format!(".v{from}"), now)
        .map_err(|error| stuck(format!("the copy that is kept of it cannot be made: {error}")))?;
    if let Err(error) = apply(&connection, steps, from, target) {
        if let Err(error) = std::fs::remove_file(&kept) {
            tracing::warn!("{} could not be removed: {error}", kept.display());
        }
        return Err(stuck(error.to_string()));
    }
    tracing::info!(
        "{} was brought from schema version {from} to {target}; as it was before it is kept in {}",
        path.display(),
        kept.display()
    );
    Ok(())
}

fn apply(connection: &Connection, steps: &[Migration], from: i64, target: i64) -> Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // A step may take a table away and put another in its place; what refers to it is checked at the end.
    connection.pragma_update(None, "foreign_keys", "OFF")?;
    let all = rusqlite::Transaction::new_unchecked(connection, rusqlite::TransactionBehavior::Immediate)?;
    let mut at = from;
    for step in steps.iter().filter(|step| step.to > from) {
        all.execute_batch(step.sql)?;
        at = step.to;
    }
    let is_sound = all.prepare("PRAGMA foreign_key_check")?.query([])?.next()?.is_none();
    if at != target || !is_sound {
        let what = if is_sound { "a step is missing" } else { "rows refer to rows that are not there" };
        return Err(Error::Fault(what.to_owned()));
    }
    all.pragma_update(None, "user_version", target)?;
    Ok(all.commit()?)
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::store::db::open;

    /// Two steps beyond the present version, as they might come.
    const NEXT: [Migration; 2] = [
        Migration {
            to: SCHEMA_VERSION + 1,
            sql: "CREATE TABLE tags (name TEXT PRIMARY KEY) STRICT; INSERT INTO tags VALUES ('a');",
        },
        Migration {
            to: SCHEMA_VERSION + 2,
            sql: "ALTER TABLE tags ADD COLUMN colour TEXT; UPDATE users SET plan = 'pro';",
        },
    ];

    /// A file of the present version with one user, closed.
    fn earlier() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cued.db");
        open::check(&path).unwrap();
        let connection = open::open_writer(&path).unwrap();
        connection
            .execute_batch(
                "INSERT INTO users (id, email, plan, webhook_secret, alert_webhook_secret, active_cues, created_at)
                 VALUES ('u', 'a@example.com', 'free', 'whsec_', 'whsec_', 0, 1000)",
            )
            .unwrap();
        open::checkpoint(connection);
        (folder, path)
    }

    fn plan_of(path: &Path) -> String {
        let file = Connection::open(path).unwrap();
        file.query_row("SELECT plan FROM users", [], |row| row.get(0)).unwrap()
    }

    fn names(folder: &tempfile::TempDir) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn all_migrations_run_and_the_old_file_is_kept() {
        let (folder, path) = earlier();
        run(&path, &NEXT, SCHEMA_VERSION + 2).unwrap();
        let file = Connection::open(&path).unwrap();
        assert_eq!(version(&file).unwrap(), SCHEMA_VERSION + 2);
        let tag =
            file.query_row("SELECT name, colour IS NULL FROM tags", [], |row| Ok((row.get(0)?, row.get(1)?)));
        assert_eq!(tag.unwrap(), ("a".to_owned(), true));
        assert_eq!(plan_of(&path), "pro");
        drop(file);
        assert_eq!(names(&folder), ["cued.db", "cued.db.v1"]);
        let kept = folder.path().join("cued.db.v1");
        assert_eq!(plan_of(&kept), "free");
        assert_eq!(version(&Connection::open(&kept).unwrap()).unwrap(), SCHEMA_VERSION);
        // Whoever goes back to it goes back in time.
        let held: i64 = Connection::open(&kept)
            .unwrap()
            .query_row("SELECT value FROM meta WHERE name = 'held_since'", [], |row| row.get(0))
            .unwrap();
        assert_eq!(held, 1000);
    }

    #[test]
    fn an_up_to_date_file_is_not_changed() {
        let (folder, path) = earlier();
        let before = std::fs::read(&path).unwrap();
        bring_up_to_date(&path).unwrap();
        assert!(std::fs::read(&path).unwrap() == before);
        assert_eq!(names(&folder), ["cued.db"]);
    }

    #[test]
    fn a_failing_migration_leaves_the_file_unchanged() {
        let (folder, path) = earlier();
        let before = std::fs::read(&path).unwrap();
        let orphan = "INSERT INTO api_keys (id, user_key, name, prefix, hash, created_at)
                      VALUES ('k', 77, 'n', 'p', x'00', 0)";
        for (steps, reason) in [
            (
                [NEXT[0], Migration { sql: "UPDATE users SET plan = 'pro'; SELECT nonsense", ..NEXT[1] }],
                "nonsense",
            ),
            ([Migration { sql: "CREATE TABLE users (x)", ..NEXT[0] }, NEXT[1]], "users"),
            ([NEXT[0], Migration { sql: orphan, ..NEXT[1] }], "rows that are not there"),
            ([NEXT[0], Migration { to: SCHEMA_VERSION + 1, ..NEXT[1] }], "a step is missing"),
        ] {
            let stuck = run(&path, &steps, SCHEMA_VERSION + 2).unwrap_err().to_string();
            assert!(stuck.contains(reason) && stuck.contains("as it was"), "{stuck}");
            assert!(std::fs::read(&path).unwrap() == before, "{reason}");
            assert_eq!(names(&folder), ["cued.db"], "{reason}");
        }
        run(&path, &NEXT, SCHEMA_VERSION + 2).unwrap();
    }

    #[test]
    fn a_failed_commit_leaves_the_file_unchanged() {
        let (_folder, path) = earlier();
        let connection = Connection::open(&path).unwrap();
        connection.commit_hook(Some(|| true)).unwrap();
        assert!(apply(&connection, &NEXT, SCHEMA_VERSION, SCHEMA_VERSION + 2).is_err());
        connection.commit_hook(None::<fn() -> bool>).unwrap();
        assert_eq!((version(&connection).unwrap(), plan_of(&path).as_str()), (SCHEMA_VERSION, "free"));
        apply(&connection, &NEXT, SCHEMA_VERSION, SCHEMA_VERSION + 2).unwrap();
    }

    #[test]
    fn a_second_attempt_keeps_the_copy_of_the_first() {
        let (folder, path) = earlier();
        std::fs::write(folder.path().join("cued.db.v1"), "of an earlier day").unwrap();
        run(&path, &NEXT, SCHEMA_VERSION + 2).unwrap();
        assert_eq!(names(&folder), ["cued.db", "cued.db.v1", "cued.db.v1-2"]);
    }
}
