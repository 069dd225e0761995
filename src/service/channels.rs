//! Channels: what their accounts set, what is announced to them in the write of the event, and the composition of their
//! messages (contract §12).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::app::App;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::channel::digest::digest;
use crate::domain::channel::message::{self, DIGEST, FailedRun, Message, Notice, Subject, Topic};
use crate::domain::channel::services::service;
use crate::domain::channel::{
    ALERT_CONSECUTIVE_FAILURES, Channel, ChannelFields, ChannelType, EXECUTION_FAILED,
    MAX_CHANNELS, Repeat, SETTLE, Turn,
};
use crate::domain::cue::tags::Tags;
use crate::domain::execution::NextStep;
use crate::domain::notification::alert::{ALERT_THRESHOLD, Alert};
use crate::domain::notification::{NotificationKind, is_expired, notification_id};
use crate::domain::row_keys::{CueKey, ExecutionKey, UserKey};
use crate::domain::text::hex;
use crate::error::{Error, Result};
use crate::service::{mails, notifications};
use crate::store::accounts::users;
use crate::store::alerts;
use crate::store::channels::{self, DueReminder, NextTurn};
use crate::store::outbox::{self, FailedExecution, NewNotification, Recipient};
use crate::store::{Pending, ReadTx, WriteTx};
use crate::system::random;

/// Notices that wait for an account, at most: a digest counts that many, and says "at least" of more.
const MAX_NOTICES: u32 = 2_000;

/// A message that is sent no more before this age was refused; an older one has expired (`MAX_AGE`, and an hour between
/// two attempts at most).
const REFUSED_WITHIN: SignedDuration = SignedDuration::from_hours(22);

pub fn not_found() -> Error {
    Error::refused(ErrorCode::ChannelNotFound, "Channel not found")
}

/// Errors: `channel_limit_exceeded`, and `validation_error` for a mail to an address that is not the confirmed one.
pub fn create(app: &App, user_key: UserKey, new: ChannelFields) -> Result<Pending<Channel>> {
    let (now, id) = (app.clock.now(), new_id()?);
    Ok(app.store.write_for(user_key, move |tx| {
        insert(tx, user_key, &id, &new, now)?;
        channels::find(tx, user_key, &id)?.ok_or_else(not_found)
    }))
}

pub(super) fn new_id() -> Result<String> {
    Ok(format!("chn_{}", hex::encode(&random::bytes::<6>()?)))
}

/// Errors: those of [`create`].
pub(super) fn insert(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    id: &str,
    new: &ChannelFields,
    now: Timestamp,
) -> Result<()> {
    if channels::count(tx, user_key)? >= MAX_CHANNELS {
        let message = format!(
            "The account has {MAX_CHANNELS} channels, which is the limit: delete one that is no longer used"
        );
        return Err(Error::refused(ErrorCode::ChannelLimitExceeded, message));
    }
    check_address(tx, user_key, new)?;
    channels::insert(tx, user_key, id, new, now)
}

/// Makes of the channel with the fields `base` the one with the fields `new`; `false` if it has others by now, onto which
/// the request must be read again.
pub fn update(
    app: &App,
    user_key: UserKey,
    id: String,
    base: ChannelFields,
    new: ChannelFields,
) -> Pending<bool> {
    let now = app.clock.now();
    app.store.write_for(user_key, move |tx| {
        let stored = channels::find(tx, user_key, &id)?.ok_or_else(not_found)?;
        if stored.fields != base {
            return Ok(false);
        }
        change(tx, &stored, &new, now)?;
        Ok(true)
    })
}

/// With other settings the failures count no more.
pub(super) fn change(
    tx: &WriteTx<'_>,
    stored: &Channel,
    new: &ChannelFields,
    now: Timestamp,
) -> Result<()> {
    let failures = if new.settings == stored.fields.settings { stored.failures } else { 0 };
    check_address(tx, stored.user_key, new)?;
    channels::update(tx, stored.key, new, failures, now)
}

/// Messages to other addresses would make a sender of unwanted mail of the server.
fn check_address(read: &ReadTx<'_>, user_key: UserKey, new: &ChannelFields) -> Result<()> {
    if new.channel_type != ChannelType::Email {
        return Ok(());
    }
    let user = users::find(read, user_key)?
        .ok_or_else(|| Error::fault("the user of a request does not exist"))?;
    let to = new.settings.text("to");
    let problem = if !to.eq_ignore_ascii_case(&user.email) {
        format!("only the account's own address is possible: {}", user.email)
    } else if user.confirmed_at.is_none() {
        format!(
            "{to} is not confirmed yet: open the link of the mail that asks to confirm it, or sign in with it"
        )
    } else {
        return Ok(());
    };
    Err(Refusal::invalid_value(["body", "to"], &problem, to).into())
}

