//! Device logins under way, and the mails that they caused. Codes and tokens are stored as their hashes.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, params};

use crate::domain::account::device_login::{DeviceLogin, LoginState};
use crate::error::Result;
use crate::store::db::columns::{instant, millis, read_instant, word};
use crate::store::{ReadTx, WriteTx};

const CODES_OF: &str = "SELECT created_at FROM logins WHERE client = ?1 AND created_at > ?2 ORDER BY created_at DESC LIMIT ?3 + 0";
const MAILS_TO: &str =
    "SELECT asked_at FROM login_mails WHERE email = ?1 AND asked_at > ?2 ORDER BY asked_at DESC LIMIT ?3 + 0";
// Asked at every pass of the scheduler: the first entry of two indexes.
const OLDEST: &str = "SELECT created_at FROM (SELECT created_at FROM logins ORDER BY created_at LIMIT 1)
    UNION ALL SELECT asked_at FROM (SELECT asked_at FROM login_mails ORDER BY asked_at LIMIT 1)
    ORDER BY 1 LIMIT 1";
const DELETE_LOGINS: &str = "DELETE FROM logins WHERE code_hash IN (
    SELECT code_hash FROM logins WHERE created_at <= ?1 ORDER BY created_at LIMIT ?2 + 0)";
const DELETE_MAILS: &str = "DELETE FROM login_mails WHERE key IN (
    SELECT key FROM login_mails WHERE asked_at <= ?1 ORDER BY asked_at LIMIT ?2 + 0)";

/// Stores a new login; tells whether its code was free.
///
/// # Errors
/// When the file cannot be written.
pub fn insert(tx: &WriteTx<'_>, code: &[u8; 32], client: &str, now: Timestamp) -> Result<bool> {
    let inserted = tx
        .prepare_cached(
            "INSERT INTO logins (code_hash, client, state, mails, created_at) VALUES (?1, ?2, 'pending', 0, ?3)
             ON CONFLICT (code_hash) DO NOTHING",
        )?
        .execute(params![code, client, millis(now)])?;
    Ok(inserted > 0)
}

/// The login with this code.
///
/// # Errors
/// When the file cannot be read.
pub fn find(read: &ReadTx<'_>, code: &[u8; 32]) -> Result<Option<DeviceLogin>> {
    Ok(read
        .prepare_cached(
            "SELECT state, email, token_hash, mails, user_key, created_at FROM logins WHERE code_hash = ?1",
        )?
        .query_row([code], read_login)
        .optional()?)
}

/// When this client made codes since `since`: the newest `limit` of them, newest first.
///
/// # Errors
/// When the file cannot be read.
pub fn codes_of(read: &ReadTx<'_>, client: &str, since: Timestamp, limit: usize) -> Result<Vec<Timestamp>> {
    instants(read, CODES_OF, client, since, limit)
}

/// When mails to this address were asked for since `since`: the newest `limit` of them, newest first.
///
/// # Errors
/// When the file cannot be read.
pub fn mails_to(read: &ReadTx<'_>, email: &str, since: Timestamp, limit: usize) -> Result<Vec<Timestamp>> {
    instants(read, MAILS_TO, email, since, limit)
}

/// Notes that an address was given, without another link: the one that was mailed before stays good.
///
/// # Errors
/// When the file cannot be written.
pub fn mark_email_sent(tx: &WriteTx<'_>, code: &[u8; 32]) -> Result<()> {
    tx.prepare_cached("UPDATE logins SET state = 'email_sent' WHERE code_hash = ?1 AND state = 'pending'")?
        .execute([code])?;
    Ok(())
}

/// Puts a new link in the place of an earlier one, and counts the mail.
///
/// # Errors
/// When the file cannot be written.
pub fn save_link(
    tx: &WriteTx<'_>,
    code: &[u8; 32],
    email: &str,
    token: &[u8; 32],
    now: Timestamp,
) -> Result<()> {
    tx.prepare_cached(
        "UPDATE logins SET state = 'email_sent', email = ?2, token_hash = ?3, mails = mails + 1
          WHERE code_hash = ?1 AND state IN ('pending', 'email_sent')",
    )?
    .execute(params![code, email, token])?;
    tx.prepare_cached("INSERT INTO login_mails (email, asked_at) VALUES (?1, ?2)")?
        .execute(params![email, millis(now)])?;
    Ok(())
}

