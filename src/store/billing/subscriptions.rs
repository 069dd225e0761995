//! Data of the payment provider: its customers, their subscriptions, and the ids of processed events.

use jiff::{SignedDuration, Timestamp};
use rusqlite::params;

use crate::domain::billing::subscription::Subscription;
use crate::domain::time::saturating_sub;
use crate::error::Result;
use crate::store::db::columns::{millis, row};
use crate::store::{ReadTx, WriteTx};

/// Time for which the ids of processed events are stored. The provider retries an event for a few days only.
const EVENT_RETENTION: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Expired ids deleted with each new one. More than one, so that a backlog shrinks; no background task deletes them.
const EXPIRED_EVENT_BATCH: u32 = 10;

row!(columns, "subscription.", Subscription {
    id,
    customer = "customer_id",
    offer = "plan, plan_interval",
    state,
    last_event_secs,
});

/// Records an event as processed. Returns `false` if it was processed before.
pub fn record_event(tx: &WriteTx<'_>, id: &str, now: Timestamp) -> Result<bool> {
    let expired = saturating_sub(now, EVENT_RETENTION);
    let forget = "DELETE FROM billing_events WHERE id IN (
                      SELECT id FROM billing_events WHERE received_at <= ?1 LIMIT ?2 + 0)";
    tx.run(forget, params![millis(expired), EXPIRED_EVENT_BATCH])?;
    tx.changes(
        "INSERT INTO billing_events (id, received_at) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
        params![id, millis(now)],
    )
}

pub fn link_customer(tx: &WriteTx<'_>, customer: &str, user_key: i64, now: Timestamp) -> Result<()> {
    tx.run(
        "INSERT INTO billing_customers (id, user_key, linked_at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        params![customer, user_key, millis(now)],
    )
}

pub fn find_user_key(read: &ReadTx<'_>, customer: &str) -> Result<Option<i64>> {
    read.find("SELECT user_key FROM billing_customers WHERE id = ?1", [customer])
}

/// The user's customer: one with a live subscription if there is any, otherwise the newest.
pub fn find_customer(read: &ReadTx<'_>, user_key: i64) -> Result<Option<String>> {
    read.find(
        "SELECT id FROM billing_customers AS customer WHERE user_key = ?1
              ORDER BY EXISTS (SELECT 1 FROM billing_subscriptions
                                WHERE customer_id = customer.id AND state = 'live') DESC, linked_at DESC
              LIMIT 1",
        [user_key],
    )
}

pub fn find(read: &ReadTx<'_>, id: &str) -> Result<Option<Subscription>> {
    let sql = concat!("SELECT ", columns!(), " FROM billing_subscriptions AS subscription WHERE id = ?1");
    read.find(sql, [id])
}

pub fn list_by_user(read: &ReadTx<'_>, user_key: i64) -> Result<Vec<Subscription>> {
    let sql = concat!(
        "SELECT ",
        columns!(),
        " FROM billing_customers AS customer
          JOIN billing_subscriptions AS subscription ON customer_id = customer.id WHERE user_key = ?1"
    );
    read.all(sql, [user_key])
}

pub fn save(tx: &WriteTx<'_>, subscription: &Subscription) -> Result<()> {
    tx.run(
        "INSERT INTO billing_subscriptions (id, customer_id, plan, plan_interval, state, last_event_secs)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (id) DO UPDATE SET plan = excluded.plan, plan_interval = excluded.plan_interval,
                state = excluded.state, last_event_secs = excluded.last_event_secs",
        params![
            subscription.id,
            subscription.customer,
            subscription.offer.plan.as_str(),
            subscription.offer.interval.as_str(),
            subscription.state.as_str(),
            subscription.last_event_secs
        ],
    )
}