pub fn delete(app: &App, user_key: UserKey, id: String) -> Pending<()> {
    app.store.write_for(user_key, move |tx| {
        if channels::delete(tx, user_key, &id)? { Ok(()) } else { Err(not_found()) }
    })
}

/// A failed run of a cue, with the alert about its streak: one message. A channel that has told an earlier one of the
/// streak tells it only if it tells every one. Returns whether a channel mails the failures of the cue.
pub(super) fn announce_failure(
    tx: &WriteTx<'_>,
    failed: &FailedExecution,
    key: ExecutionKey,
    streak: i64,
    alert: Option<&Alert>,
    now: Timestamp,
) -> Result<bool> {
    let (user_key, cue_key) = (failed.subject.user_key, failed.subject.cue_key);
    if !channels::any_listens(tx, user_key)? {
        return Ok(false);
    }
    let execution_id = failed.subject.execution_id;
    let Some((subject, tags)) = channels::find_subject(tx, cue_key, Some(execution_id))? else {
        return Ok(false);
    };
    let topic = failure_topic(alert, tags, now);
    let mut telling = readable(tx, user_key)?;
    telling.retain(|channel| channel.takes(&topic));
    let is_mailed = telling.iter().any(|channel| channel.fields.channel_type == ChannelType::Email);
    let told = channels::list_told(tx, cue_key)?;
    telling
        .retain(|channel| channel.fields.repeat == Repeat::Every || !told.contains(&channel.key));
    if telling.is_empty() {
        return Ok(is_mailed);
    }
    let Some(run) = channels::find_failed_run(tx, key, subject, streak)? else {
        return Ok(is_mailed);
    };
    let id = notification_id(execution_id.bytes(), NotificationKind::Channel, now);
    let message = run.message(id, now);
    for channel in &telling {
        let remind_after = channel.fields.remind_after_seconds;
        channels::record_told(tx, cue_key, channel.key, remind_after, now)?;
    }
    let keys = telling.iter().map(|channel| channel.key).collect();
    insert_failure(tx, user_key, Topic { channels: Some(keys), ..topic }, message, alert)?;
    outbox::announce_streak(tx, cue_key)?;
    Ok(is_mailed)
}

/// The topic of a failure, and of the alert that it raises.
fn failure_topic(alert: Option<&Alert>, tags: Tags, now: Timestamp) -> Topic {
    let alert = alert.map(|_| ALERT_CONSECUTIVE_FAILURES);
    Topic::new([EXECUTION_FAILED].into_iter().chain(alert).map(str::to_owned).collect(), tags, now)
}

fn insert_failure(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    topic: Topic,
    mut message: Message,
    alert: Option<&Alert>,
) -> Result<()> {
    message.alert = alert.map(|alert| Alert { created_at: topic.at, ..alert.clone() }.json());
    insert_notice(tx, user_key, &Notice { topic, message })
}

/// Sends a batch of the reminders that are due. One that cannot be read holds up no other.
pub fn send_reminders(tx: &WriteTx<'_>, limit: u32, now: Timestamp) -> Result<()> {
    let mut of_cues = BTreeMap::<CueKey, Vec<DueReminder>>::new();
    for due in channels::list_due_reminders(tx, now, limit)? {
        of_cues.entry(due.cue_key).or_default().push(due);
    }
    for (cue_key, due) in of_cues {
        match send_reminder(tx, &due, now) {
            Err(error @ Error::Storage(_)) => return Err(error),
            Err(error) => {
                tx.on_commit(
                    move || tracing::error!(cue_row = cue_key.number(), %error, "reminders skipped"),
                );
                channels::forget_told(tx, cue_key)?;
            }
            Ok(()) => {}
        }
    }
    Ok(())
}

/// The reminders of one cue: one message for all channels.
fn send_reminder(tx: &WriteTx<'_>, due: &[DueReminder], now: Timestamp) -> Result<()> {
    let Some(first) = due.first() else { return Ok(()) };
    if !first.is_active {
        return channels::forget_told(tx, first.cue_key);
    }
    for DueReminder { cue_key, channel_key, remind_after_seconds, .. } in due {
        channels::record_told(tx, *cue_key, *channel_key, *remind_after_seconds, now)?;
    }
    let alert = match first.streak.failures {
        ALERT_THRESHOLD.. => alerts::find_streak(tx, first.cue_key, first.streak.since)?,
        _ => None,
    };
    let keys = due.iter().map(|due| due.channel_key).collect();
    announce_reminder(tx, first, keys, alert.as_ref(), now)
}

