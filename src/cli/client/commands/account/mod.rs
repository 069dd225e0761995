//! `cued account`: usage, API keys, sessions and secrets of the account.

mod keys;
mod secret;
mod sessions;
mod usage;

use clap::Subcommand;

use crate::cli::client::command::ClientAction;
use crate::cli::client::commands::account::keys::Keys;
use crate::cli::client::commands::account::secret::Secret;
use crate::cli::client::commands::account::sessions::Sessions;
use crate::cli::client::commands::account::usage::Usage;
use crate::cli::client::context::Context;
use crate::cli::error::CliError;

#[derive(Debug, Subcommand)]
pub enum AccountAction {
    /// Show what the account uses, and the limits of its plan
    Usage(Usage),
    /// List, add and revoke API keys
    Keys(Keys),
    /// List and end the sessions of browsers
    Sessions(Sessions),
    /// Show or replace the secret that signs webhooks
    #[command(subcommand)]
    Secret(Secret),
}

impl ClientAction for AccountAction {
    fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::Usage(usage) => usage.run(context),
            Self::Keys(keys) => keys.run(context),
            Self::Sessions(sessions) => sessions.run(context),
            Self::Secret(secret) => secret.run(context),
        }
    }
}
