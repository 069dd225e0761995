//! Secrets: values that nothing prints, and the forms in which their owners see them (contract §3).

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// What stands for a value that must not be shown.
pub const MASK: &str = "***";

/// A value that `Debug`, `Display` and `Serialize` show as [`MASK`], so that no log line, error or view of a struct
/// contains it. Only what is named `expose` shows it.
#[derive(Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(transparent)]
pub struct Secret<T = String>(T);

impl<T> Secret<T> {
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    pub const fn expose(&self) -> &T {
        &self.0
    }

    pub const fn expose_mut(&mut self) -> &mut T {
        &mut self.0
    }

    /// As [`Secret::expose`], without a copy of what may have megabytes.
    pub fn into_exposed(self) -> T {
        self.0
    }
}

impl<T> From<T> for Secret<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl<T> fmt::Display for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl<T> Serialize for Secret<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(MASK)
    }
}

/// Writes the secret itself: for `serialize_with`, into what only the program or its user reads.
pub fn exposed<T: Serialize, S: Serializer>(secret: &Secret<T>, to: S) -> Result<S::Ok, S::Error> {
    secret.0.serialize(to)
}

/// Shorter secrets show none of their characters.
const MIN_SHOWN_SECRET: usize = 12;

const SHOWN: usize = 4;

/// A secret as it reads back: its end alone, by which its owner knows it.
pub fn masked(secret: &str) -> String {
    let chars = secret.chars().count();
    let shown = if chars < MIN_SHOWN_SECRET { 0 } else { SHOWN };
    let end: String = secret.chars().skip(chars - shown).collect();
    format!("…{end}")
}

/// A secret URL as it reads back: its scheme and host, and the end of its path.
pub fn masked_url(url: &str) -> String {
    let rest = url.find("://").map_or(0, |at| at + "://".len());
    let path = url[rest..].find(['/', '?']).map_or(url.len(), |at| rest + at);
    format!("{}/{}", &url[..path], masked(&url[path..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_masked_by_all_that_prints_and_written_where_it_is_exposed() {
        #[derive(Debug, Serialize, Deserialize)]
        struct Stored {
            masked: Secret,
            #[serde(serialize_with = "exposed")]
            written: Secret<Vec<u8>>,
        }
        let mut stored: Stored =
            serde_json::from_str(r#"{"masked": "hidden", "written": [104]}"#).unwrap();
        let text = format!("{stored:?} {:#?} {}", stored, stored.masked);
        assert!(!text.contains("hidden") && !text.contains("104"), "{text}");
        assert_eq!(stored.masked.to_string(), MASK);
        let json = serde_json::to_string(&stored).unwrap();
        assert_eq!(json, r#"{"masked":"***","written":[104]}"#);
        stored.masked.expose_mut().push('!');
        assert_eq!(
            (stored.masked.expose().as_str(), stored.written.into_exposed()),
            ("hidden!", vec![104])
        );
    }

    #[test]
    fn a_secret_shows_its_end_alone() {
        for (secret, shown) in
            [("", "…"), ("elevenchars", "…"), ("twelve_chars", "…hars"), ("ключ-от-дома", "…дома")]
        {
            assert_eq!(masked(secret), shown);
        }
        for (url, shown) in [
            ("https://hooks.slack.com/services/T0/B0/x7Qz", "https://hooks.slack.com/…x7Qz"),
            ("https://a.example:8443/hooks/x", "https://a.example:8443/…"),
            ("https://a.example", "https://a.example/…"),
        ] {
            assert_eq!(masked_url(url), shown);
        }
    }
}
