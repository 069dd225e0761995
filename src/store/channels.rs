//! Channels, and the notices that they tell (contract §12). `service::channels` decides when one is told.

use jiff::Timestamp;
use serde_json::json;

use crate::domain::channel::message::{AttemptFailure, FailedRun, Message, Notice, Subject, Topic};
use crate::domain::channel::{Channel, ChannelEvents, ChannelFields, Quiet, Settings, TROUBLED};
use crate::domain::cue::tags::Tags;
use crate::domain::ids::ExecutionId;
use crate::domain::row_keys::{CueKey, ExecutionKey, UserKey};
use crate::domain::webhook::callback::host_of;
use crate::error::Result;
use crate::store::db::columns::{
    FromRow, RowReader, invalid_column, json_columns, row, select, stored_row,
};
use crate::store::outbox::Streak;
use crate::store::{ReadTx, WakeSet, WriteTx};

stored_row!(field_columns, ChannelFields {
    channel_type = "type", name, settings, events, tags, quiet, repeat, remind_after_seconds
});

row!(columns, "", Channel {
    key, id, user_key, fields = (field_columns), cursor, window_at, window_count, failures, last_sent_at, last_failed_at, last_error, created_at, updated_at,
});

json_columns!(Settings, ChannelEvents, Quiet);

impl FromRow for Topic {
    const WIDTH: usize = 5;

    fn read(columns: &mut RowReader<'_, '_>) -> rusqlite::Result<Self> {
        let (key, events, tags) = (columns.get()?, columns.json()?, columns.get()?);
        Ok(Self { key, events, tags, channels: columns.maybe_json()?, at: columns.get()? })
    }
}

impl FromRow for Message {
    fn read(columns: &mut RowReader<'_, '_>) -> rusqlite::Result<Self> {
        Message::read(columns.text()?).ok_or_else(|| invalid_column("no message"))
    }
}

row!(AttemptFailure { http_status, cause, error });

const INSERT: &str = concat!(
    "INSERT INTO channels (id, user_key, created_at, updated_at, cursor, ",
    field_columns!(),
    ") VALUES (?1, ?2, ?3, ?3, coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'notices'), 0), ?4, ?5, ?6, ?7,
               ?8, ?9, ?10, ?11)"
);

pub fn insert(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    id: &str,
    new: &ChannelFields,
    now: Timestamp,
) -> Result<()> {
    tx.run(INSERT, (id, user_key, now, new))
}

const UPDATE: &str = concat!(
    "UPDATE channels SET (",
    field_columns!(),
    ") = (?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11), failures = ?2, updated_at = ?3, due_at = ?3 WHERE key = ?1"
);
const RESCHEDULE_REMINDERS: &str = "UPDATE told_failures SET remind_at = iif(?2 = 0, NULL, told_at + 1000 * ?2) WHERE channel_key = ?1";
const RELEASE_MESSAGE: &str = "UPDATE outbox SET due_at = NULL WHERE channel_key = ?1";

/// Its type is the same. With changed settings its earlier failures count no more, and its message is sent again
/// at once.
pub fn update(
    tx: &WriteTx<'_>,
    key: i64,
    new: &ChannelFields,
    failures: u32,
    now: Timestamp,
) -> Result<()> {
    tx.run(UPDATE, (key, failures, now, new))?;
    tx.run(RESCHEDULE_REMINDERS, (key, new.remind_after_seconds))?;
    if failures == 0 {
        tx.run(RELEASE_MESSAGE, [key])?;
    }
    wake(tx);
    Ok(())
}

fn wake(tx: &WriteTx<'_>) {
    tx.wake(WakeSet { notifications: true, ..WakeSet::default() });
}

const DELETE: &str = "DELETE FROM channels WHERE user_key = ?1 AND id = ?2";
const DELETE_TOLD: &str = "DELETE FROM notices WHERE user_key = ?1
    AND key <= coalesce((SELECT min(cursor) FROM channels WHERE user_key = ?1), 9223372036854775807)";

/// With its message in the outbox. Returns `false` if the user has no such channel.
pub fn delete(tx: &WriteTx<'_>, user_key: UserKey, id: &str) -> Result<bool> {
    let is_deleted = tx.changes(DELETE, (user_key, id))?;
    tx.run(DELETE_TOLD, [user_key])?;
    Ok(is_deleted)
}

const DELETE_ALL: &str = "DELETE FROM channels WHERE user_key = ?1";

pub fn delete_all(tx: &WriteTx<'_>, user_key: UserKey) -> Result<()> {
    tx.run(DELETE_ALL, [user_key])?;
    tx.run(DELETE_TOLD, [user_key])
}

