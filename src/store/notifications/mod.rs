//! Notifications of failures, alerts, and the outbox from which they are sent.

pub mod alerts;
pub mod on_failure;
pub mod outbox;
