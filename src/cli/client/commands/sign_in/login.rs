//! `cued login`: gets a key, verifies it and stores it in the credentials file.

use std::io;

use clap::Args;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::cli::client::command::ClientAction;
use crate::cli::client::commands::sign_in::{NewKey, ask, can_ask, device_flow, own_key_id, prompt};
use crate::cli::client::context::{ClientArgs, Context, credentials_path, environment};
use crate::cli::error::CliError;
use crate::cli::input::values;
use crate::cli::output::print_line;
use crate::cli::output::table::text_of;
use crate::cli::printable::printable;
use crate::client::credentials::{
    Chosen, Credentials, DEFAULT_PROFILE, KEY_VARIABLES, Profile, Target, host_of, normal_url,
};
use crate::client::request::{ApiRequest, ClientError};
use crate::domain::account::credentials::may_contain_secret;

#[derive(Debug, Args)]
pub struct Login {
    /// Address of the server [default: that of the profile, or http://127.0.0.1:8000]
    ///
    /// Without http:// or https:// it is http for local names and addresses, and https for others.
    #[arg(value_name = "SERVER")]
    server: Option<String>,

    /// Read a key from standard input: `--key -`
    ///
    /// A key is never an argument, because every user of the machine can read those.
    #[arg(long, value_name = "-", allow_hyphen_values = true)]
    key: Option<String>,

    /// Email address of the account, in place of the question for it
    #[arg(long, value_name = "ADDRESS", conflicts_with = "key")]
    email: Option<String>,

    /// Do not open the browser
    #[arg(long)]
    no_browser: bool,
}

impl ClientAction for Login {
    /// The profile may be a new one. The key of the environment plays no part.
    fn target(&self, args: &ClientArgs) -> Result<Target, CliError> {
        if let Some(argument) = &self.key {
            check_argument(argument)?;
        }
        let path = credentials_path()?;
        let credentials = Credentials::read(&path).map_err(ClientError::from)?;
        let named = args.profile.clone().or_else(|| environment("CUED_PROFILE"));
        if named.as_ref().is_some_and(|name| name.is_empty() || name.contains(char::is_control)) {
            return Err(CliError::Usage("--profile: a name has one character or more".to_owned()));
        }
        let chosen = Chosen {
            url: self.server.clone().or_else(|| args.url.clone()),
            profile: named.clone().filter(|name| credentials.profiles.contains_key(name)),
        };
        let env = |name: &str| environment(name).filter(|_| name.ends_with("URL") || name.ends_with("BASE"));
        let found = Target::resolve(&chosen, &env, &credentials, &path).map_err(ClientError::from)?;
        let profile = named.or(found.profile).unwrap_or_else(|| free_profile(&credentials, &found.url));
        Ok(Target { url: found.url, key: None, profile: Some(profile), key_variable: None })
    }

    fn run(self, context: &Context) -> Result<(), CliError> {
        // A key that could not be stored would be lost.
        Credentials::check_writable(&credentials_path()?).map_err(ClientError::from)?;
        let new = if self.key.is_some() {
            NewKey { api_key: read_key()?, email: None }
        } else {
            device_flow::sign_in(context, self.email.as_deref(), !self.no_browser)?
        };
        finish(context, new)
    }
}

/// The name of a profile for a server that has none: the usual one, or the host if that is another server's.
fn free_profile(credentials: &Credentials, url: &str) -> String {
    let name =
        if credentials.profiles.contains_key(DEFAULT_PROFILE) { host_of(url) } else { DEFAULT_PROFILE };
    name.to_owned()
}

