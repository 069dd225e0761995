//! `cued logout`: revokes the key of a profile at its server, and removes the profile. `cued whoami`: the account of the key,
//! and where both come from.

use clap::Args;
use serde_json::Value;

use crate::cli::client::command::{Call, ClientAction, Form, Lines, details};
use crate::cli::client::commands::sign_in::own_key_id;
use crate::cli::client::context::{Context, credentials_path};
use crate::cli::error::CliError;
use crate::cli::output::print_line;
use crate::cli::output::table::{quota, text_of};
use crate::client::credentials::{Credentials, Profile, Target, normal_url};
use crate::client::request::{Answer, ApiRequest, ClientError, segment};

const ACCOUNT: Lines = &[
    ("email", Form::Text("email")),
    ("plan", Form::Text("plan")),
    ("cues", Form::Cell(|_, user| quota(user, "active_cues", "active_cue_limit", " active"))),
    (
        "executions",
        Form::Cell(|_, user| quota(user, "executions_this_month", "monthly_execution_limit", " this month")),
    ),
    ("server", Form::Cell(|context, _| context.target.url.as_str().into())),
    ("key", Form::Cell(|context, user| key(context, user).into())),
];

#[derive(Debug, Args)]
pub struct Logout {
    /// All profiles
    #[arg(long, conflicts_with = "profile")]
    all: bool,

    /// Remove the profile here; its key stays valid
    #[arg(long)]
    keep_key: bool,
}

impl ClientAction for Logout {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let path = credentials_path()?;
        let credentials = Credentials::read(&path).map_err(ClientError::from)?;
        let names: Vec<String> = if self.all {
            credentials.profiles.keys().cloned().collect()
        } else {
            context.target.profile.clone().into_iter().collect()
        };
        if names.is_empty() {
            return Err(match context.target.key_variable {
                Some(name) => {
                    CliError::Usage(format!("the key comes from {name}, not from `cued login`: unset it"))
                }
                None => ClientError::NotSignedIn.into(),
            });
        }
        let mut failed = None;
        for name in names {
            let Some(profile) = credentials.profiles.get(&name) else { continue };
            match leave(context, &name, profile, self.keep_key) {
                Ok(()) => {}
                // With --all, a server that cannot be reached does not keep the others.
                Err(error) if failed.is_none() => failed = Some(error),
                Err(error) => context.output.note(&error.to_string())?,
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Revokes the key of one profile and removes it.
fn leave(context: &Context, name: &str, profile: &Profile, keeps_key: bool) -> Result<(), CliError> {
    if !keeps_key {
        revoke(context, name, profile)?;
    }
    remove(context, name)?;
    if context.output.format.is_json() {
        return Ok(());
    }
    let key = if keeps_key { "its key is still valid" } else { "its key is revoked" };
    print_line(&format!("Signed out of {} (profile {name}); {key}.", profile.url))
}

fn revoke(context: &Context, name: &str, profile: &Profile) -> Result<(), CliError> {
    let of_profile = context.at(Target {
        url: normal_url(&profile.url),
        key: Some(profile.api_key.clone()),
        profile: Some(name.to_owned()),
        key_variable: None,
    })?;
    let revoked = key_id(&of_profile, profile).and_then(|id| {
        of_profile.send(&ApiRequest::delete(format!("/v1/auth/keys/{}", segment(&id)))).map(drop)
    });
    let keep = format!("`cued logout --profile {name} --keep-key` removes only the profile");
    match revoked {
        // The key is revoked already.
        Err(CliError::Client(error)) if matches!(error.status(), Some(401 | 404)) => {
            context.output.note("The key was not valid any more.")
        }
        Err(CliError::Client(error)) if error.status() == Some(409) || error.exit_code() == 1 => {
            let text = format!("{error}. Nothing was changed, the key is still valid; {keep}");
            Err(if error.status() == Some(409) { CliError::Refused(text) } else { CliError::Failed(text) })
        }
        result => result,
    }
}

fn key_id(of_profile: &Context, profile: &Profile) -> Result<String, CliError> {
    if let Some(id) = &profile.key_id {
        return Ok(id.clone());
    }
    let id = own_key_id(of_profile)?;
    id.ok_or_else(|| {
        CliError::Failed("the server does not tell the id of this key; use --keep-key".to_owned())
    })
}

fn remove(context: &Context, name: &str) -> Result<(), CliError> {
    let path = credentials_path()?;
    let others = Credentials::update(&path, |credentials| {
        credentials.profiles.remove(name);
        if credentials.current.as_deref() == Some(name) {
            credentials.current = None;
        }
        match credentials.current {
            // Another server than the person had in mind must not get the next command.
            None => credentials.profiles.keys().cloned().collect(),
            Some(_) => Vec::new(),
        }
    });
    let others = others.map_err(ClientError::from)?.join(", ");
    match others.is_empty() {
        true => Ok(()),
        false => context.output.note(&format!("No profile is current now; name one by --profile: {others}")),
    }
}

/// Prints the account of the key, where both come from, and the other profiles.
pub fn print_account(call: &Call<'_>, answer: &Answer) -> Result<(), CliError> {
    let context = call.context;
    let others = other_profiles(context)?;
    context.output.object(answer, "id", |user| {
        let mut lines = details(ACCOUNT, context, user);
        lines.push(("profiles", others.into()));
        lines
    })
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
