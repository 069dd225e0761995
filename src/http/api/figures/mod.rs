//! Figures over time, and the overview of an account.

pub mod overview;
pub mod stats;
