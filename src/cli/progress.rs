//! Progress bars, all of them: a line at the bottom of the terminal, redrawn in place. If standard error is no terminal, or
//! one that cannot redraw a line, nothing is shown.

use std::io::{self, IsTerminal as _, Write as _};

use anstream::ColorChoice;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::cli::printable::printable;
use crate::store::maintenance::backup::Progress;

/// Widest bar, in columns.
const MAX_CELLS: usize = 30;

/// Columns that the bar leaves for the text beside it, so that its width does not change with the text.
const DETAIL: usize = 28;

/// A narrower bar says nothing, and is left out.
const MIN_CELLS: usize = 5;

/// Clears the line, from its beginning.
const CLEAR: &str = "\r\u{1b}[K";

/// A progress bar. It disappears with [`Bar::end`], or when it is dropped.
#[derive(Debug)]
pub struct Bar {
    label: &'static str,
    /// `None` if nothing is shown.
    terminal: Option<Terminal>,
    /// The text of the line at present.
    shown: Option<(u64, String)>,
}

/// The abilities of standard error.
#[derive(Debug, Clone, Copy)]
struct Terminal {
    has_colour: bool,
}

impl Bar {
    /// A bar that shows nothing yet.
    pub fn new(label: &'static str) -> Self {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let has_colour = anstream::AutoStream::choice(&io::stderr()) != ColorChoice::Never;
        let terminal = (io::stderr().is_terminal() && !is_dumb).then_some(Terminal { has_colour });
        Self { label, terminal, shown: None }
    }

    /// Shows that `done` of `all` is done; `detail` stands beside the bar.
    pub fn show(&mut self, done: u64, all: u64, detail: &str) {
        let Some(terminal) = self.terminal else { return };
        let percent = done.saturating_mul(100).checked_div(all).unwrap_or(100).min(100);
        let now = (percent, detail.to_owned());
        if self.shown.as_ref() != Some(&now) {
            print(&format!("{CLEAR}{}", line(self.label, percent, detail, columns(), terminal.has_colour)));
            self.shown = Some(now);
        }
    }

    /// Shows what is under way, if nobody knows how much of it is done.
    pub fn say(&mut self, what: &str) {
        if self.terminal.is_some() {
            let text = printable(&format!("{}: {what}", self.label));
            print(&format!("{CLEAR}{}", cut(&text, columns().saturating_sub(1))));
            self.shown = Some((0, what.to_owned()));
        }
    }

    /// Clears the line.
    pub fn end(&mut self) {
        if self.shown.take().is_some() {
            print(CLEAR);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.end();
    }
}

/// The width of the terminal at this moment: a window may change its size.
fn columns() -> usize {
    terminal_size::terminal_size_of(io::stderr()).map_or(80, |(width, _)| width.0.into())
}

/// A callback that shows the progress of a copy, in bytes. The bar disappears with it.
pub fn of_copy(label: &'static str) -> Progress {
    let mut bar = Bar::new(label);
    Box::new(move |done, of| bar.show(done, of, &format!("of {}", size(of))))
}

/// The bar in a line of `width` columns; the last column stays free, where some terminals begin a new line.
fn line(label: &str, percent: u64, detail: &str, width: usize, has_colour: bool) -> String {
    let free = width.saturating_sub(1);
    // Two brackets and three blanks.
    let fixed = label.width() + "100 %".len() + 5;
    let cells = free.saturating_sub(fixed + DETAIL).min(MAX_CELLS);
    if cells < MIN_CELLS {
        return cut(&printable(&format!("{label} {percent:3} % {detail}")), free);
    }
    let detail = cut(&printable(detail), free - fixed - cells);
    let full = usize::try_from(percent).unwrap_or(100) * cells / 100;
    let (full, empty) = ("#".repeat(full), ".".repeat(cells - full));
    let full = if has_colour && !full.is_empty() { format!("\u{1b}[32m{full}\u{1b}[0m") } else { full };
    format!("{label} [{full}{empty}] {percent:3} % {detail}")
}

/// The beginning of a text that fits into `width` columns.
fn cut(text: &str, width: usize) -> String {
    let mut used = 0;
    text.chars()
        .take_while(|char| {
            used += char.width().unwrap_or(0);
            used <= width
        })
        .collect()
}

/// Formats a number of bytes.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes.div_ceil(1_000)),
        1_000_000..10_000_000_000 => format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000),
        _ => format!("{}.{} GB", bytes / 1_000_000_000, bytes % 1_000_000_000 / 100_000_000),
    }
}

fn print(text: &str) {
    let mut terminal = io::stderr().lock();
    // Losing the terminal must not stop the work.
    drop(terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_progress_line_shows_the_completed_part() {
        assert_eq!(
            line("backup", 50, "of 4.2 MB", 80, false),
            "backup [###############...............]  50 % of 4.2 MB"
        );
        assert_eq!(line("x", 50, "y", 48, true), "x [\u{1b}[32m####\u{1b}[0m....]  50 % y");
    }

    #[test]
    fn a_progress_line_never_reaches_the_last_column() {
        for width in 0..120 {
            let text = line("replay", 7, "1000 of 37000 failed runs", width, false);
            assert!(text.width() <= width.saturating_sub(1), "{width}: {text}");
        }
        assert_eq!(line("replay", 100, "1000 of 37000 failed runs", 24, false), "replay 100 % 1000 of 37");
    }

    #[test]
    fn sizes_are_written_in_the_unit_that_fits() {
        assert_eq!([0, 4_096, 4_250_000, 12_300_000_000].map(size), ["0 kB", "5 kB", "4.2 MB", "12.3 GB"]);
    }
}
