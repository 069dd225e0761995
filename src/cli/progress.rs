//! How far a copy is, as a line on a terminal that is written over; nothing where standard error is a file.

use std::io::{self, IsTerminal as _, Write as _};

use crate::store::maintenance::backup::Progress;

/// Cells of the bar.
const WIDTH: u64 = 30;

/// Shows how much of `what` is done.
#[must_use]
pub fn bar(what: &'static str) -> Progress {
    if !io::stderr().is_terminal() {
        return Box::new(|_, _| ());
    }
    let mut shown = None;
    Box::new(move |done, of| {
        let percent = done.saturating_mul(100).checked_div(of).unwrap_or(100).min(100);
        if shown.replace(percent) != Some(percent) {
            print(&line(what, percent, of));
        }
    })
}

/// Ends the line of [`bar`], so that what follows stands on its own.
pub fn end() {
    if io::stderr().is_terminal() {
        print("\r\u{1b}[K");
    }
}

fn line(what: &str, percent: u64, of: u64) -> String {
    let full = percent * WIDTH / 100;
    let cells: String = (0..WIDTH).map(|cell| if cell < full { '#' } else { '.' }).collect();
    format!("\r{what} [{cells}] {percent:3} % of {}\u{1b}[K", size(of))
}

/// A number of bytes as people read it.
#[must_use]
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes.div_ceil(1_000)),
        1_000_000..10_000_000_000 => format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000),
        _ => format!("{}.{} GB", bytes / 1_000_000_000, bytes % 1_000_000_000 / 100_000_000),
    }
}

fn print(text: &str) {
    let mut terminal = io::stderr().lock();
    // A terminal that is gone is no reason to stop.
    drop(terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_progress_line_shows_the_completed_part() {
        assert_eq!(
            line("backup", 50, 4_250_000),
            "\rbackup [###############...............]  50 % of 4.2 MB\u{1b}[K"
        );
    }

    #[test]
    fn sizes_are_written_in_the_unit_that_fits() {
        assert_eq!([0, 4_096, 4_250_000, 12_300_000_000].map(size), ["0 kB", "5 kB", "4.2 MB", "12.3 GB"]);
    }
}