const COUNT: &str = "SELECT count(*) FROM channels WHERE user_key = ?1";

pub fn count(read: &ReadTx<'_>, user_key: UserKey) -> Result<i64> {
    read.one(COUNT, [user_key])
}

const COUNT_REACHING: &str =
    "SELECT count(*) FROM channels WHERE user_key = ?1 AND (?2 OR type <> 'email')";

/// The channels that reach somebody: where no mail is sent, those by mail do not.
pub fn count_reaching(read: &ReadTx<'_>, user_key: UserKey, sends_mail: bool) -> Result<i64> {
    read.one(COUNT_REACHING, (user_key, sends_mail))
}

const ANY_LISTENS: &str = "SELECT 1 FROM channels JOIN users ON users.key = user_key
  WHERE user_key = ?1 AND disabled_at IS NULL";

/// Returns whether the user has a channel. Those of a disabled one are told nothing.
pub fn any_listens(read: &ReadTx<'_>, user_key: UserKey) -> Result<bool> {
    read.any(ANY_LISTENS, [user_key])
}

const LIST: &str = select!(columns, "FROM channels WHERE user_key = ?1 ORDER BY key");

pub fn list(read: &ReadTx<'_>, user_key: UserKey) -> Result<Vec<Channel>> {
    read.all(LIST, [user_key])
}

const FIND: &str = select!(columns, "FROM channels WHERE id = ?2 AND user_key = ?1");

pub fn find(read: &ReadTx<'_>, user_key: UserKey, id: &str) -> Result<Option<Channel>> {
    read.find(FIND, (user_key, id))
}

const FIND_BY_KEY: &str = select!(columns, "FROM channels WHERE key = ?1");

pub fn find_by_key(read: &ReadTx<'_>, key: i64) -> Result<Option<Channel>> {
    read.find(FIND_BY_KEY, [key])
}

const LIST_FAILING: &str =
    "SELECT id, name, last_error FROM channels WHERE user_key = ?1 AND failures >= ?2 ORDER BY key";

/// Id, name and last error of the channels that reach nobody at the moment.
pub fn list_failing(
    read: &ReadTx<'_>,
    user_key: UserKey,
) -> Result<Vec<(String, String, Option<String>)>> {
    read.all(LIST_FAILING, (user_key, TROUBLED))
}

const LIST_TOPICS: &str = "SELECT key, events, tags, channels, ready_at FROM notices
  WHERE user_key = ?1 AND key > ?2 ORDER BY key";

/// What the notices of the account are about.
pub fn list_topics(read: &ReadTx<'_>, user_key: UserKey, after: i64) -> Result<Vec<Topic>> {
    read.all(LIST_TOPICS, (user_key, after))
}

const IN_OUTBOX: &str = "SELECT count(*) FROM outbox WHERE channel_key = ?1";

/// The messages of the channel in the outbox.
pub fn count_in_outbox(read: &ReadTx<'_>, key: i64) -> Result<usize> {
    read.one(IN_OUTBOX, [key])
}

const NEXT_DUE: &str =
    "SELECT due_at FROM channels WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1";

pub fn next_due_at(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    read.find(NEXT_DUE, ())
}

const LIST_STUCK: &str = "SELECT id FROM channels WHERE due_at IS NULL
    AND EXISTS (SELECT 1 FROM notices WHERE notices.user_key = channels.user_key AND notices.key > cursor)
    AND NOT EXISTS (SELECT 1 FROM outbox WHERE channel_key = channels.key)";

/// The channels that nothing would wake, although notices wait for them.
pub fn list_stuck(read: &ReadTx<'_>) -> Result<Vec<String>> {
    read.all(LIST_STUCK, ())
}

const LIST_DUE: &str = "SELECT key FROM channels WHERE due_at IS NOT NULL AND due_at <= ?1 ORDER BY due_at LIMIT ?2 + 0";

pub fn list_due(read: &ReadTx<'_>, now: Timestamp, limit: u32) -> Result<Vec<i64>> {
    read.all(LIST_DUE, (now, limit))
}

/// Where a channel goes on after its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextTurn {
    pub cursor: i64,
    pub due_at: Option<Timestamp>,
    pub window: (Option<Timestamp>, u32),
}

// A disabled account has no turn to come.
const SET_TURN: &str = "UPDATE channels
    SET cursor = max(cursor, ?2), window_at = ?4, window_count = ?5,
        due_at = iif((SELECT disabled_at FROM users WHERE users.key = user_key) IS NULL, ?3, NULL)
  WHERE key = ?1";

