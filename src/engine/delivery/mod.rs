//! Sends executions to their callbacks: the dispatcher claims them, threads make the attempts.

pub mod attempt;
pub mod dispatcher;
pub mod fair_share;
pub mod threads;
