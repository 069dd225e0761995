//! Rows for `cued bench`: the baselines, which SQLite alone writes, and many cues and a long history.

pub mod bare;

use std::path::Path;

use jiff::{SignedDuration, Timestamp};

use crate::domain::cue::Cue;
use crate::domain::cue::payload::Payload;
use crate::error::{Error, Result};
use crate::store::WriteTx;
use crate::store::cues;
use crate::store::db::columns::millis;
use crate::store::db::open;
use crate::store::db::writer::commit_single;

/// Commits the cues that `next` returns, each with `payload` in a transaction of its own, until `next` returns `None`.
/// Returns their number. No other process may have the file open.
pub fn single_commits(
    path: &Path,
    payload: &Payload,
    next: &mut dyn FnMut() -> Result<Option<Cue>>,
) -> Result<u32> {
    let connection = open::open_writer(path)
        .map_err(|error| Error::storage_from("the database file cannot be used now", error))?;
    let mut count = 0;
    while let Some(cue) = next()? {
        commit_single(&connection, |tx| cues::insert(tx, cue, Some(payload)))?;
        count += 1;
    }
    Ok(count)
}

// One execution after each step, in turn for each cue; each tenth has failed. As in real ids, the time comes first.
const HISTORY: &str = "WITH RECURSIVE number (value) AS (SELECT ?2 UNION ALL SELECT value - 1 FROM number WHERE value > 1),
         own (first, count) AS (SELECT min(key), count(*) FROM cues WHERE user_key = ?1)
    INSERT INTO executions (id, cue_key, user_key, transport, status, scheduled_for, triggered_by, attempts, started_at,
                            last_attempt_at, delivered_at, http_status, created_at, updated_at, duration_ms)
    SELECT unhex(printf('%012x', at) || hex(randomblob(10))), own.first + value % own.count, ?1, 'webhook', iif(value % 10 = 0, 'failed', 'success'), at,
           'schedule', 1, at, at, iif(value % 10 = 0, NULL, at), iif(value % 10 = 0, 503, 200), at, at, 20
      FROM own JOIN (SELECT value, ?3 - value * ?4 AS at FROM number)";

const STREAKS: &str = "INSERT INTO consecutive_failures (cue_key, failures)
    SELECT cue_key, count(*) FROM executions WHERE user_key = ?1 AND status = 'failed' GROUP BY cue_key
    ON CONFLICT DO UPDATE SET failures = excluded.failures";

/// Gives the user's cues, which are in consecutive rows, `count` ended executions, one each `step` before `end`.
pub fn insert_history(
    tx: &WriteTx<'_>,
    user_key: i64,
    count: u32,
    end: Timestamp,
    step: SignedDuration,
) -> Result<()> {
    let step = i64::try_from(step.as_millis()).unwrap_or(i64::MAX);
    tx.prepare_cached(HISTORY)?.execute((user_key, count, millis(end), step))?;
    tx.prepare_cached(STREAKS)?.execute([user_key])?;
    Ok(())
}

const USER: &str =
    "INSERT INTO users (id, email, plan, webhook_secret, alert_webhook_secret, active_cues, created_at)
    VALUES (?1, ?1, ?2, '', '', 0, 0)";
const API_KEY: &str = "INSERT INTO api_keys (id, user_key, name, prefix, key_hash, created_at)
    VALUES (?1, ?2, '', '', ?3, 0)";

/// Inserts a user on `plan` for each hash of an API key.
pub fn insert_users(tx: &WriteTx<'_>, plan: &str, key_hashes: &[[u8; 32]]) -> Result<()> {
    for (number, hash) in key_hashes.iter().enumerate() {
        let name = format!("user{number}@example.com");
        tx.prepare_cached(USER)?.execute((&name, plan))?;
        tx.prepare_cached(API_KEY)?.execute((&name, tx.last_insert_rowid(), hash))?;
    }
    Ok(())
}

// The file has no other cues and payloads than copies of the first, so that their keys are the numbers.
const PAYLOAD_COPIES: &str = "WITH RECURSIVE number (value) AS (SELECT ?1 UNION ALL SELECT value + 1 FROM number WHERE value < ?1 + ?2 - 1)
    INSERT INTO payloads (key, cue_key, is_single_use, task, agent, body)
    SELECT value, value, is_single_use, task, agent, body FROM number JOIN payloads ON key = 1";
