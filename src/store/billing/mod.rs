//! Requests for a plan, subscriptions and the payment provider's events.

pub mod requests;
pub mod subscriptions;
