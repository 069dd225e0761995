//! What people and workers can make happen: an action reads the clock, opens one write and lets the domain decide.

pub mod accounts;
pub mod billing;
pub mod cues;
pub mod executions;
pub mod idempotency;
pub mod logins;
pub mod overdue;
pub mod runs;
pub mod subscriptions;
pub mod test_clock;
pub mod verification;
pub mod workers;
