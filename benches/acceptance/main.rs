//! The acceptance figures of the program: `cargo bench`, or a part of it: `cargo bench -- herd`.
//!
//! Each part starts the release build as a process, on the system clock.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // as in the tests
#![allow(dead_code)] // only parts of the test support are used

mod footprint;
mod herd;
mod history;
mod lateness;
mod limiter;
/// The client of the tests compares each response with the description of the API; the figures are without that.
mod openapi {
    pub mod checks {
        pub fn check(_: &[u8], _: &crate::support::client::Response) {}

        pub fn request_length(sent: &[u8]) -> usize {
            sent.len()
        }
    }
}
#[path = "../../tests/it/support"]
mod support {
    pub mod client;
    pub mod receiver;
    pub mod server;
}

use std::time::Duration;

const PARTS: [(&str, fn()); 6] = [
    ("trickle", lateness::trickle),
    ("herd", herd::herd),
    ("hang", lateness::hang),
    ("footprint", footprint::footprint),
    ("limiter", limiter::limiter),
    ("history", history::history),
];

fn main() {
    // Cargo adds `--bench`; the other arguments are names of parts.
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    if let Some(unknown) = wanted.iter().find(|name| !PARTS.iter().any(|(part, _)| part == name)) {
        let names = PARTS.map(|(part, _)| part).join(", ");
        eprintln!("there is no part {unknown}; parts: {names}");
        std::process::exit(2);
    }
    println!("{:<58} {:>16}", "cued, release build", "result");
    println!("{}", "-".repeat(75));
    for (part, run) in PARTS {
        if wanted.is_empty() || wanted.iter().any(|name| name == part) {
            run();
        }
    }
}

/// One line of the table.
fn row(what: &str, result: impl std::fmt::Display) {
    println!("{what:<58} {result:>16}");
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1_000.0)
}

/// The value at a quantile.
fn quantile<T: Copy + PartialOrd>(values: &[T], share: f64) -> T {
    let mut sorted = values.to_vec();
    sorted.sort_by(|left, right| left.partial_cmp(right).unwrap());
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let place = (share * (sorted.len() - 1) as f64).round() as usize;
    sorted[place]
}

fn median<T: Copy + PartialOrd>(values: &[T]) -> T {
    quantile(values, 0.5)
}
