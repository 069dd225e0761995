//! New rules of time zones: stored next runs move at once, and their accounts get an alert (contract §4.5).

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;

use crate::app::App;
use crate::domain::notification::alert::{MovedRun, MovedRuns};
use crate::domain::notification::event::EventType;
use crate::domain::schedule::Zone;
use crate::error::Result;
use crate::service::{events, notify};
use crate::store::WriteTx;
use crate::store::cues::time_zones::{self, ZonedCue};

/// Cues of one transaction: 500 take 10 ms if all of them move.
const BATCH: u32 = 500;

/// Zones whose rules have changed.
#[derive(Debug)]
struct ZoneChange {
    /// With their rules so far, if they are known.
    old: BTreeMap<String, Option<Zone>>,
    fired_until: Timestamp,
    now: Timestamp,
}

/// Follows the rules as they are now. All runs up to `fired_until` have fired. Calls `between` after each batch, and
/// stops when it returns `false`: the rules are not stored then, so that the next call starts again. Returns whether it
/// came to the end.
pub fn follow(app: &App, fired_until: Timestamp, between: impl Fn() -> bool) -> Result<bool> {
    let known = app.store.read_blocking(time_zones::rules)?;
    let current = known.into_iter().filter_map(|(name, old)| {
        let new = Zone::file(&name).filter(|new| old.as_ref() != Some(new))?;
        Some((name, old, new))
    });
    let current: Vec<(String, Option<Vec<u8>>, Vec<u8>)> = current.collect();
    if current.is_empty() {
        return Ok(true);
    }
    Zone::reload();
    let mut change = ZoneChange { old: BTreeMap::new(), fired_until, now: app.clock.now() };
    for (name, old, _) in &current {
        let old = old.as_ref().map(|old| Zone::from_file(name, old)).transpose().unwrap_or_else(|error| {
            tracing::error!(zone = %name, %error, "stored rules of a time zone not read");
            None
        });
        change.old.insert(name.clone(), old);
    }
    if !move_all(app, &Arc::new(change), between)? {
        return Ok(false);
    }
    let save = move |tx: &WriteTx<'_>| {
        current.iter().try_for_each(|(name, _, new)| time_zones::save_rules(tx, name, new))
    };
    app.store.write_with_priority(save).wait()?;
    Ok(true)
}

fn move_all(app: &App, change: &Arc<ZoneChange>, between: impl Fn() -> bool) -> Result<bool> {
    let zones: Vec<&str> = change.old.keys().map(String::as_str).collect();
    let names = json!(zones).to_string();
    let (mut count, mut after) = (0, 0);
    loop {
        // A new zone moves nothing as a rule: its cues are only read.
        let cues = app.store.read_blocking(|read| time_zones::list_of_zones(read, &names, after, BATCH))?;
        let Some(last) = cues.last() else { break };
        after = last.key;
        let moved = cues.iter().filter(|cue| moved_run(cue, change).is_some());
        let moved: Vec<i64> = moved.map(|cue| cue.key).collect();
        if !moved.is_empty() {
            count += move_batch(app, change, moved)?;
        }
        if !between() {
            return Ok(false);
        }
    }
    if count == 0 && change.old.values().any(Option::is_some) {
        tracing::info!(zones = zones.join(", "), "files of time zones changed; no next run moves");
    }
    Ok(true)
}

/// In one write with the alerts, so that no moved run is left untold. Returns how many moved.
fn move_batch(app: &App, change: &Arc<ZoneChange>, keys: Vec<i64>) -> Result<usize> {
    let change = Arc::clone(change);
    let batch = move |tx: &WriteTx<'_>| {
        let (mut total, mut users) = (MovedRuns::default(), BTreeMap::<i64, MovedRuns>::new());
        for key in keys {
            // A request may have changed it since it was read.
            let Some(cue) = time_zones::find(tx, key)? else { continue };
            let Some(run) = moved_run(&cue, &change) else { continue };
            time_zones::move_next_run(tx, key, run.to)?;
            events::cue(tx, EventType::CueUpdated, cue.user_key, key, change.now);
            total.push(run.clone());
            users.entry(cue.user_key).or_default().push(run);
        }
        for (user_key, moved) in &users {
            notify::raise_moved_runs(tx, *user_key, moved, change.now)?;
        }
        Ok(total)
    };
    let MovedRuns { count, first } = app.store.write_with_priority(batch).wait()?;
    let runs =
        first.iter().map(|run| format!("{} ({}) from {} to {}", run.cue_id, run.zone, run.from, run.to));
    let runs: Vec<String> = runs.collect();
    if count > 0 {
        tracing::warn!(count, runs = runs.join(", "), "rules of time zones changed; next runs moved");
    }
    Ok(count)
}

/// `None` if the cue runs next at the same instant under both rules, or its run is overdue.
fn moved_run(cue: &ZonedCue, change: &ZoneChange) -> Option<MovedRun> {
    let old = change.old.get(&cue.schedule.timezone)?.as_ref();
    let changed_at = change.fired_until.max(cue.updated_at);
    // A schedule that cannot be computed fails its cue when it is due.
    let schedule = cue.schedule.read().ok().filter(|_| cue.next_run > changed_at)?;
    let to = match old {
        Some(old) => schedule.next_after_change(old, changed_at, change.now)?,
        None => schedule.next_after(changed_at)?,
    };
    let is_same =
        to == cue.next_run || old.is_some_and(|old| schedule.in_zone(old).next_after(changed_at) == Some(to));
    let (cue_id, name, zone) = (cue.id.clone(), cue.name.clone(), cue.schedule.timezone.clone());
    (!is_same).then_some(MovedRun { cue_id, name, zone, from: cue.next_run, to })
}
