//! `cued key`: manages API keys, whether or not a server is running.

use clap::Subcommand;

use crate::cli::database::database_args::DatabaseArgs;
use crate::cli::database::user::{find_user, parse_email};
use crate::cli::error::CliError;
use crate::cli::output::print::{print_fields, print_line, print_table};
use crate::clock::Clock;
use crate::service::accounts as actions;
use crate::store::accounts::api_keys;

#[derive(Debug, Subcommand)]
pub enum KeyAction {
    /// Create another API key for a user and print it; it is shown only once
    Add {
        /// Email address of the user
        email: String,
        /// Name of the key, 1 to 255 characters
        #[arg(long, value_name = "NAME", default_value = "cli")]
        name: String,
    },
    /// List the API keys of a user
    List {
        /// Email address of the user
        email: String,
    },
    /// Revoke an API key; requests with it get 401 at once
    Revoke {
        /// Key id, from `cued key list`
        key_id: String,
    },
}

impl KeyAction {
    /// Runs the action and prints its result.
    pub fn run(self, database: &DatabaseArgs) -> Result<(), CliError> {
        match self {
            KeyAction::Add { email, name } => add(database, &email, name),
            KeyAction::List { email } => list(database, &email),
            KeyAction::Revoke { key_id } => revoke(database, key_id),
        }
    }
}

fn add(database: &DatabaseArgs, email: &str, name: String) -> Result<(), CliError> {
    if !(1..=255).contains(&name.chars().count()) {
        return Err(CliError::Usage("--name must have 1 to 255 characters".to_owned()));
    }
    let email = parse_email(email)?;
    let store = database.open()?;
    let user = store.read(move |read| find_user(read, &email)).wait()?;
    if user.disabled_at.is_some() {
        return Err(CliError::Failed(format!("{} is disabled: its API keys are refused", user.email)));
    }
    // The limit is for callers of the API, not for the operator.
    let new = actions::create_key(&store, user.key, name, None, Clock::system().now())?.wait()?;
    print_fields(&[("id", &new.id), ("name", &new.name), ("api key", new.api_key.reveal())])?;
    eprintln!("Save the key now: it is not shown again.");
    Ok(())
}

fn list(database: &DatabaseArgs, email: &str) -> Result<(), CliError> {
    let email = parse_email(email)?;
    let listed =
        database.open()?.read(move |read| api_keys::list(read, find_user(read, &email)?.key)).wait()?;
    let mut rows = vec![["ID", "NAME", "PREFIX", "CREATED"].map(str::to_owned)];
    rows.extend(listed.into_iter().map(|key| [key.id, key.name, key.prefix, key.created_at.to_string()]));
    print_table(&rows)
}

fn revoke(database: &DatabaseArgs, key_id: String) -> Result<(), CliError> {
    let store = database.open()?;
    let id = key_id.clone();
    let Some(user_key) = store.read(move |read| api_keys::find_user_key(read, &id)).wait()? else {
        return Err(CliError::Failed(format!(
            "there is no key {key_id}: list the keys of a user with `cued key list EMAIL`"
        )));
    };
    actions::revoke_key(&store, user_key, key_id.clone()).wait()?;
    print_line(&format!("revoked key {key_id}"))
}
