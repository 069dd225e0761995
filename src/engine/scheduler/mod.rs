//! Fires due cues, releases expired claims, reports unclaimed executions, removes old history.

pub mod account_cleanup;
pub mod clock_alert;
pub mod hours_cleanup;
pub mod pass;
pub mod reaper;
pub mod retention_sweeper;
pub mod scheduler_thread;
mod server_watch;
pub mod trusted_clock;
mod turns;
