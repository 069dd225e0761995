//! Stored counters. A write collects its changes in [`CounterDeltas`] and stores them once: triggers would cost a batch
//! of due cues more than the changes. Triggers of `schema.sql` count deletions and stored bytes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::Connection;

use crate::domain::account::stats::{Figures, hour_of};
use crate::domain::cue::CueStatus;
use crate::domain::execution::Trigger;
use crate::domain::row_keys::UserKey;
use crate::domain::schedule::catch_up::MissReason;
use crate::domain::text::word_enum;
use crate::error::Result;
use crate::metrics::{BATCH, COMMIT, Counter, Histogram};
use crate::store::db::columns::{run, stored_row, words};

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum QueueName {
        Send = "send",
        Claim = "claim",
        Retry = "retry",
    }
}

#[derive(Debug, Default)]
pub struct CounterDeltas {
    queued: RefCell<BTreeMap<QueueName, i64>>,
    cues: RefCell<BTreeMap<UserKey, CueDelta>>,
    hours: RefCell<BTreeMap<(UserKey, i64), Figures>>,
}

words!(QueueName);

stored_row!(
    hour_columns,
    Figures { succeeded, failed, retried, missed, measured, late_sum_ms, late_max_ms, took_sum_ms }
);
pub(in crate::store) use hour_columns;

type CueDelta = [i64; CueStatus::ALL.len()];

// One row, one more page of 1 KiB in a lone delivery. An end that is taken back may belong to a deleted hour, which
// must not become negative.
const ADD_TO_HOUR: &str = concat!(
    "INSERT INTO hourly_stats (user_key, hour, ",
    hour_columns!(),
    ") VALUES (?1, ?2, max(?3, 0), max(?4, 0), ?5, ?6, ?7, ?8, ?9, ?10)
     ON CONFLICT (user_key, hour)
     DO UPDATE SET succeeded = max(succeeded + ?3, 0), failed = max(failed + ?4, 0), retried = retried + ?5,
                   missed = missed + ?6, measured = measured + ?7, late_sum_ms = late_sum_ms + ?8,
                   late_max_ms = max(late_max_ms, ?9), took_sum_ms = took_sum_ms + ?10"
);

impl CounterDeltas {
    pub fn add_queued(&self, queue: QueueName, delta: i64) {
        *self.queued.borrow_mut().entry(queue).or_default() += delta;
    }

    pub fn add_cue(&self, user_key: UserKey, status: CueStatus) {
        self.cues.borrow_mut().entry(user_key).or_default()[status as usize] += 1;
    }

    pub fn move_cues(&self, user_key: UserKey, from: CueStatus, to: CueStatus, count: i64) {
        let mut cues = self.cues.borrow_mut();
        let delta = cues.entry(user_key).or_default();
        delta[from as usize] -= count;
        delta[to as usize] += count;
    }

    pub fn add_to_hour(&self, user_key: UserKey, at: Timestamp, change: &Figures) {
        self.hours.borrow_mut().entry((user_key, hour_of(at))).or_default().add(change);
    }

    pub fn flush(&self, file: &Connection) -> Result<()> {
        for (queue, delta) in self.queued.take() {
            if delta != 0 {
                let sql = "UPDATE backlog SET count = count + ?2 WHERE name = ?1";
                run(file, sql, (queue, delta))?;
            }
        }
        for (user_key, delta) in self.cues.take() {
            if delta != CueDelta::default() {
                run(
                    file,
                    "UPDATE users SET active_cues = active_cues + ?2, paused_cues = paused_cues + ?3,
                            completed_cues = completed_cues + ?4, failed_cues = failed_cues + ?5
                      WHERE key = ?1",
                    (user_key, delta),
                )?;
            }
        }
        for ((user_key, hour), change) in self.hours.take() {
            if change != Figures::default() {
                run(file, ADD_TO_HOUR, (user_key, hour, change))?;
            }
        }
        Ok(())
    }
}

