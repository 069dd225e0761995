//! `cued run request`: what an attempt has sent.

use clap::Args;
use serde_json::Value;

use crate::cli::client::arguments::run_id::find_run;
use crate::cli::client::commands::run::attempts::lines_of;
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::cli::output::print::print;
use crate::cli::output::style::Style;
use crate::client::request::ApiRequest;

#[derive(Debug, Args)]
pub struct ShowRequest {
    /// Id of the run, or at least 8 characters of its beginning
    run: String,
    /// Number of the attempt, from 1 [default: the latest]
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
}

impl ShowRequest {
    pub fn run(self, context: &Context) -> Result<(), CliError> {
        let id = find_run(context, &self.run)?;
        let request = ApiRequest::get(format!("/v1/executions/{id}/request"))
            .maybe_query("attempt", self.attempt.map(|number| number.to_string()));
        let answer = context.send(&request)?;
        if context.output.format.is_for_programs() {
            return context.output.object(&answer, "url", |_| Vec::new());
        }
        let sent = answer.value()?;
        print(&message(context, &sent))?;
        match text_of(&sent, "why") {
            why if why.is_empty() => Ok(()),
            why => context.output.note(&format!("not exact: {}", lines_of(&why).trim_end())),
        }
    }
}

/// The request in the form of HTTP.
fn message(context: &Context, sent: &Value) -> String {
    let styles = &context.output.styles;
    let first = lines_of(&format!("{} {}", text_of(sent, "method"), text_of(sent, "url")));
    let mut text = format!("{}\n", styles.paint(first.trim_end(), Style::Title));
    for pair in sent["headers"].as_array().into_iter().flatten() {
        let (name, value) = (pair[0].as_str().unwrap_or_default(), pair[1].as_str().unwrap_or_default());
        text.push_str(&lines_of(&format!("{name}: {value}")));
    }
    if let Some(body) = sent["body"].as_str() {
        text.push('\n');
        text.push_str(&lines_of(body));
    }
    text
}
