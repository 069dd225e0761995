//! What follows a last failure: the notices of the outbox are told, mails by the post, POSTs by threads of their own,
//! so that they take none from the deliveries.
//!
//! [`Desk::pass`] is one pass. At least once: a notice is gone from the file when it is known to be told, no earlier.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::attempt::{Outcome, carry};
use super::clockwork::caught;
use super::courier::{Courier, Parcel};
use super::delivery::{DRAIN, drain};
use super::dispatcher::Intake;
use super::pool::Pool;
use super::shares::Shares;
use crate::app::App;
use crate::domain::callback::Method;
use crate::domain::delivery::Message;
use crate::domain::destination::authority_of;
use crate::domain::execution::Next;
use crate::domain::failure::FailureMail;
use crate::domain::notice::{Kind, after_post, is_stale, post};
use crate::domain::signature::Secrets;
use crate::error::Result;
use crate::mail::Mail;
use crate::store::outbox::{self, Notice};
use crate::store::{Read, Rings, hold};

/// POSTs at a time.
const THREADS: usize = 8;

/// Notices made ready in one transaction.
const BATCH: u32 = 500;

/// Mails handed to the post in one pass.
const MAILS: usize = 64;

/// When a mail is offered again for which the post had no room.
const NO_ROOM: SignedDuration = SignedDuration::from_secs(60);

/// The pause after a fault of the disk.
const AFTER_FAULT: Duration = Duration::from_secs(1);

/// The running escalation.
pub struct Escalation {
    app: Arc<App>,
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// A POST that has ended.
pub struct Told {
    key: i64,
    lane: i64,
    next: Next,
    timed_out: bool,
}

/// The escalation between two passes.
pub struct Desk {
    shares: Shares,
    /// The lane that was looked at last: the next pass goes on behind it.
    lane: i64,
    /// The rows of notices that are being told, or whose end is not on the disk yet.
    under_way: HashSet<i64>,
    unstored: Vec<(i64, Next)>,
    /// When a notice is to be told again that waits for that.
    deadline: Option<Timestamp>,
}

/// What a pass finds in the outbox.
struct Look {
    waiting: Option<Timestamp>,
    mails: Vec<Notice>,
    posts: Vec<Notice>,
    /// With a thread for each of `posts`.
    shares: Shares,
    lane: i64,
}

impl Escalation {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system starts no more threads.
    pub fn start(app: &Arc<App>, courier: Arc<dyn Courier>) -> std::io::Result<Self> {
        let told = Arc::new(Mutex::new(Vec::new()));
        let pool = start_pool(app, courier, &told)?;
        let stopping = Arc::new(AtomicBool::new(false));
        let (shared, stopped) = (Arc::clone(app), Arc::clone(&stopping));
        let thread = std::thread::Builder::new()
            .name("escalation".to_owned())
            .spawn(move || run(&shared, &stopped, &pool, &told))?;
        Ok(Self { app: Arc::clone(app), stopping, thread })
    }

    /// Set to tell nothing more; ring the bell for escalation then.
    pub(super) fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stopping)
    }

    /// Tells nothing more, and returns when the POSTs that are under way have ended, or after 30 s. What is left is
    /// told after the next start.
    pub fn stop(self) {
        self.stopping.store(true, Ordering::Release);
        self.app.bells.escalate.ring();
        if self.thread.join().is_err() {
            tracing::error!("the escalation ended by a panic");
        }
    }
}

