//! `cued user`: accounts, on the database file, whether a server runs or not.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::actions::accounts as actions;
use crate::cli::common::{DatabaseArgs, print_fields, print_line, table};
use crate::cli::{CliError, OnOff, plans_from};
use crate::clock::Clock;
use crate::domain::account::credentials::Email;
use crate::domain::account::plan::Plans;
use crate::domain::account::user::{RegistrationPolicy, User};
use crate::store::accounts::users;
use crate::store::{ReadTx, WriteTx};

/// Flags of `cued user`.
#[derive(Debug, Args)]
pub struct UserCommand {
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(subcommand)]
    action: UserAction,
}

#[derive(Debug, Subcommand)]
enum UserAction {
    /// Add a user and print its first API key, which is shown only this once
    Add {
        /// The user's e-mail address
        email: String,
        /// The user's plan
        #[arg(long, env = "CUED_DEFAULT_PLAN", value_name = "NAME", default_value = "free")]
        default_plan: String,
        /// A JSON file with the plans, as for `cued serve`
        #[arg(long, env = "CUED_PLANS", value_name = "FILE")]
        plans: Option<PathBuf>,
    },
    /// List all users
    List,
    /// Give a user another plan
    SetPlan {
        /// The user's e-mail address
        email: String,
        /// The plan, one of those in force
        plan: String,
        /// A JSON file with the plans, as for `cued serve`
        #[arg(long, env = "CUED_PLANS", value_name = "FILE")]
        plans: Option<PathBuf>,
        /// Whether the plans' limits are in force, as for `cued serve`; with off no cue is paused
        #[arg(long, env = "CUED_LIMITS", value_name = "ON|OFF", default_value = "on")]
        limits: OnOff,
    },
    /// Disable a user: its keys answer 401 at once, its cues are paused, what waits of theirs is not sent any more
    Disable {
        /// The user's e-mail address
        email: String,
    },
}

impl UserCommand {
    /// Does what was asked and prints it.
    ///
    /// # Errors
    /// Says what stands in the way.
    pub fn run(self) -> Result<(), CliError> {
        match self.action {
            UserAction::Add { email, default_plan, plans } => {
                add(&self.database, &email, &default_plan, plans)
            }
            UserAction::List => list(&self.database),
            UserAction::SetPlan { email, plan, plans, limits } => {
                let plans = plans_from(plans.as_deref())?.limited(limits == OnOff::On);
                set_plan(&self.database, &email, plan, &plans)
            }
            UserAction::Disable { email } => disable(&self.database, &email),
        }
    }
}

fn add(database: &DatabaseArgs, email: &str, plan: &str, plans: Option<PathBuf>) -> Result<(), CliError> {
    plans_from(plans.as_deref())?.ensure_exists(plan).map_err(|error| CliError::Usage(error.to_string()))?;
    let email = parse(email)?;
    // The one command that may come before the first start: it makes the file.
    let store = database.open_or_make()?;
    let made =
        actions::register(&store, email, plan, RegistrationPolicy::Open, Clock::system().now())?.wait()?;
    print_fields(&[("user", &made.id), ("email", &made.email), ("api key", made.api_key.reveal())])?;
    eprintln!("Store the key now: it is not shown again.");
    Ok(())
}

fn list(database: &DatabaseArgs) -> Result<(), CliError> {
    let users = database.open()?.read(users::list).wait()?;
    let mut rows = vec![["EMAIL", "PLAN", "ACTIVE CUES", "STATE", "CREATED", "ID"].map(str::to_owned)];
    rows.extend(users.into_iter().map(|user| {
        let state = if user.disabled_at.is_some() { "disabled" } else { "active" };
        [
            user.email,
            user.plan,
            user.active_cues.to_string(),
            state.to_owned(),
            user.created_at.to_string(),
            user.id,
        ]
    }));
    table(&rows)
}

fn set_plan(database: &DatabaseArgs, email: &str, plan: String, plans: &Plans) -> Result<(), CliError> {
    plans.ensure_exists(&plan).map_err(|error| CliError::Usage(error.to_string()))?;
    let (email, limits, now) = (parse(email)?, plans.limits(&plan), Clock::system().now());
    let shown = format!("{email} is on plan {plan}");
    let change = move |tx: &WriteTx<'_>| actions::change_plan(tx, known(tx, &email)?.key, &plan, limits, now);
    let paused = database.open()?.write(change).wait()?;
    print_line(&shown)?;
    if paused == 0 {
        return Ok(());
    }
    print_line(&format!("its {paused} newest cues are above the limit of active cues and were paused"))
}

fn disable(database: &DatabaseArgs, email: &str) -> Result<(), CliError> {
    let email = parse(email)?;
    let shown =
        format!("{email} is disabled: its cues are paused, and what of theirs waited is not sent any more");
    let now = Clock::system().now();
    database.open()?.write(move |tx| actions::disable(tx, known(tx, &email)?.key, now)).wait()?;
    print_line(&shown)
}

/// The address on a command line.
///
/// # Errors
/// When it is none.
pub fn parse(email: &str) -> Result<Email, CliError> {
    Email::parse(email).map_err(|fault| CliError::Usage(format!("{email:?}: {fault}")))
}

/// The user with this address.
///
/// # Errors
/// When there is none.
pub fn known(read: &ReadTx<'_>, email: &Email) -> crate::error::Result<User> {
    users::find_by_email(read, email.as_str())?
        .ok_or_else(|| crate::error::Error::fault(format!("there is no user {email}: see `cued user list`")))
}
