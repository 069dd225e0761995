//! Fires due cues: creates their executions and sets `next_run`. [`Scheduler::run_once`] is one pass;
//! the thread waits between passes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::app::App;
use crate::domain::schedule::catch_up::{CaughtUp, MissReason, Outage, is_clock_jump};
use crate::domain::time::just_before;
use crate::engine::delivery::dispatcher::DispatchHandle;
use crate::error::Result;
use crate::metrics::engine::SchedulerPass;
use crate::service::alerts;
use crate::service::fire::{CueFirer, FireSummary};
use crate::store::WriteTx;
use crate::store::cues::due_cues;
use crate::store::db::{hold, meta};

/// Cues fired and executions created in one transaction (contract §4.12). Measured: 500 keep the writer busy for 14 ms and
/// reach 35,000 cues a second; larger batches are no faster and hold up other writes.
const BATCH: usize = 500;

/// Batches of a backlog that are chosen at once: a cue that falls due in the meantime waits for as many, less than 100 ms.
const BATCHES_OF_TURNS: usize = 4;

/// Due cues among which accounts take turns; those beyond are longest overdue first. More would be due at once only with
/// ten accounts of the largest plan, and 50,000 take 10 ms to read.
const MAX_BACKLOG: usize = 50_000;

/// The state of the scheduler between two passes.
pub struct Scheduler {
    /// The newest instant that the database has recorded; before it no cue fires by schedule (contract §4.12).
    last_seen: Timestamp,
    /// The last outage; cues that were due in it catch up.
    outage: Outage,
    wall: Timestamp,
    monotonic: Duration,
    /// The last `cued clock accept` that is known.
    clock_accepted_at: Option<Timestamp>,
    /// True if the system's clock was not believed at the last pass.
    is_doubted: bool,
    /// True if the database was on hold at the last pass.
    is_held: bool,
    /// The missed runs that have caught up and are not reported yet.
    caught_up: BTreeMap<i64, CaughtUp>,
    /// Rows of due cues that the next batches fire, accounts in turns. Empty without a backlog.
    turns: VecDeque<i64>,
}

impl Scheduler {
    /// Starts with an outage that ends now: the runs that were due before it were missed.
    pub fn start(app: &App) -> Result<Self> {
        let now = app.clock.now();
        let (last_seen, clock_accepted_at) =
            app.store.read_blocking(|read| Ok((meta::last_seen(read)?, meta::clock_accepted_at(read)?)))?;
        let last_seen = last_seen.unwrap_or(now);
        app.engine_stats.record_last_seen(last_seen);
        if now < last_seen {
            tracing::warn!(
                %now,
                last_seen = %last_seen,
                "the clock is behind the database: no cue fires by schedule until it has caught up; set the clock, run \
                 `cued clock accept` if it is right, or use a new --db if this one was used with --test-clock"
            );
        }
        let held_since = app.store.read_blocking(hold::held_since)?;
        if let Some(since) = held_since {
            tracing::warn!(
                %since,
                path = %app.config.db.display(),
                "the database is a restored copy on hold: nothing is fired, sent or claimed until `cued promote`"
            );
            if app.config.held {
                tracing::warn!(
                    "every start with --held (CUED_HELD) holds the database: remove it after `cued promote`"
                );
            }
        }
        Ok(Self {
            last_seen,
            outage: Outage::before(now, MissReason::Downtime),
            wall: now,
            monotonic: app.clock.monotonic(),
            clock_accepted_at,
            is_doubted: false,
            is_held: held_since.is_some(),
            caught_up: BTreeMap::new(),
            turns: VecDeque::new(),
        })
    }

    /// A pass over a database on hold: no cue fires.
    pub fn record_held_pass(&mut self, app: &App) {
        self.is_held = true;
        let ended = app.clock.monotonic();
        app.engine_stats.record_pass(SchedulerPass {
            started_at: Some(app.clock.now()),
            ended,
            ..SchedulerPass::default()
        });
    }

    /// Reads the clock, then fires due cues in batches until none is due.
    pub fn run_once(&mut self, app: &App) -> Result<FireSummary> {
        self.run_once_at(app, None, || Ok(true))
    }

