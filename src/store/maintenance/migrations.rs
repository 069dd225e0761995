//! Upgrades a file in one transaction, after a copy: `FILE.vN.pending.partial` while written, `FILE.vN.pending` until
//! the commit, then `FILE.vN`, which is never replaced. After a kill [`resolve_pending_copies`] deletes or renames it.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::Connection;

use crate::error::{Error, Result};
use crate::metrics::{Stopwatch, milliseconds};
use crate::store::ReadTx;
use crate::store::db::meta;
use crate::store::db::open::OpenError;
use crate::store::db::open::{
    BUSY_TIMEOUT, SCHEMA_VERSION, checkpoint, enter_wal, open_existing, sibling_path,
};
use crate::store::maintenance::{backup, check};

#[derive(Debug, Clone, Copy)]
pub struct Migration {
    pub to: i64,
    pub sql: &'static str,
}

/// All steps, oldest first. A released step never changes: it has run on users' files.
const STEPS: &[Migration] = &[];

/// For the server that holds its lock. Errors: [`OpenError::MigrationFailed`]; the data is then as it was.
pub fn upgrade(path: &Path) -> std::result::Result<(), OpenError> {
    run(path, STEPS, SCHEMA_VERSION)
}

/// As [`upgrade`], by these steps to the version `target`.
pub fn run(path: &Path, steps: &[Migration], target: i64) -> std::result::Result<(), OpenError> {
    let unreadable = |error| OpenError::from_sqlite(path, error);
    let connection = open_existing(path).map_err(unreadable)?;
    let from = version(&connection).map_err(unreadable)?;
    resolve_pending_copies(path, from);
    if from == target {
        return Ok(());
    }
    let stopwatch = Stopwatch::start();
    tracing::info!(path = %path.display(), from_version = from, to_version = target, "schema migration started");
    let failed = |reason: String| OpenError::MigrationFailed {
        path: path.to_owned(),
        version: from,
        reason,
    };
    let pending = pending_copy(path, from);
    copy_to(&connection, &pending)
        .map_err(|error| failed(format!("it cannot be copied before the upgrade: {error}")))?;
    if let Err(error) = apply(&connection, steps, from, target) {
        remove_copy(&pending);
        return Err(failed(error.to_string()));
    }
    checkpoint(connection);
    let copy = finalize_copy(path, from);
    tracing::info!(
        path = %path.display(),
        from_version = from,
        to_version = target,
        duration_ms = milliseconds(stopwatch.elapsed()),
        copy = %copy.display(),
        "schema migration finished"
    );
    Ok(())
}

fn copy_to(connection: &Connection, to: &Path) -> Result<()> {
    let last_seen = meta::last_seen(&ReadTx::new(connection))?;
    backup::snapshot(connection, to, last_seen.unwrap_or(Timestamp::UNIX_EPOCH))
        .map_err(|error| Error::fault(error.to_string()))
}

fn apply(connection: &Connection, steps: &[Migration], from: i64, target: i64) -> Result<()> {
    prepare(connection)?;
    let transaction =
        rusqlite::Transaction::new_unchecked(connection, rusqlite::TransactionBehavior::Immediate)?;
    let mut reached = from;
    for step in steps.iter().filter(|step| step.to > from) {
        transaction.execute_batch(step.sql)?;
        reached = step.to;
    }
    if reached != target {
        return Err(Error::fault("a step is missing"));
    }
    if transaction.prepare("PRAGMA foreign_key_check")?.query([])?.next()?.is_some() {
        return Err(Error::fault("rows refer to rows that do not exist"));
    }
    // The next start makes the same check. Here the migration can still be rolled back.
    if let Some(difference) = check::mismatch(&transaction)? {
        return Err(Error::fault(format!("after the migration {difference}")));
    }
    transaction.pragma_update(None, "user_version", target)?;
    Ok(transaction.commit()?)
}

fn prepare(connection: &Connection) -> Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // In WAL mode the file does not change before the commit, so a killed migration leaves it as it was.
    enter_wal(connection)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // A step may replace a table; the foreign keys are checked at the end.
    connection.pragma_update(None, "foreign_keys", "OFF")?;
    // In memory the sort of an index takes 57 MB per million executions, too much for a machine with 256 MB.
    connection.pragma_update(None, "temp_store", "FILE")?;
    Ok(())
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

fn pending_copy(path: &Path, version: i64) -> PathBuf {
    sibling_path(path, &format!(".v{version}.pending"))
}

/// By whether the file at `path`, now of `version`, was migrated. The caller holds the lock, so no migration is
/// running.
pub fn resolve_pending_copies(path: &Path, version: i64) {
    for earlier in (1..version).filter(|earlier| pending_copy(path, *earlier).exists()) {
        finalize_copy(path, earlier);
    }
    let stale = pending_copy(path, version);
    let (Some(folder), Some(stale)) = (stale.parent(), stale.file_name()) else { return };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(stale.as_encoded_bytes()) {
            remove_copy(&entry.path());
        }
    }
}

fn finalize_copy(path: &Path, version: i64) -> PathBuf {
    let pending = pending_copy(path, version);
    match backup::rename_to_sibling(&pending, path, &format!(".v{version}")) {
        Ok(renamed) => renamed,
        Err(error) => {
            tracing::warn!(path = %pending.display(), error = %error, "copy of a migrated file not renamed");
            pending
        }
    }
}