/// The failures of a cue last, which these channels have told: one message.
fn announce_reminder(
    tx: &WriteTx<'_>,
    due: &DueReminder,
    keys: Vec<i64>,
    alert: Option<&Alert>,
    now: Timestamp,
) -> Result<()> {
    let DueReminder { cue_key, user_key, streak, last_key, .. } = *due;
    let execution_id = channels::execution_id(tx, last_key)?;
    let Some((subject, tags)) = channels::find_subject(tx, cue_key, execution_id)? else {
        return Ok(());
    };
    // The run may have been deleted.
    let run = channels::find_failed_run(tx, last_key, subject.clone(), streak.failures)?;
    let reason = run.as_ref().map(FailedRun::reason);
    let id = message_id(&[cue_key.number(), 4, due.channel_key], now);
    let (since, failures) = (streak.since, streak.failures);
    let message = message::reminder(&subject, id, reason.as_deref(), since, failures, now);
    let topic = Topic { channels: Some(keys), ..failure_topic(alert, tags, now) };
    insert_failure(tx, user_key, topic, message, alert)
}

/// The first success of a cue after failures of which a channel has told one.
pub(super) fn announce_recovery(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    cue_key: CueKey,
    key: ExecutionKey,
    streak: outbox::Streak,
    now: Timestamp,
) -> Result<()> {
    if !streak.is_announced {
        return Ok(());
    }
    announce_of_cue(tx, user_key, cue_key, Some(key), now, |subject| {
        let id = message_id(&[key.number(), 1], now);
        message::recovered(subject, id, streak.since, streak.failures, now)
    })
}

/// `reason` follows "was paused", as in "by request".
pub(super) fn announce_pause(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    cue_key: CueKey,
    reason: &str,
    now: Timestamp,
) -> Result<()> {
    announce_of_cue(tx, user_key, cue_key, None, now, |subject| {
        message::paused(subject, message_id(&[cue_key.number(), 2], now), reason, now)
    })
}

/// Announces what `message` says of the cue, and of an execution of it.
fn announce_of_cue(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    cue_key: CueKey,
    key: Option<ExecutionKey>,
    now: Timestamp,
    message: impl FnOnce(&Subject) -> Message,
) -> Result<()> {
    if !channels::any_listens(tx, user_key)? {
        return Ok(());
    }
    let execution_id = key.map(|key| channels::execution_id(tx, key)).transpose()?.flatten();
    let Some((subject, tags)) = channels::find_subject(tx, cue_key, execution_id)? else {
        return Ok(());
    };
    announce(tx, user_key, message(&subject), tags, now)
}

/// It is told at `at`, or later with what it then says.
pub(super) fn announce_alert(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    cue_key: Option<CueKey>,
    alert: &Alert,
    at: Timestamp,
) -> Result<()> {
    if !channels::any_listens(tx, user_key)? {
        return Ok(());
    }
    let found = cue_key.map(|key| channels::find_subject(tx, key, None)).transpose()?.flatten();
    let (name, tags) = found.map(|(Subject { cue_name, .. }, tags)| (cue_name, tags)).unzip();
    let message = message::alert(alert, name.as_deref());
    announce(tx, user_key, message, tags.unwrap_or_default(), at)
}

/// Adds the message if a channel takes its event.
fn announce(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    message: Message,
    tags: Tags,
    at: Timestamp,
) -> Result<()> {
    let topic = Topic::new(vec![message.event.clone()], tags, at);
    if readable(tx, user_key)?.iter().any(|channel| channel.takes(&topic)) {
        insert_notice(tx, user_key, &Notice { topic, message })?;
    }
    Ok(())
}

fn insert_notice(tx: &WriteTx<'_>, user_key: UserKey, notice: &Notice) -> Result<()> {
    let settle = i64::try_from(SETTLE.as_millis()).unwrap_or(i64::MAX);
    channels::insert_notice(tx, user_key, notice, MAX_NOTICES, settle)
}

/// Returns whether a channel mails events of this word about the cue.
pub(super) fn is_mailed(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    cue_key: CueKey,
    event: &str,
) -> Result<bool> {
    if !channels::any_listens(tx, user_key)? {
        return Ok(false);
    }
    let tags = channels::find_subject(tx, cue_key, None)?.map(|(_, tags)| tags).unwrap_or_default();
    let is_mailed = |channel: &Channel| {
        channel.fields.channel_type == ChannelType::Email && channel.takes_event(event, &tags)
    };
    Ok(readable(tx, user_key)?.iter().any(is_mailed))
}

