//! Progress bar on one line of the terminal. Prints nothing if standard error is not a terminal.

use std::io::{self, IsTerminal as _, Write as _};

use crate::store::maintenance::backup::Progress;

/// Width of the bar in characters.
const WIDTH: u64 = 30;

/// Returns a callback that shows the progress of a copy, in bytes.
pub fn bar(label: &'static str) -> Progress {
    if !io::stderr().is_terminal() {
        return Box::new(|_, _| ());
    }
    let mut shown = None;
    Box::new(move |done, of| {
        let percent = done.saturating_mul(100).checked_div(of).unwrap_or(100).min(100);
        if shown.replace(percent) != Some(percent) {
            print(&line(label, percent, &format!("of {}", size(of))));
        }
    })
}

/// Shows that `done` of `all` steps of the benchmark are done and `step` is next; clears the bar after the last.
pub fn step(step: &str, done: usize, all: usize) {
    if done == all {
        end();
    } else if io::stderr().is_terminal() {
        let percent = (100 * done).checked_div(all).unwrap_or(100);
        print(&line("bench", u64::try_from(percent).unwrap_or(100), step));
    }
}

pub fn end() {
    if io::stderr().is_terminal() {
        print("\r\u{1b}[K");
    }
}

fn line(label: &str, percent: u64, detail: &str) -> String {
    let full = percent * WIDTH / 100;
    let cells: String = (0..WIDTH).map(|cell| if cell < full { '#' } else { '.' }).collect();
    format!("\r{label} [{cells}] {percent:3} % {detail}\u{1b}[K")
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
    // Losing the terminal must not stop the copy.
    drop(terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_progress_line_shows_the_completed_part() {
        assert_eq!(
            line("backup", 50, "of 4.2 MB"),
            "\rbackup [###############...............]  50 % of 4.2 MB\u{1b}[K"
        );
    }

    #[test]
    fn sizes_are_written_in_the_unit_that_fits() {
        assert_eq!([0, 4_096, 4_250_000, 12_300_000_000].map(size), ["0 kB", "5 kB", "4.2 MB", "12.3 GB"]);
    }
}
