//! What follows a last failure: the notices of the outbox are told by threads of their own, so that POSTs take none
//! from the deliveries, and mails about failures never stand before those of a login.
//!
//! [`NotificationDispatcher::run_once`] is one pass. At least once: a notice is gone from the file when it was taken or is given up, no
//! earlier; what a stop or a crash cuts short is told again after the next start.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::app::App;
use crate::domain::execution::NextStep;
use crate::engine::delivery::delivery_service::{DRAIN, drain};
use crate::engine::delivery::dispatcher::DispatcherMode;
use crate::engine::delivery::fair_share::FairShare;
use crate::engine::delivery::thread_pool::ThreadPool;
use crate::engine::notifications::notification_sender::{
    NotificationResult, is_worth, judge, judge_mail, send, send_mail,
};
use crate::engine::webhook_client::WebhookClient;
use crate::error::{Error, Result};
use crate::panics;
use crate::store::db::hold;
use crate::store::notifications::outbox;
use crate::store::notifications::outbox::Notification;
use crate::store::{ReadTx, WakeSet, WriteTx};

/// POSTs at a time.
const THREADS: usize = 8;

/// Notices made ready in one transaction.
const BATCH: u32 = 500;

/// Mails at a time.
const MAILS: usize = 2;

/// The pause after a fault of the disk.
const AFTER_FAULT: Duration = Duration::from_secs(1);

/// The running escalation.
pub struct NotificationService {
    app: Arc<App>,
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// The threads that tell.
struct NotificationThreads {
    posts: ThreadPool<Notification>,
    mails: ThreadPool<Notification>,
}

/// The escalation between two passes.
pub struct NotificationDispatcher {
    shares: FairShare,
    /// The lane that was looked at last: the next pass goes on behind it.
    lane: i64,
    /// The rows of notices that are being told, or whose end is not on the disk yet.
    under_way: HashSet<i64>,
    /// How many mails are being told.
    mails: usize,
    /// The rows that can not be read or recorded: let alone until the next start, so that they hold up nothing.
    aside: HashSet<i64>,
    unstored: Vec<(i64, NextStep)>,
    /// When a notice is to be told again that waits for that.
    deadline: Option<Timestamp>,
}

/// What a pass finds in the outbox.
struct OutboxScan {
    waiting: Option<Timestamp>,
    found: Vec<Notification>,
    /// Rows that cannot be read, and why.
    broken: Vec<(i64, Error)>,
    /// With a thread for each POST of `found`.
    shares: FairShare,
    lane: i64,
}

impl NotificationService {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system starts no more threads.
    pub fn start(app: &Arc<App>, webhook_client: Arc<dyn WebhookClient>) -> std::io::Result<Self> {
        let told = Arc::new(Mutex::new(Vec::new()));
        let threads = NotificationThreads::start(app, webhook_client, &told)?;
        let stopping = Arc::new(AtomicBool::new(false));
        let (shared, stopped) = (Arc::clone(app), Arc::clone(&stopping));
        let thread = std::thread::Builder::new()
            .name("escalation".to_owned())
            .spawn(move || run(&shared, &stopped, &threads, &told))?;
        Ok(Self { app: Arc::clone(app), stopping, thread })
    }

    /// Set to tell nothing more; ring the bell for escalation then.
    pub(in crate::engine) fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stopping)
    }

    /// Tells nothing more, and returns when what is under way has ended, or after 30 s. What is left is told after the
    /// next start.
    pub fn stop(self) {
        self.stopping.store(true, Ordering::Release);
        self.app.notifiers.escalate.notify();
        if self.thread.join().is_err() {
            tracing::error!("the escalation ended by a panic");
        }
    }
}

