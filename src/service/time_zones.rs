//! New rules of time zones: stored next runs move at once, and their accounts get an alert (contract §4.5).

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::app::App;
use crate::domain::notification::alert::{MovedRun, MovedRuns};
use crate::domain::notification::event::EventType;
use crate::domain::row_keys::{CueKey, UserKey};
use crate::domain::schedule::Zone;
use crate::domain::schedule::zone_change::first_difference;
use crate::domain::time::{saturating_add, saturating_sub};
use crate::error::{Error, Result};
use crate::service::{events, notify};
use crate::store::WriteTx;
use crate::store::cues::time_zones::{self, ZonedCue};

/// Cues of one transaction: 500 take 10 ms if all of them move.
const BATCH: u32 = 500;

/// A century: no cue runs first after it. All years to 9999 take 0.1 s on a small machine.
const COMPARED: SignedDuration = SignedDuration::from_hours(24 * 366 * 100);

/// Zones whose rules have changed.
#[derive(Debug)]
struct ZoneChange {
    zones: BTreeMap<String, ChangedZone>,
    fired_until: Timestamp,
    now: Timestamp,
}

#[derive(Debug)]
struct ChangedZone {
    /// `None` if the rules so far are not known.
    old: Option<Zone>,
    new: Vec<u8>,
    /// Key of the last cue that has moved before a stop: it does not move twice.
    moved_until: CueKey,
}

/// Follows the rules as they are now. All runs up to `fired_until` have fired. Calls `between` after each batch, and
/// stops when it returns `false`: the next call goes on behind that batch. Returns whether it came to the end.
pub fn follow(app: &App, fired_until: Timestamp, between: impl Fn() -> bool) -> Result<bool> {
    let stored = app.store.read_blocking(time_zones::zones)?;
    let changed = stored.into_iter().filter_map(|zone| {
        let new = Zone::file(&zone.name)?;
        // The cues have the rules so far or those of a move that was cut off: all are computed again.
        let is_mixed = zone.moving.as_ref().is_some_and(|moving| *moving != new);
        if zone.rules.as_ref() == Some(&new) && !is_mixed {
            return None;
        }
        let old = zone.rules.filter(|_| !is_mixed).and_then(|old| read_rules(&zone.name, &old));
        let moved_until = zone.moved_until.filter(|_| !is_mixed).unwrap_or_default();
        Some((zone.name, ChangedZone { old, new, moved_until }))
    });
    let change = ZoneChange { zones: changed.collect(), fired_until, now: app.clock.now() };
    if change.zones.is_empty() {
        return Ok(true);
    }
    Zone::reload();
    let change = Arc::new(change);
    if !move_all(app, &change, between)? {
        return Ok(false);
    }
    let save = move |tx: &WriteTx<'_>| {
        change.zones.iter().try_for_each(|(name, zone)| time_zones::save_rules(tx, name, &zone.new))
    };
    app.store.write_with_priority(save).wait()?;
    Ok(true)
}

fn read_rules(name: &str, rules: &[u8]) -> Option<Zone> {
    Zone::from_file(name, rules)
        .inspect_err(
            |error| tracing::error!(zone = %name, %error, "stored rules of a time zone not read"),
        )
        .ok()
}

fn move_all(app: &App, change: &Arc<ZoneChange>, between: impl Fn() -> bool) -> Result<bool> {
    let moving =
        change.zones.iter().filter(|(name, zone)| may_move(name, zone, change.fired_until));
    let zones: Vec<&str> = moving.map(|(name, _)| name.as_str()).collect();
    let names = json!(zones).to_string();
    let (mut count, mut after) = (0, CueKey::default());
    while !zones.is_empty() {
        // A new zone moves nothing as a rule: its cues are only read.
        let cues = app
            .store
            .read_blocking(|read| time_zones::list_of_zones(read, &names, after, BATCH))?;
        let Some(last) = cues.last() else { break };
        after = last.key;
        let moved = cues.iter().filter(|cue| moved_run(cue, change).is_some());
        let moved: Vec<CueKey> = moved.map(|cue| cue.key).collect();
        if !moved.is_empty() {
            count += move_batch(app, change, moved)?;
        }
        if !between() {
            return Ok(false);
        }
    }
    if count == 0 && change.zones.values().any(|zone| zone.old.is_some()) {
        let zones: Vec<&str> = change.zones.keys().map(String::as_str).collect();
        tracing::info!(zones = zones.join(", "), "files of time zones changed; no next run moves");
    }
    Ok(true)
}

