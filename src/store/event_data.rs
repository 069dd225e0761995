//! The data of live events about executions and cues, read in the write that changes them (contract §8.13).

use jiff::Timestamp;

use crate::domain::cue::CueStatus;
use crate::domain::cue::tags::Tags;
use crate::domain::execution::outcome::OutcomeState;
use crate::domain::execution::{ExecutionStatus, Trigger};
use crate::domain::ids::ExecutionId;
use crate::domain::notification::event::{CueEvent, ExecutionEvent, message};
use crate::domain::row_keys::{CueKey, ExecutionKey, UserKey};
use crate::domain::time::instant;
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::db::columns::{FromRow, RowReader};

const EXECUTION: &str = "SELECT ?2, e.id, c.id, c.name, e.status, e.triggered_by, e.scheduled_for, e.attempts,
            c.max_attempts, e.claimed_by_worker, e.outcome_state, e.cause, e.http_status, e.error_message,
            e.duration_ms, e.started_at - e.scheduled_for, iif(e.status = 'retrying', e.due_at, NULL), e.outcome_due_at,
            c.tags
       FROM executions e JOIN cues c ON c.key = e.cue_key
      WHERE e.key = ?1";

const USER_OF_CUE: &str = "SELECT user_key FROM cues WHERE key = ?1";

const CUE: &str = "SELECT id, name, status, next_run, tags FROM cues WHERE key = ?1";

const NAME_AND_TAGS: &str = "SELECT name, tags FROM cues WHERE id = ?2 AND user_key = ?1";

const LAST_HEARTBEAT: &str =
    "SELECT last_heartbeat FROM workers WHERE user_key = ?1 AND worker_id = ?2";

/// With the tags of its cue, as the others here.
pub fn execution(
    read: &ReadTx<'_>,
    key: ExecutionKey,
    at: Timestamp,
) -> Result<Option<(ExecutionEvent, Tags)>> {
    read.find(EXECUTION, (key, at))
}

impl FromRow for ExecutionEvent {
    fn read(columns: &mut RowReader<'_, '_>) -> rusqlite::Result<Self> {
        Ok(Self {
            at: instant(columns.get()?),
            execution_id: columns.get::<ExecutionId>()?.to_string(),
            cue_id: columns.get()?,
            cue_name: columns.get()?,
            status: columns.get::<ExecutionStatus>()?.as_str(),
            triggered_by: columns.get::<Trigger>()?.as_str(),
            scheduled_for: instant(columns.get()?),
            attempt: columns.get()?,
            max_attempts: columns.get()?,
            worker_id: columns.get()?,
            outcome_state: columns.get::<Option<OutcomeState>>()?.map(OutcomeState::as_str),
            cause: columns.get()?,
            http_status: columns.get()?,
            error_message: columns.maybe_text()?.map(message),
            duration_ms: columns.get()?,
            late_ms: columns.get()?,
            next_retry: columns.get::<Option<Timestamp>>()?.map(instant),
            outcome_due_at: columns.get::<Option<Timestamp>>()?.map(instant),
        })
    }
}

pub fn cue(read: &ReadTx<'_>, key: CueKey, at: Timestamp) -> Result<Option<(CueEvent, Tags)>> {
    let found: Option<(String, String, CueStatus, Option<Timestamp>, Tags)> =
        read.find(CUE, [key])?;
    Ok(found.map(|(cue_id, cue_name, status, next_run, tags)| {
        let (status, next_run, at) = (status.as_str(), next_run.map(instant), instant(at));
        (CueEvent { cue_id, cue_name, status, next_run, at }, tags)
    }))
}

pub fn user_of_cue(read: &ReadTx<'_>, key: CueKey) -> Result<Option<UserKey>> {
    read.find(USER_OF_CUE, [key])
}

pub fn name_and_tags(
    read: &ReadTx<'_>,
    user_key: UserKey,
    id: &str,
) -> Result<Option<(String, Tags)>> {
    read.find(NAME_AND_TAGS, (user_key, id))
}

pub fn last_heartbeat(
    read: &ReadTx<'_>,
    user_key: UserKey,
    worker_id: &str,
) -> Result<Option<Timestamp>> {
    read.find(LAST_HEARTBEAT, (user_key, worker_id))
}

#[cfg(test)]
crate::store::test_support::plan_test! { the_data_of_an_event_is_read_by_key:
    EXECUTION => "SEARCH e USING INTEGER PRIMARY KEY (rowid=?)",
    USER_OF_CUE => "SEARCH cues USING INTEGER PRIMARY KEY (rowid=?)",
    CUE => "SEARCH cues USING INTEGER PRIMARY KEY (rowid=?)",
    NAME_AND_TAGS => "(id=?)",
    LAST_HEARTBEAT => "SEARCH workers USING PRIMARY KEY (user_key=? AND worker_id=?)",
}
