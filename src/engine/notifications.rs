//! Sends the notifications in the outbox, on threads of their own: POSTs take no thread from deliveries, and mails
//! about failures never delay the mails of a login.
//!
//! [`NotificationDispatcher::run_once`] is one pass. Delivery is at least once: a notification is deleted only when its
//! receiver has accepted it or it is given up. A notification that a stop or a crash cuts off is sent again after the
//! next start.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use jiff::Timestamp;

use crate::app::{App, Notifiers};
use crate::domain::execution::NextStep;
use crate::domain::mails::StoredMail;
use crate::domain::notification::alert::TestAttempt;
use crate::domain::notification::{
    NotificationKind, after_mail, after_post, is_expired, signed_post,
};
use crate::domain::text::one_line;
use crate::domain::webhook::callback::authority_of;
use crate::domain::webhook::delivery::SignedRequest;
use crate::domain::webhook::signature::SigningSecrets;
use crate::engine::delivery::attempt::{
    SendResult, attempt_result, send_guarded, status_and_error,
};
use crate::engine::delivery::dispatcher::DispatcherMode;
use crate::engine::delivery::fair_share::{AttemptEnd, DestinationKey, FairShare};
use crate::engine::delivery::threads::STACK;
use crate::engine::webhook_client::{DeliveryError, WebhookClient, WebhookRequest};
use crate::engine::{AFTER_FAULT, EngineThread, NextPass, channels, run_passes, run_while_due};
use crate::error::{Error, Result};
use crate::mail::{Mail, MailTransport, SmtpError};
use crate::service;
use crate::service::channels::{MessageOutcome, Untold};
use crate::store::db::meta;
use crate::store::fair_queue::{Grant, Rotation};
use crate::store::outbox::{self, Notification};
use crate::store::{WakeSet, WriteTx};
use crate::system::locks::Mutex;
use crate::system::panics;

/// POSTs at a time, each on a thread of its own that ends with it. An account may have a third of them under way to
/// destinations that hang: its channels, all of them, do not wait for one another.
const THREADS: usize = 64;

/// Notifications promoted in one transaction; as many as the cues that one transaction fires.
const BATCH: u32 = 500;

/// Characters of the reason of a failed attempt.
const MAX_ERROR: usize = 500;

/// Mails at a time: each holds a connection, and small mail servers allow few.
const MAILS: usize = 2;

pub struct NotificationDispatcher {
    slots: FairShare,
    rotation: Rotation,
    /// Rows of notifications that are being sent, or whose result is not committed yet. Rows that cannot be read or
    /// recorded stay here until the next start, so that they hold up nothing.
    in_flight: HashSet<i64>,
    skipped: usize,
    mails: usize,
    unrecorded: Vec<NotificationResult>,
    deadline: Option<Timestamp>,
}

/// Starts the thread of the dispatcher. A stop waits for the running notifications, for 30 s at most; the others are
/// sent after the next start.
pub(in crate::engine) fn start(
    app: &Arc<App>,
    webhook_client: Arc<dyn WebhookClient>,
) -> io::Result<EngineThread> {
    let sender = Arc::new(Sender {
        app: Arc::downgrade(app),
        webhook_client,
        mail: app.config.mail.clone(),
        base: app.config.public_url.clone(),
        has_page: app.config.http.page,
        notifiers: Arc::clone(&app.notifiers),
        finished: Mutex::default(),
    });
    let app = Arc::clone(app);
    EngineThread::start("notifications", Arc::default(), move |stopping| {
        run(&app, stopping, &sender)
    })
}

