//! Manual billing: links to its pages, and the requests that users confirm and the operator decides.
//!
//! What a payment provider tells is in `subscriptions`.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, params};

use crate::domain::billing::offer::{Offer, RequestStatus};
use crate::error::Result;
use crate::store::db::columns::{broken, instant, maybe_instant, millis, word};
use crate::store::{ReadTx, WriteTx};

/// Links of one user that can be used at a time, of each kind; a further one takes the place of the oldest.
const MAX_LINKS: u32 = 10;
/// Expired links that are dropped with a new one.
const DROPPED_AT_ONCE: u32 = 100;

const COLUMNS: &str =
    "billing_requests.key, billing_requests.id, user_key, users.email, users.plan AS present_plan,
    billing_requests.plan, billing_requests.plan_interval, status, link_expires_at, requested_at, decided_at";

/// A request that is being made: its link.
#[derive(Debug, Clone)]
pub struct NewBillingRequest {
    pub id: String,
    pub user_key: i64,
    pub offer: Offer,
    pub link_hash: [u8; 32],
    pub link_expires_at: Timestamp,
}

/// A stored request, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BillingRequest {
    /// Its row.
    pub key: i64,
    pub id: String,
    pub user_key: i64,
    pub email: String,
    /// The plan that the user has now.
    pub present_plan: String,
    /// What the user asks for.
    pub offer: Offer,
    pub status: RequestStatus,
    pub link_expires_at: Timestamp,
    pub requested_at: Option<Timestamp>,
    pub decided_at: Option<Timestamp>,
}

/// Stores the link of a request that its user has yet to confirm, and drops links that have expired.
///
/// # Errors
/// When the file cannot be written.
pub fn insert_request(tx: &WriteTx<'_>, new: &NewBillingRequest, now: Timestamp) -> Result<()> {
    tx.prepare_cached(
        "DELETE FROM billing_requests WHERE key IN
            (SELECT key FROM billing_requests WHERE status = 'offered' AND link_expires_at <= ?1 LIMIT ?2 + 0)",
    )?
    .execute(params![millis(now), DROPPED_AT_ONCE])?;
    tx.prepare_cached(
        "DELETE FROM billing_requests WHERE key IN
            (SELECT key FROM billing_requests WHERE user_key = ?1 AND status = 'offered'
              ORDER BY key DESC LIMIT -1 OFFSET ?2)",
    )?
    .execute(params![new.user_key, MAX_LINKS - 1])?;
    tx.prepare_cached(
        "INSERT INTO billing_requests (id, user_key, plan, plan_interval, status, link_hash, link_expires_at)
         VALUES (?1, ?2, ?3, ?4, 'offered', ?5, ?6)",
    )?
    .execute(params![
        new.id,
        new.user_key,
        new.offer.plan.as_str(),
        new.offer.interval.as_str(),
        new.link_hash,
        millis(new.link_expires_at)
    ])?;
    Ok(())
}

/// The request behind a link, of a user who is not disabled. Whether the link has expired is for the caller to see.
///
/// # Errors
/// When the file cannot be read.
pub fn find_by_link(read: &ReadTx<'_>, link_hash: &[u8; 32]) -> Result<Option<BillingRequest>> {
    let filter = "link_hash = ?1 AND disabled_at IS NULL";
    Ok(read.prepare_cached(&select(filter))?.query_row([link_hash], read_request).optional()?)
}

/// The request with this id.
///
/// # Errors
/// When the file cannot be read.
pub fn find(read: &ReadTx<'_>, id: &str) -> Result<Option<BillingRequest>> {
    let filter = "billing_requests.id = ?1 AND status <> 'offered'";
    Ok(read.prepare_cached(&select(filter))?.query_row([id], read_request).optional()?)
}

/// The requests that wait for the operator, oldest first; with `decided` also those that were decided.
///
/// # Errors
/// When the file cannot be read.
pub fn list(read: &ReadTx<'_>, decided: bool) -> Result<Vec<BillingRequest>> {
    let filter = if decided { "status <> 'offered'" } else { "status = 'requested'" };
    let sql = format!("{} ORDER BY billing_requests.key", select(filter));
    Ok(read.prepare_cached(&sql)?.query_map([], read_request)?.collect::<rusqlite::Result<_>>()?)
}

/// The user's request that waits for the operator.
///
/// # Errors
/// When the file cannot be read.
pub fn find_undecided(read: &ReadTx<'_>, user_key: i64) -> Result<Option<BillingRequest>> {
    let filter = "user_key = ?1 AND status = 'requested'";
    Ok(read.prepare_cached(&select(filter))?.query_row([user_key], read_request).optional()?)
}

/// Notes that the user confirms a request; tells whether that was still to be done.
///
/// # Errors
/// When the file cannot be written.
pub fn confirm(tx: &WriteTx<'_>, key: i64, now: Timestamp) -> Result<bool> {
    let confirmed = tx
        .prepare_cached(
            "UPDATE billing_requests SET status = 'requested', requested_at = ?2
              WHERE key = ?1 AND status = 'offered' AND link_expires_at > ?2",
        )?
        .execute(params![key, millis(now)])?;
    Ok(confirmed > 0)
}