impl NotificationDispatcher {
    /// A desk for this many POSTs at a time.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self {
            shares: FairShare::new(threads),
            lane: i64::MIN,
            under_way: HashSet::new(),
            mails: 0,
            aside: HashSet::new(),
            unstored: Vec::new(),
            deadline: None,
        }
    }

    /// One pass: records what came back, and answers the notices that there are threads for. Where there is nothing to
    /// do nothing is written.
    ///
    /// # Errors
    /// When the file cannot be read or written. Nothing was taken then; results are kept for the next pass.
    pub fn run_once(
        &mut self,
        app: &App,
        told: Vec<NotificationResult>,
        intake: DispatcherMode,
    ) -> Result<Vec<Notification>> {
        let _pass = app.engine_stats.begin_pass(&app.notifiers.progress);
        for NotificationResult { key, lane, next, timed_out } in told {
            match lane {
                Some(lane) => self.shares.release(lane, timed_out),
                None => self.mails = self.mails.saturating_sub(1),
            }
            self.end(key, next);
        }
        self.record(app)?;
        if intake == DispatcherMode::Draining {
            return Ok(Vec::new());
        }
        let now = app.clock.now();
        let OutboxScan { waiting, found, broken, mut shares, lane } = self.look_at_all_due(app, now)?;
        self.set_aside(app, broken);
        let (found, lapsed): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|notification| is_worth(notification, now));
        for notification in lapsed {
            if let Some(lane) = notification.lane {
                shares.release(lane, false);
            }
            self.end(notification.key, NextStep::Failed);
        }
        self.record(app)?;
        shares.forget_idle();
        (self.shares, self.lane, self.deadline) = (shares, lane, waiting);
        self.mails += found.iter().filter(|notification| notification.lane.is_none()).count();
        self.under_way.extend(found.iter().map(|notification| notification.key));
        Ok(found)
    }

    /// Whether nothing is under way or still to be recorded.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        self.under_way.is_empty()
    }

    fn end(&mut self, key: i64, next: NextStep) {
        self.under_way.insert(key);
        self.unstored.push((key, next));
    }

    fn record(&mut self, app: &App) -> Result<()> {
        if self.unstored.is_empty() {
            return Ok(());
        }
        let ended = self.unstored.clone();
        match app.store.write(move |tx| record_all(tx, &ended)).wait() {
            // Trying again mends a disk, not a fault: what can be recorded is, so that the rest holds up nothing.
            Err(Error::Fault(_) | Error::Damaged(_)) => return self.record_each(app),
            recorded => recorded?,
        }
        for (key, next) in self.unstored.drain(..) {
            app.engine_stats.notifications.with([next.status().as_str()]).add(1);
            self.under_way.remove(&key);
        }
        Ok(())
    }

    /// Records one by one what could not be recorded together. The row at fault is told again after the next start.
    fn record_each(&mut self, app: &App) -> Result<()> {
        while let Some(&(key, next)) = self.unstored.last() {
            match app.store.write(move |tx| record_all(tx, &[(key, next)])).wait() {
                Err(error @ Error::Storage(_)) => return Err(error),
                Err(error) => self.set_aside(app, vec![(key, error)]),
                Ok(()) => app.engine_stats.notifications.with([next.status().as_str()]).add(1),
            }
            self.unstored.pop();
            self.under_way.remove(&key);
        }
        Ok(())
    }

    fn set_aside(&mut self, app: &App, broken: Vec<(i64, Error)>) {
        for (key, error) in broken {
            tracing::error!("row {key} of the outbox is left alone until the next start: {error}");
            self.aside.insert(key);
            // It stood before others.
            app.notifiers.escalate.notify();
        }
    }

    /// What is ready, once all that is due again has been made so.
    fn look_at_all_due(&self, app: &App, now: Timestamp) -> Result<OutboxScan> {
        loop {
            let look = self.look(app)?;
            if look.waiting.is_none_or(|due| due > now) {
                return Ok(look);
            }
            app.store.write(move |tx| outbox::promote_due(tx, now, BATCH)).wait()?;
        }
    }

    fn look(&self, app: &App) -> Result<OutboxScan> {
        let skipped: HashSet<i64> = self.under_way.union(&self.aside).copied().collect();
        let (mut shares, mut lane, most_mails) =
            (self.shares.clone(), self.lane, MAILS.saturating_sub(self.mails));
        let look = move |read: &ReadTx<'_>| {
            if hold::is_held(read)? {
                return Ok(OutboxScan { waiting: None, found: Vec::new(), broken: Vec::new(), shares, lane });
            }
            let (waiting, most) = (outbox::next_waiting(read)?, shares.free());
            let mut rows = outbox::mails(read, &skipped, most_mails)?;
            rows.extend(outbox::posts(read, &skipped, most, &mut lane, |lane| shares.try_acquire(lane))?);
            let (mut found, mut broken) = (Vec::new(), Vec::new());
            for (key, lane) in rows {
                match outbox::find(read, key) {
                    Ok(notification) => found.push(notification),
                    Err(error @ Error::Storage(_)) => return Err(error),
                    Err(error) => {
                        broken.push((key, error));
                        lane.into_iter().for_each(|lane| shares.release(lane, false));
                    }
                }
            }
            Ok(OutboxScan { waiting, found, broken, shares, lane })
        };
        app.store.read_blocking(look)
    }
}

