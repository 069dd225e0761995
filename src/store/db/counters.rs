//! Stored counters: queued executions, and active cues of each user. A write collects its changes in [`CounterDeltas`]
//! and stores them once at its end. When many cues are due at once, one write changes a counter hundreds of times, and
//! a trigger would cost each statement more than the change itself. Deletions are counted by the triggers of
//! `schema.sql`.

use std::cell::RefCell;
use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use crate::domain::text::word_enum::word_enum;
use crate::error::Result;

word_enum! {
    /// A queue whose length is stored in the table `backlog`, for health and metrics.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum QueueName {
        /// Executions due for a delivery thread.
        Send = "send",
        /// Executions that a worker can claim.
        Claim = "claim",
        /// Executions whose next attempt is not due yet.
        Retry = "retry",
    }
}

/// The changes of the present write to the counters, not yet stored.
#[derive(Debug, Default)]
pub struct CounterDeltas {
    queued: RefCell<BTreeMap<QueueName, i64>>,
    active_cues: RefCell<BTreeMap<i64, i64>>,
}

impl CounterDeltas {
    /// Changes the number of executions in `queue` by `delta`.
    pub fn add_queued(&self, queue: QueueName, delta: i64) {
        *self.queued.borrow_mut().entry(queue).or_default() += delta;
    }

    /// Changes the number of active cues of a user by `delta`.
    pub fn add_active_cues(&self, user_key: i64, delta: i64) {
        *self.active_cues.borrow_mut().entry(user_key).or_default() += delta;
    }

    /// Stores the deltas and resets them. `file` is in the transaction of the write that they belong to.
    pub fn flush(&self, file: &Connection) -> Result<()> {
        for (queue, delta) in self.queued.take() {
            if delta != 0 {
                file.prepare_cached("UPDATE backlog SET count = count + ?2 WHERE name = ?1")?
                    .execute(params![queue.as_str(), delta])?;
            }
        }
        for (user_key, delta) in self.active_cues.take() {
            if delta != 0 {
                file.prepare_cached("UPDATE users SET active_cues = active_cues + ?2 WHERE key = ?1")?
                    .execute([user_key, delta])?;
            }
        }
        Ok(())
    }
}

/// Recounts everything and returns a message for each wrong counter, and for each reference to a missing row that no
/// foreign key covers. Reads the whole file, so it is not for a running server.
pub fn discrepancies(file: &Connection) -> Result<Vec<String>> {
    let mut query = file.prepare(
        "SELECT 'backlog ' || name || ' is ' || count || ' but should be ' || counted
           FROM (SELECT name, count,
                        (SELECT count(*) FROM executions
                          WHERE CASE name WHEN 'retry' THEN queue_name = 'waiting' AND status = 'retrying'
                                          ELSE queue_name = name END) AS counted
                   FROM backlog)
          WHERE count <> counted
         UNION ALL
         SELECT 'active_cues of user ' || email || ' is ' || active_cues || ' but should be ' || counted
           FROM (SELECT email, active_cues,
                        (SELECT count(*) FROM cues WHERE user_key = users.key AND status = 'active') AS counted
                   FROM users)
          WHERE active_cues <> counted
         UNION ALL
         SELECT kind || ' ' || key || ' refers to cue ' || cue_key || ', which does not exist'
           FROM (SELECT 'execution' AS kind, key, cue_key FROM executions
                 UNION ALL SELECT 'payload', key, cue_key FROM payloads
                 UNION ALL SELECT 'missed run', key, cue_key FROM missed_runs)
          WHERE NOT EXISTS (SELECT 1 FROM cues WHERE cues.key = cue_key)
            AND NOT EXISTS (SELECT 1 FROM deleted_cues WHERE deleted_cues.cue_key = cue_key)
         UNION ALL
         SELECT 'execution ' || executions.key || ' refers to payload ' || payload_key || ', which does not exist'
           FROM executions LEFT JOIN payloads ON payloads.key = payload_key
          WHERE payload_key IS NOT NULL AND body IS NULL
            AND executions.cue_key NOT IN (SELECT cue_key FROM deleted_cues)
         UNION ALL
         SELECT 'cue ' || cues.key || ' refers to payload ' || payload_key || ', which does not exist'
           FROM cues LEFT JOIN payloads ON payloads.key = payload_key
          WHERE payload_key IS NOT NULL AND body IS NULL
         LIMIT 1000",
    )?;
    let messages = query.query_map([], |row| row.get(0))?;
    Ok(messages.collect::<rusqlite::Result<Vec<String>>>()?)
}
