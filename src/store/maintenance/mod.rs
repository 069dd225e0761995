//! Operations on the file as a whole.

pub mod backup;
pub mod check;
pub mod clock_accept;
pub mod migrations;
pub mod retention;
