//! `cued whoami`: the account of the key, and where both come from.

use clap::Args;

use crate::cli::client::command::ClientAction;
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::client::request::ApiRequest;

#[derive(Debug, Args)]
pub struct Whoami {}

impl ClientAction for Whoami {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let answer = context.send(&ApiRequest::get("/v1/auth/me"))?;
        context.output.object(&answer, "id", |user| {
            vec![
                ("email", text_of(user, "email").into()),
                ("plan", text_of(user, "plan").into()),
                ("server", context.target.url.as_str().into()),
                ("profile", context.target.profile.as_deref().unwrap_or_default().into()),
            ]
        })
    }
}
