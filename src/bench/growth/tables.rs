//! The results of growing files, as tables: a size in each line, with the loss against the smallest one.

use std::fmt;

use crate::bench::growth::{Axis, name};
use crate::bench::report::BenchReport;

/// The rates, and the losses below which they shall stay.
const RATES: [(&str, &str); 5] =
    [("herd", "herd"), ("create", "create"), ("get", "get"), ("list", "list"), ("claim", "claim")];
const OTHERS: [(&str, &str); 5] = [
    ("start", "start"),
    ("memory", "memory"),
    ("memory_peak", "peak"),
    ("first_page", "first page"),
    ("last_page", "last page"),
];

/// Prints a report of growing files.
pub struct Tables<'a>(pub &'a BenchReport);

impl fmt::Display for Tables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Per second, the median of three rounds, and the loss against the smallest file.")?;
        for axis in Axis::ALL {
            let sizes: Vec<u32> =
                crate::bench::growth::sizes(u32::MAX).filter(|size| self.is_measured(axis, *size)).collect();
            let Some(smallest) = sizes.first() else { continue };
            write!(f, "\n{:>10}", axis.name())?;
            RATES.iter().try_for_each(|(_, title)| write!(f, " {title:>13}"))?;
            for size in &sizes {
                write!(f, "\n{size:>10}")?;
                for (what, _) in RATES {
                    write!(f, " {:>13}", self.rate(axis, *size, *smallest, what))?;
                }
            }
            write!(f, "\n\n{:>10}", axis.name())?;
            OTHERS.iter().try_for_each(|(_, title)| write!(f, " {title:>11}"))?;
            for size in &sizes {
                write!(f, "\n{size:>10}")?;
                for (what, _) in OTHERS {
                    write!(f, " {:>11}", self.other(axis, *size, what))?;
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl Tables<'_> {
    fn is_measured(&self, axis: Axis, size: u32) -> bool {
        self.0.value(&name(axis, size, "get")).is_some()
    }

    fn rate(&self, axis: Axis, size: u32, smallest: u32, what: &str) -> String {
        let value = |size| self.0.value(&name(axis, size, what));
        match (value(size), value(smallest)) {
            (Some(rate), Some(_)) if size == smallest => format!("{rate:.0}      "),
            (Some(rate), Some(first)) => format!("{rate:.0} {:>+4.0}%", 100.0 * (rate / first - 1.0)),
            _ => "-".to_owned(),
        }
    }

    fn other(&self, axis: Axis, size: u32, what: &str) -> String {
        let name = name(axis, size, what);
        let row = self.0.rows().iter().find(|row| row.name == name);
        row.map_or_else(|| "-".to_owned(), |row| row.unit.format(row.spread().median))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bench::report::Unit;

    #[test]
    fn a_size_is_printed_with_its_loss_against_the_smallest() {
        let mut report = BenchReport::new(json!({}));
        for (size, rate) in [(1_000, 2_000.0), (10_000, 1_700.0)] {
            for (what, _) in RATES {
                report.add(&name(Axis::Cues, size, what), what, rate, Unit::PerSecond);
            }
        }
        let text = Tables(&report).to_string();
        assert!(text.contains("\n     10000    1700  -15%"), "{text}");
        assert!(!text.contains("executions"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }
}
