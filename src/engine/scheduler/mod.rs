//! The scheduler's thread: one pass over all work that is due, then a wait until the next is. Fires due cues: creates
//! their executions and sets `next_run` ([`Scheduler::run_once`]), releases expired claims and removes old rows
//! (`reaper`, `retention_sweeper`), and reports changes of the database and of the clock: to the event streams at once
//! (contract §8.13), and a clock that stays behind by an alert to every account with an active cue.

pub mod reaper;
pub mod retention_sweeper;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::app::App;
use crate::domain::cue::retention::SETTLING_TIME;
use crate::domain::execution::worker::workers_return_by;
use crate::domain::notification::event::{Event, ServerChange};
use crate::domain::row_keys::{CueKey, UserKey};
use crate::domain::schedule::catch_up::{CaughtUp, MissReason, Outage, gap};
use crate::domain::schedule::wall_clock::{ClockFault, PROOF_TIME};
use crate::domain::time::just_before;
use crate::engine::delivery::dispatcher::{DeliveryService, promote_batch};
use crate::engine::scheduler::reaper::Cleanup;
use crate::engine::scheduler::retention_sweeper::RetentionSweeper;
use crate::engine::{EngineThread, NextPass, run_pass};
use crate::error::{Error, Result};
use crate::metrics::engine::SchedulerPass;
use crate::service::fire::{CueFirer, FireSummary};
use crate::service::{deadlines, notify, time_zones};
use crate::store::WriteTx;
use crate::store::cues::due_cues;
use crate::store::db::meta;

/// Cues fired and executions created in one transaction (contract §4.12). Measured: 500 keep the writer busy for 14 ms
/// and reach 35,000 cues a second; larger batches are no faster and hold up other writes.
const BATCH: usize = 500;

/// Batches of a backlog that are chosen at once: a cue that falls due in the meantime waits for as many, less than 100
/// ms.
const BATCHES_OF_TURNS: usize = 4;

/// Due cues among which accounts take turns; those beyond are longest overdue first. More would be due at once only
/// with ten accounts of the largest plan, and 50,000 take 10 ms to read.
const MAX_BACKLOG: usize = 50_000;

const ALERT_BATCH: u32 = 500;

/// How long new rules of a time zone go unnoticed. A look reads a file of 2 kB for each zone in use: 20 µs.
const ZONE_INTERVAL: SignedDuration = SignedDuration::from_mins(1);

/// Starts the thread. Executions that it creates are claimed through `deliveries` in the same write.
pub(in crate::engine) fn start(
    app: &Arc<App>,
    deliveries: Arc<DeliveryService>,
) -> Result<EngineThread> {
    let mut tasks = Tasks {
        scheduler: Scheduler::start(app)?,
        sweeper: RetentionSweeper::default(),
        cleanup: Cleanup::default(),
        server_watch: ServerWatch::default(),
        clock_alert: ClockAlert::default(),
        zone_watch: ZoneWatch::default(),
    };
    let app = Arc::clone(app);
    let run = move |stopping: &AtomicBool| run(&app, &mut tasks, &deliveries, stopping);
    EngineThread::start("scheduler", Arc::default(), run)
        .map_err(|error| Error::fault_from("the scheduler cannot start", error))
}

struct Tasks {
    scheduler: Scheduler,
    sweeper: RetentionSweeper,
    cleanup: Cleanup,
    server_watch: ServerWatch,
    clock_alert: ClockAlert,
    zone_watch: ZoneWatch,
}

fn run(app: &App, tasks: &mut Tasks, deliveries: &DeliveryService, stop: &AtomicBool) {
    // While the sweeper has more to do, the pass counts as one: a test clock moves on only after its end.
    let mut pass = None;
    let names = ("the scheduler", "scheduler pass failed; retrying in 1 s");
    while !stop.load(Ordering::SeqCst) {
        run_pass(app, names, &app.notifiers.schedule, None, || {
            app.notifiers.set_next_wakeup(None);
            app.engine_stats.heartbeat(app.clock.monotonic());
            // A panic ends it too: whoever waits for its end would wait for ever.
            let begin = || app.engine_stats.begin_pass(&app.notifiers.progress);
            let current = pass.take().unwrap_or_else(begin);
            app.store.probe_disk();
            let next = run_once(app, tasks, deliveries, stop);
            pass = Some(current).filter(|_| matches!(next, Ok(NextPass::Again)));
            if let Ok(NextPass::At(deadline)) = next {
                app.notifiers.set_next_wakeup(deadline);
            }
            next
        });
    }
}