/// Recounts everything, so it is not for a running server. Returns a message for each wrong counter or dangling
/// reference.
pub fn discrepancies(file: &Connection) -> Result<Vec<String>> {
    let mut messages = texts(
        file,
        "WITH stored (user_key, bytes) AS MATERIALIZED (
             SELECT user_key, octet_length(callback_headers) - 2 FROM cues
             UNION ALL
             SELECT coalesce(cues.user_key, deleted_cues.user_key), octet_length(body)
               FROM payloads LEFT JOIN cues ON cues.key = payloads.cue_key LEFT JOIN deleted_cues USING (cue_key)
             UNION ALL
             SELECT user_key, coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0)
                    + coalesce(octet_length(metadata), 0) + coalesce(octet_length(evidence), 0)
                    + coalesce(octet_length(reason), 0)
               FROM outcomes JOIN executions ON executions.key = execution_key
             UNION ALL
             SELECT user_key, octet_length(idempotency_key) + octet_length(response_body) FROM idempotency_keys)
         SELECT 'backlog ' || name || ' is ' || count || ' but must be ' || counted
           FROM (SELECT name, count,
                        (SELECT count(*) FROM executions
                          WHERE CASE name WHEN 'retry' THEN queue_name = 'waiting' AND status = 'retrying'
                                          ELSE queue_name = name END) AS counted
                   FROM backlog)
          WHERE count <> counted
         UNION ALL
         SELECT name || ' of user ' || email || ' is ' || stored || ' but must be ' || counted
           FROM (SELECT email, status || '_cues' AS name,
                        CASE status WHEN 'active' THEN active_cues WHEN 'paused' THEN paused_cues
                                    WHEN 'completed' THEN completed_cues ELSE failed_cues END AS stored,
                        (SELECT count(*) FROM cues WHERE user_key = users.key AND status = words.status) AS counted
                   FROM users, (SELECT column1 AS status
                                  FROM (VALUES ('active'), ('paused'), ('completed'), ('failed'))) AS words
                 UNION ALL
                 SELECT email, 'stored_bytes', stored_bytes, (SELECT coalesce(sum(bytes), 0) FROM stored WHERE user_key = users.key)
                   FROM users)
          WHERE stored <> counted
         UNION ALL
         SELECT kind || ' ' || key || ' refers to cue ' || cue_key || ', which does not exist'
           FROM (SELECT 'execution' AS kind, key, cue_key FROM executions
                 UNION ALL SELECT 'payload', key, cue_key FROM payloads
                 UNION ALL SELECT 'missed run', key, cue_key FROM missed_runs) AS referring
          WHERE NOT EXISTS (SELECT 1 FROM cues WHERE cues.key = referring.cue_key)
            AND NOT EXISTS (SELECT 1 FROM deleted_cues WHERE deleted_cues.cue_key = referring.cue_key)
         UNION ALL
         SELECT 'cue ' || cue_key || ' and its row of cue_tags differ in tag ' || tag
           FROM (SELECT user_key, value AS tag, cues.key AS cue_key FROM cues, json_each(cues.tags)
                 UNION ALL SELECT user_key, tag, cue_key FROM cue_tags)
          GROUP BY user_key, tag, cue_key HAVING count(*) <> 2
         UNION ALL
         SELECT 'execution ' || executions.key || ' refers to payload ' || payload_key || ', which does not exist'
           FROM executions LEFT JOIN payloads ON payloads.key = payload_key
          WHERE payload_key IS NOT NULL AND body IS NULL
            AND executions.cue_key NOT IN (SELECT cue_key FROM deleted_cues)
         UNION ALL
         SELECT 'attempt ' || attempt || ' of execution ' || execution_key || ' is kept, but it has had only ' || attempts
           FROM attempts JOIN executions ON executions.key = execution_key
          WHERE attempt > attempts + (is_counted = 0)
         UNION ALL
         SELECT 'cue ' || cues.key || ' refers to payload ' || payload_key || ', which does not exist'
           FROM cues LEFT JOIN payloads ON payloads.key = payload_key
          WHERE payload_key IS NOT NULL AND body IS NULL
         LIMIT 1000",
    )?;
    messages.extend(wrong_policies(file)?);
    Ok(messages)
}

fn wrong_policies(file: &Connection) -> Result<Vec<String>> {
    texts(
        file,
        "SELECT 'execution ' || key || ' has ended, but has a policy left'
           FROM executions
          WHERE (status IN ('success', 'failed') AND (blocks_cue IS NOT NULL OR expires_at IS NOT NULL))
             OR (outcome_state IS NOT NULL AND outcome_due_at IS NOT NULL)
         UNION ALL
         SELECT 'execution ' || key || ' waits for the end of another one, but there is none'
           FROM executions
          WHERE queue_name = 'waiting' AND due_at = 253370764800000
            AND cue_key NOT IN (SELECT cue_key FROM deleted_cues)
            AND NOT EXISTS (SELECT 1 FROM executions AS earlier
                             WHERE earlier.blocks_cue = executions.cue_key AND earlier.key <> executions.key)
         LIMIT 1000",
    )
}

fn texts(file: &Connection, sql: &str) -> Result<Vec<String>> {
    Ok(file.prepare(sql)?.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteEvent {
    Created(Trigger),
    /// Executions were recorded as failed because the user's quota was used up.
    OverQuota,
    Claimed,
    ClaimExpired,
    Missed(MissReason),
}

/// The number of counters: the cases of [`WriteEvent::index`].
const EVENT_KINDS: usize = Trigger::ALL.len() + 3 + MissReason::ALL.len();

impl WriteEvent {
    fn index(self) -> usize {
        match self {
            Self::Created(trigger) => trigger as usize,
            Self::OverQuota => Trigger::ALL.len(),
            Self::Claimed => Trigger::ALL.len() + 1,
            Self::ClaimExpired => Trigger::ALL.len() + 2,
            Self::Missed(reason) => Trigger::ALL.len() + 3 + reason as usize,
        }
    }
}

#[derive(Debug, Default)]
pub struct EventCounts([u64; EVENT_KINDS]);

impl EventCounts {
    pub fn add(&mut self, event: WriteEvent, times: u64) {
        self.0[event.index()] += times;
    }

    pub(in crate::store) fn add_all(&mut self, others: &Self) {
        self.0.iter_mut().zip(others.0).for_each(|(sum, more)| *sum += more);
    }
}

#[derive(Debug)]
pub struct WriteStats {
    counters: [Counter; EVENT_KINDS],
    pub batches: Histogram,
    pub commits: Histogram,
    pub failed_commits: Counter,
}

impl Default for WriteStats {
    fn default() -> Self {
        Self {
            counters: Default::default(),
            batches: Histogram::new(&BATCH),
            commits: Histogram::new(&COMMIT),
            failed_commits: Counter::default(),
        }
    }
}

impl WriteStats {
    pub fn count(&self, event: WriteEvent) -> u64 {
        self.counters[event.index()].get()
    }

    pub(in crate::store) fn add(&self, events: &EventCounts) {
        for (counter, more) in self.counters.iter().zip(events.0) {
            // Most writes have one event or none, and an atomic addition costs more than a comparison.
            if more > 0 {
                counter.add(more);
            }
        }
    }

    pub(in crate::store) fn record_commit(&self, writes: usize, took: Duration) {
        self.batches.observe(u64::try_from(writes).unwrap_or(u64::MAX));
        self.commits.observe_duration(took);
    }
}