pub fn set_turn(tx: &WriteTx<'_>, key: i64, next: NextTurn) -> Result<()> {
    tx.run(SET_TURN, (key, next.cursor, next.due_at, next.window))
}

const RECORD_SUCCESS: &str = "UPDATE channels SET failures = 0, last_sent_at = ?2, last_error = NULL, due_at = ?2 WHERE key = ?1";

/// The service has accepted a message. Another one that waits for its next attempt is sent at once.
pub fn record_success(tx: &WriteTx<'_>, key: i64, now: Timestamp) -> Result<()> {
    tx.run(RECORD_SUCCESS, (key, now))?;
    tx.run(RELEASE_MESSAGE, [key])
}

const RECORD_FAILURE: &str = "UPDATE channels SET failures = failures + 1, last_failed_at = ?2, last_error = ?3 WHERE key = ?1";

pub fn record_failure(tx: &WriteTx<'_>, key: i64, error: &str, now: Timestamp) -> Result<()> {
    tx.run(RECORD_FAILURE, (key, now, error))
}

const LOOK_AGAIN: &str = "UPDATE channels SET due_at = ?2 WHERE key = ?1";

/// After its message has left the outbox.
pub fn look_again(tx: &WriteTx<'_>, key: i64, now: Timestamp) -> Result<()> {
    tx.run(LOOK_AGAIN, (key, now))
}

/// Until it is changed or its next notice.
pub fn stop_looking(tx: &WriteTx<'_>, key: i64) -> Result<()> {
    tx.run("UPDATE channels SET due_at = NULL WHERE key = ?1", [key])
}

const SILENCE: &str = "UPDATE channels SET due_at = NULL WHERE user_key = ?1";
const DELETE_NOTICES: &str = "DELETE FROM notices WHERE user_key = ?1";

/// Deletes what the channels of the user have to tell.
pub fn silence(tx: &WriteTx<'_>, user_key: UserKey) -> Result<()> {
    tx.run(DELETE_NOTICES, [user_key])?;
    tx.run(SILENCE, [user_key])
}

// A channel that waits for more notices looks again a little later, at most once in that time however many come.
const WAKE: &str =
    "UPDATE channels SET due_at = min(coalesce(due_at, ?2), ?2 + iif(due_at IS NULL, 0, ?3))
  WHERE user_key = ?1 AND (due_at IS NULL OR due_at > ?2 + ?3)
    AND NOT EXISTS (SELECT 1 FROM outbox WHERE channel_key = channels.key)";
const DELETE_SURPLUS: &str = "DELETE FROM notices WHERE user_key = ?1
    AND key <= (SELECT key FROM notices WHERE user_key = ?1 ORDER BY key DESC LIMIT 1 OFFSET ?2 + 0)";

/// Adds a notice, and wakes the channels of the account. Of more than `kept` waiting ones the oldest are deleted.
pub fn insert_notice(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    notice: &Notice,
    kept: u32,
    settle_ms: i64,
) -> Result<()> {
    let Notice { topic: Topic { events, tags, channels, at, .. }, message } = notice;
    let channels = channels.as_ref().map(|keys| json!(keys));
    tx.insert(
        "notices",
        "user_key, events, tags, ready_at, id, body, channels",
        (user_key, json!(events), tags, at, &message.id, message.body(), channels),
    )?;
    tx.run(DELETE_SURPLUS, (user_key, kept))?;
    tx.run(WAKE, (user_key, at, settle_ms))?;
    wake(tx);
    Ok(())
}

const UPDATE_NOTICE: &str =
    "UPDATE notices SET ready_at = ?3, body = ?4 WHERE user_key = ?1 AND id = ?2";

/// Changes a notice that has not been told.
pub fn update_notice(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    message: &Message,
    ready_at: Timestamp,
) -> Result<()> {
    tx.run(UPDATE_NOTICE, (user_key, &message.id, ready_at, message.body()))
}

const RELEASE_NOTICE: &str =
    "UPDATE notices SET ready_at = min(ready_at, ?3) WHERE user_key = ?1 AND id = ?2";

/// Lets the notice of this id be told at `now`.
pub fn release_notice(tx: &WriteTx<'_>, user_key: UserKey, id: &str, now: Timestamp) -> Result<()> {
    if tx.changes(RELEASE_NOTICE, (user_key, id, now))? {
        tx.run(WAKE, (user_key, now, 0_i64))?;
        wake(tx);
    }
    Ok(())
}

const NEWEST_NOTICE: &str = "SELECT key FROM notices WHERE user_key = ?1 ORDER BY key DESC LIMIT 1";

