//! What changes rows, whoever asks. A transaction may still roll back, so log lines are written by
//! [`WriteTx::on_commit`](crate::store::WriteTx::on_commit).

pub mod accounts;
pub mod apply;
pub mod billing;
pub mod bulk;
pub mod channels;
pub mod cues;
pub mod deadlines;
pub mod device_login;
pub mod events;
pub mod executions;
pub mod finish;
pub mod fire;
pub mod mails;
pub mod manual_runs;
pub mod notifications;
pub mod notify;
pub mod operator;
pub mod overlap;
pub mod sessions;
pub mod test_calls;
pub mod test_clock;
pub mod time_zones;
pub mod workers;
