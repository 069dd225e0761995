//! Signing in and out. `cued login` gets a key, verifies it and stores it in the credentials file; `cued logout`
//! revokes the key of a profile and removes the profile; `cued whoami` shows the account of the key, and where both
//! come from.

mod device_flow;
pub mod open;

use clap::Args;
use serde_json::Value;

use crate::cli::client::arguments::items;
use crate::cli::client::command::{Call, ClientAction};
use crate::cli::client::commands::account::{plan, runs};
use crate::cli::client::context::{
    ClientArgs, Context, ask_hidden, can_ask, credentials_path, environment,
};
use crate::cli::client::forms::{Form, Lines, details};
use crate::cli::error::{CliError, Result, failed, refused, usage};
use crate::cli::input;
use crate::cli::output::table::text_of;
use crate::cli::output::{print_line, print_note};
use crate::client::credentials::{
    ConnectionChoice, Credentials, DEFAULT_PROFILE, KEY_VARIABLES, Profile, Target, host_of,
    normal_url,
};
use crate::client::request::{ApiRequest, ApiResponse, ClientError, segment};
use crate::domain::account::credentials::may_contain_secret;
use crate::domain::secret::Secret;

/// The id of the key that a command uses; `None` if the server does not mark it.
fn own_key_id(context: &Context) -> Result<Option<String>> {
    let keys = items(context, &ApiRequest::get("/v1/auth/keys"), "keys", u64::MAX)?;
    Ok(keys.iter().find(|key| key["current"] == true).map(|key| text_of(key, "id")))
}

/// Sign in to a server and store a key for it
///
/// The server mails you a link, or prints it in its log if it sends no mail; open it to confirm. A server without
/// mail that admits new users creates an account for a new address at once. On `cued serve --dev` on this machine,
/// no address is needed: you enter its first account.
///
/// The key is stored in ~/.config/cued/credentials.json (CUED_CONFIG), which only you can read. A second server
/// gets a profile of its own. With --profile, the current profile stays the current one.
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
    fn target(&self, args: &ClientArgs) -> Result<Target> {
        if let Some(argument) = &self.key {
            check_argument(argument)?;
        }
        let path = credentials_path()?;
        let credentials = Credentials::read(&path)?;
        let named = args.profile.clone().or_else(variable_profile);
        if named.as_ref().is_some_and(|name| name.is_empty() || name.contains(char::is_control)) {
            return Err(usage("--profile: a name has one character or more"));
        }
        let chosen = ConnectionChoice {
            url: self.server.clone().or_else(|| args.url.clone()),
            profile: named.clone().filter(|name| credentials.profiles.contains_key(name)),
        };
        let env = |name: &str| {
            environment(name).filter(|_| {
                name.ends_with("URL") || name.ends_with("BASE") || name.ends_with("_CA")
            })
        };
        let found = Target::resolve(&chosen, &env, &credentials, &path)?;
        let profile =
            named.or(found.profile).unwrap_or_else(|| free_profile(&credentials, &found.url));
        // Later commands may run in another folder.
        let ca = args.ca.clone().or(found.ca).map(|ca| std::path::absolute(&ca).unwrap_or(ca));
        Ok(Target { url: found.url, profile: Some(profile), ca, ..Target::default() })
    }

    fn run(self, context: &Context) -> Result {
        // A key that could not be stored would be lost.
        Credentials::check_writable(&credentials_path()?)?;
        let is_entered = self.key.is_some();
        let key = match self.key {
            Some(_) => read_key()?,
            None => device_flow::sign_in(context, self.email.as_deref(), !self.no_browser)?,
        };
        finish(context, key.into(), is_entered)
    }
}

/// The name of a profile for a server that has none: the usual one, or the host if that is another server's.
fn free_profile(credentials: &Credentials, url: &str) -> String {
    let name = if credentials.profiles.contains_key(DEFAULT_PROFILE) {
        host_of(url)
    } else {
        DEFAULT_PROFILE
    };
    name.to_owned()
}