fn remove_copy(copy: &Path) {
    if let Err(error) = std::fs::remove_file(copy) {
        tracing::warn!(path = %copy.display(), error = %error, "copy of a file to migrate not removed");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::store::db::open;

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

    fn new_file() -> (tempfile::TempDir, PathBuf) {
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

    fn copy_name(suffix: &str) -> String {
        format!("cued.db.v{SCHEMA_VERSION}{suffix}")
    }

    #[test]
    fn a_file_that_is_up_to_date_does_not_change() {
        let (folder, path) = new_file();
        let before = std::fs::read(&path).unwrap();
        upgrade(&path).unwrap();
        assert!(std::fs::read(&path).unwrap() == before);
        assert_eq!(names(&folder), ["cued.db"]);
    }

    #[test]
    fn a_step_that_fails_leaves_the_file_unchanged() {
        let (folder, path) = new_file();
        let before = std::fs::read(&path).unwrap();
        let orphan = "INSERT INTO api_keys (id, user_key, name, prefix, key_hash, created_at)
                      VALUES ('k', 77, 'n', 'p', x'00', 0)";
        for (steps, reason) in [
            (
                [
                    NEXT[0],
                    Migration { sql: "UPDATE users SET plan = 'pro'; SELECT nonsense", ..NEXT[1] },
                ],
                "nonsense",
            ),
            ([Migration { sql: "CREATE TABLE users (x)", ..NEXT[0] }, NEXT[1]], "users"),
            ([NEXT[0], Migration { sql: orphan, ..NEXT[1] }], "rows that do not exist"),
            ([NEXT[0], Migration { sql: "DROP TABLE alerts", ..NEXT[1] }], "alerts"),
            ([NEXT[0], Migration { to: SCHEMA_VERSION + 1, ..NEXT[1] }], "a step is missing"),
        ] {
            let refused = run(&path, &steps, SCHEMA_VERSION + 2).unwrap_err();
            assert!(matches!(refused, OpenError::MigrationFailed { .. }), "{refused:?}");
            assert!(refused.to_string().contains(reason), "{refused}");
            assert!(std::fs::read(&path).unwrap() == before, "{reason}");
            assert_eq!(names(&folder), ["cued.db"], "{reason}");
        }
        run(&path, &NEXT, SCHEMA_VERSION + 2).unwrap();
    }

    #[test]
    fn a_commit_that_fails_leaves_the_file_unchanged() {
        let (_folder, path) = new_file();
        let connection = Connection::open(&path).unwrap();
        connection.commit_hook(Some(|| true)).unwrap();
        assert!(apply(&connection, &NEXT, SCHEMA_VERSION, SCHEMA_VERSION + 2).is_err());
        connection.commit_hook(None::<fn() -> bool>).unwrap();
        assert_eq!(
            (version(&connection).unwrap(), plan_of(&path).as_str()),
            (SCHEMA_VERSION, "free")
        );
        apply(&connection, &NEXT, SCHEMA_VERSION, SCHEMA_VERSION + 2).unwrap();
    }

    #[test]
    fn a_migration_can_be_interrupted_anywhere() {
        let (_folder, path) = new_file();
        let mut interrupted = 0;
        for steps in (1..).map(|number| number * 101) {
            let connection = Connection::open(&path).unwrap();
            let count = AtomicU32::new(0);
            let stop = move || count.fetch_add(1, Ordering::Relaxed) == steps;
            connection.progress_handler(1, Some(stop)).unwrap();
            let applied = apply(&connection, &NEXT, SCHEMA_VERSION, SCHEMA_VERSION + 2);
            connection.progress_handler(0, None::<fn() -> bool>).unwrap();
            if applied.is_ok() {
                assert_eq!(version(&connection).unwrap(), SCHEMA_VERSION + 2);
                break;
            }
            interrupted += 1;
            assert_eq!(
                (version(&connection).unwrap(), plan_of(&path).as_str()),
                (SCHEMA_VERSION, "free")
            );
        }
        assert!(interrupted > 10, "{interrupted}");
    }

    #[test]
    fn copies_of_killed_migrations_are_deleted_before_the_commit_and_kept_after_it() {
        let (folder, path) = new_file();
        for suffix in ["", ".partial", ".partial-2", ".partial-journal"] {
            std::fs::write(folder.path().join(copy_name(&format!(".pending{suffix}"))), "stale")
                .unwrap();
        }
        for other in [copy_name(""), copy_name(".partial"), "cued.db.v77.pending".to_owned()] {
            std::fs::write(folder.path().join(other), "not from this migration").unwrap();
        }
        resolve_pending_copies(&path, SCHEMA_VERSION);
        let others = [
            "cued.db".to_owned(),
            copy_name(""),
            copy_name(".partial"),
            "cued.db.v77.pending".to_owned(),
        ];
        assert_eq!(names(&folder), others);

        std::fs::write(folder.path().join(copy_name(".pending")), "complete").unwrap();
        resolve_pending_copies(&path, SCHEMA_VERSION + 2);
        let kept = std::fs::read(folder.path().join(copy_name("-2"))).unwrap();
        assert_eq!((kept.as_slice(), names(&folder).len()), (&b"complete"[..], 5));
    }
}