impl Desk {
    /// A desk for this many POSTs at a time.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self {
            shares: Shares::of(threads),
            lane: i64::MIN,
            under_way: HashSet::new(),
            unstored: Vec::new(),
            deadline: None,
        }
    }

    /// One pass: records what came back, hands mails to the post, and answers the POSTs that there are threads for.
    /// Where there is nothing to do nothing is written.
    ///
    /// # Errors
    /// When the file cannot be read or written. Nothing was taken then; results are kept for the next pass.
    pub fn pass(&mut self, app: &App, told: Vec<Told>, intake: Intake) -> Result<Vec<Notice>> {
        let _pass = app.pulse.pass(&app.bells.progress);
        for Told { key, lane, next, timed_out } in told {
            self.shares.give_back(lane, timed_out);
            self.end(key, next);
        }
        self.record(app)?;
        if intake == Intake::Closed {
            return Ok(Vec::new());
        }
        let now = app.clock.now();
        let Look { waiting, mails, posts, mut shares, lane } = self.look_at_all_due(app, now)?;
        for mail in mails {
            self.end(mail.key, offer(app, &mail, now));
        }
        let (posts, lapsed): (Vec<_>, Vec<_>) = posts.into_iter().partition(|notice| is_worth(notice, now));
        for notice in lapsed {
            if let Some(lane) = notice.lane {
                shares.give_back(lane, false);
            }
            self.end(notice.key, Next::Failed);
        }
        self.record(app)?;
        shares.forget_idle();
        (self.shares, self.lane, self.deadline) = (shares, lane, waiting);
        self.under_way.extend(posts.iter().map(|notice| notice.key));
        Ok(posts)
    }

    /// Whether nothing is under way or still to be recorded.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        self.under_way.is_empty()
    }

    fn end(&mut self, key: i64, next: Next) {
        self.under_way.insert(key);
        self.unstored.push((key, next));
    }

    fn record(&mut self, app: &App) -> Result<()> {
        if self.unstored.is_empty() {
            return Ok(());
        }
        let ended = self.unstored.clone();
        let write = app.store.write(move |tx| {
            for (key, next) in &ended {
                outbox::record(tx, *key, *next)?;
            }
            // There may be more than one pass looked at, and the next instant is another one.
            tx.ring(Rings { escalate: true, ..Rings::default() });
            Ok(())
        });
        write.wait()?;
        for (key, next) in self.unstored.drain(..) {
            app.pulse.notices.with([next.status().as_str()]).add(1);
            self.under_way.remove(&key);
        }
        Ok(())
    }

    /// What is ready, once all that is due again has been made so.
    fn look_at_all_due(&self, app: &App, now: Timestamp) -> Result<Look> {
        loop {
            let look = self.look(app)?;
            if look.waiting.is_none_or(|due| due > now) {
                return Ok(look);
            }
            app.store.write(move |tx| outbox::promote_due(tx, now, BATCH)).wait()?;
        }
    }

    fn look(&self, app: &App) -> Result<Look> {
        let (under_way, mut shares, mut lane) = (self.under_way.clone(), self.shares.clone(), self.lane);
        let look = move |read: &Read<'_>| {
            if hold::is_held(read)? {
                return Ok(Look { waiting: None, mails: Vec::new(), posts: Vec::new(), shares, lane });
            }
            let (waiting, most) = (outbox::next_waiting(read)?, shares.free());
            let mails = outbox::mails(read, &under_way, MAILS)?;
            let posts = outbox::posts(read, &under_way, most, &mut lane, |lane| shares.claim(lane))?;
            Ok(Look { waiting, mails, posts, shares, lane })
        };
        app.store.read_promptly(look).wait()
    }
}

fn start_pool(
    app: &Arc<App>,
    courier: Arc<dyn Courier>,
    told: &Arc<Mutex<Vec<Told>>>,
) -> std::io::Result<Pool<Notice>> {
    // Only for as long as it is needed: a POST that a stop cuts short must not keep the database open.
    let (bells, app_while_it_runs, told) = (Arc::clone(&app.bells), Arc::downgrade(app), Arc::clone(told));
    let now = move || app_while_it_runs.upgrade().map(|app| app.clock.now());
    Pool::start(THREADS, move |notice: Notice| {
        let outcome = now().map(|now| send(&*courier, &notice, now));
        if let (Some(outcome), Some(now)) = (outcome, now()) {
            told.lock().unwrap_or_else(PoisonError::into_inner).push(judge(&notice, &outcome, now));
            bells.escalate.ring();
        }
    })
}

fn run(app: &App, stopping: &AtomicBool, pool: &Pool<Notice>, told: &Mutex<Vec<Told>>) {
    let mut desk = Desk::new(THREADS);
    while !stopping.load(Ordering::Acquire) {
        turn(app, &mut desk, pool, told, Intake::Open);
    }
    let until = app.clock.monotonic() + DRAIN;
    while !desk.is_clear() && app.clock.monotonic() < until {
        let left = SignedDuration::try_from(until - app.clock.monotonic()).unwrap_or(SignedDuration::ZERO);
        desk.deadline = app.clock.now().checked_add(left).ok();
        turn(app, &mut desk, pool, told, Intake::Closed);
    }
}