pub fn newest_notice(read: &ReadTx<'_>, user_key: UserKey) -> Result<Option<i64>> {
    read.find(NEWEST_NOTICE, [user_key])
}

const LIST_NOTICES: &str = "SELECT key, events, tags, channels, ready_at, body FROM notices
  WHERE user_key = ?1 AND key > ?2 ORDER BY key LIMIT ?3 + 0";

pub fn list_notices(
    read: &ReadTx<'_>,
    user_key: UserKey,
    after: i64,
    limit: u32,
) -> Result<Vec<Notice>> {
    let found: Vec<(Topic, Message)> = read.all(LIST_NOTICES, (user_key, after, limit))?;
    Ok(found.into_iter().map(|(topic, message)| Notice { topic, message }).collect())
}

/// Deletes the notices that all channels of the user have told or do not take.
pub fn delete_told(tx: &WriteTx<'_>, user_key: UserKey) -> Result<()> {
    tx.run(DELETE_TOLD, [user_key])
}

const SUBJECT: &str = "SELECT id, name, timezone, tags FROM cues WHERE key = ?1";

/// The cue in this row and its tags, for a message about `execution_id`.
pub fn find_subject(
    read: &ReadTx<'_>,
    cue_key: CueKey,
    execution_id: Option<ExecutionId>,
) -> Result<Option<(Subject, Tags)>> {
    let found: Option<(String, String, String, Tags)> = read.find(SUBJECT, [cue_key])?;
    Ok(found.map(|(cue_id, cue_name, timezone, tags)| {
        let execution_id = execution_id.map(|id| id.to_string());
        (Subject { cue_id, cue_name, timezone, execution_id }, tags)
    }))
}

pub fn execution_id(read: &ReadTx<'_>, key: ExecutionKey) -> Result<Option<ExecutionId>> {
    read.find("SELECT id FROM executions WHERE key = ?1", [key])
}

// The error of a worker is in its report, that of a delivery in the execution.
const FAILURE: &str =
    "SELECT e.attempts, e.http_status, e.cause, coalesce(o.error, e.error_message), e.scheduled_for,
        c.callback_url
   FROM executions e JOIN cues c ON c.key = e.cue_key LEFT JOIN outcomes o ON o.execution_key = e.key
  WHERE e.key = ?1 AND c.id = ?2";
const OTHER_FAILURE: &str = "SELECT a.http_status, a.cause, a.error_message
   FROM attempts a JOIN executions e ON e.key = a.execution_key
  WHERE a.execution_key = ?1 AND a.attempt < e.attempts AND a.is_counted AND coalesce(a.cause, a.error_message) IS NOT NULL
    AND (a.http_status IS NOT e.http_status OR a.cause IS NOT e.cause)
  ORDER BY a.attempt DESC LIMIT 1";

/// The failed execution in this row, the last of `streak`.
pub fn find_failed_run(
    read: &ReadTx<'_>,
    key: ExecutionKey,
    subject: Subject,
    streak: i64,
) -> Result<Option<FailedRun>> {
    let before = read.find(OTHER_FAILURE, [key])?;
    let found: Option<(u32, AttemptFailure, Timestamp, Option<String>)> =
        read.find(FAILURE, (key, &subject.cue_id))?;
    Ok(found.map(|(attempts, last, scheduled_for, url)| {
        let host = url.as_deref().map(host_of).filter(|host| !host.is_empty());
        FailedRun { subject, attempts, last, before, host, scheduled_for, streak }
    }))
}

const LIST_TOLD: &str = "SELECT channel_key FROM told_failures WHERE cue_key = ?1";

/// Lists the channels that have sent the current failures of the cue.
pub fn list_told(read: &ReadTx<'_>, cue_key: CueKey) -> Result<Vec<i64>> {
    read.all(LIST_TOLD, [cue_key])
}

const TOLD_AT: &str = "SELECT told_at FROM told_failures WHERE cue_key = ?1 AND channel_key = ?2";

pub fn told_at(read: &ReadTx<'_>, cue_key: CueKey, channel_key: i64) -> Result<Option<Timestamp>> {
    read.find(TOLD_AT, (cue_key, channel_key))
}

const RECORD_TOLD: &str = "INSERT INTO told_failures (cue_key, channel_key, told_at, remind_at)
    SELECT cue_key, ?2, ?3, iif(?4 = 0, NULL, ?3 + 1000 * ?4) FROM consecutive_failures WHERE cue_key = ?1
    ON CONFLICT DO UPDATE SET told_at = excluded.told_at, remind_at = excluded.remind_at";