/// Most new files only add past years, or name the same rules in other words.
fn may_move(name: &str, zone: &ChangedZone, fired_until: Timestamp) -> bool {
    let Some(old) = &zone.old else { return true };
    let new = Zone::from_file(name, &zone.new);
    // A time that the clock has shown in the last days does not run again.
    let from = saturating_sub(fired_until, SignedDuration::from_hours(24 * 3));
    let until = saturating_add(fired_until, COMPARED);
    new.is_ok_and(|new| first_difference(old, &new, from, until).is_some())
}

/// In one write with the alerts, so that no moved run is left untold, and with the progress. Returns how many moved. What
/// fails because of a single cue or alert is left out: the others move.
fn move_batch(app: &App, change: &Arc<ZoneChange>, keys: Vec<CueKey>) -> Result<usize> {
    let change = Arc::clone(change);
    let batch = move |tx: &WriteTx<'_>| {
        let (mut total, mut users) = (MovedRuns::default(), BTreeMap::<UserKey, MovedRuns>::new());
        let mut faults = Vec::new();
        for key in &keys {
            let moved = keep_fault(tx.part(|tx| move_cue(tx, *key, &change)), &mut faults)?;
            if let Some((user_key, run)) = moved.flatten() {
                total.push(run.clone());
                users.entry(user_key).or_default().push(run);
            }
        }
        for (user_key, moved) in &users {
            let raised = tx.part(|tx| notify::raise_moved_runs(tx, *user_key, moved, change.now));
            keep_fault(raised, &mut faults)?;
        }
        let until = keys.last().copied().unwrap_or_default();
        let mut zones = change.zones.iter().filter(|(_, zone)| zone.moved_until < until);
        zones.try_for_each(|(name, zone)| time_zones::save_progress(tx, name, &zone.new, until))?;
        Ok((total, faults))
    };
    let (MovedRuns { count, first }, faults) = app.store.write_with_priority(batch).wait()?;
    for error in faults {
        tracing::error!(%error, "next run not moved to the new rules of its time zone");
    }
    let runs = first
        .iter()
        .map(|run| format!("{} ({}) from {} to {}", run.cue_id, run.zone, run.from, run.to));
    let runs: Vec<String> = runs.collect();
    if count > 0 {
        tracing::warn!(
            count,
            runs = runs.join(", "),
            "rules of time zones changed; next runs moved"
        );
    }
    Ok(count)
}

/// `None` after the fault of a part, which is kept. Errors: if the file cannot be written.
fn keep_fault<T>(done: Result<T>, faults: &mut Vec<Error>) -> Result<Option<T>> {
    match done {
        Err(error @ (Error::Storage(_) | Error::Corrupt(_))) => Err(error),
        done => Ok(done.map_err(|fault| faults.push(fault)).ok()),
    }
}

fn move_cue(
    tx: &WriteTx<'_>,
    key: CueKey,
    change: &ZoneChange,
) -> Result<Option<(UserKey, MovedRun)>> {
    // A request may have changed it since it was read.
    let Some(cue) = time_zones::find(tx, key)? else { return Ok(None) };
    let Some(run) = moved_run(&cue, change) else { return Ok(None) };
    time_zones::move_next_run(tx, key, run.to)?;
    events::cue(tx, EventType::CueUpdated, cue.user_key, key, change.now);
    Ok(Some((cue.user_key, run)))
}

/// `None` if the cue has moved, runs next at the same instant under both rules, or fires before it can move.
fn moved_run(cue: &ZonedCue, change: &ZoneChange) -> Option<MovedRun> {
    let zone =
        change.zones.get(&cue.schedule.timezone).filter(|zone| cue.key > zone.moved_until)?;
    let old = zone.old.as_ref();
    let changed_at = change.fired_until.max(cue.updated_at);
    // A schedule that cannot be computed fails its cue when it is due.
    let schedule = cue.schedule.read().ok().filter(|_| cue.next_run > changed_at)?;
    let to = match old {
        Some(old) => schedule.next_after_change(old, changed_at, change.now)?,
        None => schedule.next_after(changed_at)?,
    };
    let is_same = to == cue.next_run
        || old.is_some_and(|old| schedule.in_zone(old).next_after(changed_at) == Some(to));
    let (cue_id, name, zone) = (cue.id.clone(), cue.name.clone(), cue.schedule.timezone.clone());
    (!is_same).then_some(MovedRun { cue_id, name, zone, from: cue.next_run, to })
}
