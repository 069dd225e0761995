//! Sends the notifications in the outbox, on threads of their own: POSTs take no thread from deliveries, and mails about
//! failures never delay the mails of a login.
//!
//! [`NotificationDispatcher::run_once`] is one pass. Delivery is at least once: a notification is deleted only when its
//! receiver has accepted it or it is given up. A notification that a stop or a crash cuts off is sent again after the
//! next start.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    NotificationResult, is_worth_sending, post, result_of_mail, send_mail,
};
use crate::engine::webhook_client::WebhookClient;
use crate::error::{Error, Result};
use crate::locks::Mutex;
use crate::panics;
use crate::store::db::hold;
use crate::store::fair_queue::{ReadyRow, Rotation};
use crate::store::notifications::outbox::{self, Notification};
use crate::store::{ReadTx, WakeSet, WriteTx};

/// POSTs at a time. Notifications are rare next to deliveries. With [`FairShare`], six accounts whose hosts all hang for
/// the first time hold half of the threads together.
const THREADS: usize = 16;

/// Notifications promoted in one transaction; as many as the cues that one transaction fires.
const BATCH: u32 = 500;

/// Mails at a time: each holds a connection to the mail server, of which small servers allow few.
const MAILS: usize = 2;

/// The pause after a database error: long enough to keep the log readable while a disk is full.
const AFTER_FAULT: Duration = Duration::from_secs(1);

pub struct NotificationService {
    app: Arc<App>,
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

struct NotificationThreads {
    posts: ThreadPool<Notification>,
    mails: ThreadPool<Notification>,
}

/// The state of the notifications between two passes.
pub struct NotificationDispatcher {
    slots: FairShare,
    rotation: Rotation,
    /// Rows of notifications that are being sent, or whose result is not committed yet.
    in_flight: HashSet<i64>,
    /// Number of mails being sent.
    mails: usize,
    /// Rows that cannot be read or recorded. They are skipped until the next start, so that they hold up nothing.
    skipped_rows: HashSet<i64>,
    unrecorded: Vec<(i64, NextStep)>,
    /// When the next waiting notification is due.
    deadline: Option<Timestamp>,
}

/// The notifications that a pass finds in the outbox.
struct OutboxScan {
    next_due: Option<Timestamp>,
    found: Vec<Notification>,
    /// Rows that cannot be read.
    broken: Vec<(i64, Error)>,
    /// The slots after each POST of `found` has taken one.
    slots: FairShare,
    rotation: Rotation,
}

impl NotificationService {
    /// Errors: the system cannot start a thread.
    pub fn start(app: &Arc<App>, webhook_client: Arc<dyn WebhookClient>) -> std::io::Result<Self> {
        let finished = Arc::new(Mutex::new(Vec::new()));
        let threads = NotificationThreads::start(app, webhook_client, &finished)?;
        let stopping = Arc::new(AtomicBool::new(false));
        let (shared, stopped) = (Arc::clone(app), Arc::clone(&stopping));
        let thread = std::thread::Builder::new()
            .name("notifications".to_owned())
            .spawn(move || run(&shared, &stopped, &threads, &finished))?;
        Ok(Self { app: Arc::clone(app), stopping, thread })
    }

    /// The flag that stops the service; notify `notifications` after setting it.
    pub(in crate::engine) fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stopping)
    }

    /// Starts no further notification and waits for the running ones, for 30 s at most. The others are sent after the
    /// next start.
    pub fn stop(self) {
        self.stopping.store(true, Ordering::Release);
        self.app.notifiers.notifications.notify();
        if self.thread.join().is_err() {
            tracing::error!("notification thread panicked");
        }
    }
}

impl NotificationDispatcher {
    pub fn new(threads: usize) -> Self {
        Self {
            slots: FairShare::new(threads),
            rotation: Rotation::default(),
            in_flight: HashSet::new(),
            mails: 0,
            skipped_rows: HashSet::new(),
            unrecorded: Vec::new(),
            deadline: None,
        }
    }

