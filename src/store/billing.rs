//! Manual billing: plan requests by link; and the data of the payment provider.

use jiff::{SignedDuration, Timestamp};

use crate::domain::billing::{Offer, RequestStatus, Subscription};
use crate::domain::row_keys::UserKey;
use crate::domain::time::saturating_sub;
use crate::error::Result;
use crate::store::db::columns::{row, select, stored_row};
use crate::store::{ReadTx, WriteTx};

/// A new link replaces the oldest. A client that requests links in a loop cannot fill the table.
pub const MAX_LINKS: i64 = 10;

/// Expired requests deleted with each new one; no background task deletes them, so more than one.
const EXPIRED_LINK_BATCH: u32 = 100;

row! { columns, "billing_requests.",
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BillingRequest {
    pub key: i64,
    pub id: String,
    pub user_key: UserKey,
    pub user_id: String = "users.id",
    pub email: String = "users.email",
    pub current_plan: String = "users.plan",
    pub offer: Offer = "billing_requests.plan, billing_requests.plan_interval",
    pub status: RequestStatus,
    pub link_expires_at: Timestamp,
    pub requested_at: Option<Timestamp>,
    pub decided_at: Option<Timestamp>,
} }

macro_rules! requests {
    ($filter:literal) => {
        select!(
            columns,
            concat!("FROM billing_requests JOIN users ON users.key = user_key WHERE ", $filter)
        )
    };
}

#[derive(Debug, Clone)]
pub struct NewBillingRequest {
    pub id: String,
    pub user_key: UserKey,
    pub offer: Offer,
    pub link_hash: [u8; 32],
    pub link_expires_at: Timestamp,
}

pub fn insert_request(tx: &WriteTx<'_>, new: &NewBillingRequest, now: Timestamp) -> Result<()> {
    let expired = "DELETE FROM billing_requests WHERE key IN (SELECT key FROM billing_requests
                     WHERE status = 'offered' AND link_expires_at <= ?1 LIMIT ?2 + 0)";
    tx.run(expired, (now, EXPIRED_LINK_BATCH))?;
    let surplus = "DELETE FROM billing_requests WHERE key IN (SELECT key FROM billing_requests
                     WHERE user_key = ?1 AND status = 'offered' ORDER BY key DESC LIMIT -1 OFFSET ?2)";
    tx.run(surplus, (new.user_key, MAX_LINKS - 1))?;
    let NewBillingRequest { id, user_key, offer, link_hash, link_expires_at } = new;
    tx.insert(
        "billing_requests",
        "id, user_key, plan, plan_interval, status, link_hash, link_expires_at",
        (id, user_key, offer, RequestStatus::Offered, link_hash, link_expires_at),
    )
    .map(drop)
}

/// The request with this link, if its user is not disabled. The caller checks whether the link has expired.
pub fn find_by_link(read: &ReadTx<'_>, link_hash: &[u8; 32]) -> Result<Option<BillingRequest>> {
    read.find(requests!("link_hash = ?1 AND disabled_at IS NULL"), [link_hash])
}

pub fn find_request(read: &ReadTx<'_>, id: &str) -> Result<Option<BillingRequest>> {
    read.find(requests!("billing_requests.id = ?1 AND status <> 'offered'"), [id])
}

pub fn list_requests(read: &ReadTx<'_>, decided: bool) -> Result<Vec<BillingRequest>> {
    let sql = if decided {
        requests!("status <> 'offered' ORDER BY billing_requests.key")
    } else {
        requests!("status = 'requested' ORDER BY billing_requests.key")
    };
    read.all(sql, ())
}

/// The user's confirmed request without a decision.
pub fn find_undecided(read: &ReadTx<'_>, user_key: UserKey) -> Result<Option<BillingRequest>> {
    read.find(requests!("user_key = ?1 AND status = 'requested'"), [user_key])
}

