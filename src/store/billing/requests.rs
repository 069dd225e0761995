//! Manual billing: links to its pages, and plan requests that users confirm and the operator decides on.
//!
//! `subscriptions` holds the data of a payment provider.

use jiff::Timestamp;
use rusqlite::params;

use crate::domain::billing::offer::{Offer, RequestStatus};
use crate::error::Result;
use crate::store::db::columns::{millis, row};
use crate::store::{ReadTx, WriteTx};

/// Valid links per user and kind. A new link replaces the oldest. A user follows a link within minutes of requesting
/// it, so ten are enough, and a client that requests links in a loop cannot fill the table.
const MAX_LINKS: u32 = 10;
/// Expired links deleted with each new one. More than one per insert, so that a backlog shrinks; few enough to keep the
/// write short. No background task deletes links.
const EXPIRED_LINK_BATCH: u32 = 100;

row!(columns, "billing_requests.", BillingRequest {
    key,
    id,
    user_key,
    email = "users.email",
    current_plan = "users.plan",
    offer = "billing_requests.plan, billing_requests.plan_interval",
    status,
    link_expires_at,
    requested_at,
    decided_at,
});

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT ",
            columns!(),
            " FROM billing_requests JOIN users ON users.key = user_key WHERE ",
            $rest
        )
    };
}

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
    tx.run("DELETE FROM billing_requests WHERE key IN
            (SELECT key FROM billing_requests WHERE status = 'offered' AND link_expires_at <= ?1 LIMIT ?2 + 0)", params![millis(now), EXPIRED_LINK_BATCH])?;
    tx.run(
        "DELETE FROM billing_requests WHERE key IN
            (SELECT key FROM billing_requests WHERE user_key = ?1 AND status = 'offered'
              ORDER BY key DESC LIMIT -1 OFFSET ?2)",
        params![new.user_key, MAX_LINKS - 1],
    )?;
    tx.run(
        "INSERT INTO billing_requests (id, user_key, plan, plan_interval, status, link_hash, link_expires_at)
         VALUES (?1, ?2, ?3, ?4, 'offered', ?5, ?6)",
        params![
            new.id,
            new.user_key,
            new.offer.plan.as_str(),
            new.offer.interval.as_str(),
            new.link_hash,
            millis(new.link_expires_at)
        ],
    )
    .map(drop)
}

/// The request with this link, if its user is not disabled. The caller checks whether the link has expired.
pub fn find_by_link(read: &ReadTx<'_>, link_hash: &[u8; 32]) -> Result<Option<BillingRequest>> {
    read.find(select!("link_hash = ?1 AND disabled_at IS NULL"), [link_hash])
}

/// The confirmed request with this id.
pub fn find(read: &ReadTx<'_>, id: &str) -> Result<Option<BillingRequest>> {
    read.find(select!("billing_requests.id = ?1 AND status <> 'offered'"), [id])
}

/// The confirmed requests without a decision, oldest first; with `decided` also those with one.
pub fn list(read: &ReadTx<'_>, decided: bool) -> Result<Vec<BillingRequest>> {
    let sql = if decided {
        select!("status <> 'offered' ORDER BY billing_requests.key")
    } else {
        select!("status = 'requested' ORDER BY billing_requests.key")
    };
    read.all(sql, [])
}

/// The user's confirmed request without a decision.
pub fn find_undecided(read: &ReadTx<'_>, user_key: i64) -> Result<Option<BillingRequest>> {
    read.find(select!("user_key = ?1 AND status = 'requested'"), [user_key])
}

/// Confirms a request. Returns `false` if it is confirmed already or its link has expired.
pub fn confirm(tx: &WriteTx<'_>, key: i64, now: Timestamp) -> Result<bool> {
    Ok(tx.run(
        "UPDATE billing_requests SET status = 'requested', requested_at = ?2
              WHERE key = ?1 AND status = 'offered' AND link_expires_at > ?2",
        params![key, millis(now)],
    )? > 0)
}

/// Deletes the user's confirmed request without a decision, if there is one.
pub fn delete_undecided(tx: &WriteTx<'_>, user_key: i64) -> Result<()> {
    tx.run("DELETE FROM billing_requests WHERE user_key = ?1 AND status = 'requested'", [user_key]).map(drop)
}

/// Records the operator's decision. Returns `false` if there is one already.
pub fn decide(tx: &WriteTx<'_>, key: i64, decision: RequestStatus, now: Timestamp) -> Result<bool> {
    Ok(tx.run(
        "UPDATE billing_requests SET status = ?2, decided_at = ?3 WHERE key = ?1 AND status = 'requested'",
        params![key, decision.as_str(), millis(now)],
    )? > 0)
}

/// Returns whether any request of the user has been approved.
pub fn was_ever_approved(read: &ReadTx<'_>, user_key: i64) -> Result<bool> {
    read.any("SELECT 1 FROM billing_requests WHERE user_key = ?1 AND status = 'approved'", [user_key])
}

/// Inserts a link to the user's plan page and deletes expired links.
pub fn insert_portal_link(
    tx: &WriteTx<'_>,
    user_key: i64,
    hash: &[u8; 32],
    expires_at: Timestamp,
    now: Timestamp,
) -> Result<()> {
    tx.run(
        "DELETE FROM billing_portal_links WHERE key IN
            (SELECT key FROM billing_portal_links WHERE expires_at <= ?1 LIMIT ?2 + 0)",
        params![millis(now), EXPIRED_LINK_BATCH],
    )?;
    tx.run(
        "DELETE FROM billing_portal_links WHERE key IN
            (SELECT key FROM billing_portal_links WHERE user_key = ?1 ORDER BY key DESC LIMIT -1 OFFSET ?2)",
        params![user_key, MAX_LINKS - 1],
    )?;
    tx.run(
        "INSERT INTO billing_portal_links (link_hash, user_key, expires_at) VALUES (?1, ?2, ?3)",
        params![hash, user_key, millis(expires_at)],
    )
    .map(drop)
}

/// The user of a plan page link that is valid at `now`; `None` if the user is disabled.
pub fn find_portal_user(read: &ReadTx<'_>, hash: &[u8; 32], now: Timestamp) -> Result<Option<i64>> {
    read.find(
        "SELECT user_key FROM billing_portal_links JOIN users ON users.key = user_key
              WHERE link_hash = ?1 AND expires_at > ?2 AND disabled_at IS NULL",
        params![hash, millis(now)],
    )
}

/// Deletes all plan page links of the user.
pub fn delete_portal_links_of(tx: &WriteTx<'_>, user_key: i64) -> Result<()> {
    tx.run("DELETE FROM billing_portal_links WHERE user_key = ?1", [user_key]).map(drop)
}

/// Deletes a plan page link.
pub fn delete_portal_link(tx: &WriteTx<'_>, hash: &[u8; 32]) -> Result<()> {
    tx.run("DELETE FROM billing_portal_links WHERE link_hash = ?1", [hash]).map(drop)
}
