//! Users with their API keys, device logins, monthly usage and idempotency keys.

pub mod api_keys;
pub mod device_logins;
pub mod idempotency;
pub mod usage;
pub mod users;
