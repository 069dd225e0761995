//! Flows: the limits of their cues, the start of their next attempts, and what waits in them (contract §4.16).

use jiff::Timestamp;
use serde::Serialize;

use crate::domain::row_keys::{CueKey, UserKey};
use crate::domain::webhook::flow::FlowState;
use crate::error::Result;
use crate::store::db::columns::row;
use crate::store::{ReadTx, WakeSet, WriteTx};

// The strictest limits of its cues.
const FIND: &str = "SELECT min(flow_parallelism), min(flow_per_minute), max(flow_last_at) FROM cues
  WHERE user_key = ?1 AND destination_hash = ?2 AND destination_hash < 0";

const IS_IN_FLOW: &str = "SELECT 1 FROM cues WHERE key = ?1 AND destination_hash < 0";

const SET_LAST: &str = "UPDATE cues SET flow_last_at = ?2 WHERE key = ?1";

const FORGET_STARTS: &str = "UPDATE cues SET flow_last_at = NULL
  WHERE user_key = ?1 AND destination_hash = ?2 AND destination_hash < 0";

// To any other cue of the flow, unless that has a later one.
const HAND_OVER: &str = "UPDATE cues SET flow_last_at = leaving.flow_last_at
   FROM cues AS leaving
  WHERE leaving.key = ?1 AND leaving.flow_last_at > coalesce(cues.flow_last_at, 0)
    AND cues.key = (SELECT key FROM cues AS other
                     WHERE other.user_key = leaving.user_key AND other.destination_hash = leaving.destination_hash
                       AND other.destination_hash < 0 AND other.key <> leaving.key LIMIT 1)";

const FORGET_START: &str = "UPDATE cues SET flow_last_at = NULL WHERE key = ?1";

const NEXT_WAITING: &str = "SELECT user_key, destination_hash FROM executions
  WHERE queue_name = 'send' AND destination_hash < 0 AND (user_key, destination_hash) > (?1, ?2)
  ORDER BY user_key, destination_hash LIMIT 1";

const LIST: &str = "SELECT flow_key, min(flow_parallelism), min(flow_per_minute), count(*),
        (SELECT count(*) FROM executions
          WHERE queue_name = 'send' AND executions.user_key = cues.user_key AND is_catch_up IN (0, 1)
            AND executions.destination_hash = cues.destination_hash),
        (SELECT count(*) FROM executions INDEXED BY executions_in_flight
          WHERE executions.status = 'delivering' AND executions.user_key = cues.user_key
            AND executions.destination_hash = cues.destination_hash)
   FROM cues WHERE user_key = ?1 AND destination_hash < 0
  GROUP BY user_key, destination_hash ORDER BY user_key, destination_hash LIMIT ?2 + 0 OFFSET ?3";

const COUNT: &str = "SELECT count(DISTINCT destination_hash) FROM cues WHERE user_key = ?1 AND destination_hash < 0";

row!(FlowState { parallelism, per_minute, last_at });

pub fn find(read: &ReadTx<'_>, user_key: UserKey, destination: i64) -> Result<FlowState> {
    read.one(FIND, (user_key, destination))
}

/// Keeps the planned start of an attempt of the cue, the latest of its flow: a restart must not exceed the rate.
pub fn set_last(tx: &WriteTx<'_>, cue_key: CueKey, at: Timestamp) -> Result<()> {
    tx.run(SET_LAST, (cue_key, at))
}

/// Before the cue gets another destination or is deleted: its flow keeps the rate, and another one does not wait for it.
pub fn leave(tx: &WriteTx<'_>, cue_key: CueKey) -> Result<()> {
    if tx.any(IS_IN_FLOW, [cue_key])? {
        tx.run(HAND_OVER, [cue_key])?;
        tx.run(FORGET_START, [cue_key])?;
        // Its limits may have been the strictest.
        tx.wake(WakeSet { send: true, ..WakeSet::default() });
    }
    Ok(())
}

/// After the clock was set back: the starts that are kept are later than now.
pub fn forget_starts(tx: &WriteTx<'_>, user_key: UserKey, destination: i64) -> Result<()> {
    tx.run(FORGET_STARTS, (user_key, destination))
}

/// The flows in which executions are ready.
fn waiting(read: &ReadTx<'_>) -> Result<Vec<FlowState>> {
    let (mut states, mut last) = (Vec::new(), (UserKey::default(), i64::MIN));
    while let Some(flow) = read.find(NEXT_WAITING, last)? {
        last = flow;
        states.push(find(read, flow.0, flow.1)?);
    }
    Ok(states)
}

/// The first turn after `after` of a flow in which executions are ready.
pub fn next_turn(read: &ReadTx<'_>, after: Timestamp, now: Timestamp) -> Result<Option<Timestamp>> {
    let turns = waiting(read)?.into_iter().filter_map(|flow| flow.turn(now));
    Ok(turns.filter(|turn| *turn > after).min())
}

/// Returns whether a flow may send at `now` what is ready in it.
pub fn has_turn(read: &ReadTx<'_>, now: Timestamp) -> Result<bool> {
    Ok(waiting(read)?.iter().any(|flow| flow.turn(now).is_none_or(|turn| turn <= now)))
}

row! {
#[derive(Debug, Clone, Serialize)]
pub struct FlowSummary {
    pub key: String,
    pub parallelism: Option<u32>,
    pub per_minute: Option<u32>,
    pub cues: i64,
    /// Executions that are ready to be sent.
    pub waiting: i64,
    pub running: i64,
} }

pub fn list(
    read: &ReadTx<'_>,
    user_key: UserKey,
    limit: u32,
    offset: u64,
) -> Result<(Vec<FlowSummary>, i64)> {
    Ok((read.all(LIST, (user_key, limit, offset))?, read.one(COUNT, [user_key])?))
}

#[cfg(test)]
crate::store::test_support::plan_test! { flows_are_found_by_index:
    FIND => "SEARCH cues USING INDEX cues_by_flow (user_key=? AND destination_hash=?)",
    SET_LAST => "SEARCH cues USING INTEGER PRIMARY KEY (rowid=?)",
    HAND_OVER => "cues_by_flow (user_key=? AND destination_hash",
    FORGET_START => "SEARCH cues USING INTEGER PRIMARY KEY (rowid=?)",
    NEXT_WAITING => "executions_in_flows",
    FORGET_STARTS => "cues_by_flow (user_key=? AND destination_hash=?)",
    LIST => "cues_by_flow (user_key=? AND destination_hash<?)",
    COUNT => "cues_by_flow (user_key=? AND destination_hash<?)",
}
