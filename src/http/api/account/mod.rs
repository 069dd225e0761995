//! Registration, keys, the webhook secret and device logins (contract §3).

pub mod auth;
pub mod device_login;
