//! Evidence that the work was done, in addition to the report itself (contract §5).

use serde_json::Value;
use url::Url;

use crate::domain::json::{JsonObject, JsonStr, JsonText, merged};

pub const TEXTS: [&str; 5] = ["external_id", RESULT_URL, "result_ref", "result_type", "summary"];

/// The text field of evidence that must be a URL.
pub const RESULT_URL: &str = "result_url";

/// The list field of evidence.
pub const ARTIFACTS: &str = "artifacts";

pub const MAX_ARTIFACTS: usize = 100;

/// Maximum size of each text, and of the list as JSON; also of the other texts of a report.
pub const MAX_TEXT_BYTES: usize = 65_536;

/// Characters of `result_url`, as of a callback URL.
pub const MAX_RESULT_URL: usize = 2048;

const ARTIFACT_URL: &str = "url";

/// Returns whether a list takes more than [`MAX_TEXT_BYTES`] in the stored evidence.
pub fn is_too_long_as_artifacts(artifacts: JsonStr<'_>) -> bool {
    artifacts.as_str().len() + ARTIFACTS.len() + r#"{"":}"#.len() > MAX_TEXT_BYTES
}

/// The number of the first artifact whose `url` is neither null nor [storable](is_storable_url). Both become links.
pub fn first_bad_artifact_url(artifacts: JsonStr<'_>) -> Option<usize> {
    artifacts.items()?.position(|artifact| {
        let url = JsonObject::of(artifact).and_then(|object| object.get(ARTIFACT_URL));
        url.is_some_and(|url| !url.is_null() && !url.as_text().is_some_and(|text| is_storable_url(&text)))
    })
}

/// Returns whether a text of a report can be stored. SQLite stores a NUL, but its text functions and many clients end the
/// text there.
pub fn is_storable(text: &str) -> bool {
    text.len() <= MAX_TEXT_BYTES && !text.contains('\0')
}

/// The artifacts with each `url` as it is stored: without blanks around it. Their `url`s are checked.
pub fn with_trimmed_urls(artifacts: JsonStr<'_>) -> JsonText {
    let Some(items) = artifacts.items() else { return artifacts.into() };
    let items = items.map(|artifact| {
        let url = JsonObject::of(artifact).and_then(|object| object.get(ARTIFACT_URL));
        match url.and_then(JsonStr::as_text) {
            Some(url) => {
                let url = trimmed(&url);
                merged(artifact, JsonText::object(vec![(ARTIFACT_URL, url.get())]).get()).into_string()
            }
            None => artifact.as_str().to_owned(),
        }
    });
    JsonText::stored(format!("[{}]", items.collect::<Vec<_>>().join(",")))
}

pub fn trimmed(url: &str) -> JsonText {
    JsonText::from(&Value::from(url.trim()))
}

/// Returns whether a text is blank, or with the blanks around it a [result URL](is_result_url) of bounded length. A blank
/// text is no evidence, but it must not cost the only report.
pub fn is_storable_url(text: &str) -> bool {
    let url = text.trim();
    text.chars().nth(MAX_RESULT_URL).is_none() && (url.is_empty() || is_result_url(url))
}

/// Returns whether a text is a `result_url`: an absolute `http` or `https` URL of bounded length. People open it in a
/// browser, so what browsers accept is accepted; the server itself never opens it.
pub fn is_result_url(text: &str) -> bool {
    let has_scheme =
        |scheme: &str| text.get(..scheme.len()).is_some_and(|it| it.eq_ignore_ascii_case(scheme));
    (has_scheme("http://") || has_scheme("https://"))
        && text.chars().nth(MAX_RESULT_URL).is_none()
        // A browser removes line breaks from a URL, and would open another one than is shown.
        && !text.contains(char::is_control)
        && Url::parse(text).is_ok_and(|url| url.has_host())
}

/// The evidence of one outcome: an object of the given fields, each a text or the list; `None` without any. It is
/// looked through as text and never becomes a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence(Option<JsonText>);

impl From<JsonText> for Evidence {
    fn from(fields: JsonText) -> Self {
        Self((fields.get() != JsonStr::EMPTY_OBJECT).then_some(fields))
    }
}

impl Evidence {
    /// `None` without evidence.
    pub fn fields(&self) -> Option<&JsonText> {
        self.0.as_ref()
    }

