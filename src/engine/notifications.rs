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
use crate::domain::row_keys::UserKey;
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
use crate::service::channels::{ChannelResult, MessageOutcome};
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
            match result.destination {
                Some(destination) => self.slots.release(result.user_key, destination, result.end),
                None => {
                    self.mails = self.mails.saturating_sub(1);
                    if result.next != NextStep::Success {
                        app.mail_limits.return_unused(result.is_confirmed);
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
            let Some(next) = postpone(app, notification, now) else { return true };
            if let Some(destination) = notification.destination {
                self.slots.release(notification.user_key, destination, AttemptEnd::Unclaimed);
            }
            let channel = channels::given_up(notification, next);
            let result = NotificationResult::new(notification, next, AttemptEnd::Unclaimed);
            self.end(NotificationResult { channel, ..result });
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
        self.in_flight.insert(result.key);
        self.unrecorded.push(result);
    }

    fn record(&mut self, app: &App) -> Result<()> {
        // Each in a write of its own, so that a row that cannot be recorded holds up no other; they share a commit.
        let now = app.clock.now();
        let write = |result: NotificationResult| {
            let recorded = result.clone();
            (result, app.store.write_with_priority(move |tx| record_result(tx, &recorded, now)))
        };
        let writes: Vec<_> = self.unrecorded.drain(..).map(write).collect();
        let mut recorded = Ok(());
        for (mut result, write) in writes {
            let written = write.wait();
            if let Some(attempt) = result.attempt.take() {
                app.test_alerts.lock().pass(result.user_key, &result.id, attempt);
            }
            match written {
                // It is repeated after a disk error. After a fault the row is sent again after the next start.
                Err(error @ Error::Storage(_)) => {
                    self.unrecorded.push(result);
                    recorded = Err(error);
                }
                Err(error) => self.skip(app, result.key, &error),
                Ok(()) => {
                    app.engine_stats.notifications.with([result.next.status().as_str()]).add(1);
                    self.in_flight.remove(&result.key);
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

/// The next step of a notification that is not sent now: one that is given up, one of a channel in its quiet hours, or a
/// mail above the hourly limit, which waits in the outbox until the limit admits one again.
fn postpone(app: &App, notification: &Notification, now: Timestamp) -> Option<NextStep> {
    if !is_worth_sending(notification, now) {
        Some(NextStep::Failed)
    } else if let Some(end) = channels::quiet_end(notification, now) {
        Some(NextStep::RetryAt(end))
    } else if notification.destination.is_none() {
        app.mail_limits.take(notification.is_confirmed, now).err().map(NextStep::RetryAt)
    } else {
        None
    }
}

fn record_result(tx: &WriteTx<'_>, ended: &NotificationResult, now: Timestamp) -> Result<()> {
    let is_recorded = outbox::record_result(tx, ended.key, &ended.id, ended.next)?;
    // A row that is gone may have taken its channel with it, whose key another one has then.
    if let Some(channel) = ended.channel.as_ref().filter(|_| is_recorded) {
        service::channels::record_result(tx, channel, now)?;
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
        let not_sent = NotificationResult::new(&notification, retry, AttemptEnd::Unclaimed);
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
        let (result, http_status, error_message, response) = if notification.destination.is_none() {
            let sent = send_mail(&self.mail, &self.base, self.has_page, notification);
            let error = sent.as_ref().err().map(ToString::to_string);
            (result_of_mail(notification, &sent, now()?), None, error, None)
        } else {
            let sent = send(&*self.webhook_client, notification, started);
            let result = result_of_post(notification, &sent, now()?);
            let (http_status, error) = status_and_error(&sent);
            let error = match result.channel.as_ref().map(|channel| &channel.outcome) {
                Some(MessageOutcome::Failed(error)) => Some(error.clone()),
                Some(_) => None,
                None => error,
            };
            let response =
                sent.ok().map(|response| channels::excerpt(notification, &response.body));
            (result, http_status, error, response)
        };
        let (duration, next) = (now()?.duration_since(started), result.next);
        let attempt = TestAttempt { http_status, duration, error_message, response, next };
        Some(NotificationResult { attempt: Some(attempt), ..result })
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
#[derive(Debug, Clone)]
pub struct NotificationResult {
    key: i64,
    id: String,
    user_key: UserKey,
    /// The destination that held a slot; `None` for a mail.
    destination: Option<i64>,
    is_confirmed: bool,
    next: NextStep,
    end: AttemptEnd,
    channel: Option<ChannelResult>,
    /// For a request that may wait for it.
    attempt: Option<TestAttempt>,
}

impl NotificationResult {
    fn new(notification: &Notification, next: NextStep, end: AttemptEnd) -> Self {
        let Notification { key, user_key, destination, is_confirmed, .. } = *notification;
        let id = notification.id.clone();
        let (channel, attempt) = (None, None);
        Self { key, id, user_key, destination, is_confirmed, next, end, channel, attempt }
    }
}

/// Sends a POST, signed at `now`, and waits for the response. Never panics.
pub fn send(
    webhook_client: &dyn WebhookClient,
    notification: &Notification,
    now: Timestamp,
) -> SendResult {
    send_guarded(
        webhook_client,
        || request(notification, now),
        |error| tracing::error!(notification_id = %notification.id, %error, "notification panicked"),
    )
}

pub fn result_of_post(
    notification: &Notification,
    result: &SendResult,
    now: Timestamp,
) -> NotificationResult {
    let attempt = notification.attempts + 1;
    let channel = channels::result(notification, result, now);
    let next = match &channel {
        Some((next, _)) => *next,
        None => after_post(attempt, notification.created_at, &attempt_result(result, now), now),
    };
    if next == NextStep::Failed {
        let why = match result {
            Ok(response) => format!("it returned {}", response.http_status),
            Err(error) => {
                error.detail().map_or(error.to_string(), |detail| format!("{error}: {detail}"))
            }
        };
        // The host alone: the path of such a URL is often a secret.
        let host =
            notification.url.as_ref().map(|url| authority_of(url.expose())).unwrap_or_default();
        give_up(notification, &format!("attempt {attempt} to reach {host} failed: {why}"));
    }
    let has_timed_out = matches!(result, Err(DeliveryError::Timeout { .. }));
    let end = if has_timed_out { AttemptEnd::TimedOut } else { AttemptEnd::InTime };
    let channel = channel.map(|(_, result)| result);
    NotificationResult { channel, ..NotificationResult::new(notification, next, end) }
}

/// Sends a mail, with links to the server at `base`, and waits until the mail server accepts or refuses it. Never
/// panics.
pub fn send_mail(
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

pub fn result_of_mail(
    notification: &Notification,
    sent: &std::result::Result<(), SmtpError>,
    now: Timestamp,
) -> NotificationResult {
    let attempt = notification.attempts + 1;
    let next = match sent {
        Ok(()) => NextStep::Success,
        Err(_) if channels::is_test(notification) => NextStep::Failed,
        Err(error) if error.is_transient => after_mail(attempt, notification.created_at, now),
        Err(_) => NextStep::Failed,
    };
    let (id, user_id) = (&notification.id, &notification.user_id);
    match (sent, next) {
        (Ok(()), _) => {}
        (Err(error), NextStep::RetryAt(due)) if attempt == 1 => {
            tracing::warn!(notification_id = %id, %user_id, next_attempt = %due, %error, "mail not sent; retrying");
        }
        // Only the first failure is a warning: an outage of the mail server fails many attempts of many mails.
        (Err(error), NextStep::RetryAt(due)) => {
            tracing::debug!(notification_id = %id, %user_id, next_attempt = %due, %error, "mail not sent; retrying");
        }
        (Err(error), _) => {
            give_up(notification, &format!("attempt {attempt} to mail it failed: {error}"))
        }
    }
    let error = sent.as_ref().err().map(ToString::to_string);
    let channel = channels::ended(notification, error, next);
    NotificationResult {
        channel,
        ..NotificationResult::new(notification, next, AttemptEnd::InTime)
    }
}

fn request(
    notification: &Notification,
    now: Timestamp,
) -> std::result::Result<WebhookRequest, String> {
    let url = notification.url.clone().ok_or("the notification has no URL")?;
    let secrets = match notification.kind {
        NotificationKind::Channel => return channels::request(notification, now),
        NotificationKind::Alert(_) => {
            SigningSecrets { current: notification.alert_webhook_secret.expose(), previous: None }
        }
        NotificationKind::Failure | NotificationKind::Mail => notification.secrets.at(now),
    };
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
