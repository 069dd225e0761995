//! `cued billing`: requests for a plan, decided by the operator on the database file, whether a server runs or not.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::actions::billing as actions;
use crate::cli::common::{DatabaseArgs, print_line, table};
use crate::cli::{CliError, OnOff, plans_from};
use crate::clock::Clock;
use crate::domain::account::plan::Plans;
use crate::store::billing::requests;
use crate::store::billing::requests::BillingRequest;

/// Flags of `cued billing`.
#[derive(Debug, Args)]
pub struct BillingCommand {
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(subcommand)]
    action: BillingAction,
}

#[derive(Debug, Subcommand)]
enum BillingAction {
    /// List the requests that wait for a decision, oldest first
    List {
        /// Also those that were decided
        #[arg(long)]
        all: bool,
    },
    /// Give the user the requested plan; its limits are in force from the next request on
    Approve {
        /// The request's id, as `cued billing list` shows it
        id: String,
        /// A JSON file with the plans, as for `cued serve`
        #[arg(long, env = "CUED_PLANS", value_name = "FILE")]
        plans: Option<PathBuf>,
        /// Whether the plans' limits are in force, as for `cued serve`; with off no cue is paused
        #[arg(long, env = "CUED_LIMITS", value_name = "ON|OFF", default_value = "on")]
        limits: OnOff,
    },
    /// Decline a request; the user's plan stays as it is
    Decline {
        /// The request's id, as `cued billing list` shows it
        id: String,
    },
}

impl BillingCommand {
    /// Does what was asked and prints it.
    ///
    /// # Errors
    /// Says what stands in the way.
    pub fn run(self) -> Result<(), CliError> {
        match self.action {
            BillingAction::List { all } => list(&self.database, all),
            BillingAction::Approve { id, plans, limits } => {
                let plans = plans_from(plans.as_deref())?.limited(limits == OnOff::On);
                approve(&self.database, plans, id)
            }
            BillingAction::Decline { id } => decline(&self.database, id),
        }
    }
}

fn list(database: &DatabaseArgs, all: bool) -> Result<(), CliError> {
    let requests = database.open()?.read(move |read| requests::list(read, all)).wait()?;
    let mut rows =
        vec![["ID", "EMAIL", "PRESENT PLAN", "REQUESTED", "INTERVAL", "STATE", "SINCE"].map(str::to_owned)];
    rows.extend(requests.into_iter().map(|request| {
        let since = request.decided_at.or(request.requested_at);
        [
            request.id,
            request.email,
            request.present_plan,
            request.offer.plan.as_str().to_owned(),
            request.offer.interval.as_str().to_owned(),
            request.status.as_str().to_owned(),
            since.map(|since| since.to_string()).unwrap_or_default(),
        ]
    }));
    table(&rows)
}

fn approve(database: &DatabaseArgs, plans: Plans, id: String) -> Result<(), CliError> {
    let now = Clock::system().now();
    let (request, paused) = actions::approve(&database.open()?, plans, id, now).wait()?;
    print_line(&format!("{} is on plan {}", request.email, wanted(&request)))?;
    if paused > 0 {
        print_line(&format!("its {paused} newest active cues were above the limit and are paused"))?;
    }
    Ok(())
}

fn decline(database: &DatabaseArgs, id: String) -> Result<(), CliError> {
    let request = actions::decline(&database.open()?, id, Clock::system().now()).wait()?;
    print_line(&format!("the request of {} for {} is declined", request.email, wanted(&request)))
}

fn wanted(request: &BillingRequest) -> String {
    format!("{}, {}", request.offer.plan.as_str(), request.offer.interval.as_str())
}
