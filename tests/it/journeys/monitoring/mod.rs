//! What an operator sees from outside: metrics, the log, and what the service manager is told.

mod exposition;
mod logs;
pub mod metrics;
mod systemd;
