//! Sends executions to their callbacks: the dispatcher claims them, the queue orders them, threads make the attempts.

pub mod attempt;
pub mod attempt_queue;
pub mod dispatcher;
pub mod fair_share;
pub mod thread_pool;
