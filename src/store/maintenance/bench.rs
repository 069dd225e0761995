//! The baseline of `cued bench`: what the disk and SQLite do without the service.

use std::path::Path;
use std::time::Duration;

use crate::error::Result;
use crate::metrics::Stopwatch;
use crate::store::db::open;

/// Commits rows of the size of a cue one by one for `duration`, with the settings of the server's file. Returns the
/// milliseconds that each commit took. Errors: the disk fails or is full.
pub fn single_commits(path: &Path, duration: Duration) -> Result<Vec<f64>> {
    let (file, clock) = (rusqlite::Connection::open(path)?, Stopwatch::start());
    open::enter_wal(&file)?;
    file.execute_batch(
        "PRAGMA synchronous = FULL;
         CREATE TABLE rows (key INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, due INTEGER NOT NULL, body TEXT NOT NULL);
         CREATE INDEX rows_due ON rows (due);",
    )?;
    let mut insert = file.prepare("INSERT INTO rows (id, due, body) VALUES (randomblob(8), random(), ?1)")?;
    let (mut times, body, mut before) = (Vec::new(), "x".repeat(400), clock.elapsed());
    let end = before + duration;
    while before < end {
        insert.execute([&body])?;
        let now = clock.elapsed();
        times.push((now - before).as_secs_f64() * 1_000.0);
        before = now;
    }
    Ok(times)
}
