//! `cued user`, `cued key` and `cued billing`: users, their API keys and their requests for a plan, whether or not a
//! server is running.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::database::{DatabaseArgs, PlanArgs};
use crate::cli::error::{Result, bad_email, failed, usage};
use crate::cli::output::table::ColumnRule;
use crate::cli::output::{
    Column, print_new_key, print_note, print_sentence, print_table, table_time,
};
use crate::cli::server::flag_values::{OnOff, plans_from, web_address};
use crate::client::credentials::DEFAULT_URL;
use crate::clock::Clock;
use crate::domain::account::credentials::Email;
use crate::domain::account::plan::Plans;
use crate::domain::account::user::{ApiKeyInfo, User};
use crate::service::accounts as actions;
use crate::service::billing;
use crate::service::fire::CueFirer;
use crate::service::sessions;
use crate::store::accounts::{api_keys, users};
use crate::store::billing as stored;
use crate::store::billing::BillingRequest;
use crate::store::{ReadTx, Store, WriteTx};

#[derive(Debug, Args)]
pub struct UserArg {
    /// Email address of the user
    email: String,
}

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
        #[command(flatten)]
        plans: PlanArgs,
    },
    /// Print a URL that signs a user in to the page once, within five minutes
    Link {
        /// Email address of the user
        email: String,
        /// Base URL of the server, the same as for `cued serve` [default: http://127.0.0.1:8000]
        #[arg(long, env = "CUED_PUBLIC_URL", value_name = "URL", value_parser = web_address)]
        public_url: Option<String>,
    },
    /// Disable a user: requests get 401 at once, cues are paused, pending runs fail
    Disable(UserArg),
    /// Grant or revoke operator rights
    SetOperator {
        /// Email address of the user
        email: String,
        /// on or off
        #[arg(value_name = "ON|OFF")]
        operator: OnOff,
    },
    /// Enable a disabled user: its API keys work again, its cues stay paused
    Enable(UserArg),
}

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
    List(UserArg),
    /// Revoke an API key; requests with it get 401 at once
    Revoke {
        /// Key id, from `cued key list`
        key_id: String,
    },
}

impl UserAction {
    pub fn run(self, database: &DatabaseArgs) -> Result {
        let now = Clock::system().now();
        match self {
            Self::Add { email, default_plan, plans } => {
                require_plan(&plans_from(plans.as_deref())?, &default_plan)?;
                let email = parse_email(&email)?;
                // The only command that creates the database: the first user may be added before the first start.
                let store = database.open_or_create()?;
                let new = actions::add_user(&store, email, &default_plan, now)?.wait()?;
                print_new_key(&[
                    ("user", &new.id),
                    ("email", &new.email),
                    ("api key", new.api_key.expose()),
                ])
            }
            Self::List => list_users(database),
            Self::SetPlan { email, plan, plans } => {
                set_plan(database, &email, plan, &plans.plans()?)
            }
            Self::Link { email, public_url } => {
                let (store, user) = open_for(database, &email)?;
                if user.disabled_at.is_some() {
                    let way = "`cued user enable` comes first";
                    return Err(failed(format!("{} is disabled: {way}", user.email)));
                }
                let link = sessions::create_link(&store, user.key, None, now)?.wait()?;
                let url = public_url.as_deref().unwrap_or(DEFAULT_URL).trim_end_matches('/');
                print_sentence(&sessions::link_url(url, &link))?;
                print_note("The URL works once, for five minutes.")?;
                match public_url {
                    Some(_) => Ok(()),
                    None => print_note(&format!(
                        "If the server is not at {DEFAULT_URL}, add --public-url URL."
                    )),
                }
            }
            Self::SetOperator { email, operator } => {
                set_operator(database, &email, operator == OnOff::On)
            }
            Self::Disable(UserArg { email }) => {
                let (store, user) = open_for(database, &email)?;
                store.write(move |tx| actions::disable(tx, user.key, now)).wait()?;
                print_sentence(&format!(
                    "disabled {}: its cues are paused and its pending runs have failed",
                    user.email
                ))
            }
            Self::Enable(UserArg { email }) => {
                let (store, user) = open_for(database, &email)?;
                if !store.write(move |tx| users::enable(tx, user.key)).wait()? {
                    let message = format!("{} is not disabled: nothing was changed", user.email);
                    return Err(failed(message));
                }
                print_sentence(&format!(
                    "enabled {}: its API keys work again; its cues stay paused, and failed runs stay failed; \
                     the user resumes a cue with `cued cue resume`",
                    user.email
                ))
            }
        }
    }
}

