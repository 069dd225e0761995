//! The progress of a long command: a line at the bottom of the terminal, redrawn in place. If standard error is no
//! terminal, or one that cannot redraw a line, nothing is shown.

use std::io::{self, IsTerminal as _, Write as _};
use std::ops::ControlFlow;

use crate::cli::printable::{printable, width_of_stderr};
use crate::cli::width::cut;
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
            // The last column stays free, where some terminals begin a new line.
            let width = width_of_stderr().saturating_sub(1);
            write(&format!("{CLEAR}{}", cut(&printable(&text), width)));
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
    Box::new(move |done, of| {
        bar.show(done, of, &format!("of {}", size(of)));
        ControlFlow::Continue(())
    })
}

/// A number of bytes in the units of the page: `512 bytes`, `9.5 MiB`, `64 MiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let power = (bytes.max(1).ilog2() / 10).min(4);
    let (unit, bytes) = (1_u128 << (10 * power), u128::from(bytes));
    let rounded = |parts: u128| (bytes * parts + unit / 2) / unit;
    let name = UNITS[power as usize];
    match rounded(10) {
        tenths @ 0..100 if power > 0 => format!("{}.{} {name}", tenths / 10, tenths % 10),
        _ => format!("{} {name}", rounded(1)),
    }
}

fn write(text: &str) {
    let mut terminal = io::stderr().lock();
    // Losing the terminal must not stop the work.
    drop(terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_units_of_the_page() {
        for (bytes, shown) in [
            (0, "0 bytes"),
            (1_023, "1023 bytes"),
            (1_024, "1.0 KiB"),
            (1_997, "2.0 KiB"),
            (10_189, "10 KiB"),
            (549_376, "537 KiB"),
            (64 << 20, "64 MiB"),
            ((9 << 30) + (1 << 29), "9.5 GiB"),
            (u64::MAX, "16777216 TiB"),
        ] {
            assert_eq!(size(bytes), shown, "{bytes}");
        }
    }
}
