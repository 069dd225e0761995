//! The engine: scheduler, delivery, webhook client, notifications.

mod address_guard;
mod catch_up;
mod delivery;
mod delivery_fairness;
mod leases;
pub mod notifications;
mod scheduler;
pub mod tls;
mod unclaimed;
mod webhook_client;
