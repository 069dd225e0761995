//! Plan requests of manual billing, and the subscriptions and events of the payment provider.

pub mod requests;
pub mod subscriptions;
