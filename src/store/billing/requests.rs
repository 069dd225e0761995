//! Manual billing: plan requests that users confirm by a link and the operator decides on.

use jiff::Timestamp;
use rusqlite::params;

use crate::domain::billing::offer::{Offer, RequestStatus};
use crate::error::Result;
use crate::store::db::columns::{millis, row};
use crate::store::{ReadTx, WriteTx};

/// Valid links per user and kind. A new link replaces the oldest. A user follows a link within minutes of requesting
/// it, so ten are enough, and a client that requests links in a loop cannot fill the table.
pub const MAX_LINKS: i64 = 10;

/// Expired requests deleted with each new one. More than one per insert, so that a backlog shrinks; few enough to keep the
/// write short. No background task deletes them.
const EXPIRED_LINK_BATCH: u32 = 100;

row! { columns, "billing_requests.",
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BillingRequest {
    pub key: i64,
    pub id: String,
    pub user_key: i64,
    pub email: String = "users.email",
    pub current_plan: String = "users.plan",
    /// The requested plan.
    pub offer: Offer = "billing_requests.plan, billing_requests.plan_interval",
    pub status: RequestStatus,
    pub link_expires_at: Timestamp,
    pub requested_at: Option<Timestamp>,
    pub decided_at: Option<Timestamp>,
} }

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

/// Inserts a request with the link that its user confirms it with, and deletes expired links.
pub fn insert_request(tx: &WriteTx<'_>, new: &NewBillingRequest, now: Timestamp) -> Result<()> {
    let expired = "DELETE FROM billing_requests WHERE key IN (SELECT key FROM billing_requests
                     WHERE status = 'offered' AND link_expires_at <= ?1 LIMIT ?2 + 0)";
    tx.run(expired, params![millis(now), EXPIRED_LINK_BATCH])?;
    let surplus = "DELETE FROM billing_requests WHERE key IN (SELECT key FROM billing_requests
                     WHERE user_key = ?1 AND status = 'offered' ORDER BY key DESC LIMIT -1 OFFSET ?2)";
    tx.run(surplus, params![new.user_key, MAX_LINKS - 1])?;
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
}

/// The request with this link, if its user is not disabled. The caller checks whether the link has expired.
pub fn find_by_link(read: &ReadTx<'_>, link_hash: &[u8; 32]) -> Result<Option<BillingRequest>> {
    read.find(select!("link_hash = ?1 AND disabled_at IS NULL"), [link_hash])
}

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
    tx.changes(
        "UPDATE billing_requests SET status = 'requested', requested_at = ?2
              WHERE key = ?1 AND status = 'offered' AND link_expires_at > ?2",
        params![key, millis(now)],
    )
}

/// Deletes the user's confirmed request without a decision, if there is one.
pub fn delete_undecided(tx: &WriteTx<'_>, user_key: i64) -> Result<()> {
    tx.run("DELETE FROM billing_requests WHERE user_key = ?1 AND status = 'requested'", [user_key])
}

/// Records the operator's decision. Returns `false` if there is one already.
pub fn decide(tx: &WriteTx<'_>, key: i64, decision: RequestStatus, now: Timestamp) -> Result<bool> {
    tx.changes(
        "UPDATE billing_requests SET status = ?2, decided_at = ?3 WHERE key = ?1 AND status = 'requested'",
        params![key, decision.as_str(), millis(now)],
    )
}

pub fn was_ever_approved(read: &ReadTx<'_>, user_key: i64) -> Result<bool> {
    read.any("SELECT 1 FROM billing_requests WHERE user_key = ?1 AND status = 'approved'", [user_key])
}
