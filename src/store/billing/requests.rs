//! Manual billing: links to its pages, and plan requests that users confirm and the operator decides on.
//!
//! `subscriptions` holds the data of a payment provider.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, params};

use crate::domain::billing::offer::{Offer, RequestStatus};
use crate::error::Result;
use crate::store::db::columns::{instant, invalid_column, maybe_instant, millis, parse_word};
use crate::store::{ReadTx, WriteTx};

/// Valid links per user and kind. A new link replaces the oldest. A user follows a link within minutes of requesting
/// it, so ten are enough, and a client that requests links in a loop cannot fill the table.
const MAX_LINKS: u32 = 10;
/// Expired links deleted with each new one. More than one per insert, so that a backlog shrinks; few enough to keep the
/// write short. No background task deletes links.
const EXPIRED_LINK_BATCH: u32 = 100;

const COLUMNS: &str =
    "billing_requests.key, billing_requests.id, user_key, users.email, users.plan AS current_plan,
    billing_requests.plan, billing_requests.plan_interval, status, link_expires_at, requested_at, decided_at";

/// A request to insert, not confirmed yet.
#[derive(Debug, Clone)]
pub struct NewBillingRequest {
    pub id: String,
    pub user_key: i64,
    pub offer: Offer,
    pub link_hash: [u8; 32],
    pub link_expires_at: Timestamp,
}

/// A stored request and its user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BillingRequest {
    pub key: i64,
    pub id: String,
    pub user_key: i64,
    pub email: String,
    pub current_plan: String,
    /// The requested plan.
    pub offer: Offer,
    pub status: RequestStatus,
    pub link_expires_at: Timestamp,
    pub requested_at: Option<Timestamp>,
    pub decided_at: Option<Timestamp>,
}

/// Inserts a request with the link that its user confirms it with, and deletes expired links.
pub fn insert_request(tx: &WriteTx<'_>, new: &NewBillingRequest, now: Timestamp) -> Result<()> {
    tx.prepare_cached(
        "DELETE FROM billing_requests WHERE key IN
            (SELECT key FROM billing_requests WHERE status = 'offered' AND link_expires_at <= ?1 LIMIT ?2 + 0)",
    )?
    .execute(params![millis(now), EXPIRED_LINK_BATCH])?;
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

/// The request with this link, if its user is not disabled. The caller checks whether the link has expired.
pub fn find_by_link(read: &ReadTx<'_>, link_hash: &[u8; 32]) -> Result<Option<BillingRequest>> {
    let filter = "link_hash = ?1 AND disabled_at IS NULL";
    Ok(read.prepare_cached(&select(filter))?.query_row([link_hash], read_request).optional()?)
}

/// The confirmed request with this id.
pub fn find(read: &ReadTx<'_>, id: &str) -> Result<Option<BillingRequest>> {
    let filter = "billing_requests.id = ?1 AND status <> 'offered'";
    Ok(read.prepare_cached(&select(filter))?.query_row([id], read_request).optional()?)
}

/// The confirmed requests without a decision, oldest first; with `decided` also those with one.
pub fn list(read: &ReadTx<'_>, decided: bool) -> Result<Vec<BillingRequest>> {
    let filter = if decided { "status <> 'offered'" } else { "status = 'requested'" };
    let sql = format!("{} ORDER BY billing_requests.key", select(filter));
    Ok(read.prepare_cached(&sql)?.query_map([], read_request)?.collect::<rusqlite::Result<_>>()?)
}

/// The user's confirmed request without a decision.
pub fn find_undecided(read: &ReadTx<'_>, user_key: i64) -> Result<Option<BillingRequest>> {
    let filter = "user_key = ?1 AND status = 'requested'";
    Ok(read.prepare_cached(&select(filter))?.query_row([user_key], read_request).optional()?)
}

/// Confirms a request. Returns `false` if it is confirmed already or its link has expired.
pub fn confirm(tx: &WriteTx<'_>, key: i64, now: Timestamp) -> Result<bool> {
    let confirmed = tx
        .prepare_cached(
            "UPDATE billing_requests SET status = 'requested', requested_at = ?2
              WHERE key = ?1 AND status = 'offered' AND link_expires_at > ?2",
        )?
        .execute(params![key, millis(now)])?;
    Ok(confirmed > 0)
}

/// Deletes the user's confirmed request without a decision, if there is one.
pub fn delete_undecided(tx: &WriteTx<'_>, user_key: i64) -> Result<()> {
    tx.prepare_cached("DELETE FROM billing_requests WHERE user_key = ?1 AND status = 'requested'")?
        .execute([user_key])?;
    Ok(())
}

/// Records the operator's decision. Returns `false` if there is one already.
pub fn decide(tx: &WriteTx<'_>, key: i64, decision: RequestStatus, now: Timestamp) -> Result<bool> {
    let decided = tx
        .prepare_cached(
            "UPDATE billing_requests SET status = ?2, decided_at = ?3 WHERE key = ?1 AND status = 'requested'",
        )?
        .execute(params![key, decision.as_str(), millis(now)])?;
    Ok(decided > 0)
}

/// Returns whether any request of the user has been approved.
pub fn was_ever_approved(read: &ReadTx<'_>, user_key: i64) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM billing_requests WHERE user_key = ?1 AND status = 'approved')";
    Ok(read.prepare_cached(sql)?.query_row([user_key], |row| row.get(0))?)
}

/// Inserts a link to the user's plan page and deletes expired links.
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
    .execute(params![millis(now), EXPIRED_LINK_BATCH])?;
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

/// The user of a plan page link that is valid at `now`; `None` if the user is disabled.
pub fn find_portal_user(read: &ReadTx<'_>, hash: &[u8; 32], now: Timestamp) -> Result<Option<i64>> {
    Ok(read
        .prepare_cached(
            "SELECT user_key FROM billing_portal_links JOIN users ON users.key = user_key
              WHERE link_hash = ?1 AND expires_at > ?2 AND disabled_at IS NULL",
        )?
        .query_row(params![hash, millis(now)], |row| row.get(0))
        .optional()?)
}

/// Deletes all plan page links of the user.
pub fn delete_portal_links_of(tx: &WriteTx<'_>, user_key: i64) -> Result<()> {
    tx.prepare_cached("DELETE FROM billing_portal_links WHERE user_key = ?1")?.execute([user_key])?;
    Ok(())
}

/// Deletes a plan page link.
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
        current_plan: row.get("current_plan")?,
        offer: read_offer(row)?,
        status: parse_word(row, "status", RequestStatus::parse)?,
        link_expires_at: instant(row, "link_expires_at")?,
        requested_at: maybe_instant(row, "requested_at")?,
        decided_at: maybe_instant(row, "decided_at")?,
    })
}

/// The offer in the columns of a row.
/// Errors: the columns name no offer.
pub(in crate::store) fn read_offer(row: &Row<'_>) -> rusqlite::Result<Offer> {
    let (plan, interval) = (row.get_ref("plan")?.as_str()?, row.get_ref("plan_interval")?.as_str()?);
    Offer::parse(plan, interval)
        .ok_or_else(|| invalid_column(&format!("unknown offer: plan {plan}, interval {interval}")))
}
