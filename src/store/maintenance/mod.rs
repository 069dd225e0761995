//! Operations on the file as a whole.

pub mod backup;
pub mod backup_folder;
pub mod check;
pub mod clock_accept;
pub mod migrations;
pub mod reset;
pub mod retention;
