//! Deletions in batches: each holds the writer for a few milliseconds at most, however much there is to delete.

use rusqlite::Params;

use crate::error::Result;
use crate::store::WriteTx;

/// Executions looked at or taken away at a time.
pub const BATCH: i64 = 200;

/// Bytes of payloads and outcomes taken away at a time, roughly: freeing their pages takes longer than the rows do.
const MAX_BYTES: i64 = 4 << 20;

/// Deletes what `find` finds, a batch at the most; tells whether there is no more.
///
/// # Errors
/// Those of `delete`.
pub(in crate::store) fn delete_found(
    tx: &WriteTx<'_>,
    find: &str,
    parameters: impl Params,
    delete: impl FnMut(i64) -> Result<i64>,
) -> Result<bool> {
    let mut found = tx.prepare_cached(find)?;
    let keys: Vec<i64> = found.query_map(parameters, |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    let done = in_bounds(&keys, delete)?;
    Ok(done == keys.len() && i64::try_from(done).unwrap_or(i64::MAX) < BATCH)
}

/// Deletes the rows `keys` one after the other as long as the bytes that `delete` says it took away are no more than
/// one batch can bear; answers how many rows.
pub(in crate::store) fn in_bounds(keys: &[i64], mut delete: impl FnMut(i64) -> Result<i64>) -> Result<usize> {
    let mut bytes = 0;
    for (done, key) in keys.iter().enumerate() {
        if bytes >= MAX_BYTES {
            return Ok(done);
        }
        bytes += delete(*key)?;
    }
    Ok(keys.len())
}
