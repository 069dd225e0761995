//! Evidence that the work was done, in addition to the report itself (contract §5).

use crate::domain::json::{JsonStr, JsonText, merged};
use crate::domain::webhook::callback_url::CallbackTarget;

/// The text fields of evidence.
pub const TEXTS: [&str; 5] = ["external_id", "result_url", "result_ref", "result_type", "summary"];

/// The list field of evidence.
pub const ARTIFACTS: &str = "artifacts";

pub const MAX_ARTIFACTS: usize = 100;

/// The evidence of one outcome: an object of the given fields, each a text or the list; `None` without any. It is
/// looked through as text and never becomes a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence(Option<JsonText>);

impl From<JsonText> for Evidence {
    /// The evidence in an object of fields.
    fn from(fields: JsonText) -> Self {
        Self((fields.get() != JsonStr::EMPTY_OBJECT).then_some(fields))
    }
}

impl Evidence {
    /// `None` without evidence.
    #[must_use]
    pub fn fields(&self) -> Option<&JsonText> {
        self.0.as_ref()
    }

    /// Returns whether `field` is a non-blank text or a non-empty list.
    #[must_use]
    pub fn shows(&self, field: &str) -> bool {
        let Some(value) = self.get(field) else { return false };
        match value.as_text() {
            Some(text) => !text.trim().is_empty(),
            None => value.items().is_some_and(|mut items| items.next().is_some()),
        }
    }

    /// Returns whether `field` is an absolute `http` or `https` URL.
    #[must_use]
    pub fn shows_url(&self, field: &str) -> bool {
        let text = self.get(field).and_then(JsonStr::as_text);
        text.is_some_and(|text| CallbackTarget::parse(text.trim()).is_ok())
    }

    /// Returns whether `field` was given but is blank or empty.
    #[must_use]
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

    fn get(&self, field: &str) -> Option<JsonStr<'_>> {
        let mut entries = self.0.as_ref()?.get().entries()?;
        entries.find(|(name, _)| *name == field).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

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
    fn appended_evidence_extends_or_replaces_fields() {
        let mut all = evidence(json!({"external_id": "1", "artifacts": ["a"]}));
        all.append(evidence(json!({"summary": "done", "artifacts": ["b", "c"]})));
        assert_eq!(all, evidence(json!({"external_id": "1", "summary": "done", "artifacts": ["b", "c"]})));
        assert_eq!(Evidence::default().fields(), None);
    }
}
