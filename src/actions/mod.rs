//! Commands of users, workers and operators. An action reads the clock, opens one write transaction and leaves the
//! decisions to the domain.

pub mod accounts;
pub mod billing;
pub mod bulk;
pub mod cues;
pub mod device_login;
pub mod executions;
pub mod idempotency;
pub mod manual_runs;
pub mod stripe_events;
pub mod test_clock;
pub mod verification;
pub mod workers;
