//! Data of the payment provider: its customers, their subscriptions, and the ids of processed events.

use jiff::{SignedDuration, Timestamp};
use rusqlite::{OptionalExtension, Row, params};

use crate::domain::billing::subscription::{Subscription, SubscriptionState};
use crate::domain::time::saturating_sub;
use crate::error::Result;
use crate::store::billing::requests::read_offer;
use crate::store::db::columns::{millis, parse_word};
use crate::store::{ReadTx, WriteTx};

/// Time for which the ids of processed events are stored. The provider retries an event for a few days only.
const EVENT_RETENTION: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Expired ids deleted with each new one. More than one, so that a backlog shrinks; no background task deletes them.
const EXPIRED_EVENT_BATCH: u32 = 10;

/// Records an event as processed. Returns `false` if it was processed before.
pub fn record_event(tx: &WriteTx<'_>, id: &str, now: Timestamp) -> Result<bool> {
    let expired = saturating_sub(now, EVENT_RETENTION);
    tx.prepare_cached(
        "DELETE FROM billing_events WHERE id IN (SELECT id FROM billing_events WHERE received_at <= ?1 LIMIT ?2 + 0)",
    )?
    .execute(params![millis(expired), EXPIRED_EVENT_BATCH])?;
    let inserted = tx
        .prepare_cached(
            "INSERT INTO billing_events (id, received_at) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
        )?
        .execute(params![id, millis(now)])?;
    Ok(inserted > 0)
}

/// Links a customer to a user, unless it is linked already.
pub fn link_customer(tx: &WriteTx<'_>, customer: &str, user_key: i64, now: Timestamp) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO billing_customers (id, user_key, linked_at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
    )?
    .execute(params![customer, user_key, millis(now)])?;
    Ok(())
}

/// The row key of the user that a customer is linked to.
pub fn find_user_key(read: &ReadTx<'_>, customer: &str) -> Result<Option<i64>> {
    Ok(read
        .prepare_cached("SELECT user_key FROM billing_customers WHERE id = ?1")?
        .query_row([customer], |row| row.get(0))
        .optional()?)
}

/// The user's customer: one with a live subscription if there is any, otherwise the newest.
pub fn find_customer(read: &ReadTx<'_>, user_key: i64) -> Result<Option<String>> {
    Ok(read
        .prepare_cached(
            "SELECT id FROM billing_customers AS customer WHERE user_key = ?1
              ORDER BY EXISTS (SELECT 1 FROM billing_subscriptions
                                WHERE customer_id = customer.id AND state = 'live') DESC, linked_at DESC
              LIMIT 1",
        )?
        .query_row([user_key], |row| row.get(0))
        .optional()?)
}

/// The subscription with the provider's id.
pub fn find(read: &ReadTx<'_>, id: &str) -> Result<Option<Subscription>> {
    let sql = "SELECT id, customer_id, plan, plan_interval, state, last_event_secs FROM billing_subscriptions
                WHERE id = ?1";
    Ok(read.prepare_cached(sql)?.query_row([id], read_subscription).optional()?)
}

pub fn list_by_user(read: &ReadTx<'_>, user_key: i64) -> Result<Vec<Subscription>> {
    Ok(read
        .prepare_cached(
            "SELECT subscription.id, customer_id, plan, plan_interval, state, last_event_secs
               FROM billing_customers AS customer
               JOIN billing_subscriptions AS subscription ON customer_id = customer.id
              WHERE user_key = ?1",
        )?
        .query_map([user_key], read_subscription)?
        .collect::<rusqlite::Result<_>>()?)
}

/// Inserts or updates a subscription.
pub fn save(tx: &WriteTx<'_>, subscription: &Subscription) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO billing_subscriptions (id, customer_id, plan, plan_interval, state, last_event_secs)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (id) DO UPDATE SET plan = excluded.plan, plan_interval = excluded.plan_interval,
                state = excluded.state, last_event_secs = excluded.last_event_secs",
    )?
    .execute(params![
        subscription.id,
        subscription.customer,
        subscription.offer.plan.as_str(),
        subscription.offer.interval.as_str(),
        subscription.state.as_str(),
        subscription.last_event_secs
    ])?;
    Ok(())
}

fn read_subscription(row: &Row<'_>) -> rusqlite::Result<Subscription> {
    Ok(Subscription {
        id: row.get("id")?,
        customer: row.get("customer_id")?,
        offer: read_offer(row)?,
        state: parse_word(row, "state", SubscriptionState::parse)?,
        last_event_secs: row.get("last_event_secs")?,
    })
}
