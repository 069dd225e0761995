//! The queue of executions: what falls due, what deliveries take up, what becomes of it, what a crash left behind.
//!
//! Making and reading executions is in `executions`. Who may take how much is the engine's to decide.

use std::collections::VecDeque;

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, params};

use crate::domain::account::user::ACCOUNT_DISABLED;
use crate::domain::execution::NextStep;
use crate::domain::ids::ExecutionId;
use crate::domain::webhook::request::{AttemptRef, DeliverySpec};
use crate::error::Result;
use crate::store::db::columns::{broken, callback, millis, read_instant, retry};
use crate::store::db::counters::QueueName;
use crate::store::db::hold;
use crate::store::{ReadTx, WakeSet, WriteTx};

/// The most of one destination that one pass takes up.
const MAX_PER_DESTINATION: usize = 64;

/// An attempt that has been taken up: stored as under way, not yet sent.
pub struct ClaimedDelivery {
    /// Which attempt of which execution.
    pub attempt_ref: AttemptRef,
    /// What to send and by which rules; what is wrong with the rows where they cannot be read, so that one broken
    /// row cannot hold up the others.
    pub spec: std::result::Result<DeliverySpec, String>,
}

/// An attempt that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptRecord {
    /// Which attempt of which execution.
    pub attempt_ref: AttemptRef,
    /// When it ended.
    pub at: Timestamp,
    /// What follows it.
    pub next: NextStep,
    /// The status of the answer, where there was one.
    pub http_status: Option<u16>,
    /// The beginning of the answer's body.
    pub response_body: Option<String>,
    /// Why it failed; none after a success.
    pub error_message: Option<String>,
}

macro_rules! give_up {
    ($index:literal, $which:literal) => {
        concat!(
            "UPDATE executions INDEXED BY ",
            $index,
            " SET status = 'failed', queue_name = NULL, due_at = NULL, lease_expires_at = NULL, error_message = ?2,
                  updated_at = ?3
              WHERE user_key = ?1 AND ",
            $which
        )
    };
}

const NEXT_WAITING: &str =
    "SELECT due_at FROM executions WHERE queue_name = 'waiting' ORDER BY due_at LIMIT 1";

// The destination is looked up again: the cue may have another callback by now.
const PROMOTE: &str = "UPDATE executions
    SET queue_name = CASE transport WHEN 'worker' THEN 'claim' ELSE 'send' END,
        destination_hash = coalesce((SELECT cues.destination_hash FROM cues WHERE cues.key = executions.cue_key),
                                    destination_hash),
        updated_at = ?1
  WHERE key IN (SELECT key FROM executions WHERE queue_name = 'waiting' AND due_at <= ?1 ORDER BY due_at LIMIT ?2 + 0)
  RETURNING transport = 'worker', status = 'retrying'";

const NEXT_DESTINATION: &str = "SELECT destination_hash FROM executions
    WHERE queue_name = 'send' AND destination_hash >= ?1 ORDER BY destination_hash LIMIT 1";

const READY: &str = "SELECT key FROM executions
    WHERE queue_name = 'send' AND destination_hash = ?1 ORDER BY key LIMIT ?2 + 0";

// Outer joins: an execution whose cue is missing must come out all the same, or it would stay first for ever. The
// columns are read by their places, which `read_attempt_ref` and `read_spec` name: a name is searched for at every row.
const TO_SEND: &str = "SELECT executions.key, executions.id, executions.cue_key, executions.destination_hash,
        attempts, scheduled_for, triggered_by = 'schedule', disabled_at, cues.id, callback_url, callback_method,
        callback_headers, max_attempts, backoff_minutes, payloads.body, webhook_secret, previous_webhook_secret,
        previous_webhook_secret_expires_at
   FROM executions LEFT JOIN cues ON cues.key = executions.cue_key
        LEFT JOIN users ON users.key = executions.user_key
        LEFT JOIN payloads ON payloads.key = executions.payload_key
  WHERE executions.key = ?1";

