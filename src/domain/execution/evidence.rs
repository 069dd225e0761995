//! Evidence that the work was done, in addition to the report itself (contract §5).

use serde_json::{Map, Value};

use crate::domain::webhook::callback_url::CallbackTarget;

/// The text fields of evidence.
pub const TEXTS: [&str; 5] = ["external_id", "result_url", "result_ref", "result_type", "summary"];

/// The list field of evidence.
pub const ARTIFACTS: &str = "artifacts";

pub const MAX_ARTIFACTS: usize = 100;

/// The evidence of one outcome: the given fields, each a text or the list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evidence(Map<String, Value>);

impl From<Map<String, Value>> for Evidence {
    fn from(fields: Map<String, Value>) -> Self {
        Self(fields)
    }
}

impl Evidence {
    /// `None` without evidence.
    #[must_use]
    pub fn fields(&self) -> Option<&Map<String, Value>> {
        (!self.0.is_empty()).then_some(&self.0)
    }

    /// Returns whether `field` is a non-blank text or a non-empty list.
    #[must_use]
    pub fn shows(&self, field: &str) -> bool {
        match self.0.get(field) {
            Some(Value::String(text)) => !text.trim().is_empty(),
            Some(Value::Array(items)) => !items.is_empty(),
            _ => false,
        }
    }

    /// Returns whether `field` is an absolute `http` or `https` URL.
    #[must_use]
    pub fn shows_url(&self, field: &str) -> bool {
        let text = self.0.get(field).and_then(Value::as_str);
        text.is_some_and(|text| CallbackTarget::parse(text.trim()).is_ok())
    }

    /// Returns whether `field` was given but is blank or empty.
    #[must_use]
    pub fn is_blank_in(&self, field: &str) -> bool {
        self.0.contains_key(field) && !self.shows(field)
    }

    /// Adds the fields of `more`, replacing existing ones.
    pub fn append(&mut self, more: Self) {
        self.0.extend(more.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn evidence(fields: Value) -> Evidence {
        fields.as_object().unwrap().clone().into()
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
