//! Monitoring from outside: metrics, the log, messages to the service manager.

mod exposition;
mod logs;
pub mod metrics;
mod systemd;