    /// One pass: records `finished` notifications and returns those to send, as many as there are free threads. Writes
    /// nothing if there is nothing to do.
    /// Errors: the database fails. No notification is started then, and the results are kept for the next pass.
    pub fn run_once(
        &mut self,
        app: &App,
        finished: Vec<NotificationResult>,
        mode: DispatcherMode,
    ) -> Result<Vec<Notification>> {
        let _pass = app.engine_stats.begin_pass(&app.notifiers.progress);
        for NotificationResult { key, user_key, destination, is_confirmed, next, timed_out } in finished {
            match destination {
                Some(destination) => self.slots.release(user_key, destination, timed_out),
                None => {
                    self.mails = self.mails.saturating_sub(1);
                    if next != NextStep::Success {
                        app.mail_limits.give_back(is_confirmed);
                    }
                }
            }
            self.end(key, next);
        }
        self.record(app)?;
        if mode == DispatcherMode::Draining {
            return Ok(Vec::new());
        }
        let now = app.clock.now();
        let OutboxScan { next_due, found, broken, mut slots, rotation } = self.scan_due(app, now)?;
        self.skip(app, broken);
        let (found, expired): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|notification| is_worth_sending(notification, now));
        for notification in expired {
            if let Some(destination) = notification.destination {
                slots.release(notification.user_key, destination, false);
            }
            self.end(notification.key, NextStep::Failed);
        }
        self.record(app)?;
        let found = self.within_mail_limit(app, found, now);
        self.record(app)?;
        slots.forget_idle();
        (self.slots, self.rotation, self.deadline) = (slots, rotation, next_due);
        self.mails += found.iter().filter(|notification| notification.destination.is_none()).count();
        self.in_flight.extend(found.iter().map(|notification| notification.key));
        Ok(found)
    }

    /// The notifications of `found` without the mails above the hourly limit, which wait in the outbox until it admits one
    /// again.
    fn within_mail_limit(
        &mut self,
        app: &App,
        found: Vec<Notification>,
        now: Timestamp,
    ) -> Vec<Notification> {
        let mut admitted = Vec::with_capacity(found.len());
        for notification in found {
            let is_confirmed = notification.is_confirmed;
            match notification.destination.map_or_else(|| app.mail_limits.take(is_confirmed, now), |_| Ok(()))
            {
                Ok(()) => admitted.push(notification),
                Err(free_at) => self.end(notification.key, NextStep::RetryAt(free_at)),
            }
        }
        admitted
    }

    /// Returns whether no notification is being sent or waits to be recorded.
    pub fn is_clear(&self) -> bool {
        self.in_flight.is_empty()
    }

    fn end(&mut self, key: i64, next: NextStep) {
        self.in_flight.insert(key);
        self.unrecorded.push((key, next));
    }

    fn record(&mut self, app: &App) -> Result<()> {
        if self.unrecorded.is_empty() {
            return Ok(());
        }
        let ended = self.unrecorded.clone();
        match app.store.write_with_priority(move |tx| record_all(tx, &ended)).wait() {
            // A retry helps after a disk error, not after a fault: record the others one by one.
            Err(Error::Fault(_) | Error::Corrupt(_)) => return self.record_each(app),
            recorded => recorded?,
        }
        for (key, next) in self.unrecorded.drain(..) {
            app.engine_stats.notifications.with([next.status().as_str()]).add(1);
            self.in_flight.remove(&key);
        }
        Ok(())
    }

    /// Records results one by one after they failed together. A row that cannot be recorded is sent again after the next
    /// start.
    fn record_each(&mut self, app: &App) -> Result<()> {
        while let Some(&(key, next)) = self.unrecorded.last() {
            match app.store.write_with_priority(move |tx| record_all(tx, &[(key, next)])).wait() {
                Err(error @ Error::Storage(_)) => return Err(error),
                Err(error) => self.skip(app, vec![(key, error)]),
                Ok(()) => app.engine_stats.notifications.with([next.status().as_str()]).add(1),
            }
            self.unrecorded.pop();
            self.in_flight.remove(&key);
        }
        Ok(())
    }

    fn skip(&mut self, app: &App, broken: Vec<(i64, Error)>) {
        for (key, error) in broken {
            tracing::error!(notification_row = key, %error, "outbox row skipped until the next start");
            self.skipped_rows.insert(key);
            // Rows behind it may be ready.
            app.notifiers.notifications.notify();
        }
    }

    /// Promotes waiting notifications that are due, then reads those that are ready.
    fn scan_due(&self, app: &App, now: Timestamp) -> Result<OutboxScan> {
        loop {
            let scan = self.scan(app)?;
            if scan.next_due.is_none_or(|due| due > now) {
                return Ok(scan);
            }
            app.store.write_with_priority(move |tx| outbox::promote_due(tx, now, BATCH)).wait()?;
        }
    }

    fn scan(&self, app: &App) -> Result<OutboxScan> {
        let skipped: HashSet<i64> = self.in_flight.union(&self.skipped_rows).copied().collect();
        let (mut slots, mut rotation, most_mails) =
            (self.slots.clone(), self.rotation.clone(), MAILS.saturating_sub(self.mails));
        let scan = move |read: &ReadTx<'_>| {
            if hold::is_held(read)? {
                return Ok(OutboxScan {
                    next_due: None,
                    found: Vec::new(),
                    broken: Vec::new(),
                    slots,
                    rotation,
                });
            }
            let (next_due, most) = (outbox::next_due_at(read)?, slots.free());
            let mails = outbox::ready_mails(read, &skipped, most_mails)?.into_iter().map(|key| (key, None));
            let posts = outbox::ready_posts(read, &skipped, most, &mut rotation, |user_key, destination| {
                slots.try_acquire(user_key, destination)
            })?;
            let posts = posts.into_iter().map(|post| (post.key, Some(post)));
            let (mut found, mut broken) = (Vec::new(), Vec::new());
            for (key, post) in mails.chain(posts) {
                match outbox::find(read, key) {
                    Ok(notification) => found.push(notification),
                    Err(error @ Error::Storage(_)) => return Err(error),
                    Err(error) => {
                        broken.push((key, error));
                        if let Some(ReadyRow { user_key, destination, .. }) = post {
                            slots.release(user_key, destination, false);
                        }
                    }
                }
            }
            Ok(OutboxScan { next_due, found, broken, slots, rotation })
        };
        app.store.read_blocking(scan)
    }
}

