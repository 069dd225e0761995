//! A webhook call: its callback URL, the addresses that it may reach, its body and its signatures.

pub mod address_policy;
pub mod callback;
pub mod canonical_json;
pub mod delivery;
pub mod echo;
pub mod flow;
pub mod signature;
