//! Tags: labels that group cues (contract §4.1).

use serde::{Deserialize, Serialize};

use crate::domain::text::is_label;

/// Most tags of a cue, and of a filter.
pub const MAX_TAGS: usize = 10;

const MAX_CHARS: usize = 32;

pub const TAG_RULE: &str =
    "use 1 to 32 of a-z, 0-9, '.', '_' and '-', beginning with a letter or a digit";

/// The tags of a cue or of a filter: distinct, in the order given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tags(Vec<String>);

impl Tags {
    /// The caller has checked each with [`is_tag`].
    pub fn new(tags: Vec<String>) -> Self {
        let mut distinct = Vec::with_capacity(tags.len());
        for tag in tags {
            if !distinct.contains(&tag) {
                distinct.push(tag);
            }
        }
        Self(distinct)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The memory that they take.
    pub fn bytes(&self) -> usize {
        self.iter().map(|tag| size_of::<String>() + tag.len()).sum()
    }

    pub fn has_all(&self, wanted: &Self) -> bool {
        wanted.0.iter().all(|tag| self.0.contains(tag))
    }
}

pub fn is_tag(text: &str) -> bool {
    is_label(text, MAX_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_a_short_word_in_lower_case() {
        for tag in ["a", "0", "db.main", "nightly_2", "a-", &"x".repeat(32)] {
            assert!(is_tag(tag), "{tag:?}");
        }
        for no_tag in ["", "A", "-a", ".a", "_a", "a b", "a,b", "ä", "a\n", "a\0", &"x".repeat(33)]
        {
            assert!(!is_tag(no_tag), "{no_tag:?}");
        }
    }
}
