//! Users, their credentials and logins, plans, quotas and rate limits.

pub mod client_ip;
pub mod credentials;
pub mod device_login;
pub mod figures;
pub mod plan;
pub mod session;
pub mod sliding_window;
pub mod user;
