//! `cued cue set`.

use clap::Args;
use serde_json::{Map, Value};

use crate::cli::client::arguments::find;
use crate::cli::client::commands::cue::change::edit;
use crate::cli::client::commands::cue::change::paths::Assignment;
use crate::cli::client::context::Context;
use crate::cli::error::CliError;

#[derive(Debug, Args)]
pub struct Set {
    /// Id or name of the cue
    #[arg(value_name = "CUE")]
    cue: String,

    /// Field and value: name=x, schedule.cron='0 3 * * *', payload=@payload.json, retry.max_attempts=3
    #[arg(value_name = "FIELD=VALUE", required = true)]
    fields: Vec<String>,
}

impl Set {
    pub fn run(self, context: &Context) -> Result<(), CliError> {
        let assignments: Vec<Assignment> =
            self.fields.iter().map(|text| Assignment::parse(text)).collect::<Result<_, _>>()?;
        let found = find(context, &self.cue)?;
        let mut patch = Value::Object(Map::new());
        // The API replaces these as a whole, so that a part of them needs the rest.
        if assignments.iter().any(Assignment::is_part_of_whole) {
            let cue = edit::read(context, &found)?;
            for assignment in assignments.iter().filter(|assignment| assignment.is_part_of_whole()) {
                assignment.copy_whole(&cue, &mut patch);
            }
        }
        for assignment in assignments {
            assignment.apply(&mut patch)?;
        }
        edit::send(context, &found, &patch)
    }
}
