//! What SQLite does by itself with the rows of this program, for `cued bench`: no writer thread, no group.

use std::path::Path;

use serde_json::Value;

use crate::domain::cue::Cue;
use crate::error::{Error, Result};
use crate::store::cues;
use crate::store::db::open;
use crate::store::db::writer::commit_alone;

/// Commits cues and the payload of each, one at a time, until `next` has no more; answers how many. The file is this
/// program's, and nobody else has it open.
///
/// # Errors
/// When the file cannot be opened or written, and what `next` answers.
pub fn single_commits(
    path: &Path,
    payload: &Value,
    next: &mut dyn FnMut() -> Result<Option<Cue>>,
) -> Result<u32> {
    let connection = open::open_writer(path)
        .map_err(|error| Error::storage_from("the database file cannot be used now", error))?;
    let mut done = 0;
    while let Some(cue) = next()? {
        commit_alone(&connection, |tx| cues::insert(tx, cue, Some(payload)))?;
        done += 1;
    }
    Ok(done)
}