const TAKE_UP: &str = "UPDATE executions
    SET status = 'delivering', queue_name = NULL, due_at = NULL, attempts = attempts + 1,
        started_at = coalesce(started_at, ?2), last_attempt_at = ?2, updated_at = ?2
  WHERE key = ?1 AND queue_name = 'send'";

// The id is asked for too: the key of a deleted execution can come again.
const RECORD: &str = "UPDATE executions
    SET status = ?4, queue_name = CASE WHEN ?5 IS NULL THEN NULL ELSE 'waiting' END, due_at = ?5, delivered_at = ?6,
        http_status = ?7, response_body = ?8, error_message = ?9, updated_at = ?10
  WHERE key = ?1 AND id = ?2 AND attempts = ?3 AND status = 'delivering'";

// By the indexes that hold what waits and what is held, of all users: the history of one may be far longer.
const GIVE_UP: [(&str, Option<QueueName>); 4] = [
    (give_up!("executions_to_send", "queue_name = 'send'"), Some(QueueName::Send)),
    (give_up!("executions_waiting", "queue_name = 'waiting'"), None),
    (give_up!("executions_to_claim", "queue_name = 'claim'"), Some(QueueName::Claim)),
    (give_up!("executions_leased", "lease_expires_at IS NOT NULL"), None),
];

const RETRIES: &str = "SELECT count(*) FROM executions INDEXED BY executions_waiting
  WHERE user_key = ?1 AND queue_name = 'waiting' AND status = 'retrying'";

const RECOVER: &str = "UPDATE executions
    SET status = CASE WHEN attempts > 1 THEN 'retrying' ELSE 'pending' END, queue_name = 'send',
        attempts = attempts - 1, started_at = CASE WHEN attempts > 1 THEN started_at END, updated_at = ?1
  WHERE status = 'delivering' AND last_attempt_at IS NOT NULL AND transport = 'webhook'";

/// The earliest instant at which a waiting execution becomes ready.
pub fn next_due_at(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    let due: Option<i64> = read.prepare_cached(NEXT_WAITING)?.query_row([], |row| row.get(0)).optional()?;
    Ok(due.map(read_instant).transpose()?)
}

/// Makes waiting executions ready that are due at `now`, longest overdue first, at most `limit`; answers how many.
pub fn promote_due(tx: &WriteTx<'_>, now: Timestamp, limit: u32) -> Result<u64> {
    let mut promote = tx.prepare_cached(PROMOTE)?;
    let mut promoted = 0;
    let mut rows = promote.query(params![millis(now), limit])?;
    while let Some(row) = rows.next()? {
        let (is_worker, is_retry): (bool, bool) = (row.get(0)?, row.get(1)?);
        tx.tally().waiting(QueueName::Retry, -i64::from(is_retry));
        tx.tally().waiting(if is_worker { QueueName::Claim } else { QueueName::Send }, 1);
        tx.wake(WakeSet { send: !is_worker, claim: is_worker, ..WakeSet::default() });
        promoted += 1;
    }
    Ok(promoted)
}

/// Whether any execution is ready to be sent, and may be: a file that is held sends nothing.
pub fn has_ready(read: &ReadTx<'_>) -> Result<bool> {
    Ok(next_destination(read, i64::MIN)?.is_some() && !hold::is_held(read)?)
}

/// Takes up at most `most` ready executions, one destination after the other from behind `destination` on, the oldest of each
/// first, as long as `may_take` allows that destination one more. Leaves `destination` at the last destination that it looked at. Nothing
/// is taken up of a file that is held.
pub fn claim_batch(
    tx: &WriteTx<'_>,
    now: Timestamp,
    most: usize,
    destination: &mut i64,
    mut may_take: impl FnMut(i64) -> bool,
) -> Result<Vec<ClaimedDelivery>> {
    let mut taken = Vec::new();
    if most > 0 && hold::is_held(tx)? {
        return Ok(taken);
    }
    // The destinations of the first turn that have more, with what they have.
    let mut more = VecDeque::new();
    let mut turn = DestinationCursor { began: *destination, at: *destination, is_past_the_last: false };
    while taken.len() < most
        && let Some(next) = turn.next(tx)?
    {
        *destination = next;
        if may_take(next) {
            let mut keys = ready(tx, next, MAX_PER_DESTINATION.min(most - taken.len()))?;
            taken.extend(take_up(tx, &mut keys, now)?);
            more.push_back((next, keys));
        }
    }
    // What a destination is not allowed, it is not allowed later in the pass: the shares only shrink.
    while taken.len() < most
        && let Some((next, mut keys)) = more.pop_front()
    {
        if !keys.is_empty() && may_take(next) {
            taken.extend(take_up(tx, &mut keys, now)?);
            *destination = next;
            more.push_back((next, keys));
        }
    }
    tx.tally().waiting(QueueName::Send, -i64::try_from(taken.len()).unwrap_or(i64::MAX));
    Ok(taken)
}

