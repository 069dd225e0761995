//! `/v1/admin`: what an operator manages (contract §13). For everybody else these routes do not exist.

pub mod backups;
pub mod server;
pub mod users;
