//! Users, their credentials and logins, plans, quotas and rate limits.

pub mod credentials;
pub mod device_login;
pub mod holdings;
pub mod plan;
pub mod rate_limit;
pub mod session;
pub mod stats;
pub mod user;