/// Approves a login for a user; tells whether it still waited for that.
///
/// # Errors
/// When the file cannot be written.
pub fn approve(tx: &WriteTx<'_>, code: &[u8; 32], user_key: i64) -> Result<bool> {
    let approved = tx
        .prepare_cached(
            "UPDATE logins SET state = 'approved', user_key = ?2 WHERE code_hash = ?1 AND state = 'email_sent'",
        )?
        .execute(params![code, user_key])?;
    Ok(approved > 0)
}

/// Ends an approved login; tells whether this call was the one that did.
///
/// # Errors
/// When the file cannot be written.
pub fn claim(tx: &WriteTx<'_>, code: &[u8; 32]) -> Result<bool> {
    let claimed = tx
        .prepare_cached("UPDATE logins SET state = 'claimed' WHERE code_hash = ?1 AND state = 'approved'")?
        .execute([code])?;
    Ok(claimed > 0)
}

/// The instant of the oldest thing that is kept here.
///
/// # Errors
/// When the file cannot be read.
pub fn oldest(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    let oldest: Option<i64> = read.prepare_cached(OLDEST)?.query_row([], |row| row.get(0)).optional()?;
    Ok(oldest.map(read_instant).transpose()?)
}

/// Forgets what was made at `until` or before, at most `limit` logins and as many mails.
///
/// # Errors
/// When the file cannot be written.
pub fn delete(tx: &WriteTx<'_>, until: Timestamp, limit: u32) -> Result<()> {
    for sql in [DELETE_LOGINS, DELETE_MAILS] {
        tx.prepare_cached(sql)?.execute(params![millis(until), limit])?;
    }
    Ok(())
}

fn instants(
    read: &ReadTx<'_>,
    sql: &str,
    whose: &str,
    since: Timestamp,
    limit: usize,
) -> Result<Vec<Timestamp>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    Ok(read
        .prepare_cached(sql)?
        .query_map(params![whose, millis(since), limit], |row| read_instant(row.get(0)?))?
        .collect::<rusqlite::Result<Vec<_>>>()?)
}

fn read_login(row: &Row<'_>) -> rusqlite::Result<DeviceLogin> {
    Ok(DeviceLogin {
        state: word(row, "state", LoginState::parse)?,
        created_at: instant(row, "created_at")?,
        email: row.get("email")?,
        token_hash: row.get("token_hash")?,
        mails: row.get("mails")?,
        user_key: row.get("user_key")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;

    #[test]
    fn no_query_scans_a_whole_table() {
        let file = Connection::open_in_memory().unwrap();
        file.execute_batch(include_str!("../../../schema.sql")).unwrap();
        let indexes = [
            (CODES_OF, "logins_by_client"),
            (MAILS_TO, "login_mails_by_email"),
            (DELETE_LOGINS, "logins_by_age"),
            (DELETE_MAILS, "login_mails_by_age"),
            (OLDEST, "logins_by_age"),
            (OLDEST, "login_mails_by_age"),
        ];
        for (sql, index) in indexes {
            let mut plan = file.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let steps = plan.raw_query().mapped(|row| row.get::<_, String>("detail"));
            let steps: Vec<String> = steps.collect::<rusqlite::Result<_>>().unwrap();
            assert!(steps.iter().any(|step| step.contains(index)), "{steps:?}");
            // Along an index and with a limit a scan ends where it should.
            let bare = |step: &&String| step.starts_with("SCAN login") && !step.contains("INDEX");
            assert_eq!(steps.iter().find(bare), None, "{steps:?}");
            assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE") && sql != OLDEST), "{steps:?}");
        }
    }
}