    /// Returns whether `field` is a non-blank text or a non-empty list.
    pub fn shows(&self, field: &str) -> bool {
        let Some(value) = self.get(field) else { return false };
        match value.as_text() {
            Some(text) => !text.trim().is_empty(),
            None => value.items().is_some_and(|mut items| items.next().is_some()),
        }
    }

    pub fn shows_url(&self, field: &str) -> bool {
        let text = self.get(field).and_then(JsonStr::as_text);
        text.is_some_and(|text| is_result_url(text.trim()))
    }

    /// Returns whether `field` was given but is blank or empty.
    pub fn is_blank_in(&self, field: &str) -> bool {
        self.get(field).is_some() && !self.shows(field)
    }

    /// Adds the fields of `more`, replacing existing ones.
    pub fn append(&mut self, more: Self) {
        self.0 = match (self.0.take(), more.0) {
            (Some(own), Some(more)) => Some(merged(own.get(), more.get())),
            (own, more) => more.or(own),
        };
    }

    /// The evidence among the members of a report. `None` if one of them is no evidence.
    pub fn of_report(report: &JsonObject<'_>) -> Option<Self> {
        let mut fields: Vec<(&str, JsonText)> = Vec::new();
        for name in TEXTS {
            if let Some(value) = report.get(name).filter(|value| !value.is_null()) {
                let text = value.as_text().filter(|text| is_storable(text))?;
                if name == RESULT_URL && !is_storable_url(&text) {
                    return None;
                }
                fields.push((name, if name == RESULT_URL { trimmed(&text) } else { value.into() }));
            }
        }
        if let Some(artifacts) = report.get(ARTIFACTS).filter(|value| !value.is_null()) {
            let is_short =
                artifacts.items()?.nth(MAX_ARTIFACTS).is_none() && !is_too_long_as_artifacts(artifacts);
            if !is_short || first_bad_artifact_url(artifacts).is_some() {
                return None;
            }
            fields.push((ARTIFACTS, with_trimmed_urls(artifacts)));
        }
        let fields = fields.iter().map(|(name, value)| (*name, value.get())).collect();
        Some(JsonText::object(fields).into())
    }

    fn get(&self, field: &str) -> Option<JsonStr<'_>> {
        let mut entries = self.0.as_ref()?.get().entries()?;
        entries.find(|(name, _)| *name == field).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn evidence(fields: Value) -> Evidence {
        JsonText::from(&fields).into()
    }

    #[test]
    fn a_blank_text_and_an_empty_list_are_no_evidence() {
        for (value, shows) in [
            (json!("charge-1"), true),
            (json!(" x "), true),
            (json!(""), false),
            (json!(" \t\n"), false),
            (json!([0]), true),
            (json!([]), false),
        ] {
            let evidence = evidence(json!({ "summary": value }));
            assert_eq!(evidence.shows("summary"), shows, "{value}");
            assert_eq!(evidence.is_blank_in("summary"), !shows, "{value}");
            assert!(!evidence.shows("external_id") && !evidence.is_blank_in("external_id"));
        }
        assert!(!Evidence::default().shows("summary"));
    }

    #[test]
    fn a_result_url_is_an_absolute_web_address_of_bounded_length() {
        let longest = format!("https://example.com/{}", "ü".repeat(MAX_RESULT_URL - 20));
        let good = "http://example.com https://bücher.example/ü http://127.0.0.1/report https://user:pw@example.com/";
        for good in good.split(' ').chain(["HTTPS://Example.com:8443/a b?c=\"d\"#e", &longest]) {
            assert!(is_result_url(good), "{good}");
        }
        let too_long = format!("{longest}x");
        let bad = "done /reports/7 //example.com/ http:example.com https:/example.com http:// ftp://example.com/ \
                   javascript:alert(1) data:text/html,x https://example.com:99999/ https://[::1";
        let blank = ["", " ", " https://example.com", "https://example.com/\n", "https://exa\tmple.com/"];
        for bad in bad.split_whitespace().chain(blank).chain([too_long.as_str()]) {
            assert!(!is_result_url(bad), "{bad:?}");
        }
    }

    #[test]
    fn appended_evidence_extends_or_replaces_fields() {
        let mut all = evidence(json!({"external_id": "1", "artifacts": ["a"]}));
        all.append(evidence(json!({"summary": "done", "artifacts": ["b", "c"]})));
        assert_eq!(all, evidence(json!({"external_id": "1", "summary": "done", "artifacts": ["b", "c"]})));
        assert_eq!(Evidence::default().fields(), None);
    }
}