/// Verifies a key and stores it. Its profile becomes the current one, unless the command line names it and there is one.
fn finish(context: &Context, api_key: Secret, is_entered: bool) -> Result {
    let signed_in = context.at(Target { key: Some(api_key.clone()), ..context.target.clone() })?;
    let me = signed_in.send(&ApiRequest::get("/v1/auth/me")).map_err(|error| {
        let url = &context.target.url;
        match error.status() {
            Some(401) if is_entered => {
                error.saying(format!("{url} does not accept the API key that was entered"))
            }
            _ => error,
        }
    })?;
    let email = text_of(&me.value()?, "email");
    // Without it, `cued logout` looks it up.
    let key_id = own_key_id(&signed_in).unwrap_or_default();
    let name = context.target.profile.clone().unwrap_or_else(|| DEFAULT_PROFILE.to_owned());
    let Target { url, ca, .. } = context.target.clone();
    let profile = Profile { url, api_key, email, key_id, ca };
    let (before, current) = store(context, &name, &profile)?;
    if let Some(name) = KEY_VARIABLES.into_iter().find(|name| environment(name).is_some()) {
        print_note(&format!("{name} is set, and counts before this profile: unset it"))?;
    }
    let (url, email) = (profile.url, profile.email);
    context
        .output
        .done(&me, "id", |_| format!("Signed in to {url} as {email} (profile {name})."))?;
    if let (Some(before), true) =
        (before.filter(|before| *before != name), current.as_ref() == Some(&name))
    {
        let line = format!("Commands now use profile {name}; for the other: --profile {before}");
        return print_note(&line);
    }
    match current.filter(|current| *current != name && variable_profile().is_none()) {
        None => Ok(()),
        Some(current) => print_note(&format!(
            "Commands still use profile {current}.\nFor the new one: --profile {name}, or CUED_PROFILE={name}"
        )),
    }
}

fn variable_profile() -> Option<String> {
    environment("CUED_PROFILE")
}

/// Returns the profile that was the current one, if there still is one of its name, and the one that now is.
fn store(
    context: &Context,
    name: &str,
    profile: &Profile,
) -> Result<(Option<String>, Option<String>)> {
    let is_named = context.names_profile() || variable_profile().is_some();
    let stored = Credentials::update(&credentials_path()?, |credentials| {
        let replaced = credentials.profiles.insert(name.to_owned(), profile.clone());
        // The next command must not go to another server than the one before.
        let before =
            credentials.current.clone().filter(|name| credentials.profiles.contains_key(name));
        if !is_named || before.is_none() {
            credentials.current = Some(name.to_owned());
        }
        (replaced, (before, credentials.current.clone()))
    });
    let (replaced, profiles) = stored.map_err(|error| {
        let advice =
            "the key was not stored, and is still valid: revoke it with `cued account keys revoke`";
        failed(format!("{error}; {advice}"))
    })?;
    let old = replaced.filter(|old| old.api_key != profile.api_key);
    let Some(old) = old.filter(|old| may_be_valid(context, old)) else { return Ok(profiles) };
    // The new key can revoke the old one if both are of one account.
    let advice = match &old.key_id {
        Some(id) if normal_url(&old.url) == profile.url && old.email == profile.email => {
            format!(": `cued account keys revoke {id}`")
        }
        _ => format!(" for {} at {}", old.email, old.url),
    };
    let text = format!("The earlier key of profile {name} is replaced, and still valid{advice}");
    print_note(&text).map(|()| profiles)
}

/// Returns whether a replaced key may still sign somebody in. That of a deleted database has nothing to revoke.
fn may_be_valid(context: &Context, old: &Profile) -> bool {
    let url = normal_url(&old.url);
    // Another server may be away, and its key is not this one's matter.
    if url != context.target.url {
        return true;
    }
    let target = Target { url, key: Some(old.api_key.clone()), ..context.target.clone() };
    let answer =
        context.at(target).and_then(|of_old| of_old.fetch(&ApiRequest::get("/v1/auth/me")));
    !answer.is_err_and(|error| error.status() == Some(401))
}

/// Refuses a key that was given as an argument, and does not repeat it.
fn check_argument(argument: &str) -> Result {
    if argument == "-" {
        return Ok(());
    }
    let text = "--key takes `-` only, and reads the key from standard input: `cued login --key - < FILE`. \
                An argument can be read by every user of this machine (ps) and stays in the shell's history";
    let advice =
        if may_contain_secret(argument) { ". Revoke this key and make a new one" } else { "" };
    Err(usage(format!("{text}{advice}")))
}

