//! `cued cue next`.

use clap::Args;

use crate::cli::client::arguments::cue_name;
use crate::cli::client::commands::cue::occurrences;
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::client::request::ApiRequest;

#[derive(Debug, Args)]
pub struct Next {
    /// Id or name of the cue
    #[arg(value_name = "CUE")]
    cue: String,

    /// Runs that are shown
    #[arg(short = 'n', long = "count", value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100))]
    count: u8,
}

impl Next {
    pub fn run(self, context: &Context) -> Result<(), CliError> {
        let cue = cue_name::find(context, &self.cue)?;
        let request = ApiRequest::get(format!("{}/upcoming", cue.path()))
            .query("limit", self.count.to_string())
            .query("detail", "true");
        let answer = context.send(&request)?;
        // Beside the zone of the schedule, that of the command line.
        occurrences::print_answer(context, &answer, context.zone.is_some())
    }
}
