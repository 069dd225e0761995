//! Limits of plans: pauses active cues above the limit of a lower plan (contract §8.1), and refuses writes that store
//! more than the plan allows (contract §11.6).

use std::path::Path;

use jiff::Timestamp;

use crate::domain::account::plan::{Plans, UNCONFIRMED_DISK_PART};
use crate::domain::account::user::CONFIRM;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::notification::event::EventType;
use crate::error::Result;
use crate::service::events;
use crate::service::finish::record_overdue_as_missed;
use crate::service::fire::{CueFirer, MAX_OVERDUE_RUNS};
use crate::store::WriteTx;
use crate::store::accounts::users;
use crate::store::cues::{self, pauses};
use crate::store::db::open;

/// Fires the overdue runs of the cues that [`pause_above_limit`] will pause, as many as one write may fire. Call it while
/// the old plan still applies.
pub fn fire_overdue_above_limit(
    tx: &WriteTx<'_>,
    user_key: i64,
    limit: Option<u32>,
    firer: &CueFirer,
) -> Result<()> {
    let Some(limit) = limit else { return Ok(()) };
    let mut runs = 0;
    for key in pauses::overdue_above_limit(tx, user_key, limit, firer.now())? {
        if runs >= MAX_OVERDUE_RUNS {
            break;
        }
        if let Some(cue) = cues::find_by_key(tx, key)? {
            runs += firer.fire_overdue(tx, &cue)?;
        }
    }
    Ok(())
}

/// Pauses the user's newest active cues so that at most `limit` remain active, and records the overdue runs of recurring
/// ones as missed. A `once` cue that is due stays active until it has run. Returns the number of paused cues.
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
    let paused = pauses::pause_above_limit(tx, user_key, limit, now)?;
    for key in &paused {
        events::cue(tx, EventType::CuePaused, user_key, *key, now);
    }
    Ok(paused.len())
}

/// Runs `write`, and refuses it if the user then stores more than before and more than the plan allows.
/// Errors: `storage_limit_exceeded`, which rolls the write back, and the errors of `write`.
pub fn check_storage_quota<T>(
    tx: &WriteTx<'_>,
    plans: &Plans,
    user_key: i64,
    write: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let (before, ..) = users::stored_bytes(tx, user_key)?;
    let written = write()?;
    storage_refusal(tx, plans, user_key, before)?.map_or(Ok(written), |refusal| Err(refusal.into()))
}

/// The refusal of a write after which the user stores more than the bytes `before` it and more than the plan allows.
pub fn storage_refusal(
    tx: &WriteTx<'_>,
    plans: &Plans,
    user_key: i64,
    before: i64,
) -> Result<Option<Refusal>> {
    let (after, plan, is_confirmed) = users::stored_bytes(tx, user_key)?;
    let limit = plans.storage_bounds(&plan, is_confirmed).bytes;
    let refusal = |message| Ok(Some(Refusal::new(ErrorCode::StorageLimitExceeded, message)));
    if after <= before {
        return Ok(None);
    }
    let is_bounded = !is_confirmed && plans.bounds_unconfirmed();
    if let Some(limit) = limit.filter(|limit| after > *limit) {
        let (allows, remedy) = match is_bounded {
            true => ("an account with an unconfirmed address may store", CONFIRM),
            false => ("the plan allows", "upgrade"),
        };
        return refusal(format!(
            "The account would store {after} bytes of payloads, callback headers, results and kept responses; {allows} \
             {limit}: delete cues that are no longer needed, send less, or {remedy}"
        ));
    }
    if is_bounded && is_disk_share_used_up(tx)? {
        return refusal(format!(
            "The accounts with unconfirmed addresses store all that the disk has room for; {CONFIRM}"
        ));
    }
    Ok(None)
}

/// True if the accounts with unconfirmed addresses store more than their part of the free disk.
fn is_disk_share_used_up(tx: &WriteTx<'_>) -> Result<bool> {
    let Some(free) = tx.path().and_then(|path| open::free_bytes(Path::new(path))) else { return Ok(false) };
    let stored = u64::try_from(users::unconfirmed_bytes(tx)?).unwrap_or(0);
    Ok(stored > free / UNCONFIRMED_DISK_PART)
}
