//! `cued user`: manages users, whether or not a server is running.

use std::path::PathBuf;

use clap::Subcommand;

use crate::cli::database::database_args::DatabaseArgs;
use crate::cli::error::CliError;
use crate::cli::output::print::{print_fields, print_line, print_paused, print_table};
use crate::cli::plan_flags::{OnOff, plans_from};
use crate::cli::server::flag_values::web_address;
use crate::clock::Clock;
use crate::domain::account::credentials::Email;
use crate::domain::account::plan::Plans;
use crate::domain::account::user::User;
use crate::service::accounts as actions;
use crate::service::accounts::sessions;
use crate::service::fire::CueFirer;
use crate::store::accounts::users;
use crate::store::{ReadTx, WriteTx};

#[derive(Debug, Subcommand)]
pub enum UserAction {
    /// Add a user and print the first API key, which is shown only once
    Add {
        /// Email address of the user
        email: String,
        /// Plan of the user
        #[arg(long, env = "CUED_DEFAULT_PLAN", value_name = "PLAN", default_value = "free")]
        default_plan: String,
        /// JSON file with the plans, the same as for `cued serve`
        #[arg(long, env = "CUED_PLANS", value_name = "FILE")]
        plans: Option<PathBuf>,
    },
    /// List all users
    List,
    /// Change the plan of a user; its limits apply from the user's next request on
    SetPlan {
        /// Email address of the user
        email: String,
        /// Name of the plan, such as free, pro or scale
        plan: String,
        /// JSON file with the plans, the same as for `cued serve`
        #[arg(long, env = "CUED_PLANS", value_name = "FILE")]
        plans: Option<PathBuf>,
        /// Enforce the limits of the plans, the same as for `cued serve`; with off no cue is paused
        #[arg(long, env = "CUED_LIMITS", value_name = "ON|OFF", default_value = "on")]
        limits: OnOff,
    },
    /// Print an address that signs a user in to the page, once, within five minutes
    Link {
        /// Email address of the user
        email: String,
        /// Base URL of the server, the same as for `cued serve`
        #[arg(long, env = "CUED_PUBLIC_URL", value_name = "URL", value_parser = web_address, default_value = "http://127.0.0.1:8000")]
        public_url: String,
    },
    /// Disable a user: requests get 401 at once, cues are paused, pending executions fail
    Disable {
        /// Email address of the user
        email: String,
    },
    /// Enable a disabled user: its API keys work again, its cues stay paused
    Enable {
        /// Email address of the user
        email: String,
    },
}

impl UserAction {
    /// Runs the action and prints its result.
    pub fn run(self, database: &DatabaseArgs) -> Result<(), CliError> {
        match self {
            UserAction::Add { email, default_plan, plans } => add(database, &email, &default_plan, plans),
            UserAction::List => list(database),
            UserAction::SetPlan { email, plan, plans, limits } => {
                let plans = plans_from(plans.as_deref())?.limited(limits == OnOff::On);
                set_plan(database, &email, plan, &plans)
            }
            UserAction::Link { email, public_url } => link(database, &email, &public_url),
            UserAction::Disable { email } => disable(database, &email),
            UserAction::Enable { email } => enable(database, &email),
        }
    }
}

fn add(database: &DatabaseArgs, email: &str, plan: &str, plans: Option<PathBuf>) -> Result<(), CliError> {
    plans_from(plans.as_deref())?.ensure_exists(plan).map_err(|error| CliError::Usage(error.to_string()))?;
    let email = parse_email(email)?;
    // The only command that creates the database: the first user may be added before the first start.
    let store = database.open_or_create()?;
    let new = actions::add_user(&store, email, plan, Clock::system().now())?.wait()?;
    print_fields(&[("user", &new.id), ("email", &new.email), ("api key", new.api_key.reveal())])?;
    eprintln!("Save the key now: it is not shown again.");
    Ok(())
}

fn list(database: &DatabaseArgs) -> Result<(), CliError> {
    let users = database.open()?.read(users::list).wait()?;
    let mut rows = vec![["EMAIL", "PLAN", "ACTIVE CUES", "STATUS", "CREATED", "ID"].map(str::to_owned)];
    rows.extend(users.into_iter().map(|user| {
        let status = match (user.disabled_at, user.confirmed_at) {
            (Some(_), _) => "disabled",
            (None, None) => "unconfirmed",
            (None, Some(_)) => "active",
        };
        [
            user.email,
            user.plan,
            user.active_cues.to_string(),
            status.to_owned(),
            user.created_at.to_string(),
            user.id,
        ]
    }));
    print_table(&rows)
}

fn set_plan(database: &DatabaseArgs, email: &str, plan: String, plans: &Plans) -> Result<(), CliError> {
    plans.ensure_exists(&plan).map_err(|error| CliError::Usage(error.to_string()))?;
    let (email, limits, now) = (parse_email(email)?, plans.limits(&plan), Clock::system().now());
    let message = format!("{email} is now on plan {plan}");
    let plans = plans.clone();
    let change = move |tx: &WriteTx<'_>| {
        let firer = CueFirer::of_command(tx, &plans, now)?;
        actions::change_plan(tx, find_user(tx, &email)?.key, &plan, limits, &firer)
    };
    let paused = database.open()?.write(change).wait()?;
    print_line(&message)?;
    print_paused(paused)
}

fn disable(database: &DatabaseArgs, email: &str) -> Result<(), CliError> {
    let email = parse_email(email)?;
    let message = format!("disabled {email}: its cues are paused and its pending executions have failed");
    let now = Clock::system().now();
    database.open()?.write(move |tx| actions::disable(tx, find_user(tx, &email)?.key, now)).wait()?;
    print_line(&message)
}

fn enable(database: &DatabaseArgs, email: &str) -> Result<(), CliError> {
    let email = parse_email(email)?;
    let address = email.to_string();
    let was_disabled =
        database.open()?.write(move |tx| users::enable(tx, find_user(tx, &email)?.key)).wait()?;
    if !was_disabled {
        return Err(CliError::Failed(format!("{address} is not disabled: nothing was changed")));
    }
    print_line(&format!(
        "enabled {address}: its API keys work again; its cues stay paused, and failed executions stay failed; \
         the user resumes a cue with PATCH /v1/cues/ID {{\"status\": \"active\"}}"
    ))
}

fn link(database: &DatabaseArgs, email: &str, public_url: &str) -> Result<(), CliError> {
    let email = parse_email(email)?;
    let store = database.open()?;
    let user = store.read(move |read| find_user(read, &email)).wait()?;
    if user.disabled_at.is_some() {
        return Err(CliError::Failed(format!("{} is disabled: `cued user enable` comes first", user.email)));
    }
    let link = sessions::create_link(&store, user.key, None, Clock::system().now())?.wait()?;
    print_line(&sessions::link_url(public_url.trim_end_matches('/'), &link))?;
    eprintln!("The address works once, for five minutes.");
    Ok(())
}

pub(super) fn parse_email(email: &str) -> Result<Email, CliError> {
    Email::parse(email).map_err(|error| CliError::Usage(format!("{email:?}: {error}")))
}

/// Finds the user with this email address.
/// Errors: if there is no such user.
pub(super) fn find_user(read: &ReadTx<'_>, email: &Email) -> crate::error::Result<User> {
    users::find_by_email(read, email.as_str())?.ok_or_else(|| {
        crate::error::Error::fault(format!("there is no user {email}: list the users with `cued user list`"))
    })
}