/// Records that the channel has sent the failures of the cue, if it is failing. 0 seconds mean no reminder.
pub fn record_told(
    tx: &WriteTx<'_>,
    cue_key: CueKey,
    channel_key: i64,
    remind_after_seconds: u32,
    now: Timestamp,
) -> Result<()> {
    tx.run(RECORD_TOLD, (cue_key, channel_key, now, remind_after_seconds))
}

pub fn forget_told(tx: &WriteTx<'_>, cue_key: CueKey) -> Result<()> {
    tx.run("DELETE FROM told_failures WHERE cue_key = ?1", [cue_key])
}

const FORGET_TOLD_BY: &str = "DELETE FROM told_failures
  WHERE channel_key = ?1 AND (?2 IS NULL OR cue_key = (SELECT key FROM cues WHERE id = ?2))";

/// After a message of the channel about failures of this cue, or of any cue, that nobody gets: the next one is told.
pub fn forget_told_by(tx: &WriteTx<'_>, channel_key: i64, cue_id: Option<&str>) -> Result<()> {
    tx.run(FORGET_TOLD_BY, (channel_key, cue_id))
}

row! {
#[derive(Debug, Clone)]
pub struct DueReminder {
    pub cue_key: CueKey,
    pub user_key: UserKey,
    pub channel_key: i64,
    pub remind_after_seconds: u32,
    /// False if the cue has ended.
    pub is_active: bool,
    pub streak: Streak,
    /// The last execution that has failed.
    pub last_key: ExecutionKey,
} }

const NEXT_REMINDER: &str =
    "SELECT remind_at FROM told_failures WHERE remind_at IS NOT NULL ORDER BY remind_at LIMIT 1";

pub fn next_reminder(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    read.find(NEXT_REMINDER, ())
}

const DUE_REMINDERS: &str = "SELECT t.cue_key, cues.user_key, t.channel_key, c.remind_after_seconds,
        cues.status = 'active', f.failures, f.since, f.is_announced, f.last_key
   FROM told_failures t JOIN consecutive_failures f ON f.cue_key = t.cue_key JOIN cues ON cues.key = t.cue_key
   JOIN channels c ON c.key = t.channel_key
  WHERE t.remind_at <= ?1 ORDER BY t.remind_at LIMIT ?2 + 0";

pub fn list_due_reminders(
    read: &ReadTx<'_>,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<DueReminder>> {
    read.all(DUE_REMINDERS, (now, limit))
}

#[cfg(test)]
crate::store::test_support::plan_test! { channels_and_notices_are_found_by_index:
    COUNT => "channels_by_user (user_key=?)",
    COUNT_REACHING => "channels_by_user (user_key=?)",
    ANY_LISTENS => "channels_by_user (user_key=?)",
    SILENCE => "channels_by_user (user_key=?)",
    DELETE_NOTICES => "notices_by_user (user_key=?)",
    LIST => "channels_by_user (user_key=?)",
    FIND => "(id=?)",
    DELETE => "(id=?)",
    DELETE_ALL => "channels_by_user (user_key=?)",
    IN_OUTBOX => "outbox_by_channel (channel_key=?)",
    RELEASE_MESSAGE => "outbox_by_channel (channel_key=?)",
    LIST_FAILING => "channels_by_user (user_key=?)",
    NEXT_DUE => "channels_due (due_at>?)",
    LIST_DUE => "channels_due (due_at>? AND due_at<?)",
    WAKE => "channels_by_user (user_key=?)",
    UPDATE_NOTICE => "notices_by_user (user_key=?)",
    LIST_TOPICS => "notices_by_user (user_key=? AND key>?)",
    NEWEST_NOTICE => "notices_by_user (user_key=?)",
    LIST_NOTICES => "notices_by_user (user_key=? AND key>?)",
    DELETE_TOLD => "notices_by_user (user_key=?",
    DELETE_SURPLUS => "notices_by_user (user_key=?",
    TOLD_AT => "SEARCH told_failures USING PRIMARY KEY (cue_key=? AND channel_key=?)",
    LIST_TOLD => "SEARCH told_failures USING PRIMARY KEY (cue_key=?)",
    RESCHEDULE_REMINDERS => "told_failures_by_channel (channel_key=?)",
    FORGET_TOLD_BY => "told_failures_by_channel (channel_key=?)",
    NEXT_REMINDER => "told_failures_due",
    DUE_REMINDERS => "told_failures_due (remind_at<?)",
    OTHER_FAILURE => "SEARCH a USING PRIMARY KEY (execution_key=? AND attempt<?)",
}
