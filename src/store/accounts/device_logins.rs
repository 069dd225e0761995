//! Device logins in progress and the login mails that were requested. Codes and tokens are stored as SHA-256 hashes.

use jiff::Timestamp;

use crate::domain::account::device_login::{DeviceCode, DeviceLogin, LoginPurpose, UserCode};
use crate::domain::row_keys::UserKey;
use crate::error::Result;
use crate::store::db::columns::{row, select};
use crate::store::{ReadTx, WriteTx};

const CODE_TIMES: &str = "SELECT created_at FROM device_logins
    WHERE client_network = ?1 AND created_at > ?2 ORDER BY created_at DESC LIMIT ?3 + 0";
const MAIL_TIMES: &str = "SELECT requested_at FROM login_mails
    WHERE email = ?1 AND requested_at > ?2 ORDER BY requested_at DESC LIMIT ?3 + 0";
// Runs with every pass of the scheduler. Reads one entry of each of two indexes.
const OLDEST: &str =
    "SELECT created_at FROM (SELECT created_at FROM device_logins ORDER BY created_at LIMIT 1)
    UNION ALL SELECT requested_at FROM (SELECT requested_at FROM login_mails ORDER BY requested_at LIMIT 1)
    ORDER BY 1 LIMIT 1";
const DELETE_LOGINS: &str = "DELETE FROM device_logins WHERE code_hash IN (
    SELECT code_hash FROM device_logins WHERE created_at <= ?1 ORDER BY created_at LIMIT ?2 + 0)";
const DELETE_APPROVED: &str = "DELETE FROM device_logins
    WHERE user_key = ?1 AND state = 'approved' AND is_for_session = coalesce(?2, is_for_session)";
const DELETE_MAILS: &str = "DELETE FROM login_mails WHERE key IN (
    SELECT key FROM login_mails WHERE requested_at <= ?1 ORDER BY requested_at LIMIT ?2 + 0)";

row!(
    columns,
    "",
    DeviceLogin {
        code_hash,
        user_code,
        state,
        created_at,
        email,
        token_hash,
        mail_count,
        user_key,
        is_for_session,
    }
);

const FIND: &str = select!(columns, "FROM device_logins WHERE code_hash = ?1");
const FIND_SHOWN: &str = select!(columns, "FROM device_logins WHERE user_code = ?1");

pub fn insert(
    tx: &WriteTx<'_>,
    code: &DeviceCode,
    user_code: &UserCode,
    purpose: LoginPurpose,
    client: &str,
    now: Timestamp,
) -> Result<bool> {
    tx.changes(
        "INSERT INTO device_logins (code_hash, user_code, client_network, state, mail_count, created_at,
                                        is_for_session)
             VALUES (?1, ?2, ?3, 'pending', 0, ?4, ?5)
             ON CONFLICT DO NOTHING",
        (code.hash(), user_code.as_str(), client, now, purpose == LoginPurpose::Session),
    )
}

pub fn find(read: &ReadTx<'_>, code: &[u8; 32]) -> Result<Option<DeviceLogin>> {
    read.find(FIND, [code])
}

/// Finds a login by user code or device code. User codes match first: they are generated, so a chosen device code
/// cannot shadow one.
pub fn find_by_text(read: &ReadTx<'_>, text: &str) -> Result<Option<DeviceLogin>> {
    let shown = UserCode::typed(text);
    let found = read.find(FIND_SHOWN, [shown.as_str()])?;
    match DeviceCode::parse(text) {
        Some(code) if found.is_none() => find(read, &code.hash()),
        _ => Ok(found),
    }
}

pub fn code_times(
    read: &ReadTx<'_>,
    client: &str,
    since: Timestamp,
    limit: usize,
) -> Result<Vec<Timestamp>> {
    read.all(CODE_TIMES, (client, since, limit))
}

pub fn mail_times(
    read: &ReadTx<'_>,
    email: &str,
    since: Timestamp,
    limit: usize,
) -> Result<Vec<Timestamp>> {
    read.all(MAIL_TIMES, (email, since, limit))
}

/// Sets the state of a pending login to `email_sent` without a new link. A link mailed earlier stays valid.
pub fn mark_email_sent(tx: &WriteTx<'_>, code: &[u8; 32]) -> Result<()> {
    tx.run(
        "UPDATE device_logins SET state = 'email_sent' WHERE code_hash = ?1 AND state = 'pending'",
        [code],
    )
}

pub fn save_link(
    tx: &WriteTx<'_>,
    code: &[u8; 32],
    email: &str,
    token: &[u8; 32],
    now: Timestamp,
) -> Result<()> {
    tx.run("UPDATE device_logins SET state = 'email_sent', email = ?2, token_hash = ?3, mail_count = mail_count + 1
          WHERE code_hash = ?1 AND state IN ('pending', 'email_sent')", (code, email, token))?;
    tx.insert("login_mails", "email, requested_at", (email, now)).map(drop)
}

pub fn approve(tx: &WriteTx<'_>, code: &[u8; 32], user_key: UserKey) -> Result<bool> {
    let sql = "UPDATE device_logins SET state = 'approved', user_key = ?2
                WHERE code_hash = ?1 AND state = 'email_sent'";
    tx.changes(sql, (code, user_key))
}

pub fn claim(tx: &WriteTx<'_>, code: &[u8; 32]) -> Result<bool> {
    tx.changes(
        "UPDATE device_logins SET state = 'claimed' WHERE code_hash = ?1 AND state = 'approved'",
        [code],
    )
}

/// Ends the logins of a user that are confirmed and not claimed: all of them, or those for a session.
pub fn delete_approved(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    only: Option<LoginPurpose>,
) -> Result<()> {
    let is_for_session = only.map(|purpose| purpose == LoginPurpose::Session);
    tx.run(DELETE_APPROVED, (user_key, is_for_session))
}

pub fn oldest(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    read.find(OLDEST, ())
}

pub fn delete_expired(tx: &WriteTx<'_>, until: Timestamp, limit: u32) -> Result<()> {
    for sql in [DELETE_LOGINS, DELETE_MAILS] {
        tx.run(sql, (until, limit))?;
    }
    Ok(())
}

#[cfg(test)]
crate::store::test_support::plan_test! { logins_and_mails_are_found_by_index:
    CODE_TIMES => "logins_by_client",
    MAIL_TIMES => "login_mails_by_email",
    DELETE_LOGINS => "logins_by_age",
    DELETE_MAILS => "login_mails_by_age",
    FIND_SHOWN => "device_logins_by_user_code",
    DELETE_APPROVED => "device_logins_by_user (user_key=?)",
    OLDEST => "TEMP B-TREE",
    OLDEST => "logins_by_age",
    OLDEST => "login_mails_by_age",
}
