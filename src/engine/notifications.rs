//! Sends the notifications in the outbox, on threads of their own: POSTs take no thread from deliveries, and mails about
//! failures never delay the mails of a login.
//!
//! [`NotificationDispatcher::run_once`] is one pass. Delivery is at least once: a notification is deleted only when its
//! receiver has accepted it or it is given up. A notification that a stop or a crash cuts off is sent again after the
//! next start.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::{SignedDuration, Timestamp};

use crate::app::{App, Notifiers};
use crate::domain::execution::NextStep;
use crate::domain::notification::alert::{RunningTests, TestAttempt};
use crate::domain::notification::mail::StoredMail;
use crate::domain::notification::{NotificationKind, after_mail, after_post, is_expired, signed_post};
use crate::domain::webhook::callback::Method;
use crate::domain::webhook::callback_url::authority_of;
use crate::domain::webhook::request::SignedRequest;
use crate::domain::webhook::signature::SigningSecrets;
use crate::engine::delivery::attempt::{
    SendResult, attempt_result, send_guarded, status_and_error, timed_out,
};
use crate::engine::delivery::dispatcher::{DRAIN, DispatcherMode};
use crate::engine::delivery::fair_share::{AttemptEnd, DestinationKey, FairShare};
use crate::engine::delivery::thread_pool::ThreadPool;
use crate::engine::webhook_client::{MAX_KEPT_BODY, WebhookClient, WebhookRequest};
use crate::engine::{AFTER_FAULT, EngineThread};
use crate::error::{Error, Result};
use crate::locks::Mutex;
use crate::mail::{Mail, MailTransport, SmtpError};
use crate::panics;
use crate::store::db::hold;
use crate::store::fair_queue::{Grant, Rotation};
use crate::store::notifications::outbox::{self, Notification};
use crate::store::{ReadTx, WakeSet, WriteTx};

/// POSTs at a time. Notifications are rare next to deliveries.
const THREADS: usize = 16;

/// Notifications promoted in one transaction; as many as the cues that one transaction fires.
const BATCH: u32 = 500;

/// Mails at a time: each holds a connection, and small mail servers allow few.
const MAILS: usize = 2;

type Pool = ThreadPool<VecDeque<Notification>, NotificationResult>;