impl NotificationDispatcher {
    pub fn new(threads: usize) -> Self {
        Self {
            slots: FairShare::new(threads, threads),
            rotation: Rotation::default(),
            in_flight: HashSet::new(),
            skipped: 0,
            mails: 0,
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
        let found = self.pass(app, finished, mode);
        app.engine_stats.record_unfinished_notifications(self.unfinished());
        found
    }

    fn pass(
        &mut self,
        app: &App,
        finished: Vec<NotificationResult>,
        mode: DispatcherMode,
    ) -> Result<Vec<Notification>> {
        for result in finished {
            let Notification { user_key, destination, is_confirmed, .. } = result.notification;
            match destination {
                Some(destination) => self.slots.release(user_key, destination, result.end),
                None => {
                    self.mails = self.mails.saturating_sub(1);
                    if result.next != NextStep::Success {
                        app.mail_limits.return_unused(is_confirmed);
                    }
                }
            }
            self.end(result);
        }
        self.record(app)?;
        if mode == DispatcherMode::Draining {
            return Ok(Vec::new());
        }
        let now = app.clock.now();
        let next_reminder = channels::remind_due(app, now)?;
        let next_composed = channels::compose_due(app, now)?;
        let others = next_composed.into_iter().chain(next_reminder);
        let promote =
            || app.store.write_with_priority(move |tx| outbox::promote_due(tx, now, BATCH)).wait();
        let next = run_while_due(app, now, outbox::next_due_at, promote)?;
        self.deadline = next.into_iter().chain(others).min();
        let mut found = self.scan(app)?;
        found.retain(|notification| {
            let Some((next, outcome)) = postpone(app, notification, now) else { return true };
            let end = AttemptEnd::Unclaimed;
            if let Some(destination) = notification.destination {
                self.slots.release(notification.user_key, destination, end);
            }
            let notification = notification.clone();
            self.end(NotificationResult { notification, next, end, outcome, attempt: None });
            false
        });
        self.slots.forget_idle();
        self.mails +=
            found.iter().filter(|notification| notification.destination.is_none()).count();
        self.in_flight.extend(found.iter().map(|notification| notification.key));
        if !self.unrecorded.is_empty() {
            // The next pass records them before it reads the outbox.
            app.notifiers.notifications.notify();
        }
        Ok(found)
    }

    /// Notifications that are being sent or wait to be recorded.
    pub fn unfinished(&self) -> usize {
        self.in_flight.len().saturating_sub(self.skipped)
    }

    fn end(&mut self, result: NotificationResult) {
        self.in_flight.insert(result.notification.key);
        self.unrecorded.push(result);
    }

    fn record(&mut self, app: &App) -> Result<()> {
        // Each in a write of its own, so that a row that cannot be recorded holds up no other; they share a commit.
        let now = app.clock.now();
        let write = |result: NotificationResult| {
            let untold = channels::untold(&result.notification, result.next, now);
            let recorded = result.clone();
            let write = move |tx: &WriteTx<'_>| record_result(tx, &recorded, &untold, now);
            (result, app.store.write_with_priority(write))
        };
        let writes: Vec<_> = self.unrecorded.drain(..).map(write).collect();
        let mut recorded = Ok(());
        for (mut result, write) in writes {
            let written = write.wait();
            let Notification { key, user_key, ref id, .. } = result.notification;
            if let Some(attempt) = result.attempt.take() {
                app.test_alerts.lock().pass(user_key, id, attempt);
            }
            match written {
                // It is repeated after a disk error. After a fault the row is sent again after the next start.
                Err(error @ Error::Storage(_)) => {
                    self.unrecorded.push(result);
                    recorded = Err(error);
                }
                Err(error) => self.skip(app, key, &error),
                Ok(()) => {
                    app.engine_stats.notifications.with([result.next.status().as_str()]).add(1);
                    self.in_flight.remove(&key);
                }
            }
        }
        recorded
    }

    fn skip(&mut self, app: &App, key: i64, error: &Error) {
        tracing::error!(notification_row = key, %error, "outbox row skipped until the next start");
        self.in_flight.insert(key);
        self.skipped += 1;
        // Rows behind it may be ready.
        app.notifiers.notifications.notify();
    }

    fn scan(&mut self, app: &App) -> Result<Vec<Notification>> {
        let Self { slots, rotation, in_flight, mails, .. } = self;
        let mut taken: Vec<DestinationKey> = Vec::new();
        let found = app.store.read_blocking(|read| {
            if meta::is_held(read)? {
                return Ok(Vec::new());
            }
            let mails = outbox::ready_mails(read, in_flight, MAILS.saturating_sub(*mails))?;
            let posts = outbox::ready_posts(read, in_flight, rotation, |user_key, destination| {
                let grant = slots.try_acquire(user_key, destination);
                taken.extend((grant == Grant::Granted).then_some((user_key, destination)));
                grant
            })?;
            let posts = posts.iter().map(|it| (it.key, Some((it.user_key, it.destination))));
            let find = |(key, slot)| match outbox::find(read, key) {
                Err(error @ Error::Storage(_)) => Err(error),
                found => Ok((key, slot, found)),
            };
            mails
                .into_iter()
                .map(|key| (key, None))
                .chain(posts)
                .map(find)
                .collect::<Result<Vec<_>>>()
        });
        let mut release =
            |(user_key, destination)| slots.release(user_key, destination, AttemptEnd::Unclaimed);
        let rows = found.inspect_err(|_| taken.into_iter().for_each(&mut release))?;
        let (mut notifications, mut unreadable) = (Vec::with_capacity(rows.len()), Vec::new());
        for (key, slot, found) in rows {
            match found {
                Ok(notification) => notifications.push(notification),
                Err(error) => {
                    slot.into_iter().for_each(&mut release);
                    unreadable.push((key, error));
                }
            }
        }
        unreadable.iter().for_each(|(key, error)| self.skip(app, *key, error));
        Ok(notifications)
    }
}

/// The next step of a notification that is not sent now, and what that means for its channel: one that is given up, one of
/// a channel in its quiet hours, or a mail above the hourly limit, which waits in the outbox until the limit admits one
/// again.
fn postpone(
    app: &App,
    notification: &Notification,
    now: Timestamp,
) -> Option<(NextStep, Option<MessageOutcome>)> {
    if notification.disabled_at.is_some() {
        log_given_up(notification, "the account is disabled");
        return Some((NextStep::Failed, Some(MessageOutcome::Dropped)));
    }
    if is_expired(notification.created_at, now) {
        log_given_up(notification, "it is over a day old");
        let error = "a message was not sent within a day".to_owned();
        return Some((NextStep::Failed, Some(MessageOutcome::Failed(error))));
    }
    let end = match channels::quiet_end(notification, now) {
        None if notification.destination.is_none() => {
            app.mail_limits.take(notification.is_confirmed, now).err()
        }
        end => end,
    };
    end.map(|end| (NextStep::RetryAt(end), None))
}

fn record_result(
    tx: &WriteTx<'_>,
    ended: &NotificationResult,
    untold: &Untold,
    now: Timestamp,
) -> Result<()> {
    let NotificationResult { notification, next, outcome, .. } = ended;
    let Notification { key, id, channel, .. } = notification;
    // A row that is gone may have taken its channel with it, whose key another one has then.
    if outbox::record_result(tx, *key, id, *next)?
        && let (Some(channel), Some(outcome)) = (channel, outcome)
    {
        service::channels::record_result(tx, channel.key, outcome, untold, *next, now)?;
    }
    // More rows may be ready than the last pass had slots for, and the next deadline has changed.
    tx.wake(WakeSet { notifications: true, ..WakeSet::default() });
    Ok(())
}

struct Sender {
    /// A weak reference: a notification that a stop cuts off must not keep the database open.
    app: Weak<App>,
    webhook_client: Arc<dyn WebhookClient>,
    mail: MailTransport,
    base: String,
    has_page: bool,
    notifiers: Arc<Notifiers>,
    finished: Mutex<Vec<NotificationResult>>,
}

impl Sender {
    fn start(self: &Arc<Self>, notification: Notification, now: Timestamp) {
        let retry = NextStep::RetryAt(now.saturating_add(AFTER_FAULT).unwrap_or(now));
        let not_sent = NotificationResult {
            notification: notification.clone(),
            next: retry,
            end: AttemptEnd::Unclaimed,
            outcome: None,
            attempt: None,
        };
        let sender = Arc::clone(self);
        let send = move || {
            if let Some(result) = sender.send(&notification) {
                sender.finish(result);
            }
        };
        let thread = std::thread::Builder::new().name("notification".to_owned()).stack_size(STACK);
        if let Err(error) = thread.spawn(send) {
            tracing::warn!(%error, "cannot start a thread for a notification");
            self.finish(not_sent);
        }
    }

