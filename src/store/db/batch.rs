//! Deletions in batches. Each batch occupies the writer for a few milliseconds at most, however much there is to
//! delete.

use rusqlite::Params;

use crate::error::Result;
use crate::store::WriteTx;
use crate::store::db::columns::row_count;

/// Rows read or deleted in one batch. A larger batch deletes faster and delays the writes of requests longer; 200 rows
/// need a few milliseconds.
pub const BATCH: i64 = 200;

/// Bytes of payloads and outcomes after which a batch ends early. Freeing the pages of large values lasts longer than
/// deleting the rows, so a limit on rows alone would not bound the time. 4 MiB are 4,096 pages; the last row may exceed
/// it.
const MAX_BYTES: i64 = 4 << 20;

/// Calls `delete` with the keys that the query `find` returns, which limits itself to [`BATCH`] rows. Returns whether
/// no rows are left.
pub(in crate::store) fn delete_matching(
    tx: &WriteTx<'_>,
    find: &str,
    parameters: impl Params,
    delete: impl FnMut(i64) -> Result<i64>,
) -> Result<bool> {
    let keys: Vec<i64> = tx.all(find, parameters)?;
    let done = delete_within_limit(&keys, delete)?;
    Ok(done == keys.len() && row_count(done) < BATCH)
}

/// Calls `delete` for each of `keys`, and stops once the bytes that it returns add up to [`MAX_BYTES`]. Returns the
/// number of rows deleted: at least one, unless `keys` is empty.
pub(in crate::store) fn delete_within_limit(
    keys: &[i64],
    mut delete: impl FnMut(i64) -> Result<i64>,
) -> Result<usize> {
    let mut bytes = 0;
    for (done, key) in keys.iter().enumerate() {
        if bytes >= MAX_BYTES {
            return Ok(done);
        }
        bytes += delete(*key)?;
    }
    Ok(keys.len())
}
