//! `on_failure`: the reactions to the last failure of an execution.

use serde::{Deserialize, Serialize};

/// The reactions to an execution's final failure (contract §6). Serializes to the contract's JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnFailure {
    /// Send mail to the account's address.
    pub email: bool,
    /// Send a signed POST to this URL.
    pub webhook: Option<String>,
    pub pause: bool,
}

impl Default for OnFailure {
    fn default() -> Self {
        Self { email: true, webhook: None, pause: false }
    }
}
