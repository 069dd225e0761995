//! Colours, and the width of the terminal. Other readers than terminals get neither colours nor shortened columns.

use std::io::{self, IsTerminal as _};

use anstream::ColorChoice;

use crate::cli::output::format::ColorWhen;

/// The colour of a text by its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    #[default]
    Plain,
    Title,
    Good,
    Warning,
    Bad,
    Faint,
}

/// The abilities of standard output.
#[derive(Debug, Clone, Copy)]
pub struct Styles {
    pub has_colour: bool,
    /// Columns of the terminal; `None` if the output is no terminal.
    pub width: Option<usize>,
}

impl Styles {
    /// By `--color`, then NO_COLOR, CLICOLOR_FORCE and the kind of terminal.
    pub fn of_stdout(color: ColorWhen) -> Self {
        let has_colour = match color {
            ColorWhen::Always => true,
            ColorWhen::Never => false,
            ColorWhen::Auto => anstream::AutoStream::choice(&io::stdout()) != ColorChoice::Never,
        };
        let is_terminal = io::stdout().is_terminal();
        let width =
            is_terminal.then(|| terminal_size::terminal_size().map_or(80, |(width, _)| width.0.into()));
        Self { has_colour, width }
    }

    pub fn paint(&self, text: &str, style: Style) -> String {
        let code = match style {
            Style::Plain => return text.to_owned(),
            Style::Title => "1",
            Style::Good => "32",
            Style::Warning => "33",
            Style::Bad => "31",
            Style::Faint => "2",
        };
        if self.has_colour && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}
