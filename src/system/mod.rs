//! What the program has of the machine and of its process: processors, locks, panics, randomness, signals, and the service
//! manager.

pub mod cores;
pub mod locks;
pub mod panics;
pub mod random;
pub mod signals;
pub mod systemd;