/// Reads a key; at a terminal it is asked for and not shown.
fn read_key() -> Result<String> {
    let text = if can_ask() { ask_hidden("API key: ")? } else { input::text("--key", "-")? };
    let key = text.trim();
    if key.is_empty() {
        return Err(usage("--key -: standard input has no key"));
    }
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(usage(
            "--key -: this is no key: a key is one word of letters and digits, such as cue_sk_…",
        ));
    }
    Ok(key.to_owned())
}

const ACCOUNT: Lines = &[
    ("email", Form::Text("email")),
    ("plan", Form::Of(|user| plan(user, "{plan}", "monthly_execution_limit"))),
    ("cues", Form::Quota("active_cues", "active_cue_limit", " active")),
    ("runs", Form::Cell(|_, user| runs(user, "executions_this_month", "monthly_execution_limit"))),
    ("server", Form::Shown(|context, _| context.target.url.clone())),
    ("key", Form::Shown(key)),
];

/// Sign out: revoke the stored key and remove its profile
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
    fn run(self, context: &Context) -> Result {
        let credentials = Credentials::read(&credentials_path()?)?;
        let names: Vec<String> = if self.all {
            credentials.profiles.keys().cloned().collect()
        } else {
            context.target.profile.clone().into_iter().collect()
        };
        if names.is_empty() {
            return Err(match context.target.key_variable {
                Some(name) => {
                    usage(format!("the key comes from {name}, not from `cued login`: unset it"))
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
                Err(error) => print_note(&error.to_string())?,
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Revokes the key of one profile and removes it.
fn leave(context: &Context, name: &str, profile: &Profile, keeps_key: bool) -> Result {
    if !keeps_key {
        revoke(context, name, profile)?;
    }
    remove(name)?;
    if context.output.format.is_json() {
        return Ok(());
    }
    let key = if keeps_key { "its key is still valid" } else { "its key is revoked" };
    print_line(&format!("Signed out of {} (profile {name}); {key}.", profile.url))
}

fn revoke(context: &Context, name: &str, profile: &Profile) -> Result {
    let of_profile = context.at(Target {
        url: normal_url(&profile.url),
        key: Some(profile.api_key.clone()),
        profile: Some(name.to_owned()),
        ca: profile.ca.clone(),
        ..Target::default()
    })?;
    let id = profile.key_id.clone().map_or_else(|| own_key_id(&of_profile), |id| Ok(Some(id)));
    let revoked = id.and_then(|id| {
        let unknown = || failed("the server does not return the id of this key; use --keep-key");
        let path = format!("/v1/auth/keys/{}", segment(&id.ok_or_else(unknown)?));
        of_profile.send(&ApiRequest::delete(path)).map(drop)
    });
    let keep = format!("`cued logout --profile {name} --keep-key` removes only the profile");
    match revoked {
        // The key is revoked already.
        Err(error) if matches!(error.status(), Some(401 | 404)) => {
            print_note("The key was not valid any more.")
        }
        Err(error) if error.status() == Some(409) => {
            Err(refused(format!("This is your last key, so it stays valid; {keep}")))
        }
        Err(CliError::Client(error)) if error.exit_code() == 1 => {
            Err(failed(format!("{error}. Nothing was changed, the key is still valid; {keep}")))
        }
        result => result,
    }
}

fn remove(name: &str) -> Result {
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
    let others = others?.join(", ");
    if others.is_empty() {
        return Ok(());
    }
    print_note(&format!("No profile is current now; name one by --profile: {others}"))
}

/// Prints the account of the key, where both come from, and the other profiles.
pub fn print_account(call: &Call<'_>, answer: &ApiResponse) -> Result {
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
fn other_profiles(context: &Context) -> Result<String> {
    // A machine without a home has no file.
    let Ok(path) = credentials_path() else { return Ok(String::new()) };
    if context.output.format.is_json() {
        return Ok(String::new());
    }
    let credentials = Credentials::read(&path)?;
    let target = &context.target;
    let used = target.profile.as_ref().filter(|_| target.key_variable.is_none());
    let mark = |name: &String| match () {
        () if used == Some(name) => format!("{name} (in use)"),
        () if credentials.current.as_ref() == Some(name) => format!("{name} (current)"),
        () => name.clone(),
    };
    let names: Vec<String> = credentials.profiles.keys().map(mark).collect();
    Ok(if names.len() > 1 { names.join(", ") } else { String::new() })
}