fn record_all(tx: &WriteTx<'_>, ended: &[(i64, NextStep)]) -> Result<()> {
    for (key, next) in ended {
        outbox::record(tx, *key, *next)?;
    }
    // There may be more than one pass looked at, and the next instant is another one.
    tx.ring(WakeSet { escalate: true, ..WakeSet::default() });
    Ok(())
}

impl NotificationThreads {
    fn start(
        app: &Arc<App>,
        webhook_client: Arc<dyn WebhookClient>,
        told: &Arc<Mutex<Vec<NotificationResult>>>,
    ) -> std::io::Result<Self> {
        let (route, base) = (app.config.mail.clone(), app.config.public_url.clone());
        let posts = start_pool(THREADS, app, told, move |notification, now| {
            let outcome = send(&*webhook_client, notification, now()?);
            Some(judge(notification, &outcome, now()?))
        })?;
        let mails = start_pool(MAILS, app, told, move |notification, now| {
            let sent = send_mail(&route, &base, notification);
            Some(judge_mail(notification, &sent, now()?))
        })?;
        Ok(Self { posts, mails })
    }

    fn submit(&self, notification: Notification) {
        let pool = if notification.lane.is_some() { &self.posts } else { &self.mails };
        pool.submit(notification);
    }
}

fn start_pool(
    most: usize,
    app: &Arc<App>,
    told: &Arc<Mutex<Vec<NotificationResult>>>,
    tell: impl Fn(&Notification, &dyn Fn() -> Option<Timestamp>) -> Option<NotificationResult>
    + Send
    + Sync
    + 'static,
) -> std::io::Result<ThreadPool<Notification>> {
    // Only for as long as it is needed: what a stop cuts short must not keep the database open.
    let (notifiers, app_while_it_runs, told) =
        (Arc::clone(&app.notifiers), Arc::downgrade(app), Arc::clone(told));
    let now = move || app_while_it_runs.upgrade().map(|app| app.clock.now());
    ThreadPool::start(most, move |notification: Notification| {
        if let Some(ended) = tell(&notification, &now) {
            told.lock().unwrap_or_else(PoisonError::into_inner).push(ended);
            notifiers.escalate.notify();
        }
    })
}

fn run(
    app: &App,
    stopping: &AtomicBool,
    threads: &NotificationThreads,
    told: &Mutex<Vec<NotificationResult>>,
) {
    let mut desk = NotificationDispatcher::new(THREADS);
    while !stopping.load(Ordering::Acquire) {
        turn(app, &mut desk, threads, told, DispatcherMode::Running);
    }
    let until = app.clock.monotonic() + DRAIN;
    while !desk.is_clear() && app.clock.monotonic() < until {
        let left = SignedDuration::try_from(until - app.clock.monotonic()).unwrap_or(SignedDuration::ZERO);
        desk.deadline = app.clock.now().checked_add(left).ok();
        turn(app, &mut desk, threads, told, DispatcherMode::Draining);
    }
}

/// A pass, and then what it found to do, or a wait.
fn turn(
    app: &App,
    desk: &mut NotificationDispatcher,
    threads: &NotificationThreads,
    told: &Mutex<Vec<NotificationResult>>,
    intake: DispatcherMode,
) {
    let seen = app.notifiers.escalate.generation();
    match panics::catch("the notification dispatcher", || desk.run_once(app, drain(told), intake)) {
        Ok(notifications) if notifications.is_empty() => {
            app.clock.wait(&app.notifiers.escalate, seen, desk.deadline)
        }
        Ok(notifications) => notifications.into_iter().for_each(|notification| threads.submit(notification)),
        Err(error) => {
            tracing::error!("notices of failures rest for a moment: {error}");
            app.clock.sleep(AFTER_FAULT);
        }
    }
}
