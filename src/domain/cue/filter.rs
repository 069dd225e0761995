//! The filter of the lists of cues and of actions on many cues (contract §4.8).

use crate::domain::cue::{CueStatus, Transport};
use crate::domain::webhook::callback_url::host_of;

/// Most characters of `q`.
pub const MAX_SEARCH: usize = 100;

/// Characters of a description that are searched: what a person reads first. A page may look at all cues of a user, and
/// longer descriptions in other than ASCII letters would take a second.
const MAX_SEARCHED: usize = 1_000;

/// The text of `q`, folded once. Two texts match if they differ in case alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchText(String);

impl SearchText {
    pub fn new(text: &str) -> Self {
        Self(fold(text))
    }

    /// The buffer holds the folded text; several calls use one.
    fn is_in(&self, text: &str, buffer: &mut String) -> bool {
        fold_into(text, buffer);
        buffer.contains(&self.0)
    }

    fn begins(&self, text: &str, buffer: &mut String) -> bool {
        fold_into(text, buffer);
        buffer.starts_with(&self.0)
    }

    /// The folded text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The text without distinction of case, character by character, so that a part of a text folds to a part of the folded
/// text. Upper case first: `ß` and `ss` fold to the same text, and so do the two lower-case forms of `Σ`.
pub fn fold(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    fold_into(text, &mut folded);
    folded
}

/// Replaces the content of `folded` by the [folded](fold) text.
fn fold_into(text: &str, folded: &mut String) {
    folded.clear();
    for char in text.chars() {
        if char.is_ascii() {
            folded.push(char.to_ascii_lowercase());
        } else {
            folded.extend(char.to_uppercase().flat_map(char::to_lowercase));
        }
    }
}

/// The part of a description in which `q` is searched.
fn searched(description: &str) -> &str {
    match description.char_indices().nth(MAX_SEARCHED) {
        Some((end, _)) => &description[..end],
        None => description,
    }
}

/// The conditions that a cue must meet. `None` is no condition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CueFilter {
    pub q: Option<SearchText>,
    pub status: Option<CueStatus>,
    pub transport: Option<Transport>,
    /// True if its latest executions failed, that is if it has a failure streak.
    pub failing: Option<bool>,
}

/// The properties of a cue that a filter looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CueFacts<'a> {
    pub id: &'a str,
    pub name: &'a str,
    pub description: Option<&'a str>,
    pub callback_url: Option<&'a str>,
    pub status: CueStatus,
    pub transport: Transport,
    pub is_failing: bool,
}

impl CueFilter {
    /// `q` is a part of the name, of the description or of the host of the callback, or the beginning of the id.
    pub fn matches(&self, cue: &CueFacts<'_>) -> bool {
        self.status.is_none_or(|status| status == cue.status)
            && self.transport.is_none_or(|transport| transport == cue.transport)
            && self.failing.is_none_or(|failing| failing == cue.is_failing)
            && self.q.as_ref().is_none_or(|q| {
                let mut buffer = String::new();
                q.is_in(cue.name, &mut buffer)
                    || q.begins(cue.id, &mut buffer)
                    || cue.callback_url.is_some_and(|url| q.is_in(&host_of(url), &mut buffer))
                    || cue.description.is_some_and(|text| q.is_in(searched(text), &mut buffer))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUE: CueFacts<'_> = CueFacts {
        id: "cue_abcdefghijkl",
        name: "Nightly Straße",
        description: Some("Sends the ΟΔΟΣ report"),
        callback_url: Some("https://Hooks.Example.com:8443/secret/path?token=t"),
        status: CueStatus::Active,
        transport: Transport::Webhook,
        is_failing: false,
    };

    #[test]
    fn q_is_found_in_name_description_host_and_the_beginning_of_the_id() {
        let matches =
            |q: &str| CueFilter { q: Some(SearchText::new(q)), ..CueFilter::default() }.matches(&CUE);
        for q in ["nightly", "STRASSE", "straße", "οδος", "the", "hooks.example", "CUE_ABC", "cue_", "y S"]
        {
            assert!(matches(q), "{q}");
        }
        for q in ["daily", "abcdefghijkl", "secret", "token", "8443", "https", "nightly "] {
            assert_eq!(matches(q), q == "nightly ", "{q}");
        }
    }

    #[test]
    fn the_first_thousand_characters_of_a_description_are_searched() {
        let matches = |before: usize| {
            let description = format!("{}x", "é ".repeat(before / 2));
            let cue = CueFacts { description: Some(&description), ..CUE };
            CueFilter { q: Some(SearchText::new("É X")), ..CueFilter::default() }.matches(&cue)
        };
        assert!(matches(MAX_SEARCHED - 2) && !matches(MAX_SEARCHED));
    }
}
