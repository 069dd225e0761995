//! The runs of a schedule, as the API describes them (contract §4.13).

use jiff::civil::DateTime;
use serde_json::Value;

use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::Output;
use crate::cli::output::cells::text_of;
use crate::cli::output::format::Format;
use crate::cli::output::print::{count, print, print_line};
use crate::cli::output::style::Style;
use crate::cli::output::table::{Cell, Column, Table};
use crate::cli::printable::printable;
use crate::client::request::Answer;

/// Prints an answer with runs, in the local time of their schedule. `has_own` adds the time in the zone of the output.
/// Errors: if the answer is no JSON, or standard output cannot be written.
pub fn print_answer(context: &Context, answer: &Answer, has_own: bool) -> Result<(), CliError> {
    let output = &context.output;
    match output.format {
        Format::Table | Format::Wide => print(&text(output, &answer.value()?, has_own)),
        Format::Id => {
            let runs = answer.value()?;
            let mut instants = runs["upcoming"].as_array().into_iter().flatten();
            instants.try_for_each(|at| print_line(at.as_str().unwrap_or_default()))
        }
        _ => output.object(answer, "", |_| Vec::new()),
    }
}

fn text(output: &Output, runs: &Value, has_own: bool) -> String {
    let items = |field: &str| runs[field].as_array().into_iter().flatten();
    let own = if has_own { Column::new("YOUR TIME") } else { Column::new("YOUR TIME").wide() };
    let table = Table {
        columns: vec![Column::new("RUN"), Column::new("OFFSET"), own, Column::new("NOTE").text()],
        rows: items("occurrences").map(|run| row(output, run)).collect(),
    };
    let summary = format!(
        "{} ({} in 31 days)\n",
        printable(&text_of(runs, "description")),
        count(runs["per_month"].as_i64().unwrap_or(0), "run")
    );
    let mut text = output.styles.paint(summary.trim_end(), Style::Title);
    text.push_str("\n\n");
    text.push_str(&table.render(output.is_wide(), &output.styles));
    let mut changes = items("transitions").map(|change| transition(output, change)).peekable();
    if changes.peek().is_some() {
        text.push('\n');
    }
    text.extend(changes);
    text
}

fn row(output: &Output, run: &Value) -> Vec<Cell> {
    let note = Cell::new(text_of(run, "note"), Style::Warning);
    let own = output.times.instant(&text_of(run, "at"));
    vec![local(&text_of(run, "local")).into(), text_of(run, "offset").into(), own.into(), note]
}

/// `Tue 2030-01-01 09:00`, with seconds if there are any. Text that is no local time stays.
fn local(text: &str) -> String {
    let Ok(at) = text.parse::<DateTime>() else { return text.to_owned() };
    let format = match (at.second(), at.subsec_nanosecond()) {
        (0, 0) => "%a %Y-%m-%d %H:%M",
        (_, 0) => "%a %Y-%m-%d %H:%M:%S",
        _ => "%a %Y-%m-%d %H:%M:%S%.3f",
    };
    at.strftime(format).to_string()
}

fn transition(output: &Output, change: &Value) -> String {
    let at = output.times.instant(&text_of(change, "at"));
    let (from, to) = (text_of(change, "from"), text_of(change, "to"));
    printable(&format!("The clocks change at {at}, from {from} to {to}.")) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_times_have_their_weekday() {
        assert_eq!(local("2030-01-01T09:00:00"), "Tue 2030-01-01 09:00");
        assert_eq!(local("2030-01-01T09:00:05"), "Tue 2030-01-01 09:00:05");
        assert_eq!(local("2030-01-01T09:00:05.250"), "Tue 2030-01-01 09:00:05.250");
        assert_eq!(local("x"), "x");
    }
}