impl KeyAction {
    pub fn run(self, database: &DatabaseArgs) -> Result {
        match self {
            Self::Add { email, name } => {
                if !(1..=255).contains(&name.chars().count()) {
                    return Err(usage("--name must have 1 to 255 characters"));
                }
                let (store, user) = open_for(database, &email)?;
                if user.disabled_at.is_some() {
                    let message = format!("{} is disabled: its API keys are refused", user.email);
                    return Err(failed(message));
                }
                // The limit is for callers of the API, not for the operator.
                let new = actions::create_key(&store, user.key, name, None, Clock::system().now())?
                    .wait()?;
                print_new_key(&[
                    ("id", &new.id),
                    ("name", &new.name),
                    ("api key", new.api_key.expose()),
                ])
            }
            Self::List(UserArg { email }) => {
                let (store, user) = open_for(database, &email)?;
                let listed = store.read(move |read| api_keys::list(read, user.key)).wait()?;
                let none = format!("No API keys. Add one: cued key add {}", user.email);
                print_table(&KEYS, &listed, Clock::system().now(), &none)
            }
            Self::Revoke { key_id } => {
                let store = database.open()?;
                let id = key_id.clone();
                let Some(user_key) =
                    store.read(move |read| api_keys::find_user_key(read, &id)).wait()?
                else {
                    return Err(failed(format!(
                        "there is no key {key_id}: list the keys of a user with `cued key list EMAIL`"
                    )));
                };
                actions::revoke_key(&store, user_key, key_id.clone()).wait()?;
                print_sentence(&format!("revoked key {key_id}"))
            }
        }
    }
}

const PLAN: &str = "PLAN";

/// An id is for the log and the API: commands take the address.
const USERS: [Column<User>; 7] = [
    ("EMAIL", ColumnRule::Shortened, |user, _| user.email.clone()),
    (PLAN, ColumnRule::Always, |user, _| user.plan.clone()),
    ("CUES", ColumnRule::Always, |user, _| user.active_cues.to_string()),
    ("STATUS", ColumnRule::Always, |user, _| status(user).to_owned()),
    ("OPERATOR", ColumnRule::Always, |user, _| {
        if user.is_operator { "yes" } else { "no" }.to_owned()
    }),
    ("CREATED", ColumnRule::Always, |user, now| table_time(user.created_at, now)),
    ("ID", ColumnRule::Roomy, |user, _| user.id.clone()),
];

const KEYS: [Column<ApiKeyInfo>; 4] = [
    ("ID", ColumnRule::Always, |key, _| key.id.clone()),
    ("NAME", ColumnRule::Shortened, |key, _| key.name.clone()),
    ("PREFIX", ColumnRule::Always, |key, _| key.prefix.clone()),
    ("CREATED", ColumnRule::Always, |key, now| table_time(key.created_at, now)),
];

const REQUESTS: [Column<BillingRequest>; 7] = [
    ("ID", ColumnRule::Always, |request, _| request.id.clone()),
    ("EMAIL", ColumnRule::Shortened, |request, _| request.email.clone()),
    ("PLAN", ColumnRule::Shortened, |request, _| request.current_plan.clone()),
    ("REQUESTED", ColumnRule::Shortened, |request, _| request.offer.plan.as_str().to_owned()),
    ("INTERVAL", ColumnRule::Always, |request, _| request.offer.interval.as_str().to_owned()),
    ("STATUS", ColumnRule::Always, |request, _| request.status.as_str().to_owned()),
    ("SINCE", ColumnRule::Always, |request, now| {
        let since = request.decided_at.or(request.requested_at);
        since.map(|since| table_time(since, now)).unwrap_or_default()
    }),
];

fn status(user: &User) -> &'static str {
    match (user.disabled_at, user.confirmed_at) {
        (Some(_), _) => "disabled",
        (None, None) => "unconfirmed",
        (None, Some(_)) => "active",
    }
}

fn list_users(database: &DatabaseArgs) -> Result {
    let (users, now) = (database.open()?.read(users::list).wait()?, Clock::system().now());
    // Without limits no plan means anything. A server may have them off by a flag, which no other command knows.
    let has_plans = std::env::var("CUED_LIMITS").as_deref() != Ok("off");
    let columns = USERS.into_iter().filter(|(title, ..)| has_plans || *title != PLAN);
    let columns: Vec<Column<User>> = columns.collect();
    print_table(&columns, &users, now, "No users yet. Add one: cued user add EMAIL")
}