/// One pass over all work that is due. Returns the instant of the next. On a database on hold nothing is ever due.
fn run_once(
    app: &App,
    tasks: &mut Tasks,
    deliveries: &DeliveryService,
    stop: &AtomicBool,
) -> Result<NextPass> {
    let Tasks { scheduler, sweeper, cleanup, server_watch, clock_alert, zone_watch } = tasks;
    let is_held = app.store.read_blocking(meta::is_held)?;
    server_watch.look(app, is_held);
    if is_held {
        scheduler.record_held_pass(app);
        return Ok(NextPass::At(None));
    }
    let goes_on = || !stop.load(Ordering::SeqCst);
    if !zone_watch.look(app, scheduler.last_seen, goes_on)? {
        return Ok(NextPass::Again);
    }
    // Waiting executions fall due while a backlog of cues is fired, and the other way round.
    scheduler.run_once_at(app, Some(deliveries), || promote_batch(app).map(|_| goes_on()))?;
    clock_alert.raise_if_due(app)?;
    if goes_on() && promote_batch(app)? > 0 {
        return Ok(NextPass::Again);
    }
    let now = app.clock.now();
    let settled = sweeper.settled_for(app);
    if reaper::run_once(app, now, settled)?
        || (settled >= SETTLING_TIME && cleanup.run_if_due(app)?)
    {
        return Ok(NextPass::Again);
    }
    let NextPass::At(sweep) = sweeper.run_once(app)? else { return Ok(NextPass::Again) };
    let (seen, checks_from) = (scheduler.last_seen, workers_return_by(app.outage()));
    let due = app.store.read_blocking(|read| deadlines::next(read, seen, checks_from))?;
    let expiry = reaper::next_expiry(&app.store, now)?;
    Ok(NextPass::At([due, expiry, sweep].into_iter().flatten().min()))
}

#[derive(Debug, Default)]
struct ZoneWatch {
    looked_at: Option<Timestamp>,
}

impl ZoneWatch {
    /// Reads the rules of time zones, if a minute has passed. All runs up to `fired_until` have fired. Cues fire only
    /// after all of them have moved: one that runs before could run twice. Returns `false` if `goes_on` ended it.
    fn look(
        &mut self,
        app: &App,
        fired_until: Timestamp,
        goes_on: impl Fn() -> bool,
    ) -> Result<bool> {
        let now = app.clock.now();
        if self.looked_at.is_some_and(|at| now.duration_since(at).abs() < ZONE_INTERVAL) {
            return Ok(true);
        }
        let (stats, clock) = (&app.engine_stats, &app.clock);
        let is_done = time_zones::follow(app, fired_until, || {
            stats.heartbeat(clock.monotonic());
            stats.record_pass(SchedulerPass { ended: clock.monotonic(), ..stats.last_pass() });
            goes_on()
        });
        // While the file cannot be written, nothing fires either.
        if !matches!(is_done, Err(Error::Storage(_))) {
            self.looked_at = Some(now);
        }
        is_done
    }
}

#[derive(Debug, Default)]
struct ServerWatch {
    last: Option<[Option<ServerChange>; 4]>,
}

impl ServerWatch {
    /// The first look reports nothing.
    fn look(&mut self, app: &App, is_held: bool) {
        let clock = match app.clock_fault() {
            None => ServerChange::ClockRight,
            Some(ClockFault::Ahead { .. }) => ServerChange::ClockAhead,
            Some(ClockFault::Behind { .. }) => ServerChange::ClockBehind,
        };
        let is_writable = app.store.is_writable();
        let now = [
            Some(if is_writable { ServerChange::Writable } else { ServerChange::Unwritable }),
            app.store.is_corrupt().then_some(ServerChange::Damaged),
            Some(if is_held { ServerChange::Held } else { ServerChange::Promoted }),
            Some(clock),
        ];
        let Some(before) = self.last.replace(now) else { return };
        for (before, now) in before.into_iter().zip(now) {
            if let Some(change) = now.filter(|_| now != before) {
                app.events.publish_server(Event::server(change, app.clock.now()));
            }
        }
    }
}

