//! The progress of a long command: a line at the bottom of the terminal, redrawn in place. If standard error is no
//! terminal, or one that cannot redraw a line, nothing is shown.

use std::io::{self, IsTerminal as _, Write as _};

use crate::cli::output::table::cut;
use crate::cli::printable::printable;
use crate::store::maintenance::backup::Progress;

/// Clears the line, from its beginning.
const CLEAR: &str = "\r\u{1b}[K";

/// A line of progress. It disappears when it is dropped.
#[derive(Debug)]
pub struct Bar {
    label: &'static str,
    /// Standard error can redraw a line.
    is_visible: bool,
    shown: String,
}

impl Bar {
    pub fn new(label: &'static str) -> Self {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { label, is_visible: io::stderr().is_terminal() && !is_dumb, shown: String::new() }
    }

    pub fn show(&mut self, done: u64, all: u64, detail: &str) {
        let percent = done.saturating_mul(100).checked_div(all).unwrap_or(100).min(100);
        self.print(format!("{} {percent:3} % {detail}", self.label));
    }

    /// Shows what a step does whose progress is unknown.
    pub fn say(&mut self, what: &str) {
        self.print(format!("{}: {what}", self.label));
    }

    fn print(&mut self, text: String) {
        if self.is_visible && self.shown != text {
            // A window may change its size.
            let width =
                terminal_size::terminal_size_of(io::stderr()).map_or(80, |(width, _)| usize::from(width.0));
            // The last column stays free, where some terminals begin a new line.
            write(&format!("{CLEAR}{}", cut(&printable(&text), width.saturating_sub(1))));
            self.shown = text;
        }
    }

    pub fn end(&mut self) {
        if !std::mem::take(&mut self.shown).is_empty() {
            write(CLEAR);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.end();
    }
}

pub fn copy_progress(label: &'static str) -> Progress {
    let mut bar = Bar::new(label);
    Box::new(move |done, of| bar.show(done, of, &format!("of {}", size(of))))
}

pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes.div_ceil(1_000)),
        1_000_000..10_000_000_000 => format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000),
        _ => format!("{}.{} GB", bytes / 1_000_000_000, bytes % 1_000_000_000 / 100_000_000),
    }
}

fn write(text: &str) {
    let mut terminal = io::stderr().lock();
    // Losing the terminal must not stop the work.
    drop(terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush()));
}