    fn finish(&self, result: NotificationResult) {
        self.finished.lock().push(result);
        self.notifiers.notifications.notify();
    }

    /// Sends a notification and decides the next step. `None` if the program stops.
    fn send(&self, notification: &Notification) -> Option<NotificationResult> {
        let now = || self.app.upgrade().map(|app| app.clock.now());
        let started = now()?;
        let Self { webhook_client, mail, base, has_page, .. } = self;
        let sent = send(&**webhook_client, mail, base, *has_page, notification, started);
        let ended = now()?;
        let (mut result, error_message) = judge(notification, &sent, ended);
        let (http_status, response) = match sent {
            Sent::Post(Ok(response)) => {
                (Some(response.http_status), Some(channels::excerpt(notification, &response.body)))
            }
            Sent::Post(Err(_)) | Sent::Mail(_) => (None, None),
        };
        let (duration, next) = (ended.duration_since(started), result.next);
        result.attempt = Some(TestAttempt { http_status, duration, error_message, response, next });
        Some(result)
    }
}

fn run(app: &App, stopping: &AtomicBool, sender: &Arc<Sender>) {
    let dispatcher = RefCell::new(NotificationDispatcher::new(THREADS));
    run_passes(
        app,
        ("the notification dispatcher", "notifications paused for 1 s after an error"),
        &app.notifiers.notifications,
        stopping,
        || dispatcher.borrow().unfinished(),
        |mode| {
            let (mut dispatcher, finished) =
                (dispatcher.borrow_mut(), std::mem::take(&mut *sender.finished.lock()));
            let found = dispatcher.run_once(app, finished, mode)?;
            if found.is_empty() {
                return Ok(NextPass::At(dispatcher.deadline));
            }
            found.into_iter().for_each(|it| sender.start(it, app.clock.now()));
            Ok(NextPass::Again)
        },
    );
}

/// The result of a notification, before it is stored.
#[derive(Clone)]
pub struct NotificationResult {
    notification: Notification,
    next: NextStep,
    end: AttemptEnd,
    /// What it means for the channel, if it has one. `None` if the notification only waits.
    outcome: Option<MessageOutcome>,
    /// For a request that may wait for it.
    attempt: Option<TestAttempt>,
}

/// What came of an attempt.
pub enum Sent {
    Mail(std::result::Result<(), SmtpError>),
    Post(SendResult),
}

/// Sends a notification and waits until its receiver accepts or refuses it: a POST is signed at `now`, and a mail has
/// links to the server at `base`. Never panics.
pub fn send(
    webhook_client: &dyn WebhookClient,
    route: &MailTransport,
    base: &str,
    has_page: bool,
    notification: &Notification,
    now: Timestamp,
) -> Sent {
    if notification.destination.is_none() {
        return Sent::Mail(send_mail(route, base, has_page, notification));
    }
    Sent::Post(send_guarded(
        webhook_client,
        || request(notification, now),
        |error| tracing::error!(notification_id = %notification.id, %error, "notification panicked"),
    ))
}

/// The result of an attempt that ended at `now`, and why it failed.
pub fn judge(
    notification: &Notification,
    sent: &Sent,
    now: Timestamp,
) -> (NotificationResult, Option<String>) {
    let (attempt, created_at) = (notification.attempts + 1, notification.created_at);
    let (next, error) = match sent {
        Sent::Mail(Ok(())) => (NextStep::Success, None),
        Sent::Mail(Err(error)) if error.is_transient => {
            (after_mail(attempt, created_at, now), Some(error.to_string()))
        }
        Sent::Mail(Err(error)) => (NextStep::Failed, Some(error.to_string())),
        Sent::Post(sent) => channels::judge(notification, sent, now).unwrap_or_else(|| {
            let next = after_post(attempt, created_at, &attempt_result(sent, now), now);
            (next, status_and_error(sent).1)
        }),
    };
    let is_repeated = !channels::is_test(notification);
    let next = if error.is_none() || is_repeated { next } else { NextStep::Failed };
    log_failure(notification, sent, next);
    let error = error.map(|error| one_line(&error, MAX_ERROR));
    let outcome = error.clone().map_or(MessageOutcome::Accepted, MessageOutcome::Failed);
    let end = match sent {
        Sent::Post(Err(DeliveryError::Timeout { .. })) => AttemptEnd::TimedOut,
        Sent::Post(_) | Sent::Mail(_) => AttemptEnd::InTime,
    };
    let notification = notification.clone();
    (NotificationResult { notification, next, end, outcome: Some(outcome), attempt: None }, error)
}

fn log_failure(notification: &Notification, sent: &Sent, next: NextStep) {
    let Notification { id, user_id, attempts, .. } = notification;
    let attempt = attempts + 1;
    // The host alone: the path of such a URL is often a secret.
    let host =
        || notification.url.as_ref().map(|url| authority_of(url.expose())).unwrap_or_default();
    let (what, why) = match sent {
        Sent::Mail(Ok(())) => return,
        Sent::Mail(Err(error)) => ("mail it".to_owned(), error.to_string()),
        Sent::Post(Ok(response)) => {
            (format!("reach {}", host()), format!("it returned {}", response.http_status))
        }
        Sent::Post(Err(error)) => {
            let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
            (format!("reach {}", host()), format!("{error}{detail}"))
        }
    };
    match (sent, next) {
        (_, NextStep::Failed) => {
            log_given_up(notification, &format!("attempt {attempt} to {what} failed: {why}"));
        }
        // Only the first failure is a warning: an outage of the mail server fails many attempts of many mails.
        (Sent::Mail(_), NextStep::RetryAt(due)) if attempt == 1 => {
            tracing::warn!(notification_id = %id, %user_id, next_attempt = %due, error = %why, "mail not sent; retrying");
        }
        (Sent::Mail(_), NextStep::RetryAt(due)) => {
            tracing::debug!(notification_id = %id, %user_id, next_attempt = %due, error = %why, "mail not sent; retrying");
        }
        (Sent::Post(_) | Sent::Mail(_), _) => {}
    }
}

fn send_mail(
    route: &MailTransport,
    base: &str,
    has_page: bool,
    notification: &Notification,
) -> std::result::Result<(), SmtpError> {
    let mail = write_mail(base, has_page, notification)
        .ok_or(SmtpError::permanent("the stored notification cannot be read"))?;
    let is_of_channel = notification.channel.is_some() || channels::is_test(notification);
    match panics::catch("the mail transport", || Ok(route.send(&mail))) {
        // The log reaches nobody.
        Ok(Ok(())) if is_of_channel && !route.reaches_people() => {
            Err(SmtpError::permanent(NO_MAIL))
        }
        Ok(sent) => sent,
        Err(error) => Err(SmtpError::permanent(&error.to_string())),
    }
}

const NO_MAIL: &str = "this server sends no mail (--smtp-url): the message went to its log";

fn request(
    notification: &Notification,
    now: Timestamp,
) -> std::result::Result<WebhookRequest, String> {
    let url = notification.url.clone().ok_or("the notification has no URL")?;
    let secrets = match notification.kind {
        NotificationKind::Alert(_) | NotificationKind::Channel => {
            SigningSecrets { current: notification.alert_webhook_secret.expose(), previous: None }
        }
        NotificationKind::Failure | NotificationKind::Mail => notification.secrets.at(now),
    };
    if notification.kind == NotificationKind::Channel {
        return channels::request(notification, secrets, now);
    }
    let SignedRequest { headers, body } =
        signed_post(notification.kind, &notification.id, notification.body.expose(), secrets, now);
    Ok(WebhookRequest::post(url, headers, body))
}

fn write_mail(base: &str, has_page: bool, notification: &Notification) -> Option<Mail> {
    let mail = StoredMail::read(notification.body.expose())?;
    let subject = mail.subject();
    Some(Mail {
        to: notification.email.clone().into(),
        log_line: format!("{subject}: {}", mail.log_link(base, has_page)).into(),
        subject: subject.into(),
        text: mail.text(base).into(),
        at: notification.created_at,
        log_only: false,
    })
}

fn log_given_up(notification: &Notification, reason: &str) {
    let (id, kind, user_id) = (&notification.id, notification.kind.as_str(), &notification.user_id);
    tracing::warn!(notification_id = %id, kind, %user_id, reason, "notification given up");
}