pub fn confirm_request(tx: &WriteTx<'_>, key: i64, now: Timestamp) -> Result<bool> {
    tx.changes(
        "UPDATE billing_requests SET status = 'requested', requested_at = ?2
              WHERE key = ?1 AND status = 'offered' AND link_expires_at > ?2",
        (key, now),
    )
}

pub fn delete_undecided(tx: &WriteTx<'_>, user_key: UserKey) -> Result<()> {
    tx.run("DELETE FROM billing_requests WHERE user_key = ?1 AND status = 'requested'", [user_key])
}

pub fn decide(tx: &WriteTx<'_>, key: i64, decision: RequestStatus, now: Timestamp) -> Result<bool> {
    tx.changes(
        "UPDATE billing_requests SET status = ?2, decided_at = ?3 WHERE key = ?1 AND status = 'requested'",
        (key, decision, now),
    )
}

pub fn was_ever_approved(read: &ReadTx<'_>, user_key: UserKey) -> Result<bool> {
    read.any(
        "SELECT 1 FROM billing_requests WHERE user_key = ?1 AND status = 'approved'",
        [user_key],
    )
}

/// Time for which the ids of processed events are stored. The provider retries an event for a few days only.
const EVENT_RETENTION: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Expired ids deleted with each new one. More than one, so that a backlog shrinks; no background task deletes them.
const EXPIRED_EVENT_BATCH: u32 = 10;

stored_row!(subscription_columns, Subscription {
    id, customer = "customer_id", offer = "plan, plan_interval", state, last_event_secs
});

pub fn record_event(tx: &WriteTx<'_>, id: &str, now: Timestamp) -> Result<bool> {
    let expired = saturating_sub(now, EVENT_RETENTION);
    let forget = "DELETE FROM billing_events WHERE id IN (
                      SELECT id FROM billing_events WHERE received_at <= ?1 LIMIT ?2 + 0)";
    tx.run(forget, (expired, EXPIRED_EVENT_BATCH))?;
    tx.changes(
        "INSERT INTO billing_events (id, received_at) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
        (id, now),
    )
}

pub fn link_customer(
    tx: &WriteTx<'_>,
    customer: &str,
    user_key: UserKey,
    now: Timestamp,
) -> Result<()> {
    tx.run(
        "INSERT INTO billing_customers (id, user_key, linked_at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        (customer, user_key, now),
    )
}

pub fn find_customer_user(read: &ReadTx<'_>, customer: &str) -> Result<Option<UserKey>> {
    read.find("SELECT user_key FROM billing_customers WHERE id = ?1", [customer])
}

/// The user's customer: one with a live subscription if there is any, otherwise the newest.
pub fn find_customer(read: &ReadTx<'_>, user_key: UserKey) -> Result<Option<String>> {
    read.find(
        "SELECT id FROM billing_customers AS customer WHERE user_key = ?1
              ORDER BY EXISTS (SELECT 1 FROM billing_subscriptions
                                WHERE customer_id = customer.id AND state = 'live') DESC, linked_at DESC
              LIMIT 1",
        [user_key],
    )
}

pub fn find_subscription(read: &ReadTx<'_>, id: &str) -> Result<Option<Subscription>> {
    let sql = select!(subscription_columns, "FROM billing_subscriptions WHERE id = ?1");
    read.find(sql, [id])
}

pub fn list_subscriptions(read: &ReadTx<'_>, user_key: UserKey) -> Result<Vec<Subscription>> {
    let sql = select!(
        subscription_columns,
        "FROM billing_subscriptions
          WHERE customer_id IN (SELECT id FROM billing_customers WHERE user_key = ?1)"
    );
    read.all(sql, [user_key])
}

pub fn save_subscription(tx: &WriteTx<'_>, subscription: &Subscription) -> Result<()> {
    let sql = concat!(
        "INSERT INTO billing_subscriptions (",
        subscription_columns!(),
        ") VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (id) DO UPDATE SET plan = excluded.plan, plan_interval = excluded.plan_interval,
                state = excluded.state, last_event_secs = excluded.last_event_secs"
    );
    tx.run(sql, subscription)
}