const CUE_COPIES: &str = "WITH RECURSIVE number (value) AS (SELECT ?1 UNION ALL SELECT value + 1 FROM number WHERE value < ?1 + ?2 - 1)
    INSERT INTO cues (key, id, user_key, status, next_run, run_count, missed_count, transport, destination_hash, payload_key,
                      cron, timezone, catch_up, max_attempts, backoff_minutes, on_failure, verification, callback_url,
                      callback_method, callback_headers, name, created_at, updated_at)
    SELECT value,
           'cue_' || substr('abcdefghijklmnopqrstuvwxyz0123456789', abs(random() % 36) + 1, 1)
               || substr('abcdefghijklmnopqrstuvwxyz0123456789', abs(random() % 36) + 1, 1) || lower(hex(randomblob(5))),
           user_key, status, next_run + value * 60000, 0, 0, transport,
           destination_hash, value, cron, timezone, catch_up, max_attempts, backoff_minutes, on_failure, verification,
           callback_url, callback_method, callback_headers, name, created_at, updated_at
      FROM number JOIN cues ON key = 1";
const COUNT_COPIES: &str = "UPDATE users SET active_cues = active_cues + ?1, cue_count = cue_count + ?1,
    stored_bytes = stored_bytes + ?1 * (SELECT octet_length(body) FROM payloads WHERE key = 1) WHERE key = 1";

/// Inserts `count` copies of the first cue of the file, an active one of its only user; `first` is the key of the first
/// copy. Faster than one by one. The ids are spread like those of the API over a day, and each copy is due a minute after the one before.
pub fn copy_first_cue(tx: &WriteTx<'_>, first: u32, count: u32) -> Result<()> {
    // The random ids change pages all over their index.
    tx.execute_batch("PRAGMA cache_size = -65536")?;
    // Before the cues: the trigger that counts the bytes of each payload finds no user, which is faster.
    tx.prepare_cached(PAYLOAD_COPIES)?.execute([first, count])?;
    tx.prepare_cached(CUE_COPIES)?.execute([first, count])?;
    tx.prepare_cached(COUNT_COPIES)?.execute([count])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::*;
    use crate::store::test_support::memory_database;

    #[test]
    fn users_and_their_history_are_inserted() {
        let database = memory_database();
        commit_single(&database, |tx| insert_users(tx, "free", &[[1; 32], [2; 32]])).unwrap();
        let count = |sql: &str| database.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(count("SELECT count(*) FROM users JOIN api_keys ON user_key = users.key"), 2);
        let now = Timestamp::from_second(1_900_000_000).unwrap();
        commit_single(&database, |tx| {
            tx.execute_batch(FIRST_CUE)?;
            copy_first_cue(tx, 2, 9)?;
            insert_history(tx, 1, 20, now, SignedDuration::from_secs(1))?;
            insert_history(tx, 1, 10, now, SignedDuration::from_secs(1))
        })
        .unwrap();
        assert_eq!(count("SELECT count(DISTINCT id) FROM cues WHERE payload_key = key"), 10);
        assert_eq!(count("SELECT cue_count FROM users WHERE key = 1"), 9);
        assert_eq!(count("SELECT stored_bytes FROM users WHERE key = 1"), 2 + 9 * 2);
        assert_eq!(count("SELECT count(*) FROM executions"), 30);
        assert_eq!(count("SELECT failures FROM consecutive_failures"), 3);
    }

    const FIRST_CUE: &str = "INSERT INTO cues (key, id, user_key, status, next_run, run_count, missed_count, transport,
            payload_key, cron, timezone, catch_up, max_attempts, backoff_minutes, on_failure, verification, callback_method,
            callback_headers, name, created_at, updated_at)
        VALUES (1, 'cue_1', 1, 'active', 1, 0, 0, 'webhook', 1, '* * * * *', 'UTC', 'latest', 1, '[]', '{}', 'none', 'POST',
                '[]', 'n', 0, 0);
        INSERT INTO payloads (key, cue_key, is_single_use, body) VALUES (1, 1, 0, '{}')";
}