fn record_all(tx: &WriteTx<'_>, ended: &[(i64, NextStep)]) -> Result<()> {
    for (key, next) in ended {
        outbox::record_result(tx, *key, *next)?;
    }
    // More rows may be ready than the last pass had slots for, and the next deadline has changed.
    tx.wake(WakeSet { notifications: true, ..WakeSet::default() });
    Ok(())
}

impl NotificationThreads {
    fn start(
        app: &Arc<App>,
        webhook_client: Arc<dyn WebhookClient>,
        finished: &Arc<Mutex<Vec<NotificationResult>>>,
    ) -> std::io::Result<Self> {
        let (route, base) = (app.config.mail.clone(), app.config.public_url.clone());
        let (tests, notifiers) = (Arc::clone(&app.test_alerts), Arc::clone(&app.notifiers));
        let posts = start_pool(THREADS, app, finished, move |notification, now| {
            post(&*webhook_client, notification, &tests, &notifiers, now)
        })?;
        let mails = start_pool(MAILS, app, finished, move |notification, now| {
            let sent = send_mail(&route, &base, notification);
            Some(result_of_mail(notification, &sent, now()?))
        })?;
        Ok(Self { posts, mails })
    }

    fn submit(&self, notification: Notification) {
        let pool = if notification.destination.is_some() { &self.posts } else { &self.mails };
        pool.submit(notification);
    }
}

fn start_pool(
    most: usize,
    app: &Arc<App>,
    finished: &Arc<Mutex<Vec<NotificationResult>>>,
    send_one: impl Fn(&Notification, &dyn Fn() -> Option<Timestamp>) -> Option<NotificationResult>
    + Send
    + Sync
    + 'static,
) -> std::io::Result<ThreadPool<Notification>> {
    // A weak reference: a notification that a stop cuts off must not keep the database open.
    let (notifiers, weak_app, finished) =
        (Arc::clone(&app.notifiers), Arc::downgrade(app), Arc::clone(finished));
    let now = move || weak_app.upgrade().map(|app| app.clock.now());
    ThreadPool::start(most, move |notification: Notification| {
        if let Some(ended) = send_one(&notification, &now) {
            finished.lock().push(ended);
            notifiers.notifications.notify();
        }
    })
}

fn run(
    app: &App,
    stopping: &AtomicBool,
    threads: &NotificationThreads,
    finished: &Mutex<Vec<NotificationResult>>,
) {
    let mut dispatcher = NotificationDispatcher::new(THREADS);
    while !stopping.load(Ordering::Acquire) {
        run_pass(app, &mut dispatcher, threads, finished, DispatcherMode::Running);
    }
    let until = app.clock.monotonic() + DRAIN;
    while !dispatcher.is_clear() && app.clock.monotonic() < until {
        let left = SignedDuration::try_from(until - app.clock.monotonic()).unwrap_or(SignedDuration::ZERO);
        dispatcher.deadline = app.clock.now().checked_add(left).ok();
        run_pass(app, &mut dispatcher, threads, finished, DispatcherMode::Draining);
    }
}

/// Runs one pass, then submits its notifications or waits.
fn run_pass(
    app: &App,
    dispatcher: &mut NotificationDispatcher,
    threads: &NotificationThreads,
    finished: &Mutex<Vec<NotificationResult>>,
    mode: DispatcherMode,
) {
    let seen = app.notifiers.notifications.generation();
    match panics::catch("the notification dispatcher", || dispatcher.run_once(app, drain(finished), mode)) {
        Ok(notifications) if notifications.is_empty() => {
            app.clock.wait(&app.notifiers.notifications, seen, dispatcher.deadline)
        }
        Ok(notifications) => notifications.into_iter().for_each(|notification| threads.submit(notification)),
        Err(error) => {
            tracing::error!(%error, "notifications paused for 1 s after an error");
            app.clock.sleep(AFTER_FAULT);
        }
    }
}
