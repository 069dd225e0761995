//! Notifications of failures that wait to be sent, and alerts.

pub mod alerts;
pub mod on_failure;
pub mod outbox;
