//! The meaning of arguments that several commands take: the name of a cue, the beginning of a run's id, an instant.

pub mod cue_name;
pub mod moment;
pub mod run_id;
