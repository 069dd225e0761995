//! A webhook call: its callback URL, the addresses that it may reach, its body and its signatures.

pub mod address_policy;
pub mod callback;
pub mod callback_url;
pub mod canonical_json;
pub mod echo;
pub mod request;
pub mod signature;
