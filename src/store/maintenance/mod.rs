//! Operations on the file as a whole: migrations, retention, deletion of cues, backup, checks, queue
//! statistics, an accepted clock.

pub mod backup;
pub mod bench;
pub mod check;
pub mod clock_accept;
pub mod cue_deletion;
pub mod migrations;
pub mod queue_stats;
pub mod retention;