    /// As [`Scheduler::run_once`]; the executions are claimed through `deliveries` in the same write. Calls `between`
    /// after each batch, for other work that falls due in the meantime, and ends the pass when it returns `false`.
    pub(in crate::engine) fn run_once_at(
        &mut self,
        app: &App,
        deliveries: Option<&DispatchHandle>,
        mut between: impl FnMut() -> Result<bool>,
    ) -> Result<FireSummary> {
        self.follow_acceptance(app)?;
        let (now, started) = (app.clock.now(), app.clock.monotonic());
        if std::mem::take(&mut self.is_held) {
            // No cue fired during the hold, whether or not this process ran.
            tracing::info!("database promoted; cues that were due during the hold catch up");
            (self.outage, self.wall, self.monotonic) =
                (Outage::before(now, MissReason::Downtime), now, started);
            self.turns.clear();
        }
        let (mut fired, mut newest) = (FireSummary::default(), now);
        loop {
            // Read for each batch: a cue that falls due while a long backlog is fired comes before the rest of it.
            let (now, previous) = (app.clock.now(), self.outage);
            self.read_clock(app, now);
            if self.outage != previous {
                // The chosen cues may have fallen due in the new outage, and then catch up.
                self.turns.clear();
                self.report_catch_up(app, previous)?;
            }
            app.record_outage(self.outage);
            newest = newest.max(now);
            if now < self.last_seen || !self.read_backlog(app, now)? {
                break;
            }
            let turns = self.turns.drain(..self.turns.len().min(BATCH)).collect();
            let batch = fire_batch(app, deliveries, now, self.outage, turns)?;
            // Counted per batch: an error may end the pass before the next one.
            app.engine_stats.add_fired(u64::try_from(batch.executions).unwrap_or(u64::MAX));
            app.engine_stats.heartbeat(app.clock.monotonic());
            for (user_key, runs) in &batch.caught_up {
                let sum = self.caught_up.entry(*user_key);
                sum.and_modify(|sum| *sum = sum.and(*runs)).or_insert(*runs);
            }
            fired.add(batch);
            if !between()? {
                break;
            }
        }
        self.report_catch_up(app, self.outage)?;
        self.last_seen = self.last_seen.max(newest);
        app.engine_stats.record_last_seen(self.last_seen);
        let ended = app.clock.monotonic();
        app.engine_stats.record_pass(SchedulerPass {
            started_at: Some(now),
            ended,
            cues: fired.cues,
            duration: ended - started,
        });
        Ok(fired)
    }

    /// True if a cue is due at `now`. Chooses the cues of the next batches if more are due than one batch fires.
    fn read_backlog(&mut self, app: &App, now: Timestamp) -> Result<bool> {
        let (after, is_chosen) = (self.outage.until, !self.turns.is_empty());
        let backlog = app.store.read_blocking(move |read| {
            let is_due = due_cues::next(read)?.is_some_and(|next| next <= now);
            let choose = is_due && !is_chosen;
            let backlog = choose.then(|| due_cues::backlog(read, after, now, MAX_BACKLOG)).transpose()?;
            Ok((is_due, backlog))
        });
        let (is_due, backlog) = backlog?;
        if let Some(backlog) = backlog.filter(|backlog| backlog.len() > BATCH) {
            self.turns = round_robin(&backlog, BATCHES_OF_TURNS * BATCH).into();
        }
        Ok(is_due)
    }

    /// The next instant at which a cue fires, never before the newest instant that the database has recorded.
    pub fn deadline(&self, app: &App) -> Result<Option<Timestamp>> {
        let next = app.store.read_blocking(due_cues::next)?;
        Ok(next.map(|next| next.max(self.last_seen)))
    }

