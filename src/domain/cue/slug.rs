//! Slugs: names that files and programs use to find a cue again (contract §4.17).

use std::collections::BTreeSet;
use std::fmt;

use crate::domain::text::is_label;

/// Characters of a namespace, and of a name in it.
const MAX_PART: usize = 63;

pub const SLUG_RULE: &str = "use 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter or a digit; \
    a namespace of the same form may stand before a slash";

pub const NAMESPACE_RULE: &str =
    "use 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter or a digit";

/// `backup`, or `home/backup` in the namespace `home`. The slug of a cue is unique in its account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slug(String);

impl Slug {
    pub fn parse(text: &str) -> Option<Self> {
        let is_slug = match text.split_once('/') {
            Some((namespace, name)) => is_namespace(namespace) && is_namespace(name),
            None => is_namespace(text),
        };
        is_slug.then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Slug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns whether the text has the form of a namespace, which is that of a name as well.
pub fn is_namespace(text: &str) -> bool {
    is_label(text, MAX_PART)
}

/// The slug, or the first of `slug-2`, `slug-3` and so on that is not taken. It is taken then.
pub fn take_unused(slug: String, taken: &mut BTreeSet<String>) -> String {
    let numbered = (2_u32..).map(|number| format!("{slug}-{number}"));
    let mut candidates = std::iter::once(slug.clone()).chain(numbered);
    candidates.find(|slug| taken.insert(slug.clone())).unwrap_or_default()
}

/// The cues with slugs that a list has: one, or those in a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlugFilter {
    Slug(Slug),
    Namespace(String),
}

impl SlugFilter {
    /// Reads the parameters `slug` and `namespace`.
    /// Errors: the name of the wrong one, and why.
    pub fn parse(
        slug: Option<&str>,
        namespace: Option<&str>,
    ) -> Result<Option<Self>, (&'static str, &'static str)> {
        match (slug, namespace) {
            (Some(_), Some(_)) => Err(("namespace", "must be left out beside slug")),
            (Some(slug), None) => {
                Slug::parse(slug).map(Self::Slug).map(Some).ok_or(("slug", SLUG_RULE))
            }
            (None, Some(name)) if is_namespace(name) => Ok(Some(Self::Namespace(name.to_owned()))),
            (None, Some(_)) => Err(("namespace", NAMESPACE_RULE)),
            (None, None) => Ok(None),
        }
    }

    /// The slugs that match are those from the first text on and before the second.
    pub fn bounds(&self) -> (String, String) {
        match self {
            Self::Slug(slug) => (slug.to_string(), format!("{slug}\0")),
            // No character is between a slash and the digit 0.
            Self::Namespace(namespace) => (format!("{namespace}/"), format!("{namespace}0")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slug_is_one_or_two_short_words_in_lower_case() {
        let word = "x".repeat(63);
        for slug in ["a", "0", "db.main", "home/backup", "a-/b_", &word, &format!("{word}/{word}")]
        {
            assert_eq!(Slug::parse(slug).map(|slug| slug.to_string()).as_deref(), Some(slug));
        }
        for other in
            ["", "A", "-a", "a b", "a/", "/a", "a/b/c", "a//b", "a/-b", "ä", "a\0", &"x".repeat(64)]
        {
            assert_eq!(Slug::parse(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_namespace_has_its_slugs_and_no_others() {
        let (from, before) = SlugFilter::Namespace("home".to_owned()).bounds();
        for (slug, is_in) in
            [("home/a", true), ("home/zz.9", true), ("home", false), ("home-2/a", false)]
        {
            assert_eq!((from.as_str()..before.as_str()).contains(&slug), is_in, "{slug}");
        }
        let (from, before) = SlugFilter::Slug(Slug("home/a".to_owned())).bounds();
        for (slug, is_in) in
            [("home/a", true), ("home/a.", false), ("home/aa", false), ("home", false)]
        {
            assert_eq!((from.as_str()..before.as_str()).contains(&slug), is_in, "{slug}");
        }
    }
}
