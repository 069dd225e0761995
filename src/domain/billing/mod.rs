//! Offers, subscriptions and the events of the payment provider.

pub mod offer;
pub mod subscription;
