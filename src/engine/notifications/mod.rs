//! Sends the notifications of failures: mails and signed POSTs from the outbox.

pub mod notification_sender;
pub mod notification_service;
