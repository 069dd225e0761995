//! `cued run attempts`.

use clap::Args;
use serde_json::Value;

use crate::cli::client::arguments::run_id::find_run;
use crate::cli::client::commands::run::cells::{duration_of, result_of};
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::cells::{status, text_of};
use crate::cli::output::list::List;
use crate::cli::output::print::print;
use crate::cli::output::style::Style;
use crate::cli::output::table::{Cell, Column, Table};
use crate::cli::printable::printable;
use crate::client::request::ApiRequest;

#[derive(Debug, Args)]
pub struct ShowAttempts {
    /// Id of the run, or at least 8 characters of its beginning
    run: String,
    /// Show what the receiver answered, too
    #[arg(long)]
    body: bool,
}

impl ShowAttempts {
    pub fn run(self, context: &Context) -> Result<(), CliError> {
        let id = find_run(context, &self.run)?;
        let answer = context.send(&ApiRequest::get(format!("/v1/executions/{id}/attempts")))?;
        let list = List::of(&answer, "attempts")?;
        context.output.list(&list, "attempt", |attempts| table(context, attempts))?;
        if self.body && !context.output.format.is_for_programs() {
            let answers = list.values()?;
            let text: String = answers.iter().map(|attempt| received(context, attempt)).collect();
            print(&text)?;
        }
        Ok(())
    }
}

fn table(context: &Context, attempts: &[Value]) -> Table {
    // Deliveries have no worker, and workers no HTTP status: the message needs the place.
    let of_some = |title: &'static str, field: &str| {
        let column = Column::new(title);
        if attempts.iter().all(|attempt| attempt[field].is_null()) { column.wide() } else { column }
    };
    let columns = vec![
        Column::new("ATTEMPT"),
        Column::new("STARTED"),
        Column::new("TOOK"),
        Column::new("RESULT"),
        of_some("HTTP", "http_status"),
        of_some("WORKER", "worker_id"),
        Column::new("MESSAGE").text(),
        Column::new("CAUSE").wide(),
        Column::new("NEXT").wide(),
    ];
    Table { columns, rows: attempts.iter().map(|attempt| row(context, attempt)).collect() }
}

fn row(context: &Context, attempt: &Value) -> Vec<Cell> {
    let times = &context.output.times;
    let result = match attempt["result"].as_str() {
        None => Cell::new("running", Style::Plain),
        Some("claim_lost" | "cut") => Cell::new(text_of(attempt, "result"), Style::Warning),
        Some(word) => status(word),
    };
    vec![
        text_of(attempt, "attempt").into(),
        // Attempts are seconds apart.
        times.instant(&text_of(attempt, "started_at")).into(),
        duration_of(attempt, "duration_ms").into(),
        result,
        text_of(attempt, "http_status").into(),
        text_of(attempt, "worker_id").into(),
        text_of(attempt, "error_message").into(),
        text_of(attempt, "cause").into(),
        times.instant(&text_of(attempt, "next_retry")).into(),
    ]
}

/// The receiver's answer to an attempt: its headers and its body. Empty if it answered nothing.
fn received(context: &Context, attempt: &Value) -> String {
    let headers = attempt["response_headers"].as_array().into_iter().flatten();
    let headers = headers.map(|pair| format!("{}: {}\n", text_of_item(pair, 0), text_of_item(pair, 1)));
    let headers: String = headers.map(|line| lines_of(&line)).collect();
    let body = text_of(attempt, "response_body");
    if headers.is_empty() && body.is_empty() {
        return String::new();
    }
    let title = format!("attempt {}: {}", text_of(attempt, "attempt"), printable(&result_of(attempt)));
    let title = context.output.styles.paint(&title, Style::Title);
    let cut =
        if attempt["response_truncated"] == Value::Bool(true) { "(the rest is not kept)\n" } else { "" };
    let separator = if headers.is_empty() || body.is_empty() { "" } else { "\n" };
    format!("\n{title}\n{headers}{separator}{}{cut}", lines_of(&body))
}

fn text_of_item(pair: &Value, index: usize) -> &str {
    pair[index].as_str().unwrap_or_default()
}

/// A text of others, which may have several lines, each without control characters.
pub(in crate::cli::client::commands::run) fn lines_of(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", printable(&line.replace('\t', "    ")))).collect()
}
