//! Pauses active cues above the limit of a lower plan (contract §8.1).

use jiff::Timestamp;

use crate::error::Result;
use crate::lifecycle::pause::record_overdue_as_missed;
use crate::store::cues::pauses;
use crate::store::{WriteTx, cues};

/// Pauses the user's newest active cues so that at most `limit` remain active, and records their overdue runs as
/// missed. Returns the number of paused cues.
pub fn pause_above_limit(
    tx: &WriteTx<'_>,
    user_key: i64,
    limit: Option<u32>,
    now: Timestamp,
) -> Result<usize> {
    let Some(limit) = limit else { return Ok(0) };
    for key in pauses::overdue_above_limit(tx, user_key, limit, now)? {
        if let Some(cue) = cues::find_by_key(tx, key)? {
            record_overdue_as_missed(tx, &cue, now)?;
        }
    }
    pauses::pause_above_limit(tx, user_key, limit, now)
}