    /// Logs the runs that have caught up after `outage`, and sends the alerts about them.
    fn report_catch_up(&mut self, app: &App, outage: Outage) -> Result<()> {
        let sum = self.caught_up.values().copied().reduce(CaughtUp::and);
        let users: Vec<i64> = self.caught_up.keys().copied().collect();
        for users in users.chunks(BATCH) {
            let users = users.to_vec();
            let enqueue = move |tx: &WriteTx<'_>| {
                users.iter().try_for_each(|user_key| alerts::post_catch_up(tx, *user_key, outage))
            };
            app.store.write_with_priority(enqueue).wait()?;
        }
        self.caught_up.clear();
        if let Some(CaughtUp { runs, first, last }) = sum {
            tracing::info!(count = runs, users = users.len(), from = %first, to = %last, "missed runs caught up");
        }
        Ok(())
    }

    /// Starts again from the current time if the clock was accepted since the last pass.
    fn follow_acceptance(&mut self, app: &App) -> Result<()> {
        let accepted_at = app.store.read_blocking(meta::clock_accepted_at)?;
        if accepted_at == self.clock_accepted_at {
            return Ok(());
        }
        let was_wrong = app.clock.doubted().is_some() || app.clock.now() < self.last_seen;
        app.clock.accept();
        let now = app.clock.now();
        self.last_seen = app.store.read_blocking(meta::last_seen)?.unwrap_or(now);
        self.clock_accepted_at = accepted_at;
        app.engine_stats.reset_last_seen(self.last_seen);
        self.wall = now;
        // Of a clock that was right nothing was missed, and what falls due after the acceptance is on time.
        if was_wrong {
            let until = accepted_at.map_or(now, |at| at.min(now));
            self.outage = Outage::before(until, MissReason::Clock);
            self.turns.clear();
            tracing::info!(%now, "clock accepted; cues that are overdue catch up");
        }
        Ok(())
    }

    fn read_clock(&mut self, app: &App, now: Timestamp) {
        let monotonic = app.clock.monotonic();
        let doubted = app.clock.doubted();
        if doubted.is_some() != self.is_doubted {
            self.is_doubted = doubted.is_some();
            match doubted {
                Some(shown) => tracing::warn!(
                    previous = %now, now = %shown,
                    "the wall clock jumped ahead by more than a day; it is believed in ten minutes, or after `cued clock accept`"
                ),
                None => tracing::warn!(previous = %self.wall, %now, "the wall clock is believed again"),
            }
        }
        let real = SignedDuration::try_from(monotonic - self.monotonic).unwrap_or(SignedDuration::MAX);
        // A test clock moves on purpose, from instant to instant, and every cue that it passes fires.
        if !app.clock.is_test() && is_clock_jump(now.duration_since(self.wall), real) {
            tracing::warn!(previous = %self.wall, %now, "the wall clock jumped forward; missed runs catch up");
            self.outage = Outage::before(now, MissReason::Clock);
        } else if self.wall < self.last_seen && self.last_seen <= now {
            // Cues that came due while the clock was behind could not fire either.
            self.outage = Outage::before(now, MissReason::Clock);
        }
        // The clock may have been set back since the outage ended: no run is caught up with before its time.
        self.outage.until = self.outage.until.min(just_before(now));
        if now < self.last_seen && self.wall >= self.last_seen {
            tracing::warn!(
                %now,
                last_seen = %self.last_seen,
                "the wall clock moved back; no cue fires by schedule until it has caught up, or until `cued clock accept`"
            );
        }
        (self.wall, self.monotonic) = (now, monotonic);
    }
}

fn fire_batch(
    app: &App,
    deliveries: Option<&DispatchHandle>,
    now: Timestamp,
    outage: Outage,
    turns: Vec<i64>,
) -> Result<FireSummary> {
    let firer = CueFirer::new(app, now);
    let fire = move |tx: &WriteTx<'_>| firer.fire_due(tx, outage, &turns, BATCH);
    match deliveries {
        Some(deliveries) => deliveries.write(app, fire),
        None => app.store.write_with_priority(fire).wait(),
    }
}

/// The first `limit` cues of `backlog`, which holds the users and keys of cues: the first cue of every user, then the
/// second of every user, and so on, so that the many cues of one account do not delay the few of another (contract §11.5). Cues of the same turn keep their order.
fn round_robin(backlog: &[(i64, i64)], limit: usize) -> Vec<i64> {
    let mut next_turns = HashMap::new();
    let mut turns: Vec<(u32, i64)> = backlog
        .iter()
        .map(|(user_key, cue_key)| {
            let next: &mut u32 = next_turns.entry(*user_key).or_default();
            *next += 1;
            (*next, *cue_key)
        })
        .collect();
    turns.sort_by_key(|(turn, _)| *turn);
    turns.into_iter().take(limit).map(|(_, cue_key)| cue_key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cue_of_every_user_comes_before_the_second_of_any() {
        let backlog = [(1, 10), (1, 11), (1, 12), (2, 20), (3, 30), (2, 21)];
        assert_eq!(round_robin(&backlog, 6), [10, 20, 30, 11, 21, 12]);
        assert_eq!(round_robin(&backlog, 2), [10, 20]);
    }
}
