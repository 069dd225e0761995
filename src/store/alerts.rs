//! Alerts: inserted, searched and listed. `service::notify` decides when to raise one.

use jiff::Timestamp;

use crate::domain::ids::ExecutionId;
use crate::domain::notification::alert::{Alert, AlertType};
use crate::domain::row_keys::{CueKey, ExecutionKey, UserKey};
use crate::error::Result;
use crate::store::db::columns::{row, select};
use crate::store::{ReadTx, WriteTx};

#[derive(Debug, Clone, Default)]
pub struct AlertFilter {
    pub alert_type: Option<AlertType>,
    pub cue_id: Option<String>,
    pub since: Option<Timestamp>,
}

row! { subject_columns, "e.",
#[derive(Debug, Clone)]
pub struct AlertSubject {
    pub user_key: UserKey,
    pub cue_key: CueKey,
    pub cue_id: String = "c.id",
    pub cue_name: String = "c.name",
    pub execution_id: ExecutionId = "e.id",
} }
pub(in crate::store) use subject_columns;

row!(columns, "a.", Alert { id, alert_type, cue_id = "c.id", execution_id, message, metadata, created_at });

const FIND_CATCH_UP: &str = select!(
    columns,
    "FROM alerts a LEFT JOIN cues c ON c.key = a.cue_key
  WHERE a.user_key = ?1 AND a.created_at = ?2 AND a.alert_type = 'catch_up'"
);

pub fn find_catch_up(
    read: &ReadTx<'_>,
    user_key: UserKey,
    ended_at: Timestamp,
) -> Result<Option<Alert>> {
    read.find(FIND_CATCH_UP, (user_key, ended_at))
}

const UPDATE_CATCH_UP: &str = "UPDATE alerts SET message = ?3, metadata = ?4
  WHERE user_key = ?1 AND created_at = ?2 AND alert_type = 'catch_up'";

pub fn update_catch_up(tx: &WriteTx<'_>, user_key: UserKey, alert: &Alert) -> Result<()> {
    tx.run(UPDATE_CATCH_UP, (user_key, alert.created_at, &alert.message, &alert.metadata))
}

const FIND_STREAK: &str = select!(
    columns,
    "FROM alerts a JOIN cues c ON c.key = a.cue_key
  WHERE a.cue_key = ?1 AND a.alert_type = 'consecutive_failures' AND a.created_at >= ?2
  ORDER BY a.created_at DESC LIMIT 1"
);

/// The newest alert about failures of the cue in a row that was raised since then.
pub fn find_streak(read: &ReadTx<'_>, cue_key: CueKey, since: Timestamp) -> Result<Option<Alert>> {
    read.find(FIND_STREAK, (cue_key, since))
}

const UPDATE: &str = "UPDATE alerts SET execution_id = ?3, message = ?4, metadata = ?5
  WHERE cue_key = ?1 AND alert_type = 'consecutive_failures' AND created_at = ?2";

/// Changes an alert about failures of the cue in a row.
pub fn update_streak(tx: &WriteTx<'_>, cue_key: CueKey, alert: &Alert) -> Result<()> {
    let Alert { execution_id, message, metadata, created_at, .. } = alert;
    tx.run(UPDATE, (cue_key, created_at, execution_id, message, metadata))
}

const ALERT_URL: &str = "SELECT alert_webhook_url FROM users
  WHERE key = ?1 AND disabled_at IS NULL AND alert_webhook_url IS NOT NULL";

pub fn alert_url(read: &ReadTx<'_>, user_key: UserKey) -> Result<Option<String>> {
    read.find(ALERT_URL, [user_key])
}

const SUBJECT: &str = select!(
    subject_columns,
    "FROM executions e JOIN cues c ON c.key = e.cue_key
      JOIN users u ON u.key = e.user_key AND u.disabled_at IS NULL
     WHERE e.key = ?1"
);

pub fn find_subject(
    read: &ReadTx<'_>,
    execution_key: ExecutionKey,
) -> Result<Option<AlertSubject>> {
    read.find(SUBJECT, [execution_key])
}

const EXISTS_SINCE: &str =
    "SELECT 1 FROM alerts WHERE cue_key = ?1 AND alert_type = ?2 AND created_at > ?3";

pub fn exists_since(
    read: &ReadTx<'_>,
    cue_key: CueKey,
    alert_type: AlertType,
    since: Timestamp,
) -> Result<bool> {
    read.any(EXISTS_SINCE, (cue_key, alert_type, since))
}

const NEWEST_OF_CUE: &str = "SELECT max(created_at) FROM alerts WHERE cue_key = ?1 AND alert_type = ?2 AND created_at <= ?3";

