//! Lists of the API: one answer, or several pages as one list.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::cli::error::CliError;
use crate::client::error::ClientError;
use crate::client::request::Answer;

/// A list, or its beginning.
#[derive(Debug)]
pub struct List {
    /// The field of the answer that has the items.
    key: &'static str,
    pub items: Vec<Box<RawValue>>,
    /// Of the whole list, if the server counts.
    pub total: Option<u64>,
    pub has_more: bool,
    /// The only answer, unchanged.
    single: Option<String>,
}

impl List {
    /// A list without answers yet. `key` is the field of the answers that has the items.
    pub fn empty(key: &'static str) -> Self {
        Self { key, items: Vec::new(), total: None, has_more: true, single: None }
    }

    /// The list of one answer that has no pages.
    pub fn of(answer: &Answer, key: &'static str) -> Result<Self, CliError> {
        let mut list = Self::empty(key);
        list.append(answer)?;
        Ok(list)
    }

    /// Adds the items of a page, and returns the cursor of the next one, if the list has cursors.
    pub fn append(&mut self, answer: &Answer) -> Result<Option<String>, CliError> {
        let mut page: serde_json::Map<String, Value> = answer.read()?;
        let fields: std::collections::BTreeMap<String, &RawValue> =
            serde_json::from_slice(&answer.body).map_err(ClientError::UnexpectedAnswer)?;
        let items = fields.get(self.key).map_or("[]", |items| items.get());
        let items: Vec<Box<RawValue>> = serde_json::from_str(items).map_err(ClientError::UnexpectedAnswer)?;
        self.single = self.items.is_empty().then(|| answer.text());
        self.items.extend(items);
        self.total = page.get("total").and_then(Value::as_u64);
        self.has_more = page.get("has_more").and_then(Value::as_bool).unwrap_or(false);
        Ok(match page.remove("next_cursor") {
            Some(Value::String(cursor)) => Some(cursor),
            _ => None,
        })
    }

    /// The items as values.
    pub fn values(&self) -> Result<Vec<Value>, CliError> {
        let value = |item: &RawValue| serde_json::from_str(item.get());
        Ok(self
            .items
            .iter()
            .map(|item| value(item))
            .collect::<Result<_, _>>()
            .map_err(ClientError::UnexpectedAnswer)?)
    }

    /// The answer of the server unchanged; of several pages an object with all items.
    pub fn json(&self) -> String {
        if let Some(single) = &self.single {
            return single.clone();
        }
        let items: Vec<&str> = self.items.iter().map(|item| item.get()).collect();
        let total = self.total.map(|total| format!(",\"total\":{total}")).unwrap_or_default();
        format!("{{\"{}\":[{}]{total},\"has_more\":{}}}", self.key, items.join(","), self.has_more)
    }
}
