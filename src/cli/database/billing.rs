//! `cued billing`: lists and decides requests for a plan, whether or not a server is running.

use clap::Subcommand;

use crate::cli::database::{DatabaseArgs, PlanArgs};
use crate::cli::error::CliError;
use crate::cli::output::{print_line, print_paused, print_table};
use crate::clock::Clock;
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
    pub fn run(self, database: &DatabaseArgs) -> Result<(), CliError> {
        match self {
            Self::List { all } => list(database, all),
            Self::Approve { id, plans } => {
                let now = Clock::system().now();
                let (request, paused) =
                    actions::approve(&database.open()?, plans.plans()?, id, now).wait()?;
                print_line(&format!("{} is now on plan {}", request.email, requested_plan(&request)))?;
                print_paused(paused)
            }
            Self::Decline { id } => {
                let request = actions::decline(&database.open()?, id, Clock::system().now()).wait()?;
                let plan = requested_plan(&request);
                print_line(&format!("declined the request of {} for plan {plan}", request.email))
            }
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

fn requested_plan(request: &BillingRequest) -> String {
    format!("{} ({})", request.offer.plan.as_str(), request.offer.interval.as_str())
}
