//! `cued whoami`: the account of the key, and where both come from.

use clap::Args;
use serde_json::Value;

use crate::cli::client::command::ClientAction;
use crate::cli::client::context::{Context, credentials_path};
use crate::cli::error::CliError;
use crate::cli::output::cells::{quota, text_of};
use crate::client::credentials::Credentials;
use crate::client::error::ClientError;
use crate::client::request::ApiRequest;

#[derive(Debug, Args)]
pub struct Whoami {}

impl ClientAction for Whoami {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let answer = context.send(&ApiRequest::get("/v1/auth/me"))?;
        let others = other_profiles(context)?;
        context.output.object(&answer, "id", |user| {
            vec![
                ("email", text_of(user, "email").into()),
                ("plan", text_of(user, "plan").into()),
                ("cues", quota(user, "active_cues", "active_cue_limit", " active")),
                (
                    "executions",
                    quota(user, "executions_this_month", "monthly_execution_limit", " this month"),
                ),
                ("server", context.target.url.as_str().into()),
                ("key", key(context, user).into()),
                ("profiles", others.into()),
            ]
        })
    }
}

/// The beginning of the key, and where it comes from.
fn key(context: &Context, user: &Value) -> String {
    let source = match (context.target.key_variable, &context.target.profile) {
        (Some(name), _) => format!("from {name}"),
        (None, Some(profile)) => format!("of profile {profile}"),
        (None, None) => String::new(),
    };
    format!("{}… {source}", text_of(user, "api_key_prefix"))
}

/// The profiles of the credentials file, if there are several.
fn other_profiles(context: &Context) -> Result<String, CliError> {
    // A machine without a home has no file.
    let Ok(path) = credentials_path() else { return Ok(String::new()) };
    if context.output.format.is_json() {
        return Ok(String::new());
    }
    let credentials = Credentials::read(&path).map_err(ClientError::from)?;
    let names: Vec<&str> = credentials.profiles.keys().map(String::as_str).collect();
    Ok(if names.len() > 1 { names.join(", ") } else { String::new() })
}