/// A pass, and then what it found to do, or a wait.
fn turn(app: &App, desk: &mut Desk, pool: &Pool<Notice>, told: &Mutex<Vec<Told>>, intake: Intake) {
    let seen = app.bells.escalate.rung();
    match caught(|| desk.pass(app, drain(told), intake)) {
        Ok(posts) if posts.is_empty() => app.clock.park(&app.bells.escalate, seen, desk.deadline),
        Ok(posts) => posts.into_iter().for_each(|notice| pool.submit(notice)),
        Err(error) => {
            tracing::error!("notices of failures rest for a moment: {error}");
            app.clock.pause(AFTER_FAULT);
        }
    }
}

/// Sends the POST of a notice, signed at `now`, and waits for the answer. Never panics.
pub fn send(courier: &dyn Courier, notice: &Notice, now: Timestamp) -> Outcome {
    carry(courier, || parcel(notice, now), &notice.id)
}

/// What a POST that ended at `now` means for its notice.
#[must_use]
pub fn judge(notice: &Notice, outcome: &Outcome, now: Timestamp) -> Told {
    let attempt = notice.attempts + 1;
    let next = after_post(attempt, notice.created_at, &outcome.attempt(now), now);
    if next == Next::Failed {
        let why = match outcome {
            Outcome::Answered(receipt) => format!("it answered {}", receipt.http_status),
            Outcome::Unanswered { reason, .. } | Outcome::Unsendable(reason) => reason.clone(),
        };
        // The host alone: the path of such a URL is often a secret.
        let host = notice.url.as_deref().map(authority_of).unwrap_or_default();
        give_up(notice, &format!("attempt {attempt} to tell {host}: {why}"));
    }
    Told { key: notice.key, lane: notice.lane.unwrap_or_default(), next, timed_out: outcome.timed_out() }
}

fn parcel(notice: &Notice, now: Timestamp) -> std::result::Result<Parcel, String> {
    let url = notice.url.clone().ok_or("the notice has no URL")?;
    let secrets = match notice.kind {
        Kind::Alert(_) => Secrets { current: &notice.alert_webhook_secret, previous: None },
        Kind::Failure | Kind::Mail => Secrets::at(
            now,
            &notice.webhook_secret,
            notice.previous_secret.as_deref(),
            notice.previous_secret_expires,
        ),
    };
    let Message { headers, body } = post(notice.kind, &notice.id, &notice.body, secrets, now);
    Ok(Parcel { method: Method::Post, url, headers, body })
}

/// Hands a mail to the post; answers what follows.
fn offer(app: &App, notice: &Notice, now: Timestamp) -> Next {
    if !is_worth(notice, now) {
        return Next::Failed;
    }
    let Some(mail) = FailureMail::read(&notice.body) else {
        give_up(notice, "what is stored of it cannot be read");
        return Next::Failed;
    };
    let base = &app.settings.public_url;
    let mail = Mail {
        to: notice.email.clone(),
        subject: mail.subject(),
        text: mail.text(base),
        link: Some(mail.link(base)),
        at: notice.created_at,
        stays: false,
    };
    match now.checked_add(NO_ROOM) {
        Ok(later) if !app.post.offer(mail) => Next::RetryAt(later),
        _ => Next::Success,
    }
}

/// Whether the notice may still be told; the log says why not.
fn is_worth(notice: &Notice, now: Timestamp) -> bool {
    if notice.disabled_at.is_some() {
        give_up(notice, "the account is disabled");
    } else if is_stale(notice.created_at, now) {
        give_up(notice, "it is a day old");
    } else {
        return true;
    }
    false
}

fn give_up(notice: &Notice, why: &str) {
    let (id, kind, user_id) = (&notice.id, notice.kind.as_str(), &notice.user_id);
    tracing::warn!("notice {id} ({kind}) for user {user_id} is given up: {why}");
}