#[derive(Debug, Default)]
struct ClockAlert {
    since: Option<Duration>,
    /// The newest instant of the fault that was reported last.
    reported: Option<Timestamp>,
}

impl ClockAlert {
    /// Raises the alert once the clock is behind for ten minutes: a machine without a battery is behind after every
    /// boot.
    fn raise_if_due(&mut self, app: &App) -> Result<()> {
        let Some(ClockFault::Behind { now, newest }) = app.clock_fault() else {
            self.since = None;
            return Ok(());
        };
        let monotonic = app.clock.monotonic();
        let since = *self.since.get_or_insert(monotonic);
        if monotonic.saturating_sub(since) < PROOF_TIME || self.reported == Some(newest) {
            return Ok(());
        }
        let mut after = Some(UserKey::default());
        while let Some(user_key) = after {
            let raise = move |tx: &WriteTx<'_>| {
                notify::raise_clock_behind(tx, user_key, ALERT_BATCH, newest, now)
            };
            after = app.store.write_with_priority(raise).wait()?;
        }
        self.reported = Some(newest);
        Ok(())
    }
}

pub struct Scheduler {
    /// The newest instant that the database has recorded; before it no cue fires by schedule (contract §4.12).
    last_seen: Timestamp,
    /// The last outage; cues that were due in it catch up.
    outage: Outage,
    /// The clocks when due cues last fired, or none was due.
    wall: Timestamp,
    monotonic: Duration,
    clock_accepted_at: Option<Timestamp>,
    is_doubted: bool,
    is_held: bool,
    /// The cues fired since the last report of missed runs that were caught up.
    unreported: FireSummary,
    /// Rows of due cues that the next batches fire, accounts in turns. Empty without a backlog.
    turns: VecDeque<CueKey>,
}

