//! Faults of disks, files, clocks, callers and receivers, and their visible effect.

mod callers;
mod clock;
mod commits;
pub mod disk;
mod files;
