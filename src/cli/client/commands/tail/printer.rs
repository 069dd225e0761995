//! Prints events in the form of `--output`.

use jiff::civil::Date;

use crate::cli::client::commands::tail::event::TailEvent;
use crate::cli::client::commands::tail::glyphs::Glyphs;
use crate::cli::client::commands::tail::line::Layout;
use crate::cli::client::context::Context;
use crate::cli::client::environment::environment;
use crate::cli::error::CliError;
use crate::cli::output::format::Format;
use crate::cli::output::print::print_part;
use crate::cli::output::style::Style;
use crate::cli::output::yaml;
use crate::cli::printable::printable;

/// Lines of the body of a response that are shown.
const MAX_BODY_LINES: usize = 10;

/// Below the name of the cue.
const INDENT: &str = "                 ";

pub struct Printer<'a> {
    context: &'a Context,
    layout: Layout,
    /// The date of the last line, which has the time only.
    date: Option<Date>,
}

impl<'a> Printer<'a> {
    #[must_use]
    pub fn new(context: &'a Context) -> Self {
        let output = &context.output;
        let layout = Layout::new(Glyphs::of_locale(&environment), output.styles, output.times.clone());
        Self { context, layout, date: None }
    }

    /// Prints an event. Returns false if nobody reads.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub fn print(&mut self, event: &TailEvent) -> Result<bool, CliError> {
        let text = match self.context.output.format {
            Format::Json | Format::Jsonl => format!("{}\n", event.json()),
            Format::Yaml => format!("---\n{}", yaml::document(&event.json())?),
            Format::Id => {
                let fields = ["execution_id", "cue_id", "id"].map(|field| event.field(field));
                match fields.into_iter().find(|id| !id.is_empty()) {
                    Some(id) => format!("{}\n", printable(&id)),
                    None => return Ok(true),
                }
            }
            Format::Table | Format::Wide => self.lines(event),
        };
        print_part(&text)
    }

    /// The line of an event, its body below, and above it the date if that is another than before.
    fn lines(&mut self, event: &TailEvent) -> String {
        let zone = self.context.output.times.zone().clone();
        let now = self.context.client.clock().now();
        let date = event.at().unwrap_or(now).to_zoned(zone.clone()).date();
        let before = self.date.replace(date).unwrap_or_else(|| now.to_zoned(zone).date());
        let mut text = String::new();
        if date != before {
            text.push_str(&self.layout.styles.paint(&date.to_string(), Style::Faint));
            text.push('\n');
        }
        text.push_str(&self.layout.line(event, now));
        for line in event.body.iter().flat_map(|body| body_lines(body)) {
            text.push_str(INDENT);
            text.push_str(&self.layout.styles.paint(&line, Style::Faint));
            text.push('\n');
        }
        text
    }
}

/// The beginning of a body, as lines without control characters.
fn body_lines(body: &str) -> Vec<String> {
    let mut lines: Vec<String> =
        body.lines().take(MAX_BODY_LINES).map(|line| printable(&line.replace('\t', "    "))).collect();
    let more = body.lines().count().saturating_sub(MAX_BODY_LINES);
    if more > 0 {
        lines.push(format!("({more} more; --json shows all)"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_shown_without_control_characters_and_not_at_any_length() {
        assert_eq!(body_lines("a\tb\u{1b}[2J\r\n\nc\n"), ["a    b\u{fffd}[2J", "", "c"]);
        let long = body_lines(&"x\n".repeat(12));
        assert_eq!((long.len(), long[10].as_str()), (11, "(2 more; --json shows all)"));
    }
}
