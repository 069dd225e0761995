//! Live events of state changes (contract §8.13), emitted in the write of the change, after it.

use jiff::Timestamp;
use serde_json::json;

use crate::domain::account::plan::{Quota, is_nearly_used_up};
use crate::domain::cue::CueStatus;
use crate::domain::execution::worker::HeartbeatStatus;
use crate::domain::notification::alert::Alert;
use crate::domain::notification::event::{Event, EventType};
use crate::domain::row_keys::{CueKey, ExecutionKey, UserKey};
use crate::domain::schedule::Occurrences;
use crate::domain::schedule::catch_up::MissReason;
use crate::domain::time::instant;
use crate::error::Result;
use crate::store::accounts::users;
use crate::store::{WriteTx, event_data};

pub fn execution(
    tx: &WriteTx<'_>,
    event_type: EventType,
    user_key: UserKey,
    key: ExecutionKey,
    at: Timestamp,
) {
    tx.emit(user_key, event_type, || {
        let found = event_data::execution(tx, key, at)?;
        Ok(found.map(|(data, tags)| {
            Event::new(event_type, user_key, Some(data.cue_id.clone()), &data).with_tags(tags)
        }))
    });
}

/// The worker has lost its claim on the execution in row `key`, which may have forgotten it.
pub fn claim_lost(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    key: ExecutionKey,
    worker_id: &str,
    at: Timestamp,
) {
    tx.emit(user_key, EventType::ExecutionClaimLost, || {
        let Some((mut data, tags)) = event_data::execution(tx, key, at)? else { return Ok(None) };
        data.worker_id = Some(worker_id.to_owned());
        let cue_id = Some(data.cue_id.clone());
        Ok(Some(Event::new(EventType::ExecutionClaimLost, user_key, cue_id, &data).with_tags(tags)))
    });
}

pub fn cue(tx: &WriteTx<'_>, event_type: EventType, user_key: UserKey, key: CueKey, at: Timestamp) {
    tx.emit(user_key, event_type, || {
        let found = event_data::cue(tx, key, at)?;
        Ok(found.map(|(data, tags)| {
            Event::new(event_type, user_key, Some(data.cue_id.clone()), &data).with_tags(tags)
        }))
    });
}

pub fn cue_of(tx: &WriteTx<'_>, event_type: EventType, key: CueKey, at: Timestamp) -> Result<()> {
    if tx.is_watched()
        && let Some(user_key) = event_data::user_of_cue(tx, key)?
    {
        cue(tx, event_type, user_key, key, at);
    }
    Ok(())
}

pub fn cue_changed(
    tx: &WriteTx<'_>,
    before: CueStatus,
    after: CueStatus,
    user_key: UserKey,
    key: CueKey,
    at: Timestamp,
) {
    let event_type = match after {
        CueStatus::Paused if before != after => EventType::CuePaused,
        CueStatus::Active if before != after => EventType::CueResumed,
        _ => EventType::CueUpdated,
    };
    cue(tx, event_type, user_key, key, at);
}

/// The event of a deletion. Call it before the deletion, while the cue has its name.
pub fn cue_deleted(tx: &WriteTx<'_>, user_key: UserKey, cue_id: &str, at: Timestamp) {
    tx.emit(user_key, EventType::CueDeleted, || {
        let Some((name, tags)) = event_data::name_and_tags(tx, user_key, cue_id)? else {
            return Ok(None);
        };
        let data = json!({"cue_id": cue_id, "cue_name": name, "at": instant(at)});
        let event = Event::new(EventType::CueDeleted, user_key, Some(cue_id.to_owned()), &data);
        Ok(Some(event.with_tags(tags)))
    });
}

pub fn missed(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    key: CueKey,
    missed: Occurrences,
    reason: MissReason,
    at: Timestamp,
) {
    let (Some(first), Some(last)) = (missed.first, missed.last) else { return };
    tx.emit(user_key, EventType::MissedRecorded, || {
        let Some((cue, tags)) = event_data::cue(tx, key, at)? else { return Ok(None) };
        let data = json!({
            "cue_id": cue.cue_id,
            "cue_name": cue.cue_name,
            "first": instant(first),
            "last": instant(last),
            "count": missed.count,
            "reason": reason.as_str(),
            "at": cue.at,
        });
        Ok(Some(
            Event::new(EventType::MissedRecorded, user_key, Some(cue.cue_id), &data)
                .with_tags(tags),
        ))
    });
}

pub fn alert(tx: &WriteTx<'_>, user_key: UserKey, alert: &Alert) {
    tx.emit(user_key, EventType::AlertCreated, || {
        let event =
            Event::new(EventType::AlertCreated, user_key, alert.cue_id.clone(), &alert.json());
        let cue = alert.cue_id.as_deref().map(|id| event_data::name_and_tags(tx, user_key, id));
        let tags = cue.transpose()?.flatten().map(|(_, tags)| tags);
        Ok(Some(event.with_tags(tags.unwrap_or_default())))
    });
}

/// The executions of a month have reached a bound of the quota. Call it before `quota` is stored.
pub fn quota(tx: &WriteTx<'_>, user_key: UserKey, quota: &Quota, at: Timestamp) -> Result<()> {
    let Some(limit) = quota.limit.filter(|_| tx.is_watched()) else { return Ok(()) };
    let before = users::monthly_usage(tx, user_key, at)?.executions;
    let is_over = |used: i64| used > i64::from(limit);
    let is_near = |used: i64| is_nearly_used_up(quota.limit, used);
    for (event_type, is_reached) in [
        (EventType::QuotaNear, is_near(quota.used) && !is_near(before)),
        (EventType::QuotaExceeded, is_over(quota.used) && !is_over(before)),
    ] {
        if is_reached {
            tx.emit(user_key, event_type, || {
                let data = json!({"used": quota.used, "limit": limit, "at": instant(at)});
                Ok(Some(Event::new(event_type, user_key, None, &data)))
            });
        }
    }
    Ok(())
}

/// A worker sends a heartbeat. Call it before the heartbeat is stored.
pub fn worker_seen(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    worker_id: &str,
    at: Timestamp,
) -> Result<()> {
    if !tx.is_watched() {
        return Ok(());
    }
    let last = event_data::last_heartbeat(tx, user_key, worker_id)?;
    if last.is_none_or(|last| HeartbeatStatus::at(last, at) != HeartbeatStatus::Active) {
        tx.emit(user_key, EventType::WorkerSeen, || {
            let last = last.map(instant);
            let data = json!({"worker_id": worker_id, "last_heartbeat": last, "at": instant(at)});
            Ok(Some(Event::new(EventType::WorkerSeen, user_key, None, &data)))
        });
    }
    Ok(())
}
