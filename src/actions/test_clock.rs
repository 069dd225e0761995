//! Moving a test clock: from deadline to deadline, letting the engine come to rest at each (contract §10).

use jiff::Timestamp;

use crate::app::App;
use crate::error::{Error, Result};
use crate::store::ReadTx;
use crate::store::cues::due_cues;
use crate::store::db::hold;
use crate::store::executions::{claims, delivery_queue};
use crate::store::maintenance::cue_deletion;
use crate::store::maintenance::{queue_stats, retention};
use crate::store::notifications::outbox;

/// What a move of the clock caused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockAdvance {
    /// Where the clock stands now.
    pub now: Timestamp,
    /// Executions made by schedule.
    pub fired: u64,
    /// Delivery attempts ended.
    pub delivered: u64,
}

/// Moves the test clock to `target`, or leaves it where it is when that has passed. Everything that falls due on
/// the way is fired in order, and every delivery attempt that it causes has ended when this returns, and so has every
/// notice of a failure been tried, though those do not count. Blocks the thread: not for use in a task. Gives up once `stopping`: an engine that is stopped never comes to rest.
///
/// # Errors
/// When the file cannot be read, or the server stops.
pub fn advance_to(app: &App, target: Timestamp, stopping: &dyn Fn() -> bool) -> Result<ClockAdvance> {
    // One move at a time: two would step over each other's deadlines.
    let _turn = app.clock_moves.lock();
    let (fired, delivered) = (app.engine_stats.fired(), app.engine_stats.delivered());
    wait_until_idle(app, stopping)?;
    while let Some(next) = next_deadline(app)?.filter(|next| *next <= target) {
        step_to(app, next, stopping)?;
    }
    step_to(app, target, stopping)?;
    await_turn(app, stopping)?;
    Ok(ClockAdvance {
        now: app.clock.now(),
        fired: app.engine_stats.fired() - fired,
        delivered: app.engine_stats.delivered() - delivered,
    })
}

fn step_to(app: &App, instant: Timestamp, stopping: &dyn Fn() -> bool) -> Result<()> {
    app.clock.set(instant.max(app.clock.now()));
    app.notifiers.notify_all();
    wait_until_idle(app, stopping)
}

/// Waits until the engine has looked at this instant: history that ends by its age is no deadline.
fn await_turn(app: &App, stopping: &dyn Fn() -> bool) -> Result<()> {
    loop {
        let seen = app.notifiers.progress.generation();
        if app.engine_stats.cycle().last_run.is_some_and(|last| last >= app.clock.now()) {
            return wait_until_idle(app, stopping);
        }
        if stopping() {
            return Err(stops());
        }
        app.clock.wait(&app.notifiers.progress, seen, None);
    }
}

fn wait_until_idle(app: &App, stopping: &dyn Fn() -> bool) -> Result<()> {
    loop {
        if stopping() {
            return Err(stops());
        }
        // Taken before the look, so that progress made in between is not missed.
        let seen = app.notifiers.progress.generation();
        if is_at_rest(app)? && app.engine_stats.is_idle() {
            return Ok(());
        }
        app.clock.wait(&app.notifiers.progress, seen, None);
    }
}

fn is_at_rest(app: &App) -> Result<bool> {
    let (now, seen) = (app.clock.now(), app.engine_stats.seen());
    let look = app.store.read(move |read| {
        let waits = deadline(read, seen)?.is_some_and(|deadline| deadline <= now);
        if waits || hold::is_held(read)? {
            return Ok(!waits);
        }
        let is_swept = cue_deletion::first(read)?.is_none() && retention::first_marked(read)?.is_none();
        Ok(is_swept && !queue_stats::is_delivering(read)? && !outbox::has_ready(read)?)
    });
    look.wait()
}

fn stops() -> Error {
    Error::Storage("the server stops before the clock has been moved".to_owned())
}

fn next_deadline(app: &App) -> Result<Option<Timestamp>> {
    let seen = app.engine_stats.seen();
    app.store.read(move |read| deadline(read, seen)).wait()
}

/// The earliest instant at which the engine has something to do; none while the file is held. Before `seen` nothing
/// fires by schedule.
fn deadline(read: &ReadTx<'_>, seen: Timestamp) -> Result<Option<Timestamp>> {
    if hold::is_held(read)? {
        return Ok(None);
    }
    let cue = due_cues::next(read)?.map(|next| next.max(seen));
    let others = [delivery_queue::next_due_at(read)?, claims::next_expiry(read)?, outbox::next_due_at(read)?];
    Ok(others.into_iter().chain([cue]).flatten().min())
}