/// The time of the cue's newest alert of this type. A later time than `until` does not count: the clock was set back.
pub fn newest_of_cue(
    read: &ReadTx<'_>,
    cue_key: CueKey,
    alert_type: AlertType,
    until: Timestamp,
) -> Result<Option<Timestamp>> {
    read.one(NEWEST_OF_CUE, (cue_key, alert_type, until))
}

const EXISTS: &str = "SELECT 1 FROM alerts WHERE user_key = ?1 AND id = ?2";

pub fn exists(read: &ReadTx<'_>, user_key: UserKey, id: &str) -> Result<bool> {
    read.any(EXISTS, (user_key, id))
}

const HAS_MORE_SINCE: &str = "SELECT 1 FROM alerts WHERE user_key = ?1 AND created_at > ?2 ORDER BY created_at LIMIT 1 OFFSET ?3";

pub fn has_more_since(
    read: &ReadTx<'_>,
    user_key: UserKey,
    since: Timestamp,
    count: u32,
) -> Result<bool> {
    read.any(HAS_MORE_SINCE, (user_key, since, count))
}

pub fn insert(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    cue_key: Option<CueKey>,
    alert: &Alert,
) -> Result<()> {
    let Alert { id, execution_id, alert_type, message, metadata, created_at, .. } = alert;
    tx.insert(
        "alerts",
        "id, user_key, cue_key, execution_id, alert_type, message, metadata, created_at",
        (id, user_key, cue_key, execution_id, alert_type, message, metadata, created_at),
    )
    .map(drop)
}

const DELETE_SURPLUS: &str = "DELETE FROM alerts WHERE key IN (
    SELECT key FROM alerts WHERE user_key = ?1 ORDER BY created_at DESC, key DESC LIMIT -1 OFFSET ?2)";

pub fn delete_surplus(tx: &WriteTx<'_>, user_key: UserKey, kept: u32) -> Result<()> {
    tx.run(DELETE_SURPLUS, (user_key, kept))
}

// A user has a thousand alerts at most, so the filters read all of them, newest first, and need no further index.
const LIST: &str = select!(columns, "FROM alerts a LEFT JOIN cues c ON c.key = a.cue_key
  WHERE a.user_key = ?1 AND a.created_at >= ?2 AND (?3 IS NULL OR a.alert_type = ?3) AND (?4 IS NULL OR c.id = ?4)
  ORDER BY a.created_at DESC, a.key DESC LIMIT ?5 + 0 OFFSET ?6");
const COUNT: &str = "SELECT count(*) FROM alerts a LEFT JOIN cues c ON c.key = a.cue_key
  WHERE a.user_key = ?1 AND a.created_at >= ?2 AND (?3 IS NULL OR a.alert_type = ?3) AND (?4 IS NULL OR c.id = ?4)";

pub fn list(
    read: &ReadTx<'_>,
    user_key: UserKey,
    filter: &AlertFilter,
    limit: u32,
    offset: u64,
) -> Result<(Vec<Alert>, i64)> {
    let of = (user_key, filter.since.unwrap_or(Timestamp::MIN), filter.alert_type, &filter.cue_id);
    Ok((read.all(LIST, (of, limit, offset))?, read.one(COUNT, of)?))
}

#[cfg(test)]
crate::store::test_support::plan_test! { every_query_uses_its_index_and_none_sorts:
    SUBJECT => "SEARCH e USING INTEGER PRIMARY KEY (rowid=?)",
    EXISTS_SINCE => "alerts_by_cue (cue_key=? AND alert_type=? AND created_at>?)",
    NEWEST_OF_CUE => "alerts_by_cue (cue_key=? AND alert_type=? AND created_at<?)",
    HAS_MORE_SINCE => "alerts_by_user (user_key=? AND created_at>?)",
    FIND_CATCH_UP => "alerts_by_user (user_key=? AND created_at=?)",
    UPDATE_CATCH_UP => "alerts_by_user (user_key=? AND created_at=?)",
    ALERT_URL => "SEARCH users USING INTEGER PRIMARY KEY (rowid=?)",
    FIND_STREAK => "alerts_by_cue (cue_key=? AND alert_type=? AND created_at>?)",
    UPDATE => "alerts_by_cue (cue_key=? AND alert_type=? AND created_at=?)",
    EXISTS => "alerts_by_user (user_key=?)",
    DELETE_SURPLUS => "alerts_by_user (user_key=?)",
    LIST => "alerts_by_user (user_key=? AND created_at>?)",
    COUNT => "alerts_by_user (user_key=? AND created_at>?)",
}
