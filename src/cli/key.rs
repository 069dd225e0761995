//! `cued key`: API keys, on the database file, whether a server runs or not.

use clap::{Args, Subcommand};

use crate::actions::accounts as actions;
use crate::cli::CliError;
use crate::cli::common::{DatabaseArgs, print_fields, print_line, table};
use crate::cli::user::{known, parse};
use crate::clock::Clock;
use crate::store::accounts::api_keys;

/// Flags of `cued key`.
#[derive(Debug, Args)]
pub struct KeyCommand {
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(subcommand)]
    action: KeyAction,
}

#[derive(Debug, Subcommand)]
enum KeyAction {
    /// Make a further key of a user and print it; it is shown only this once
    Add {
        /// The user's e-mail address
        email: String,
        /// What the key is for
        #[arg(long, value_name = "NAME", default_value = "cli")]
        name: String,
    },
    /// List a user's keys
    List {
        /// The user's e-mail address
        email: String,
    },
    /// Revoke a key; it answers 401 at once
    Revoke {
        /// The key's id, as `cued key list` shows it
        key_id: String,
    },
}

impl KeyCommand {
    /// Does what was asked and prints it.
    ///
    /// # Errors
    /// Says what stands in the way.
    pub fn run(self) -> Result<(), CliError> {
        match self.action {
            KeyAction::Add { email, name } => add(&self.database, &email, name),
            KeyAction::List { email } => list(&self.database, &email),
            KeyAction::Revoke { key_id } => revoke(&self.database, key_id),
        }
    }
}

fn add(database: &DatabaseArgs, email: &str, name: String) -> Result<(), CliError> {
    if !(1..=255).contains(&name.chars().count()) {
        return Err(CliError::Usage("--name takes 1 to 255 characters".to_owned()));
    }
    let email = parse(email)?;
    let store = database.open()?;
    let user = store.read(move |read| known(read, &email)).wait()?;
    if user.disabled_at.is_some() {
        return Err(CliError::Failed(format!("{} is disabled: a key of it would answer 401", user.email)));
    }
    let made = actions::make_key(&store, user.key, name, Clock::system().now())?.wait()?;
    print_fields(&[("id", &made.id), ("name", &made.name), ("api key", made.api_key.reveal())])?;
    eprintln!("Store the key now: it is not shown again.");
    Ok(())
}

fn list(database: &DatabaseArgs, email: &str) -> Result<(), CliError> {
    let email = parse(email)?;
    let listed = database.open()?.read(move |read| api_keys::list(read, known(read, &email)?.key)).wait()?;
    let mut rows = vec![["ID", "NAME", "PREFIX", "CREATED"].map(str::to_owned)];
    rows.extend(listed.into_iter().map(|key| [key.id, key.name, key.prefix, key.created_at.to_string()]));
    table(&rows)
}

fn revoke(database: &DatabaseArgs, key_id: String) -> Result<(), CliError> {
    let store = database.open()?;
    let id = key_id.clone();
    let Some(user_key) = store.read(move |read| api_keys::find_user_key(read, &id)).wait()? else {
        return Err(CliError::Failed(format!("there is no key {key_id}: see `cued key list EMAIL`")));
    };
    actions::revoke_key(&store, user_key, key_id.clone()).wait()?;
    print_line(&format!("key {key_id} is revoked"))
}