/// Channels that cannot be read must not keep an execution from being recorded: they are told nothing.
fn readable(tx: &WriteTx<'_>, user_key: UserKey) -> Result<Vec<Channel>> {
    match channels::list(tx, user_key) {
        Err(error @ Error::Storage(_)) => Err(error),
        Err(error) => {
            tx.on_commit(
                move || tracing::error!(user_key = user_key.number(), %error, "channels cannot be read and are told nothing"),
            );
            Ok(Vec::new())
        }
        found => found,
    }
}

/// Derived from its arguments, so that repeating a write creates no second message.
fn message_id(about: &[i64], now: Timestamp) -> String {
    let about: Vec<u8> = about.iter().flat_map(|number| number.to_be_bytes()).collect();
    notification_id(&about, NotificationKind::Channel, now)
}

/// What a channel does next.
pub struct Plan {
    /// As it was when this was planned.
    channel: Channel,
    message: Option<Message>,
    next: NextTurn,
    /// The newest notice of the account then.
    newest: Option<i64>,
}

/// Plans the turn of a channel. It reads up to 2,000 notices, which would hold up the writer. `None` if the channel is
/// gone.
pub fn plan(read: &ReadTx<'_>, key: i64, now: Timestamp) -> Result<Option<Plan>> {
    let Some(channel) = channels::find_by_key(read, key)? else { return Ok(None) };
    let (cursor, window) = (channel.cursor, (channel.window_at, channel.window_count));
    let wait = |due_at| NextTurn { cursor, due_at, window };
    let silent_until = match channel.silent_until(now) {
        None => mail_limit(read, &channel, now)?,
        until => until,
    };
    let (message, next) = if channels::count_in_outbox(read, key)? > 0 {
        // The end of that message wakes the channel.
        (None, wait(None))
    } else if silent_until.is_some() {
        (None, wait(silent_until))
    } else {
        compose(read, &channel, now)?
    };
    let newest = channels::newest_notice(read, channel.user_key)?;
    Ok(Some(Plan { channel, message, next, newest }))
}

/// Does what was planned, unless the channel has changed since: it is then planned again. `base` is the public URL, for
/// links.
pub fn apply(tx: &WriteTx<'_>, plan: Plan, base: Option<&str>, now: Timestamp) -> Result<()> {
    let Plan { channel, message, mut next, newest } = plan;
    let is_same = channels::find_by_key(tx, channel.key)?.is_some_and(|current| current == channel);
    let is_sending = channels::count_in_outbox(tx, channel.key)? > 0;
    // A test may have come into the outbox.
    if !is_same || (message.is_some() && is_sending) {
        return Ok(());
    }
    if let Some(message) = message {
        enqueue(tx, &channel, message, base, now)?;
    } else if next.due_at.is_none()
        && !is_sending
        && channels::newest_notice(tx, channel.user_key)? > newest
    {
        // It woke the channel, which must not sleep over it.
        next.due_at = Some(now);
    }
    channels::set_turn(tx, channel.key, next)?;
    channels::delete_told(tx, channel.user_key)
}

/// The next message, if it is its turn, and where the channel goes on. A disabled account is told nothing.
fn compose(
    read: &ReadTx<'_>,
    channel: &Channel,
    now: Timestamp,
) -> Result<(Option<Message>, NextTurn)> {
    let window = (channel.window_at, channel.window_count);
    let notices = channels::list_notices(read, channel.user_key, channel.cursor, MAX_NOTICES)?;
    let is_cut = notices.len() >= MAX_NOTICES as usize;
    let is_disabled =
        users::find(read, channel.user_key)?.is_none_or(|user| user.disabled_at.is_some());
    // In the order of the events: what is told later holds up what follows it.
    let ready = notices.iter().take_while(|notice| notice.topic.is_ready(now)).count();
    let later = notices.get(ready).map(|notice| notice.topic.at);
    let last = notices[..ready].last().map_or(channel.cursor, |notice| notice.topic.key);
    let is_told = |notice: &Notice| {
        !is_disabled && channel.takes(&notice.topic) && !is_expired(notice.topic.at, now)
    };
    let waiting: Vec<Notice> = notices.into_iter().take(ready).filter(is_told).collect();
    let turn = channel.turn(&waiting, now);
    let (message, cursor) = match (turn, waiting.first()) {
        (Turn::WaitUntil(until), _) => {
            return Ok((None, NextTurn { cursor: channel.cursor, due_at: Some(until), window }));
        }
        (Turn::Single, Some(first)) => (first.message.clone(), first.topic.key),
        (Turn::Digest, _) => {
            (digest(message_id(&[channel.key, 3], now), &waiting, is_cut, now), last)
        }
        (Turn::Idle | Turn::Single, _) => {
            return Ok((None, NextTurn { cursor: last, due_at: later, window }));
        }
    };
    let (start, count) = channel.window_after(turn, now);
    Ok((Some(message), NextTurn { cursor, due_at: None, window: (Some(start), count) }))
}

