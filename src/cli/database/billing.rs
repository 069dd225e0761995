//! `cued billing`: lists and decides requests for a plan, whether or not a server is running.

use std::path::PathBuf;

use clap::Subcommand;

use crate::cli::database::DatabaseArgs;
use crate::cli::error::CliError;
use crate::cli::output::{print_line, print_paused, print_table};
use crate::cli::server::flag_values::{OnOff, plans_from};
use crate::clock::Clock;
use crate::domain::account::plan::Plans;
use crate::service::billing as actions;
use crate::store::billing::requests;
use crate::store::billing::requests::BillingRequest;

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
        /// JSON file with the plans, the same as for `cued serve`
        #[arg(long, env = "CUED_PLANS", value_name = "FILE")]
        plans: Option<PathBuf>,
        /// Enforce the limits of the plans, the same as for `cued serve`; with off no cue is paused
        #[arg(long, env = "CUED_LIMITS", value_name = "ON|OFF", default_value = "on")]
        limits: OnOff,
    },
    /// Decline a request; the user keeps the current plan
    Decline {
        /// Request id, from `cued billing list`
        id: String,
    },
}

impl BillingAction {
    /// Runs the action and prints its result.
    pub fn run(self, database: &DatabaseArgs) -> Result<(), CliError> {
        match self {
            BillingAction::List { all } => list(database, all),
            BillingAction::Approve { id, plans, limits } => {
                let plans = plans_from(plans.as_deref())?.limited(limits == OnOff::On);
                approve(database, plans, id)
            }
            BillingAction::Decline { id } => decline(database, id),
        }
    }
}

fn list(database: &DatabaseArgs, all: bool) -> Result<(), CliError> {
    let requests = database.open()?.read(move |read| requests::list(read, all)).wait()?;
    let row = |request: BillingRequest| {
        let since = request.decided_at.or(request.requested_at);
        [
            request.id,
            request.email,
            request.current_plan,
            request.offer.plan.as_str().to_owned(),
            request.offer.interval.as_str().to_owned(),
            request.status.as_str().to_owned(),
            since.map(|since| since.to_string()).unwrap_or_default(),
        ]
    };
    let titles = ["ID", "EMAIL", "CURRENT PLAN", "REQUESTED", "INTERVAL", "STATUS", "SINCE"];
    print_table(titles, requests.into_iter().map(row))
}

fn approve(database: &DatabaseArgs, plans: Plans, id: String) -> Result<(), CliError> {
    let now = Clock::system().now();
    let (request, paused) = actions::approve(&database.open()?, plans, id, now).wait()?;
    print_line(&format!("{} is now on plan {}", request.email, requested_plan(&request)))?;
    print_paused(paused)
}

fn decline(database: &DatabaseArgs, id: String) -> Result<(), CliError> {
    let request = actions::decline(&database.open()?, id, Clock::system().now()).wait()?;
    print_line(&format!("declined the request of {} for plan {}", request.email, requested_plan(&request)))
}

fn requested_plan(request: &BillingRequest) -> String {
    format!("{} ({})", request.offer.plan.as_str(), request.offer.interval.as_str())
}