struct NotificationThreads {
    posts: Pool,
    mails: Pool,
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

/// Starts the thread of the dispatcher and those that send. A stop waits for the running notifications, for 30 s at most;
/// the others are sent after the next start.
pub(in crate::engine) fn start(
    app: &Arc<App>,
    webhook_client: Arc<dyn WebhookClient>,
) -> io::Result<EngineThread> {
    let (app, threads) = (Arc::clone(app), NotificationThreads::start(app, webhook_client)?);
    EngineThread::start("notifications", Arc::default(), move |stopping| run(&app, stopping, &threads))
}

impl NotificationDispatcher {
    pub fn new(threads: usize) -> Self {
        Self {
            slots: FairShare::new(threads, threads),
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
    pub fn run_once(
        &mut self,
        app: &App,
        finished: Vec<NotificationResult>,
        mode: DispatcherMode,
    ) -> Result<Vec<Notification>> {
        let _pass = app.engine_stats.begin_pass(&app.notifiers.progress);
        for NotificationResult { key, user_key, destination, is_confirmed, next, timed_out } in finished {
            match destination {
                Some(destination) => {
                    let end = if timed_out { AttemptEnd::TimedOut } else { AttemptEnd::InTime };
                    self.slots.release(user_key, destination, end);
                }
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
        self.deadline = promote_due(app, now)?;
        let mut found = self.scan(app)?;
        found.retain(|notification| match self.postpone(app, notification, now) {
            Some(next) => {
                self.end(notification.key, next);
                false
            }
            None => true,
        });
        self.slots.forget_idle();
        self.mails += found.iter().filter(|notification| notification.destination.is_none()).count();
        self.in_flight.extend(found.iter().map(|notification| notification.key));
        if !self.unrecorded.is_empty() {
            // The next pass records them before it reads the outbox.
            app.notifiers.notifications.notify();
        }
        Ok(found)
    }

    /// The next step of a notification that is not sent now: one that is given up, or a mail above the hourly limit, which
    /// waits in the outbox until the limit admits one again.
    fn postpone(&mut self, app: &App, notification: &Notification, now: Timestamp) -> Option<NextStep> {
        let is_worth_sending = is_worth_sending(notification, now);
        match notification.destination {
            Some(_) if is_worth_sending => None,
            Some(destination) => {
                self.slots.release(notification.user_key, destination, AttemptEnd::Unclaimed);
                Some(NextStep::Failed)
            }
            None if is_worth_sending => {
                app.mail_limits.take(notification.is_confirmed, now).err().map(NextStep::RetryAt)
            }
            None => Some(NextStep::Failed),
        }
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
        // Each in a write of its own, so that a row that cannot be recorded holds up no other; they share a commit.
        let write =
            |(key, next)| (key, next, app.store.write_with_priority(move |tx| record_result(tx, key, next)));
        let writes: Vec<_> = self.unrecorded.drain(..).map(write).collect();
        let mut recorded = Ok(());
        for (key, next, write) in writes {
            match write.wait() {
                // It is repeated after a disk error. After a fault the row is sent again after the next start.
                Err(error @ Error::Storage(_)) => {
                    self.unrecorded.push((key, next));
                    recorded = Err(error);
                    continue;
                }
                Err(error) => self.skip(app, key, &error),
                Ok(()) => app.engine_stats.notifications.with([next.status().as_str()]).add(1),
            }
            self.in_flight.remove(&key);
        }
        recorded
    }

    fn skip(&mut self, app: &App, key: i64, error: &Error) {
        tracing::error!(notification_row = key, %error, "outbox row skipped until the next start");
        self.skipped_rows.insert(key);
        // Rows behind it may be ready.
        app.notifiers.notifications.notify();
    }

    /// Reads the notifications that are ready, and takes the slots of their POSTs.
    fn scan(&mut self, app: &App) -> Result<Vec<Notification>> {
        let skipped: HashSet<i64> = self.in_flight.union(&self.skipped_rows).copied().collect();
        let (most_mails, mut taken) = (MAILS.saturating_sub(self.mails), Vec::new());
        let (slots, rotation) = (&mut self.slots, &mut self.rotation);
        let found = app.store.read_blocking(|read| {
            if hold::is_held(read)? {
                return Ok(Vec::new());
            }
            let mails = outbox::ready_mails(read, &skipped, most_mails)?.into_iter().map(|key| (key, None));
            let posts = outbox::ready_posts(read, &skipped, rotation, |user_key, destination| {
                let grant = slots.try_acquire(user_key, destination);
                taken.extend((grant == Grant::Granted).then_some((user_key, destination)));
                grant
            })?;
            let posts = posts.iter().map(|it| (it.key, Some((it.user_key, it.destination))));
            let find = |(key, slot)| match outbox::find(read, key) {
                Err(error @ Error::Storage(_)) => Err(error),
                found => Ok((key, slot, found)),
            };
            mails.chain(posts).map(find).collect::<Result<Vec<_>>>()
        });
        let release = |slots: &mut FairShare, taken: &mut dyn Iterator<Item = DestinationKey>| {
            taken.for_each(|(user_key, destination)| {
                slots.release(user_key, destination, AttemptEnd::Unclaimed);
            });
        };
        let rows = found.inspect_err(|_| release(&mut self.slots, &mut taken.into_iter()))?;
        let mut notifications = Vec::with_capacity(rows.len());
        for (key, slot, found) in rows {
            match found {
                Ok(notification) => notifications.push(notification),
                Err(error) => {
                    release(&mut self.slots, &mut slot.into_iter());
                    self.skip(app, key, &error);
                }
            }
        }
        Ok(notifications)
    }
}

/// Makes notifications ready that are due. Returns when the next one is; none is while the database is on hold.
fn promote_due(app: &App, now: Timestamp) -> Result<Option<Timestamp>> {
    let next_due =
        |read: &ReadTx<'_>| if hold::is_held(read)? { Ok(None) } else { outbox::next_due_at(read) };
    loop {
        let next = app.store.read_blocking(next_due)?;
        if next.is_none_or(|due| due > now) {
            return Ok(next);
        }
        app.store.write_with_priority(move |tx| outbox::promote_due(tx, now, BATCH)).wait()?;
    }
}

fn record_result(tx: &WriteTx<'_>, key: i64, next: NextStep) -> Result<()> {
    outbox::record_result(tx, key, next)?;
    // More rows may be ready than the last pass had slots for, and the next deadline has changed.
    tx.wake(WakeSet { notifications: true, ..WakeSet::default() });
    Ok(())
}

impl NotificationThreads {
    fn start(app: &Arc<App>, webhook_client: Arc<dyn WebhookClient>) -> io::Result<Self> {
        let (route, base) = (app.config.mail.clone(), app.config.public_url.clone());
        let (tests, notifiers) = (Arc::clone(&app.test_alerts), Arc::clone(&app.notifiers));
        let posts = start_pool(THREADS, app, move |notification, now| {
            post(&*webhook_client, notification, &tests, &notifiers, now)
        })?;
        let mails = start_pool(MAILS, app, move |notification, now| {
            let sent = send_mail(&route, &base, notification);
            Some(result_of_mail(notification, &sent, now()?))
        })?;
        Ok(Self { posts, mails })
    }

    fn submit(&self, notifications: Vec<Notification>) {
        let (posts, mails): (Vec<_>, Vec<_>) =
            notifications.into_iter().partition(|notification| notification.destination.is_some());
        self.posts.submit(posts);
        self.mails.submit(mails);
    }

    fn take_finished(&self) -> Vec<NotificationResult> {
        let mut finished = self.posts.take_finished();
        finished.append(&mut self.mails.take_finished());
        finished
    }
}

fn start_pool(
    most: usize,
    app: &Arc<App>,
    send_one: impl Fn(&Notification, &dyn Fn() -> Option<Timestamp>) -> Option<NotificationResult>
    + Send
    + Sync
    + 'static,
) -> io::Result<Pool> {
    // A weak reference: a notification that a stop cuts off must not keep the database open.
    let (notifiers, weak_app) = (Arc::clone(&app.notifiers), Arc::downgrade(app));
    let now = move || weak_app.upgrade().map(|app| app.clock.now());
    let run = move |notification| send_one(&notification, &now);
    ThreadPool::start(VecDeque::new(), most, run, move || notifiers.notifications.notify())
}

fn run(app: &App, stopping: &AtomicBool, threads: &NotificationThreads) {
    let mut dispatcher = NotificationDispatcher::new(THREADS);
    while !stopping.load(Ordering::Acquire) {
        run_pass(app, &mut dispatcher, threads, DispatcherMode::Running);
    }
    let until = app.clock.monotonic() + DRAIN;
    while !dispatcher.is_clear() && app.clock.monotonic() < until {
        let left = SignedDuration::try_from(until - app.clock.monotonic()).unwrap_or(SignedDuration::ZERO);
        dispatcher.deadline = app.clock.now().checked_add(left).ok();
        run_pass(app, &mut dispatcher, threads, DispatcherMode::Draining);
    }
}

/// Runs one pass, then submits its notifications or waits.
fn run_pass(
    app: &App,
    dispatcher: &mut NotificationDispatcher,
    threads: &NotificationThreads,
    mode: DispatcherMode,
) {
    let seen = app.notifiers.notifications.generation();
    let pass = || dispatcher.run_once(app, threads.take_finished(), mode);
    match panics::catch("the notification dispatcher", pass) {
        Ok(notifications) if notifications.is_empty() => {
            app.clock.wait(&app.notifiers.notifications, seen, dispatcher.deadline)
        }
        Ok(notifications) => threads.submit(notifications),
        Err(error) => {
            tracing::error!(%error, "notifications paused for 1 s after an error");
            app.clock.sleep(AFTER_FAULT);
        }
    }
}

/// A finished attempt to send a notification.
pub struct NotificationResult {
    key: i64,
    user_key: i64,
    /// The destination that held a slot; `None` for a mail.
    destination: Option<i64>,
    is_confirmed: bool,
    next: NextStep,
    timed_out: bool,
}

impl NotificationResult {
    fn new(notification: &Notification, next: NextStep, timed_out: bool) -> Self {
        let Notification { key, user_key, destination, is_confirmed, .. } = *notification;
        Self { key, user_key, destination, is_confirmed, next, timed_out }
    }
}

/// Sends a POST, waits for the response and decides the next step. Reads the time with `now` before and after; `None` from
/// it, when the program stops, ends the work without a result. Who waits for a test alert learns of it. Never panics.
fn post(
    webhook_client: &dyn WebhookClient,
    notification: &Notification,
    tests: &Mutex<RunningTests>,
    notifiers: &Notifiers,
    now: &dyn Fn() -> Option<Timestamp>,
) -> Option<NotificationResult> {
    let started = now()?;
    let sent = send(webhook_client, notification, started);
    let ended = now()?;
    let result = result_of_post(notification, &sent, ended);
    let attempt = || {
        let (http_status, error_message) = status_and_error(&sent, result.next == NextStep::Success);
        let duration = ended.duration_since(started);
        TestAttempt { http_status, duration, error_message, next: result.next }
    };
    if tests.lock().record(notification.user_key, &notification.id, attempt) {
        notifiers.test_alerts.notify();
    }
    Some(result)
}

/// Sends a POST, signed at `now`, and waits for the response. Never panics.
pub fn send(webhook_client: &dyn WebhookClient, notification: &Notification, now: Timestamp) -> SendResult {
    send_guarded(
        webhook_client,
        || request(notification, now),
        |error| tracing::error!(notification_id = %notification.id, %error, "notification panicked"),
    )
}

/// The next step of a notification whose POST ended at `now`.
pub fn result_of_post(
    notification: &Notification,
    result: &SendResult,
    now: Timestamp,
) -> NotificationResult {
    let attempt = notification.attempts + 1;
    let next = after_post(attempt, notification.created_at, &attempt_result(result, now), now);
    if next == NextStep::Failed {
        let why = match result {
            Ok(response) => format!("it returned {}", response.http_status),
            Err(error) => {
                [Some(error.to_string()), error.detail()].into_iter().flatten().collect::<Vec<_>>().join(": ")
            }
        };
        // The host alone: the path of such a URL is often a secret.
        let host = notification.url.as_deref().map(authority_of).unwrap_or_default();
        give_up(notification, &format!("attempt {attempt} to reach {host} failed: {why}"));
    }
    NotificationResult::new(notification, next, timed_out(result))
}

/// Sends a mail, with links to the server at `base`, and waits until the mail server accepts or refuses it. Never panics.
pub fn send_mail(
    route: &MailTransport,
    base: &str,
    notification: &Notification,
) -> std::result::Result<(), SmtpError> {
    let mail = write_mail(base, notification)
        .ok_or(SmtpError::permanent("the stored notification cannot be read"))?;
    panics::catch("the mail transport", || Ok(route.send(&mail)))
        .unwrap_or_else(|error| Err(SmtpError::permanent(&error.to_string())))
}

/// The next step of a notification whose mail was accepted or refused at `now`.
pub fn result_of_mail(
    notification: &Notification,
    sent: &std::result::Result<(), SmtpError>,
    now: Timestamp,
) -> NotificationResult {
    let attempt = notification.attempts + 1;
    let next = match sent {
        Ok(()) => NextStep::Success,
        Err(error) if error.is_transient => after_mail(attempt, notification.created_at, now),
        Err(_) => NextStep::Failed,
    };
    if let Err(error) = sent {
        log_error(notification, attempt, error, next);
    }
    NotificationResult::new(notification, next, false)
}

fn log_error(notification: &Notification, attempt: u32, error: &SmtpError, next: NextStep) {
    let (id, user_id) = (&notification.id, &notification.user_id);
    match next {
        NextStep::RetryAt(due) if attempt == 1 => {
            tracing::warn!(notification_id = %id, %user_id, next_attempt = %due, error = %error, "mail not sent; retrying");
        }
        // Only the first failure is a warning: an outage of the mail server fails many attempts of many mails.
        NextStep::RetryAt(due) => {
            tracing::debug!(notification_id = %id, %user_id, next_attempt = %due, error = %error, "mail not sent; retrying");
        }
        NextStep::Success | NextStep::Failed => {
            give_up(notification, &format!("attempt {attempt} to mail it failed: {error}"))
        }
    }
}

fn request(notification: &Notification, now: Timestamp) -> std::result::Result<WebhookRequest, String> {
    let url = notification.url.clone().ok_or("the notification has no URL")?;
    let secrets = match notification.kind {
        NotificationKind::Alert(_) => {
            SigningSecrets { current: &notification.alert_webhook_secret, previous: None }
        }
        NotificationKind::Failure | NotificationKind::Mail => SigningSecrets::at(
            now,
            &notification.webhook_secret,
            notification.previous_webhook_secret.as_deref(),
            notification.previous_webhook_secret_expires_at,
        ),
    };
    let SignedRequest { headers, body } =
        signed_post(notification.kind, &notification.id, &notification.body, secrets, now);
    Ok(WebhookRequest { method: Method::Post, url, headers, body, max_response: MAX_KEPT_BODY })
}

fn write_mail(base: &str, notification: &Notification) -> Option<Mail> {
    let mail = StoredMail::read(&notification.body)?;
    let subject = mail.subject();
    Some(Mail {
        to: notification.email.clone(),
        log_line: format!("{subject}: {}", mail.link(base)),
        subject,
        text: mail.text(base),
        at: notification.created_at,
        log_only: false,
    })
}

/// Returns whether the notification may still be sent; if not, the reason is logged.
fn is_worth_sending(notification: &Notification, now: Timestamp) -> bool {
    if notification.disabled_at.is_some() {
        give_up(notification, "the account is disabled");
    } else if is_expired(notification.created_at, now) {
        give_up(notification, "it is over a day old");
    } else {
        return true;
    }
    false
}

fn give_up(notification: &Notification, reason: &str) {
    let (id, kind, user_id) = (&notification.id, notification.kind.as_str(), &notification.user_id);
    tracing::warn!(notification_id = %id, kind, %user_id, reason, "notification given up");
}
