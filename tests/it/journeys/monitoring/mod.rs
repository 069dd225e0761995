//! Monitoring from outside: metrics, the log, messages to the service manager.

mod logs;
pub mod metrics;
