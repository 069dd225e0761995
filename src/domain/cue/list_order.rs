//! The order of a list of cues, and positions in it.

use std::cmp::Ordering;

use crate::domain::cue::Cue;
use crate::domain::cue::filter::fold;
use crate::domain::text::word_enum::word_enum;

word_enum! {
    /// The value by which a list is sorted. A minus sign is descending. Cues with the same value are in the order of their creation,
    /// which is reversed with the list, and those without a value are last in either direction.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum CueSort {
        Oldest = "created",
        Newest = "-created",
        /// Without distinction of case.
        Name = "name",
        NameDescending = "-name",
        NextRun = "next_run",
        NextRunDescending = "-next_run",
        LastRun = "last_run",
        LastRunDescending = "-last_run",
    }
}

/// The value of a cue that a list is sorted by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SortValue {
    /// There is none, or the list is sorted by creation, which the key tells.
    None,
    /// Milliseconds since 1970.
    Instant(i64),
    /// A folded name.
    Name(String),
}

/// The place of a cue in a sorted list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPosition {
    pub value: SortValue,
    pub key: i64,
}

impl CueSort {
    pub fn is_descending(self) -> bool {
        self.as_str().starts_with('-')
    }

    pub fn is_by_creation(self) -> bool {
        matches!(self, Self::Oldest | Self::Newest)
    }

    pub fn position_of(self, cue: &Cue) -> ListPosition {
        let instant = |at: Option<jiff::Timestamp>| SortValue::instant(at.map(|at| at.as_millisecond()));
        let value = match self {
            Self::Oldest | Self::Newest => SortValue::None,
            Self::Name | Self::NameDescending => SortValue::name(&cue.name),
            Self::NextRun | Self::NextRunDescending => instant(cue.next_run),
            Self::LastRun | Self::LastRunDescending => instant(cue.last_run),
        };
        ListPosition { value, key: cue.key }
    }

    /// The order of two positions of this list.
    pub fn compare(self, one: &ListPosition, other: &ListPosition) -> Ordering {
        let ascending = match (&one.value, &other.value) {
            (SortValue::None, SortValue::None) => Ordering::Equal,
            (SortValue::None, _) => return Ordering::Greater,
            (_, SortValue::None) => return Ordering::Less,
            (SortValue::Instant(one), SortValue::Instant(other)) => one.cmp(other),
            (SortValue::Name(one), SortValue::Name(other)) => one.cmp(other),
            // Values of one list are of one kind.
            (SortValue::Instant(_), SortValue::Name(_)) => Ordering::Less,
            (SortValue::Name(_), SortValue::Instant(_)) => Ordering::Greater,
        };
        let ascending = ascending.then(one.key.cmp(&other.key));
        if self.is_descending() { ascending.reverse() } else { ascending }
    }
}

impl SortValue {
    pub fn instant(millis: Option<i64>) -> Self {
        millis.map_or(Self::None, Self::Instant)
    }

    pub fn name(name: &str) -> Self {
        Self::Name(fold(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(sort: CueSort, values: &[SortValue]) -> Vec<i64> {
        let positions = values.iter().zip(1..).map(|(value, key)| ListPosition { value: value.clone(), key });
        let mut positions: Vec<ListPosition> = positions.collect();
        positions.sort_by(|one, other| sort.compare(one, other));
        positions.iter().map(|position| position.key).collect()
    }

    #[test]
    fn cues_without_a_value_are_last_in_both_directions() {
        let values = [None, Some(3), Some(-1), None, Some(3)].map(SortValue::instant);
        assert_eq!(sorted(CueSort::NextRun, &values), [3, 2, 5, 1, 4]);
        assert_eq!(sorted(CueSort::LastRunDescending, &values), [5, 2, 3, 4, 1]);
    }
}
