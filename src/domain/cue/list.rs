//! Lists of cues: the filter, which actions on many cues use too (contract §4.8), the order and positions in it, and
//! the latest runs of a cue as letters: one of each run, newest last.

use std::cmp::Ordering;

use jiff::Timestamp;

use crate::domain::cue::slug::SlugFilter;
use crate::domain::cue::tags::Tags;
use crate::domain::cue::{Cue, CueStatus, Transport};
use crate::domain::execution::ExecutionStatus;
use crate::domain::row_keys::CueKey;
use crate::domain::text::word_enum;
use crate::domain::webhook::callback::host_of;

pub const MAX_SEARCH: usize = 100;

/// Characters of a description that are searched: a page may look at all cues of a user.
const MAX_SEARCHED: usize = 1_000;

/// The text of `q`, folded once. Two texts match if they differ in case alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchText(String);

impl SearchText {
    pub fn new(text: &str) -> Self {
        Self(fold(text))
    }

    fn is_in(&self, text: &str) -> bool {
        fold(text).contains(&self.0)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The text without distinction of case, character by character, so that a part of a text folds to a part of the folded
/// text. Upper case first: `ß` and `ss` fold to the same text, and so do the two lower-case forms of `Σ`.
pub fn fold(text: &str) -> String {
    let fold_char = |char: char| char.to_uppercase().flat_map(char::to_lowercase);
    if text.is_ascii() {
        text.to_ascii_lowercase()
    } else {
        text.chars().flat_map(fold_char).collect()
    }
}

fn searched(description: &str) -> &str {
    match description.char_indices().nth(MAX_SEARCHED) {
        Some((end, _)) => &description[..end],
        None => description,
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CueFilter {
    pub q: Option<SearchText>,
    pub status: Option<CueStatus>,
    pub transport: Option<Transport>,
    pub slug: Option<SlugFilter>,
    /// The cue has all of them.
    pub tags: Tags,
    /// True if its latest executions failed, that is if it has a failure streak.
    pub failing: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CueFacts<'a> {
    pub id: &'a str,
    pub name: &'a str,
    pub slug: Option<&'a str>,
    pub description: Option<&'a str>,
    pub callback_url: Option<&'a str>,
    pub tags: Tags,
    pub status: CueStatus,
    pub transport: Transport,
    pub is_failing: bool,
}

impl CueFilter {
    /// Without slug and tags, which the store looks up. `q` is a part of the name, of the slug, of a tag, of the
    /// description or of the host of the callback, or the beginning of the id.
    pub fn matches(&self, cue: &CueFacts<'_>) -> bool {
        self.status.is_none_or(|status| status == cue.status)
            && self.transport.is_none_or(|transport| transport == cue.transport)
            && self.failing.is_none_or(|failing| failing == cue.is_failing)
            && self.q.as_ref().is_none_or(|q| {
                q.is_in(cue.name)
                    || cue.id.starts_with(&q.0)
                    || cue.slug.is_some_and(|slug| q.is_in(slug))
                    || cue.tags.iter().any(|tag| q.is_in(tag))
                    || cue.callback_url.is_some_and(|url| q.is_in(&host_of(url)))
                    || cue.description.is_some_and(|text| q.is_in(searched(text)))
            })
    }
}

word_enum! {
    /// The sort key of a list. A minus sign is descending. Cues with the same value are in the order of their creation,
    /// which is reversed with the list, and those without a value are last in either direction.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum CueSort {
        Oldest = "created",
        Newest = "-created",
        Name = "name",
        NameDescending = "-name",
        NextRun = "next_run",
        NextRunDescending = "-next_run",
        LastRun = "last_run",
        LastRunDescending = "-last_run",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SortValue {
    /// None: the list is ordered by row key.
    None,
    Instant(i64),
    Name(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPosition {
    pub value: SortValue,
    pub key: CueKey,
}

impl CueSort {
    pub fn is_descending(self) -> bool {
        self.as_str().starts_with('-')
    }

    pub fn is_by_creation(self) -> bool {
        matches!(self, Self::Oldest | Self::Newest)
    }

    pub fn position_of(self, cue: &Cue) -> ListPosition {
        let instant =
            |at: Option<jiff::Timestamp>| SortValue::instant(at.map(|at| at.as_millisecond()));
        let value = match self {
            Self::Oldest | Self::Newest => SortValue::None,
            Self::Name | Self::NameDescending => SortValue::name(&cue.fields.name),
            Self::NextRun | Self::NextRunDescending => instant(cue.next_run),
            Self::LastRun | Self::LastRunDescending => instant(cue.last_run),
        };
        ListPosition { value, key: cue.key }
    }

    pub fn compare(self, one: &ListPosition, other: &ListPosition) -> Ordering {
        let ascending = one.value.cmp(&other.value).then(one.key.cmp(&other.key));
        let ordered = if self.is_descending() { ascending.reverse() } else { ascending };
        let has_none = |position: &ListPosition| position.value == SortValue::None;
        has_none(one).cmp(&has_none(other)).then(ordered)
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

/// Most runs of a cue that are shown as letters: a strip of a table on a page has room for no more.
pub const MAX_RECENT_RUNS: u32 = 60;

const MISSED: char = 'm';

fn letter_of(status: ExecutionStatus) -> char {
    status.as_str().chars().next().unwrap_or_default()
}

/// The letters of the newest `count` runs, newest last. `executions` and the ends of the intervals of missed runs are
/// newest first; an interval is one letter, at the time of its last run.
pub fn letters(
    executions: &[(ExecutionStatus, Timestamp)],
    missed: &[Timestamp],
    count: usize,
) -> String {
    let (mut executions, mut missed) = (executions.iter().peekable(), missed.iter().peekable());
    let mut newest_first = Vec::with_capacity(count);
    while newest_first.len() < count {
        let is_missed = match (executions.peek(), missed.peek()) {
            (None, None) => break,
            (Some((_, run)), Some(missed)) => *missed > run,
            (None, Some(_)) => true,
            (Some(_), None) => false,
        };
        if is_missed {
            missed.next();
            newest_first.push(MISSED);
        } else {
            newest_first.extend(executions.next().map(|(status, _)| letter_of(*status)));
        }
    }
    newest_first.into_iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(sort: CueSort, values: &[SortValue]) -> Vec<i64> {
        let positions = values.iter().cloned().zip((1..).map(CueKey::new));
        let positions = positions.map(|(value, key)| ListPosition { value, key });
        let mut positions: Vec<ListPosition> = positions.collect();
        positions.sort_by(|one, other| sort.compare(one, other));
        positions.iter().map(|position| position.key.number()).collect()
    }

    #[test]
    fn cues_without_a_value_are_last_in_both_directions() {
        let values = [None, Some(3), Some(-1), None, Some(3)].map(SortValue::instant);
        assert_eq!(sorted(CueSort::NextRun, &values), [3, 2, 5, 1, 4]);
        assert_eq!(sorted(CueSort::LastRunDescending, &values), [5, 2, 3, 4, 1]);
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn an_interval_of_missed_runs_is_one_letter_at_its_end() {
        let runs = [(ExecutionStatus::Success, at(9)), (ExecutionStatus::Failed, at(3))];
        assert_eq!(letters(&runs, &[at(10), at(5), at(1)], 60), "mfmsm");
        assert_eq!(letters(&runs, &[at(10), at(5), at(1)], 3), "msm");
        assert_eq!(letters(&runs, &[at(9)], 60), "fms");
        assert_eq!(letters(&[], &[at(1), at(0)], 1), "m");
    }
}