impl Scheduler {
    /// Starts with an outage that ends now: the runs that were due before it were missed.
    pub fn start(app: &App) -> Result<Self> {
        let now = app.clock.now();
        let (last_seen, clock_accepted_at) = app
            .store
            .read_blocking(|read| Ok((meta::last_seen(read)?, meta::clock_accepted_at(read)?)))?;
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
        let held_since = app.store.read_blocking(meta::held_since)?;
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
            unreported: FireSummary::default(),
            turns: VecDeque::new(),
        })
    }

    pub fn record_held_pass(&mut self, app: &App) {
        self.is_held = true;
        let (started_at, ended) = (Some(app.clock.now()), app.clock.monotonic());
        app.engine_stats.record_pass(SchedulerPass {
            started_at,
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
        deliveries: Option<&DeliveryService>,
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
            let (now, monotonic, previous) = (app.clock.now(), app.clock.monotonic(), self.outage);
            self.read_clock(app, now, monotonic);
            if self.outage != previous {
                // The chosen cues may have fallen due in the new outage, and then catch up.
                self.turns.clear();
                self.report_catch_up(app, previous)?;
            }
            app.record_outage(self.outage);
            newest = newest.max(now);
            if now < self.last_seen || !self.read_backlog(app, now)? {
                (self.wall, self.monotonic) = (now, monotonic);
                break;
            }
            let turns: Vec<CueKey> = self.turns.drain(..self.turns.len().min(BATCH)).collect();
            let (firer, outage) = (CueFirer::new(app, now), self.outage);
            let fire = move |tx: &WriteTx<'_>| firer.fire_due(tx, outage, &turns, BATCH);
            let batch = match deliveries {
                Some(deliveries) => deliveries.write(app, fire)?,
                None => app.store.write_with_priority(fire).wait()?,
            };
            (self.wall, self.monotonic) = (now, monotonic);
            // Counted per batch: an error may end the pass before the next one.
            app.engine_stats.fired.add(batch.executions as u64);
            app.engine_stats.heartbeat(app.clock.monotonic());
            self.unreported.add(&batch);
            fired.add(&batch);
            if !between()? {
                break;
            }
        }
        self.report_catch_up(app, self.outage)?;
        self.last_seen = self.last_seen.max(newest);
        app.engine_stats.record_last_seen(self.last_seen);
        let (started_at, ended, cues) = (Some(now), app.clock.monotonic(), fired.cues);
        let duration = ended - started;
        app.engine_stats.record_pass(SchedulerPass { started_at, ended, cues, duration });
        Ok(fired)
    }

    /// True if a cue is due at `now`. Chooses the cues of the next batches if more are due than one batch fires.
    fn read_backlog(&mut self, app: &App, now: Timestamp) -> Result<bool> {
        let (after, is_chosen) = (self.outage.until, !self.turns.is_empty());
        let backlog = app.store.read_blocking(move |read| {
            let is_due = due_cues::next(read)?.is_some_and(|next| next <= now);
            let choose = is_due && !is_chosen;
            let backlog =
                choose.then(|| due_cues::backlog(read, after, now, MAX_BACKLOG)).transpose()?;
            Ok((is_due, backlog))
        });
        let (is_due, backlog) = backlog?;
        if let Some(backlog) = backlog.filter(|backlog| backlog.len() > BATCH) {
            self.turns = round_robin(&backlog, BATCHES_OF_TURNS * BATCH).into();
        }
        Ok(is_due)
    }

    /// Logs the runs that have caught up after `outage`, and sends the alerts about them.
    fn report_catch_up(&mut self, app: &App, outage: Outage) -> Result<()> {
        let caught_up = &self.unreported.caught_up;
        let sum = caught_up.values().copied().reduce(CaughtUp::and);
        let users: Vec<UserKey> = caught_up.keys().copied().collect();
        for users in users.chunks(BATCH) {
            let (users, now) = (users.to_vec(), app.clock.now());
            let enqueue = move |tx: &WriteTx<'_>| {
                users
                    .iter()
                    .try_for_each(|user_key| notify::post_catch_up(tx, *user_key, outage, now))
            };
            app.store.write_with_priority(enqueue).wait()?;
        }
        self.unreported.caught_up.clear();
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
        // If the accepted clock was right, nothing was missed. Cues that fall due after the acceptance are on time.
        if was_wrong {
            let until = accepted_at.map_or(now, |at| at.min(now));
            self.outage = Outage::before(until, MissReason::Clock);
            self.turns.clear();
            tracing::info!(%now, "clock accepted; cues that are overdue catch up");
        }
        Ok(())
    }

    fn read_clock(&mut self, app: &App, now: Timestamp, monotonic: Duration) {
        let doubted = app.clock.doubted();
        if doubted.is_some() != self.is_doubted {
            self.is_doubted = doubted.is_some();
            match doubted {
                Some(shown) => tracing::warn!(
                    previous = %now, now = %shown,
                    "the wall clock jumped ahead by more than a day; it is believed in ten minutes, or after `cued clock accept`"
                ),
                None => {
                    tracing::warn!(previous = %self.wall, %now, "the wall clock is believed again")
                }
            }
        }
        let real =
            SignedDuration::try_from(monotonic - self.monotonic).unwrap_or(SignedDuration::MAX);
        // A test clock moves on purpose, from instant to instant, and every cue that it passes fires.
        if let Some(reason) =
            gap(now.duration_since(self.wall), real).filter(|_| !app.clock.is_test())
        {
            // Once, although a full disk prolongs the gap with every pass.
            if self.outage.until < self.wall {
                tracing::warn!(since = %self.wall, %now, reason = reason.as_str(),
                    "no cue could fire for more than a minute; missed runs catch up");
            }
            self.outage = Outage::before(now, reason);
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
    }
}

/// Round robin over users: the first cue of each, then the second, up to `limit` cues, so that the many cues of one
/// account do not delay the few of another (contract §11.5). `backlog` holds the users and keys of cues. Cues of the
/// same turn keep their order.
fn round_robin(backlog: &[(UserKey, CueKey)], limit: usize) -> Vec<CueKey> {
    let mut next_turns = HashMap::new();
    let mut turns: Vec<(u32, CueKey)> = backlog
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
        let backlog = [(1, 10), (1, 11), (1, 12), (2, 20), (3, 30), (2, 21)]
            .map(|(user, cue)| (UserKey::new(user), CueKey::new(cue)));
        assert_eq!(round_robin(&backlog, 6), [10, 20, 30, 11, 21, 12].map(CueKey::new));
        assert_eq!(round_robin(&backlog, 2), [10, 20].map(CueKey::new));
    }
}
