//! Counters that a write moves: what waits in the queue, and how many cues of a user are active. They are kept while
//! the write runs and stored once at its end: a herd moves them by hundreds in one write, and a trigger would cost each
//! of its statements more than the change itself. Deletions are counted by the triggers of `schema.sql`.

use std::cell::RefCell;
use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use crate::domain::text::word_enum::word_enum;
use crate::error::Result;

word_enum! {
    /// What an execution may wait for, of which health shows how many there are.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum QueueName {
        /// For a delivery thread.
        Send = "send",
        /// For a worker.
        Claim = "claim",
        /// For another attempt.
        Retry = "retry",
    }
}

/// By how much a write has moved the counters so far.
#[derive(Debug, Default)]
pub struct CounterDeltas {
    waiting: RefCell<BTreeMap<QueueName, i64>>,
    active_cues: RefCell<BTreeMap<i64, i64>>,
}

impl CounterDeltas {
    /// Counts `more` executions that wait, or fewer where it is negative.
    pub fn waiting(&self, what: QueueName, more: i64) {
        *self.waiting.borrow_mut().entry(what).or_default() += more;
    }

    /// Counts `more` active cues of a user, or fewer where it is negative.
    pub fn active_cues(&self, user_key: i64, more: i64) {
        *self.active_cues.borrow_mut().entry(user_key).or_default() += more;
    }

    /// Stores the deltas and resets them. `file` is in the transaction of the write that they belong to.
    pub fn flush(&self, file: &Connection) -> Result<()> {
        for (name, delta) in self.waiting.take() {
            if delta != 0 {
                file.prepare_cached("UPDATE backlog SET count = count + ?2 WHERE name = ?1")?
                    .execute(params![name.as_str(), delta])?;
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

/// What is wrong with the counters, one line for each, found by counting all that they stand for; and with what hangs
/// together without a constraint that says so. Not for a server: everything is read.
///
/// # Errors
/// When the file cannot be read.
pub fn discrepancies(file: &Connection) -> Result<Vec<String>> {
    let mut wrong = file.prepare(
        "SELECT 'backlog ' || name || ' says ' || count || ' and ' || counted || ' are there'
           FROM (SELECT name, count,
                        (SELECT count(*) FROM executions
                          WHERE CASE name WHEN 'retry' THEN queue_name = 'waiting' AND status = 'retrying'
                                          ELSE queue_name = name END) AS counted
                   FROM backlog)
          WHERE count <> counted
         UNION ALL
         SELECT 'user ' || email || ' is said to have ' || active_cues || ' active cues and has ' || counted
           FROM (SELECT email, active_cues,
                        (SELECT count(*) FROM cues WHERE user_key = users.key AND status = 'active') AS counted
                   FROM users)
          WHERE active_cues <> counted
         UNION ALL
         SELECT what || ' ' || key || ' is of cue ' || cue_key || ', which is not there'
           FROM (SELECT 'execution' AS what, key, cue_key FROM executions
                 UNION ALL SELECT 'payload', key, cue_key FROM payloads
                 UNION ALL SELECT 'missed row', key, cue_key FROM missed_runs)
          WHERE NOT EXISTS (SELECT 1 FROM cues WHERE cues.key = cue_key)
            AND NOT EXISTS (SELECT 1 FROM deleted_cues WHERE deleted_cues.cue_key = cue_key)
         UNION ALL
         SELECT 'execution ' || executions.key || ' has no payload ' || payload_key
           FROM executions LEFT JOIN payloads ON payloads.key = payload_key
          WHERE payload_key IS NOT NULL AND body IS NULL
            AND executions.cue_key NOT IN (SELECT cue_key FROM deleted_cues)
         UNION ALL
         SELECT 'cue ' || cues.key || ' has no payload ' || payload_key
           FROM cues LEFT JOIN payloads ON payloads.key = payload_key
          WHERE payload_key IS NOT NULL AND body IS NULL
         LIMIT 1000",
    )?;
    let wrong = wrong.query_map([], |row| row.get(0))?;
    Ok(wrong.collect::<rusqlite::Result<Vec<String>>>()?)
}
