//! Lists of cues: the filter, which actions on many cues use too (contract §4.8), the order and positions in it, and
//! the latest runs of a cue as letters: one of each run, newest last.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

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

/// The texts of a cue that are searched.
#[derive(Debug, Clone, Copy)]
pub struct SearchedTexts<'a> {
    pub id: &'a str,
    pub name: &'a str,
    pub slug: Option<&'a str>,
    pub description: Option<&'a str>,
    pub callback_url: Option<&'a str>,
    /// A JSON array.
    pub tags: Option<&'a str>,
}

impl SearchedTexts<'_> {
    /// Returns whether `q`, which is folded, is a part of the name, of the slug, of a tag, of the description or of the
    /// host of the callback, or the beginning of the id.
    pub fn have(&self, q: &str) -> bool {
        let is_in = |text: &str| fold(text).contains(q);
        is_in(self.name)
            || self.id.starts_with(q)
            || self.slug.is_some_and(is_in)
            || self.tags.is_some_and(|tags| tags.split('"').skip(1).step_by(2).any(is_in))
            || self.callback_url.is_some_and(|url| is_in(&host_of(url)))
            || self.description.is_some_and(|text| is_in(searched(text)))
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
    /// A text of [`fold`]. Two texts match if they differ in case alone.
    pub q: Option<String>,
    pub status: Option<CueStatus>,
    pub transport: Option<Transport>,
    pub slug: Option<SlugFilter>,
    /// The cue has all of them.
    pub tags: Tags,
    /// True if its latest executions failed, that is if it has a failure streak.
    pub failing: Option<bool>,
}

impl CueFilter {
    /// Returns whether the number of the cues that match is known without a look at them.
    pub fn is_by_status(&self) -> bool {
        *self == Self { status: self.status, ..Self::default() }
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
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
        let instant = |at: Option<Timestamp>| {
            at.map_or(SortValue::None, |at| SortValue::Instant(at.as_millisecond()))
        };
        let value = match self {
            Self::Oldest | Self::Newest => SortValue::None,
            Self::Name | Self::NameDescending => SortValue::Name(fold(&cue.fields.name)),
            Self::NextRun | Self::NextRunDescending => instant(cue.next_run),
            Self::LastRun | Self::LastRunDescending => instant(cue.last_run),
        };
        ListPosition { value, key: cue.key }
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