/// Records an attempt; `false` when the execution is no longer there or no longer in this attempt.
pub fn record(tx: &WriteTx<'_>, ended: &AttemptRecord, now: Timestamp) -> Result<bool> {
    let AttemptRef { key, id, attempt, .. } = ended.attempt_ref;
    let (due, delivered_at) = match ended.next {
        NextStep::Success => (None, Some(ended.at)),
        NextStep::RetryAt(due) => (Some(due), None),
        NextStep::Failed => (None, None),
    };
    let changed = tx.prepare_cached(RECORD)?.execute(params![
        key,
        id.bytes(),
        attempt,
        ended.next.status().as_str(),
        due.map(millis),
        delivered_at.map(millis),
        ended.http_status,
        ended.response_body,
        ended.error_message,
        millis(now),
    ])?;
    if changed == 1 {
        tx.tally().waiting(QueueName::Retry, i64::from(due.is_some()));
        tx.wake(WakeSet { schedule: due, ..WakeSet::default() });
    }
    Ok(changed == 1)
}

/// Ends as failed what of the user's waits, to be sent or to be claimed, and what its workers hold.
pub fn fail_all_for_user(tx: &WriteTx<'_>, user_key: i64, reason: &str, now: Timestamp) -> Result<()> {
    let retries: i64 = tx.prepare_cached(RETRIES)?.query_row([user_key], |row| row.get(0))?;
    tx.tally().waiting(QueueName::Retry, -retries);
    for (sql, waits) in GIVE_UP {
        let ended = tx.prepare_cached(sql)?.execute(params![user_key, reason, millis(now)])?;
        if let Some(wait) = waits {
            tx.tally().waiting(wait, -i64::try_from(ended).unwrap_or(i64::MAX));
        }
    }
    Ok(())
}

/// Makes deliveries ready again that the end of an earlier process cut short; answers how many. The cut attempt
/// does not count. For the start only, before anything is taken: a running delivery would be sent twice.
pub fn requeue_interrupted(tx: &WriteTx<'_>, now: Timestamp) -> Result<usize> {
    let recovered = tx.prepare_cached(RECOVER)?.execute([millis(now)])?;
    tx.tally().waiting(QueueName::Send, i64::try_from(recovered).unwrap_or(i64::MAX));
    tx.wake(WakeSet { send: recovered > 0, ..WakeSet::default() });
    Ok(recovered)
}

/// One look at every destination in which something waits, from behind the one where it began up to that one.
struct DestinationCursor {
    began: i64,
    at: i64,
    is_past_the_last: bool,
}

impl DestinationCursor {
    fn next(&mut self, tx: &WriteTx<'_>) -> Result<Option<i64>> {
        let mut next = match self.at.checked_add(1) {
            Some(from) => next_destination(tx, from)?,
            None => None,
        };
        if next.is_none() && !self.is_past_the_last {
            self.is_past_the_last = true;
            next = next_destination(tx, i64::MIN)?;
        }
        let next = next.filter(|destination| !self.is_past_the_last || *destination <= self.began);
        self.at = next.unwrap_or(self.at);
        Ok(next)
    }
}

fn next_destination(read: &ReadTx<'_>, from: i64) -> Result<Option<i64>> {
    Ok(read.prepare_cached(NEXT_DESTINATION)?.query_row([from], |row| row.get(0)).optional()?)
}

