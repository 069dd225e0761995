//! `cued account secret`: the secrets that sign webhooks and alerts. They are printed on request only.

use clap::{Args, Subcommand};

use crate::cli::client::command::ClientAction;
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::client::request::ApiRequest;

#[derive(Debug, Subcommand)]
pub enum Secret {
    /// Print the secret, and nothing else
    Show(Which),
    /// Replace the secret and print the new one
    ///
    /// Deliveries are signed with both for 24 hours, so that receivers have time for the change. The old secret of alerts
    /// ends at once.
    Regenerate(Which),
}

/// One of the two secrets.
#[derive(Debug, Clone, Copy, Args)]
pub struct Which {
    /// The secret that signs alerts, in place of that of deliveries
    #[arg(long)]
    alert: bool,
}

impl Which {
    fn path(self) -> &'static str {
        if self.alert { "/v1/auth/alert-webhook-secret" } else { "/v1/auth/webhook-secret" }
    }

    fn field(self) -> &'static str {
        if self.alert { "alert_webhook_secret" } else { "webhook_secret" }
    }
}

impl ClientAction for Secret {
    fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::Show(which) => {
                let answer = context.send(&ApiRequest::get(which.path()))?;
                context.output.done(&answer, which.field(), |secret| text_of(secret, which.field()))
            }
            Self::Regenerate(which) => regenerate(context, which),
        }
    }
}

fn regenerate(context: &Context, which: Which) -> Result<(), CliError> {
    let receivers = if which.alert { "receiver of alerts" } else { "receiver of deliveries" };
    context.confirm(&format!("Every {receivers} must then know the new secret. Replace it?"))?;
    let answer = context.send(&ApiRequest::post(format!("{}/regenerate", which.path())))?;
    context.output.done(&answer, which.field(), |secret| text_of(secret, which.field()))?;
    let expiry = text_of(&answer.value()?, "previous_secret_expires_at");
    if expiry.is_empty() {
        context.output.note("The old secret is not valid any more.")
    } else {
        let expiry = context.output.times.instant(&expiry);
        context.output.note(&format!("Deliveries are signed with the old secret too until {expiry}."))
    }
}