/// When the account may get another mail, if the channel mails and the hourly limit is reached.
fn mail_limit(read: &ReadTx<'_>, channel: &Channel, now: Timestamp) -> Result<Option<Timestamp>> {
    match channel.fields.channel_type {
        ChannelType::Email => mails::limit_end(read, channel.user_key, now),
        _ => Ok(None),
    }
}

fn enqueue(
    tx: &WriteTx<'_>,
    channel: &Channel,
    mut message: Message,
    base: Option<&str>,
    now: Timestamp,
) -> Result<()> {
    message.link = base.map(|base| message.address(base));
    // Two channels send the same event under two ids: a receiver takes the second for a repetition of the first otherwise.
    let id = if message.event == DIGEST || message.is_test() {
        message.id.clone()
    } else {
        notification_id(
            format!("{}{}", channel.id, message.id).as_bytes(),
            NotificationKind::Channel,
            Timestamp::UNIX_EPOCH,
        )
    };
    message.id = id.clone();
    // For its host: the request is made again when it is sent.
    let url = service(channel.fields.channel_type)
        .request
        .map(|request| request(&channel.fields.settings, &message).url.into_exposed());
    if url.is_none() {
        mails::count(tx, channel.user_key, now)?;
    }
    let (user_key, to) = (channel.user_key, Recipient::Channel(channel.key, url));
    let new = NewNotification { id, user_key, to, body: message.body(), due_at: None };
    notifications::enqueue(tx, &new, now).map(drop)
}

/// Puts a test message into the outbox, which is sent at once. Errors: `channel_not_found`.
pub fn enqueue_test(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    channel_id: &str,
    id: &str,
    base: Option<&str>,
    now: Timestamp,
) -> Result<()> {
    let channel = channels::find(tx, user_key, channel_id)?.ok_or_else(not_found)?;
    if channel.fields.channel_type == ChannelType::Email {
        mails::refuse_above_limit(tx, user_key, now)?;
    }
    enqueue(tx, &channel, Message::test(id, &channel.fields.name, now), base, now)
}

/// What the end of a notification, or of an attempt, means for its channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageOutcome {
    Accepted,
    /// Why the service did not accept it.
    Failed(String),
    /// It is not sent, which says nothing of the channel.
    Dropped,
}

/// The failures that the channel has recorded as told, and that nobody has heard of: the next one is told again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Untold {
    Nothing,
    /// Those of the cue with this id.
    OfCue(String),
    All,
}

impl Untold {
    /// After a message of this age was dropped; `None` if it cannot be read. A message that the service refused holds up no
    /// other. Behind a message that was repeated for a day, others have expired.
    pub fn after(message: Option<&Message>, age: SignedDuration) -> Self {
        match message {
            Some(message) if age < REFUSED_WITHIN => match (&*message.event, &message.cue_id) {
                (EXECUTION_FAILED, Some(cue_id)) => Self::OfCue(cue_id.clone()),
                // It does not say of which cues.
                (EXECUTION_FAILED | DIGEST, _) => Self::All,
                _ => Self::Nothing,
            },
            _ => Self::All,
        }
    }
}

/// `next` tells whether the message has left the outbox.
pub fn record_result(
    tx: &WriteTx<'_>,
    key: i64,
    outcome: &MessageOutcome,
    untold: &Untold,
    next: NextStep,
    now: Timestamp,
) -> Result<()> {
    match outcome {
        MessageOutcome::Accepted => return channels::record_success(tx, key, now),
        MessageOutcome::Failed(error) => channels::record_failure(tx, key, error, now)?,
        MessageOutcome::Dropped => {}
    }
    if matches!(next, NextStep::RetryAt(_)) {
        return Ok(());
    }
    match untold {
        Untold::Nothing => {}
        Untold::OfCue(cue_id) => channels::forget_told_by(tx, key, Some(cue_id))?,
        Untold::All => channels::forget_told_by(tx, key, None)?,
    }
    channels::look_again(tx, key, now)
}
