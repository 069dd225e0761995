//! What is wrong in the files: each fault with its place, all of them in one message.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cli::error::{CliError, usage};
use crate::cli::input::placed::{Place, Placed};
use crate::cli::output::count;
use crate::cli::printable::printable;
use crate::domain::secret::MASK;

/// A place in one of the files: `cues.yaml:7:15`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// In the order of the command line.
    pub number: usize,
    pub file: Arc<str>,
    pub place: Place,
}

impl At {
    pub fn in_file(&self, place: Place) -> Self {
        Self { place, ..self.clone() }
    }
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.place)
    }
}

/// Faults in the order of their places. One that many cues have, by the defaults of their file, counts once.
#[derive(Debug, Default)]
pub struct Faults {
    found: BTreeSet<(At, String)>,
    added: usize,
}

impl Faults {
    pub fn add(&mut self, at: At, reason: impl Into<String>) {
        self.found.insert((at, printable(&reason.into())));
        self.added += 1;
    }

    /// How often one was found; the same one in several cues counts for each.
    pub fn count(&self) -> usize {
        self.added
    }

    /// One fault is a line; each of several begins its own, as programs that open a place of a file read them.
    /// `consequence` says what was done all the same; it may be empty.
    pub fn text(&self, consequence: &str) -> String {
        let lines: Vec<String> =
            self.found.iter().map(|(at, reason)| format!("{at}: {reason}")).collect();
        match (lines.as_slice(), consequence) {
            ([line], "") => line.clone(),
            ([line], consequence) => format!("{line} ({consequence})"),
            (lines, consequence) => {
                let count = count(lines.len() as i128, "fault");
                let consequence =
                    if consequence.is_empty() { "" } else { &format!("; {consequence}") };
                format!("{count} in the files{consequence}\n{}", lines.join("\n"))
            }
        }
    }

    /// Errors: if there is a fault. No request was made so far.
    pub fn check(&self) -> Result<(), CliError> {
        if self.found.is_empty() { Ok(()) } else { Err(usage(self.text("nothing was sent"))) }
    }
}

/// A reason without the value that it is about, if a variable of the environment is a part of that.
pub fn without_value(reason: &str, value: &Placed) -> String {
    let text = value.as_str().unwrap_or_default();
    if !value.has_variable || text.is_empty() {
        return reason.to_owned();
    }
    let mut masked = reason.replace(text, MASK);
    for quote in ['`', '"'] {
        let parts: Vec<&str> = masked.split(quote).collect();
        // Every second part is in quotes. A quote in the value is escaped.
        let is_of_value = |index: usize, part: &str| {
            index % 2 == 1 && !part.is_empty() && (text.contains(part) || part.contains('\\'))
        };
        let parts = parts.iter().enumerate();
        let parts = parts.map(|(index, part)| if is_of_value(index, part) { MASK } else { part });
        masked = parts.collect::<Vec<_>>().join(&quote.to_string());
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_with_a_variable_is_not_in_its_reason() {
        let mut value = Placed::scalar(Place::START, "t0k3n at 9");
        let reason = "`t0k3n` is no day; examples are `every 5m` (\"t0k3n at 9\")";
        assert_eq!(without_value(reason, &value), reason);
        value.has_variable = true;
        assert_eq!(
            without_value(reason, &value),
            "`***` is no day; examples are `every 5m` (\"***\")"
        );
    }
}