/// Takes back the user's request that waits for the operator, if there is one.
///
/// # Errors
/// When the file cannot be written.
pub fn delete_undecided(tx: &WriteTx<'_>, user_key: i64) -> Result<()> {
    tx.prepare_cached("DELETE FROM billing_requests WHERE user_key = ?1 AND status = 'requested'")?
        .execute([user_key])?;
    Ok(())
}

/// Notes the operator's decision; tells whether the request still waited for it.
///
/// # Errors
/// When the file cannot be written.
pub fn decide(tx: &WriteTx<'_>, key: i64, decision: RequestStatus, now: Timestamp) -> Result<bool> {
    let decided = tx
        .prepare_cached(
            "UPDATE billing_requests SET status = ?2, decided_at = ?3 WHERE key = ?1 AND status = 'requested'",
        )?
        .execute(params![key, decision.as_str(), millis(now)])?;
    Ok(decided > 0)
}

/// Whether a request of the user was ever approved.
///
/// # Errors
/// When the file cannot be read.
pub fn was_ever_approved(read: &ReadTx<'_>, user_key: i64) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM billing_requests WHERE user_key = ?1 AND status = 'approved')";
    Ok(read.prepare_cached(sql)?.query_row([user_key], |row| row.get(0))?)
}

/// Stores a link to the page of the user's plan, and drops links that have expired.
///
/// # Errors
/// When the file cannot be written.
pub fn insert_portal_link(
    tx: &WriteTx<'_>,
    user_key: i64,
    hash: &[u8; 32],
    expires_at: Timestamp,
    now: Timestamp,
) -> Result<()> {
    tx.prepare_cached(
        "DELETE FROM billing_portal_links WHERE key IN
            (SELECT key FROM billing_portal_links WHERE expires_at <= ?1 LIMIT ?2 + 0)",
    )?
    .execute(params![millis(now), DROPPED_AT_ONCE])?;
    tx.prepare_cached(
        "DELETE FROM billing_portal_links WHERE key IN
            (SELECT key FROM billing_portal_links WHERE user_key = ?1 ORDER BY key DESC LIMIT -1 OFFSET ?2)",
    )?
    .execute(params![user_key, MAX_LINKS - 1])?;
    tx.prepare_cached(
        "INSERT INTO billing_portal_links (link_hash, user_key, expires_at) VALUES (?1, ?2, ?3)",
    )?
    .execute(params![hash, user_key, millis(expires_at)])?;
    Ok(())
}

/// The user whose plan a link shows at `now`, if it has not expired, was not used up and the user is not disabled.
///
/// # Errors
/// When the file cannot be read.
pub fn find_portal_user(read: &ReadTx<'_>, hash: &[u8; 32], now: Timestamp) -> Result<Option<i64>> {
    Ok(read
        .prepare_cached(
            "SELECT user_key FROM billing_portal_links JOIN users ON users.key = user_key
              WHERE link_hash = ?1 AND expires_at > ?2 AND disabled_at IS NULL",
        )?
        .query_row(params![hash, millis(now)], |row| row.get(0))
        .optional()?)
}

/// Uses up a link to the page of the user's plan.
///
/// # Errors
/// When the file cannot be written.
pub fn delete_portal_link(tx: &WriteTx<'_>, hash: &[u8; 32]) -> Result<()> {
    tx.prepare_cached("DELETE FROM billing_portal_links WHERE link_hash = ?1")?.execute([hash])?;
    Ok(())
}

fn select(filter: &str) -> String {
    format!("SELECT {COLUMNS} FROM billing_requests JOIN users ON users.key = user_key WHERE {filter}")
}

fn read_request(row: &Row<'_>) -> rusqlite::Result<BillingRequest> {
    Ok(BillingRequest {
        key: row.get("key")?,
        id: row.get("id")?,
        user_key: row.get("user_key")?,
        email: row.get("email")?,
        present_plan: row.get("present_plan")?,
        offer: read_offer(row)?,
        status: word(row, "status", RequestStatus::parse)?,
        link_expires_at: instant(row, "link_expires_at")?,
        requested_at: maybe_instant(row, "requested_at")?,
        decided_at: maybe_instant(row, "decided_at")?,
    })
}

/// The offer in the columns of a row.
///
/// # Errors
/// When the columns hold what this program never writes.
pub(in crate::store) fn read_offer(row: &Row<'_>) -> rusqlite::Result<Offer> {
    let (plan, interval) = (row.get_ref("plan")?.as_str()?, row.get_ref("plan_interval")?.as_str()?);
    Offer::parse(plan, interval).ok_or_else(|| broken(&format!("there is no offer {plan} {interval}")))
}
