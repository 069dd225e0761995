//! A plan as text, in the width of a terminal.

use serde_json::Value;
use unicode_width::UnicodeWidthStr as _;

use crate::cli::client::commands::apply::file::Kind;
use crate::cli::client::commands::apply::plan::{Action, Change, FieldChange, count};
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::table::{Style, Table};
use crate::cli::output::{Format, List, print, print_line};
use crate::cli::printable::printable;
use crate::cli::width::cut;

/// Prints what changes, with the number of what does not.
pub fn print_plan(context: &Context, plan: &[Change]) -> Result<(), CliError> {
    let changes = plan.iter().filter(|change| change.action != Action::Unchanged);
    let mut text: String = changes.map(|change| lines(context, change)).collect();
    let unchanged = count(plan, Action::Unchanged);
    if unchanged > 0 || text.is_empty() {
        text += &context.output.styles.paint(&format!("= {unchanged} unchanged"), Style::Faint);
        text.push('\n');
    }
    print(&text)
}

fn lines(context: &Context, change: &Change) -> String {
    let (sign, style) = match change.action {
        Action::Created => ("+", Style::Good),
        Action::Updated => ("~", Style::Warning),
        Action::Deleted => ("-", Style::Bad),
        Action::Unchanged => ("=", Style::Faint),
    };
    let kind = if change.kind == Kind::Channel { "channel " } else { "" };
    let styles = &context.output.styles;
    let mut text = fitted(context, &format!("{sign} {kind}{}", printable(&change.key)), style);
    let time = |value: &Value| match value.as_str() {
        Some(at) if context.output.is_short() => context.output.times.minute(at),
        Some(at) => context.output.times.instant(at),
        None => "none".to_owned(),
    };
    for field in &change.fields {
        text += &field_lines(field, styles.width);
    }
    let (before, after) = (time(&change.next_run_before), time(&change.next_run));
    match change.action {
        Action::Created if change.kind == Kind::Cue => text += &format!("    next run {after}\n"),
        Action::Updated if before != after => text += &format!("    next run {before} → {after}\n"),
        Action::Updated if change.fields.is_empty() => text += "    (fields not listed)\n",
        _ => {}
    }
    text
}

fn fitted(context: &Context, line: &str, style: Style) -> String {
    let styles = &context.output.styles;
    let line = styles.width.map_or(line.to_owned(), |width| cut(line, width));
    styles.paint(&line, style) + "\n"
}

/// `schedule.cron: 0 3 * * * → 0 4 * * *`, on two lines where one is too narrow.
fn field_lines(change: &FieldChange, width: Option<usize>) -> String {
    let field = printable(&change.field);
    let (old, new) = (shown(&change.old), shown(&change.new));
    let line = format!("    {field}: {old} → {new}");
    match width {
        Some(width) if line.width() > width => {
            let second = cut(&format!("      → {new}"), width);
            format!("{}\n{second}\n", cut(&format!("    {field}: {old}"), width))
        }
        _ => format!("{line}\n"),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => printable(&text.replace('\n', " ")),
        other => printable(&other.to_string()),
    }
}

/// Prints the changes for a program: all of them as JSON or YAML, the ids of those that change something.
pub fn print_changes(context: &Context, plan: &[Change]) -> Result<(), CliError> {
    let output = &context.output;
    if output.format == Format::Id {
        let changed = plan.iter().filter(|change| change.action != Action::Unchanged);
        return changed.map(Change::id_or_slug).try_for_each(|id| print_line(&printable(&id)));
    }
    let list = List::of("changes", plan.iter().map(Change::to_json).collect());
    // A table is printed line by line, before anything is written.
    output.list(&list, "id", |_| Table { columns: Vec::new(), rows: Vec::new() })
}
