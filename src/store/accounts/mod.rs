//! Users, their keys, logins, usage and idempotent calls.

pub mod api_keys;
pub mod device_logins;
pub mod idempotency;
pub mod usage;
pub mod users;
