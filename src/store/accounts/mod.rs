//! Users with their API keys, sessions, device logins, monthly usage and idempotency keys.

pub mod api_keys;
pub mod device_logins;
pub mod idempotency;
pub mod sessions;
pub mod users;