/// What waits in `destination`, oldest first, at most `limit`.
fn ready(tx: &WriteTx<'_>, destination: i64, limit: usize) -> Result<VecDeque<i64>> {
    let mut ready = tx.prepare_cached(READY)?;
    let keys =
        ready.query_map(params![destination, i64::try_from(limit).unwrap_or(i64::MAX)], |row| row.get(0))?;
    Ok(keys.collect::<rusqlite::Result<_>>()?)
}

/// Takes up the first of `keys`, of executions that wait to be sent.
fn take_up(tx: &WriteTx<'_>, keys: &mut VecDeque<i64>, now: Timestamp) -> Result<Option<ClaimedDelivery>> {
    let Some(key) = keys.pop_front() else { return Ok(None) };
    let taken = tx.prepare_cached(TO_SEND)?.query_row([key], |row| {
        let spec = match row.get::<_, Option<i64>>(7)? {
            None => read_spec(row).map_err(|error| error.to_string()),
            // What waits was ended with the account; this is an attempt that failed since.
            Some(_) => Err(ACCOUNT_DISABLED.to_owned()),
        };
        Ok(ClaimedDelivery { attempt_ref: read_attempt_ref(row)?, spec })
    })?;
    tx.prepare_cached(TAKE_UP)?.execute(params![key, millis(now)])?;
    Ok(Some(taken))
}

fn read_attempt_ref(row: &Row<'_>) -> rusqlite::Result<AttemptRef> {
    Ok(AttemptRef {
        key: row.get(0)?,
        id: ExecutionId::from_bytes(row.get(1)?),
        cue_key: row.get(2)?,
        destination: row.get(3)?,
        attempt: row.get::<_, u32>(4)? + 1,
        scheduled_for: read_instant(row.get(5)?)?,
        by_schedule: row.get(6)?,
    })
}

fn read_spec(row: &Row<'_>) -> rusqlite::Result<DeliverySpec> {
    let url: Option<String> = row.get(9)?;
    let url = url.ok_or_else(|| broken("the cue has no callback"))?;
    Ok(DeliverySpec {
        cue_id: row.get(8)?,
        callback: callback(url, row.get_ref(10)?.as_str()?, row.get_ref(11)?.as_str()?)?,
        payload: row.get(14)?,
        retry: retry(row.get(12)?, row.get_ref(13)?.as_str()?)?,
        secret: row.get(15)?,
        previous_secret: row.get(16)?,
        previous_secret_expires: row.get::<_, Option<i64>>(17)?.map(read_instant).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::plan;

    #[test]
    fn no_statement_scans_or_sorts_the_history() {
        for sql in [NEXT_WAITING, PROMOTE, NEXT_DESTINATION, READY, TO_SEND, TAKE_UP, RECORD, RECOVER] {
            for step in plan(sql) {
                // A partial index holds what waits and nothing else; its first entry is what is wanted.
                let first_of_queue = step == "SCAN executions USING COVERING INDEX executions_waiting";
                assert!(first_of_queue || !step.starts_with("SCAN"), "{step}\n{sql}");
                assert!(!step.contains("TEMP B-TREE"), "{step}\n{sql}");
            }
        }
    }

    #[test]
    fn a_disabled_user_is_found_in_the_queues_and_not_in_its_history() {
        for ((sql, _), index) in GIVE_UP.iter().zip(["to_send", "waiting", "to_claim (user_key=?)", "leased"])
        {
            let steps = plan(sql);
            assert!(steps[0].contains(&format!("INDEX executions_{index}")), "{steps:?}");
        }
    }

    #[test]
    fn each_queue_is_found_by_its_own_index() {
        for (sql, index) in [
            (NEXT_WAITING, "executions_waiting"),
            (PROMOTE, "executions_waiting (due_at<?)"),
            (NEXT_DESTINATION, "executions_to_send (destination_hash>?)"),
            (READY, "executions_to_send (destination_hash=?)"),
            (RECOVER, "executions_in_flight"),
        ] {
            assert!(plan(sql).iter().any(|step| step.contains(index)), "{index}: {:?}", plan(sql));
        }
    }
}