fn set_plan(database: &DatabaseArgs, email: &str, plan: String, plans: &Plans) -> Result {
    require_plan(plans, &plan)?;
    let (email, limits, now) = (parse_email(email)?, plans.limits(&plan), Clock::system().now());
    let message = format!("{email} is now on plan {plan}");
    let plans = plans.clone();
    let change = move |tx: &WriteTx<'_>| {
        let firer = CueFirer::for_command(tx, &plans, now)?;
        actions::change_plan(tx, find_user(tx, &email)?.key, &plan, limits, &firer)
    };
    let paused = database.open()?.write(change).wait()?;
    print_sentence(&message)?;
    print_paused(paused)
}

fn set_operator(database: &DatabaseArgs, email: &str, is_operator: bool) -> Result {
    let (store, user) = open_for(database, email)?;
    let change = move |tx: &WriteTx<'_>| {
        users::set_operator(tx, user.key, is_operator)?;
        users::has_enabled_operator(tx)
    };
    let any_left = store.write(change).wait()?;
    let is = if is_operator { "is now an operator" } else { "is no longer an operator" };
    print_sentence(&format!("{} {is}", user.email))?;
    if any_left {
        return Ok(());
    }
    print_note(
        "The server has no enabled operator now: make one with `cued user set-operator EMAIL on`.",
    )
}

fn print_paused(paused: usize) -> Result {
    match paused {
        0 => Ok(()),
        1 => print_sentence("paused 1 active cue, the newest: the plan allows fewer"),
        _ => print_sentence(&format!(
            "paused the {paused} newest active cues: the plan allows fewer"
        )),
    }
}

fn require_plan(plans: &Plans, plan: &str) -> Result {
    plans.ensure_exists(plan).map_err(|error| usage(error.to_string()))
}

fn open_for(database: &DatabaseArgs, email: &str) -> Result<(Store, User)> {
    let email = parse_email(email)?;
    let store = database.open()?;
    let user = store.read(move |read| find_user(read, &email)).wait()?;
    Ok((store, user))
}

fn parse_email(email: &str) -> Result<Email> {
    Email::parse(email).map_err(|error| bad_email(email, error))
}

fn find_user(read: &ReadTx<'_>, email: &Email) -> crate::error::Result<User> {
    users::find_by_email(read, email.as_str())?.ok_or_else(|| {
        crate::error::Error::fault(format!(
            "there is no user {email}: list the users with `cued user list`"
        ))
    })
}

#[derive(Debug, Subcommand)]
pub enum BillingAction {
    /// List undecided requests, oldest first
    List {
        /// Include decided requests
        #[arg(long)]
        all: bool,
    },
    /// Approve a request; the limits of the plan apply from the user's next request on
    Approve {
        /// Request id, from `cued billing list`
        id: String,
        #[command(flatten)]
        plans: PlanArgs,
    },
    /// Decline a request; the user keeps the current plan
    Decline {
        /// Request id, from `cued billing list`
        id: String,
    },
}

impl BillingAction {
    pub fn run(self, database: &DatabaseArgs) -> Result {
        match self {
            Self::List { all } => list_requests(database, all),
            Self::Approve { id, plans } => {
                let (store, now) = (database.open()?, Clock::system().now());
                let (request, paused) = billing::approve(&store, plans.plans()?, id, now).wait()?;
                print_sentence(&format!(
                    "{} is now on plan {}",
                    request.email,
                    requested_plan(&request)
                ))?;
                print_paused(paused)
            }
            Self::Decline { id } => {
                let request =
                    billing::decline(&database.open()?, id, Clock::system().now()).wait()?;
                let plan = requested_plan(&request);
                print_sentence(&format!(
                    "declined the request of {} for plan {plan}",
                    request.email
                ))
            }
        }
    }
}

fn list_requests(database: &DatabaseArgs, all: bool) -> Result {
    let requests = database.open()?.read(move |read| stored::list_requests(read, all)).wait()?;
    let none = if all {
        "No user has requested a plan."
    } else {
        "No pending requests; --all includes decided ones."
    };
    print_table(&REQUESTS, &requests, Clock::system().now(), none)
}

fn requested_plan(request: &BillingRequest) -> String {
    format!("{} ({})", request.offer.plan.as_str(), request.offer.interval.as_str())
}
