//! The baseline of `cued bench`: the rows of this program written by SQLite alone, without writer thread and batches.

use std::path::Path;

use crate::domain::cue::Cue;
use crate::domain::cue::payload::Payload;
use crate::error::{Error, Result};
use crate::store::cues;
use crate::store::db::open;
use crate::store::db::writer::commit_single;

/// Commits the cues that `next` returns, each with `payload` in a transaction of its own, until `next` returns `None`.
/// Returns their number. No other process may have the file open.
pub fn single_commits(
    path: &Path,
    payload: &Payload,
    next: &mut dyn FnMut() -> Result<Option<Cue>>,
) -> Result<u32> {
    let connection = open::open_writer(path)
        .map_err(|error| Error::storage_from("the database file cannot be used now", error))?;
    let mut count = 0;
    while let Some(cue) = next()? {
        commit_single(&connection, |tx| cues::insert(tx, cue, Some(payload)))?;
        count += 1;
    }
    Ok(count)
}
