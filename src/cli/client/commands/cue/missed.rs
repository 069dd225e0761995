//! `cued cue missed`.

use clap::Args;

use crate::cli::client::arguments::cue_name;
use crate::cli::client::context::Context;
use crate::cli::client::pages;
use crate::cli::client::pages::Rows;
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::cli::output::table::{Column, Table};
use crate::client::request::ApiRequest;

#[derive(Debug, Args)]
pub struct Missed {
    /// Id or name of the cue
    #[arg(value_name = "CUE")]
    cue: String,

    #[command(flatten)]
    rows: Rows,
}

impl Missed {
    pub fn run(self, context: &Context) -> Result<(), CliError> {
        let cue = cue_name::find(context, &self.cue)?;
        let request = ApiRequest::get(format!("{}/missed", cue.path()));
        let list = pages::fetch(context, &request, "missed", self.rows)?;
        let output = &context.output;
        output.list(&list, "first", |gaps| Table {
            columns: ["FIRST", "LAST", "COUNT", "REASON"].map(Column::new).to_vec(),
            rows: gaps
                .iter()
                .map(|gap| {
                    let instant = |field: &str| output.times.instant(&text_of(gap, field)).into();
                    let (count, reason) = (text_of(gap, "count"), text_of(gap, "reason"));
                    vec![instant("first"), instant("last"), count.into(), reason.into()]
                })
                .collect(),
        })
    }
}
