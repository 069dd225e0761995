//! Sends executions to their callbacks: the queue's dispatcher, fair shares, threads, attempts.

pub mod account_slots;
pub mod attempt;
pub mod delivery_pool;
pub mod delivery_service;
pub mod destination_slots;
pub mod dispatcher;
pub mod fair_share;
pub mod memory_budget;
pub mod thread_pool;