/// Verifies a key, stores it and makes its profile the current one.
fn finish(context: &Context, new: NewKey) -> Result<(), CliError> {
    let signed_in = context.at(Target { key: Some(new.api_key.clone()), ..context.target.clone() })?;
    let me = match (signed_in.send(&ApiRequest::get("/v1/auth/me")), &new.email) {
        // A key that was handed out once must not get lost because of one failed request.
        (Err(CliError::Client(error)), Some(_)) if error.exit_code() == 1 => {
            context.output.note(&format!("the key could not be verified: {error}"))?;
            None
        }
        (me, _) => Some(me?),
    };
    let email = match (&me, new.email) {
        (Some(me), _) => text_of(&me.value()?, "email"),
        (None, email) => email.unwrap_or_default(),
    };
    // Without it, `cued logout` looks it up.
    let key_id = me.as_ref().and_then(|_| own_key_id(&signed_in).unwrap_or_default());
    let name = context.target.profile.clone().unwrap_or_else(|| DEFAULT_PROFILE.to_owned());
    let profile = Profile { url: context.target.url.clone(), api_key: new.api_key, email, key_id };
    let sentence = format!("Signed in to {} as {} (profile {name}).", profile.url, printable(&profile.email));
    store(context, name, profile)?;
    if let Some(name) = KEY_VARIABLES.into_iter().find(|name| environment(name).is_some()) {
        context.output.note(&format!("{name} is set, and counts before this profile: unset it"))?;
    }
    match me {
        Some(me) => context.output.done(&me, "id", |_| sentence),
        None if context.output.format.is_json() => Ok(()),
        None => print_line(&sentence),
    }
}

fn store(context: &Context, name: String, profile: Profile) -> Result<(), CliError> {
    let path = credentials_path()?;
    let (url, email) = (profile.url.clone(), profile.email.clone());
    let stored = Credentials::update(&path, |credentials| {
        let is_other = |old: &Profile| old.api_key != profile.api_key;
        let replaced = credentials.profiles.get(&name).filter(|old| is_other(old)).cloned();
        credentials.current = Some(name.clone());
        credentials.profiles.insert(name.clone(), profile);
        replaced
    });
    let replaced = stored.map_err(|error| {
        let advice = "the key was not stored, and is still valid: revoke it with `cued account keys revoke`";
        CliError::Failed(format!("{error}; {advice}"))
    })?;
    let Some(old) = replaced else { return Ok(()) };
    // The new key can revoke the old one if both are of one account.
    let advice = match &old.key_id {
        Some(id) if normal_url(&old.url) == url && old.email == email => {
            format!(": `cued account keys revoke {id}`")
        }
        _ => format!(" for {} at {}", printable(&old.email), old.url),
    };
    context.output.note(&format!("The earlier key of profile {name} is replaced, and still valid{advice}"))
}

/// Refuses a key that was given as an argument, and does not repeat it.
fn check_argument(argument: &str) -> Result<(), CliError> {
    if argument == "-" {
        return Ok(());
    }
    let mut text = "--key takes `-` only, and reads the key from standard input: `cued login --key - < FILE`. \
                    An argument can be read by every user of this machine (ps) and stays in the shell's history"
        .to_owned();
    if may_contain_secret(argument) {
        text.push_str(". Revoke this key and make a new one");
    }
    Err(CliError::Usage(text))
}

/// Reads a key; at a terminal it is asked for and not shown.
fn read_key() -> Result<String, CliError> {
    let text = if can_ask() { ask_hidden("API key: ")? } else { values::text("--key", "-")? };
    let key = text.trim();
    if key.is_empty() {
        return Err(CliError::Usage("--key -: standard input has no key".to_owned()));
    }
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(CliError::Usage(
            "--key -: this is no key: a key is one word of letters and digits, such as cue_sk_…".to_owned(),
        ));
    }
    Ok(key.to_owned())
}

/// Asks for a text that does not appear on the screen.
fn ask_hidden(question: &str) -> Result<String, CliError> {
    let failed = |error| CliError::Failed(format!("cannot hide the input: {error}"));
    let shown = tcgetattr(io::stdin()).map_err(failed)?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(io::stdin(), OptionalActions::Flush, &hidden).map_err(failed)?;
    let answer = ask(question);
    tcsetattr(io::stdin(), OptionalActions::Now, &shown).map_err(failed)?;
    // The end of the line was not shown either.
    prompt("\n")?;
    answer
}
