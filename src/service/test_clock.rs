//! Advances a test clock from deadline to deadline and waits at each until the engine is idle (contract §10); empties
//! the database between two tests.

use jiff::Timestamp;

use crate::app::App;
use crate::domain::execution::worker::workers_return_by;
use crate::domain::notification::event::{Event, ServerChange};
use crate::error::{Error, Result};
use crate::service::deadlines;
use crate::store::cues::flows;
use crate::store::db::meta;
use crate::store::executions::policies;
use crate::store::maintenance::{reset, retention};
use crate::store::outbox;
use crate::store::stats;
use crate::store::{ReadTx, channels};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockAdvance {
    pub now: Timestamp,
    /// The instant of [`ClockTarget::Next`]; `None` if nothing was due.
    pub next: Option<Timestamp>,
    pub fired: u64,
    pub delivered: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockTarget {
    To(Timestamp),
    /// The next instant at which something is due. The clock stays where it is if nothing is.
    Next,
}

/// When this returns, every attempt that it caused has ended and every notification was tried once. Blocks the thread.
/// Errors: once `stopping` returns true: a stopped engine never becomes idle, and nobody waits for the rest if the client
/// is gone.
pub fn advance(
    app: &App,
    target: ClockTarget,
    stopping: &dyn Fn() -> bool,
) -> Result<ClockAdvance> {
    // One at a time: two concurrent calls would skip each other's deadlines.
    let _turn = app.clock_moves.lock();
    let begun_at = app.clock.now();
    let (fired, delivered) = (app.engine_stats.fired.get(), app.engine_stats.delivered.get());
    set_clock(app, begun_at, stopping)?;
    let (next, target) = match target {
        ClockTarget::To(target) => (None, target),
        ClockTarget::Next => {
            let next = next_deadline(app)?;
            (next, next.unwrap_or(begun_at))
        }
    };
    let moved = move_to(app, target, stopping);
    let now = app.clock.now();
    // Also if the move was cut short.
    if now > begun_at {
        app.events.publish_server(Event::server(ServerChange::ClockMoved, now));
    }
    moved.map(|()| ClockAdvance {
        now,
        next,
        fired: app.engine_stats.fired.get() - fired,
        delivered: app.engine_stats.delivered.get() - delivered,
    })
}

fn move_to(app: &App, target: Timestamp, stopping: &dyn Fn() -> bool) -> Result<()> {
    while let Some(next) = next_deadline(app)?.filter(|next| *next <= target) {
        set_clock(app, next, stopping)?;
    }
    set_clock(app, target, stopping)?;
    wait_for_pass(app, stopping)
}

/// Deletes all accounts with all that they have, and what is remembered of callers. The clock stays where it is. When
/// this returns, the attempts, notifications and test calls under way have ended, so that the next test gets none of them.
/// Errors: as [`advance`].
pub fn reset(app: &App, stopping: &dyn Fn() -> bool) -> Result<()> {
    let _turn = app.clock_moves.lock();
    // It has waited for its turn, and the accounts may be those of another client by now.
    refuse_if(stopping)?;
    app.store.write(reset::empty).wait()?;
    app.forget_callers();
    set_clock(app, app.clock.now(), stopping)?;
    wait_until(app, stopping, || Ok(!app.test_calls.lock().any_running()))
}

/// Sets the clock and wakes all threads, even if the instant is the present one: an idle thread may have clean-up to do,
/// and would look for it only after `MAX_WAIT`.
fn set_clock(app: &App, instant: Timestamp, stopping: &dyn Fn() -> bool) -> Result<()> {
    app.clock.set(instant.max(app.clock.now()));
    app.notifiers.notify_all();
    wait_until_idle(app, stopping)
}

/// Waits for a scheduler pass at this instant. Retention by age is not a deadline, so `next_deadline` does not cover
/// it.
fn wait_for_pass(app: &App, stopping: &dyn Fn() -> bool) -> Result<()> {
    let has_passed =
        || app.engine_stats.last_pass().started_at.is_some_and(|last| last >= app.clock.now());
    wait_until(app, stopping, || Ok(has_passed()))?;
    wait_until_idle(app, stopping)
}

fn wait_until_idle(app: &App, stopping: &dyn Fn() -> bool) -> Result<()> {
    wait_until(app, stopping, || Ok(is_idle(app)? && app.engine_stats.is_idle()))
}

fn refuse_if(stopping: &dyn Fn() -> bool) -> Result<()> {
    if !stopping() {
        return Ok(());
    }
    Err(Error::storage(
        "the server is stopping, or its client has gone away; what was asked has not ended",
    ))
}

fn wait_until(
    app: &App,
    stopping: &dyn Fn() -> bool,
    is_done: impl Fn() -> Result<bool>,
) -> Result<()> {
    loop {
        refuse_if(stopping)?;
        // Read before the check, so that progress in between is not missed.
        let seen = app.notifiers.progress.generation();
        if is_done()? {
            return Ok(());
        }
        app.clock.wait(&app.notifiers.progress, seen, None);
    }
}

fn is_idle(app: &App) -> Result<bool> {
    let (now, seen) = (app.clock.now(), app.engine_stats.last_seen());
    let checks_from = workers_return_by(app.outage());
    let idle = app.store.read(move |read| {
        let waits = deadline(read, now, seen, checks_from)?.is_some_and(|deadline| deadline <= now);
        if waits || meta::is_held(read)? {
            return Ok(!waits);
        }
        let is_swept = retention::first_deleted_cue(read)?.is_none()
            && retention::first_queued(read)?.is_none()
            && !policies::has_changed(read)?;
        Ok(is_swept
            && !stats::is_delivering(read)?
            && !flows::has_turn(read, now)?
            && !outbox::has_ready(read)?)
    });
    idle.wait()
}

fn next_deadline(app: &App) -> Result<Option<Timestamp>> {
    let seen = app.engine_stats.last_seen();
    let (now, checks_from) = (app.clock.now(), workers_return_by(app.outage()));
    app.store.read(move |read| deadline(read, now, seen, checks_from)).wait()
}

/// `None` on hold. The arguments are those of [`deadlines::next`].
fn deadline(
    read: &ReadTx<'_>,
    now: Timestamp,
    seen: Timestamp,
    checks_from: Timestamp,
) -> Result<Option<Timestamp>> {
    if meta::is_held(read)? {
        return Ok(None);
    }
    let instants = [
        deadlines::next(read, seen, checks_from)?,
        flows::next_turn(read, now, now)?,
        outbox::next_due_at(read)?,
        channels::next_due_at(read)?,
        channels::next_reminder(read)?,
    ];
    Ok(instants.into_iter().flatten().min())
}
