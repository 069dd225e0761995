//! What a payment provider has told: its customers, their subscriptions, and which events were taken.

use jiff::{SignedDuration, Timestamp};
use rusqlite::{OptionalExtension, Row, params};

use crate::domain::billing::subscription::{Subscription, SubscriptionState};
use crate::domain::time::saturating_sub;
use crate::error::Result;
use crate::store::billing::requests::read_offer;
use crate::store::db::columns::{millis, word};
use crate::store::{ReadTx, WriteTx};

/// How long an event's id is known; the provider tries again for a few days.
const EVENT_RETENTION: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Ids that are forgotten with each new one.
const FORGOTTEN_AT_ONCE: u32 = 10;

/// Notes that an event is taken; tells whether that is so for the first time.
///
/// # Errors
/// When the file cannot be written.
pub fn record_event(tx: &WriteTx<'_>, id: &str, now: Timestamp) -> Result<bool> {
    let forgotten = saturating_sub(now, EVENT_RETENTION);
    tx.prepare_cached(
        "DELETE FROM billing_events WHERE id IN (SELECT id FROM billing_events WHERE received_at <= ?1 LIMIT ?2 + 0)",
    )?
    .execute(params![millis(forgotten), FORGOTTEN_AT_ONCE])?;
    let taken = tx
        .prepare_cached(
            "INSERT INTO billing_events (id, received_at) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
        )?
        .execute(params![id, millis(now)])?;
    Ok(taken > 0)
}

/// Notes whose customer this is, unless that is known.
///
/// # Errors
/// When the file cannot be written.
pub fn link_customer(tx: &WriteTx<'_>, customer: &str, user_key: i64, now: Timestamp) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO billing_customers (id, user_key, linked_at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
    )?
    .execute(params![customer, user_key, millis(now)])?;
    Ok(())
}

/// The user behind a customer.
///
/// # Errors
/// When the file cannot be read.
pub fn find_user_key(read: &ReadTx<'_>, customer: &str) -> Result<Option<i64>> {
    Ok(read
        .prepare_cached("SELECT user_key FROM billing_customers WHERE id = ?1")?
        .query_row([customer], |row| row.get(0))
        .optional()?)
}

/// The customer as whom the user pays: one with a live subscription before one without, else the newest.
///
/// # Errors
/// When the file cannot be read.
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
///
/// # Errors
/// When the file cannot be read.
pub fn find(read: &ReadTx<'_>, id: &str) -> Result<Option<Subscription>> {
    let sql = "SELECT id, customer_id, plan, plan_interval, state, last_event_secs FROM billing_subscriptions
                WHERE id = ?1";
    Ok(read.prepare_cached(sql)?.query_row([id], read_subscription).optional()?)
}

/// All subscriptions of a user.
///
/// # Errors
/// When the file cannot be read.
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

/// Stores what is known of a subscription now.
///
/// # Errors
/// When the file cannot be written.
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
        subscription.as_of
    ])?;
    Ok(())
}

fn read_subscription(row: &Row<'_>) -> rusqlite::Result<Subscription> {
    Ok(Subscription {
        id: row.get("id")?,
        customer: row.get("customer_id")?,
        offer: read_offer(row)?,
        state: word(row, "state", SubscriptionState::parse)?,
        as_of: row.get("last_event_secs")?,
    })
}
