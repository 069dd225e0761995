//! `on_failure`: the reactions to the last failure of an execution.

use serde::{Deserialize, Serialize};

/// What follows an execution's last failure (contract §6). Its JSON form is the contract's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnFailure {
    /// Mail to the account's address.
    pub email: bool,
    /// A signed POST to this URL.
    pub webhook: Option<String>,
    /// Pause of a recurring cue.
    pub pause: bool,
}

impl Default for OnFailure {
    fn default() -> Self {
        Self { email: true, webhook: None, pause: false }
    }
}
