//! The values of a repeated measurement, and when two of them differ.

/// Medians closer than this, as a share of the older one, are the same for us: machines vary by as much.
const MIN_CHANGE: f64 = 0.1;

/// The median of the repetitions, the least and the most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    pub min: f64,
    pub median: f64,
    pub max: f64,
}

impl Spread {
    /// The spread of the values; zeros if there are none.
    pub fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let upper = sorted.get(middle).copied().unwrap_or_default();
        let lower = if sorted.len().is_multiple_of(2) { sorted.get(middle.saturating_sub(1)) } else { None };
        Self {
            min: sorted.first().copied().unwrap_or_default(),
            median: lower.map_or(upper, |lower| f64::midpoint(*lower, upper)),
            max: sorted.last().copied().unwrap_or_default(),
        }
    }

    /// True if the ranges do not overlap, and the medians differ by more than a tenth.
    pub fn differs_from(self, older: Self) -> bool {
        let is_apart = self.min > older.max || self.max < older.min;
        is_apart && (self.median - older.median).abs() > MIN_CHANGE * older.median.abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_median_between_the_ends() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Spread { min: 1.0, median: 2.0, max: 3.0 });
        assert_eq!(Spread::of(&[4.0, 1.0]), Spread { min: 1.0, median: 2.5, max: 4.0 });
        assert_eq!(Spread::of(&[]), Spread { min: 0.0, median: 0.0, max: 0.0 });
    }

    #[test]
    fn results_differ_if_their_ranges_are_apart_and_their_medians_by_a_tenth() {
        let older = Spread::of(&[90.0, 100.0, 110.0]);
        assert!(Spread::of(&[111.0, 120.0, 130.0]).differs_from(older));
        assert!(Spread::of(&[10.0, 20.0, 89.0]).differs_from(older));
        assert!(!Spread::of(&[110.0, 150.0, 160.0]).differs_from(older), "the ranges touch");
        assert!(!Spread::of(&[110.0]).differs_from(Spread::of(&[100.0])), "a tenth and no more");
        assert!(Spread::of(&[111.0]).differs_from(Spread::of(&[100.0])));
        assert!(Spread::of(&[1.0]).differs_from(Spread::of(&[0.0])), "from nothing to something");
    }
}
