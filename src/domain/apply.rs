//! Many cues and channels of one request (contract §4.18).

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use crate::domain::channel::ChannelFields;
use crate::domain::cue::{Cue, CueRequest};
use crate::domain::json::{compare_keys, read, unescaped};

/// Cues of a request, and cues that one deletes: all are in one write, for which due runs wait.
pub const MAX_CUES: usize = 500;

/// Keys of a payload that are listed, and the characters of each.
const MAX_KEYS: usize = 100;
const MAX_KEY: usize = 100;

/// Bytes of payloads that are compared key by key.
pub const MAX_COMPARED: usize = 64 << 10;

#[derive(Debug, Default)]
pub struct Apply {
    /// Empty if the slugs of the cues are whole.
    pub namespace: String,
    /// Of different slugs, in the order of their keys.
    pub cues: Vec<CueRequest>,
    /// Of different names.
    pub channels: Vec<ChannelFields>,
    /// The other cues of the namespace are deleted, except those with the slugs `kept`.
    pub prunes: bool,
    pub kept: BTreeSet<String>,
    pub adopts: bool,
    /// Nothing may be changed.
    pub is_dry_run: bool,
    /// What is deleted is not known, and so is the room for the others.
    pub ignores_limits: bool,
}

impl Apply {
    pub fn slug(&self, key: &str) -> String {
        if self.namespace.is_empty() { key.to_owned() } else { format!("{}/{key}", self.namespace) }
    }

    /// The key of the cue with a slug of the namespace.
    pub fn key<'a>(&self, slug: &'a str) -> &'a str {
        slug.strip_prefix(&self.namespace).and_then(|key| key.strip_prefix('/')).unwrap_or(slug)
    }
}

/// What happens to a cue or a channel, as the answer has it.
#[derive(Debug, Default, Serialize)]
pub struct Change {
    pub kind: &'static str,
    /// As in the request.
    pub key: String,
    pub action: &'static str,
    /// `None` for what a dry run would create.
    pub id: Option<String>,
    /// Those of `difference` that are shown.
    pub fields: Vec<FieldChange>,
    pub next_run: Option<String>,
    pub next_run_before: Option<String>,
    #[serde(skip)]
    pub difference: Option<Difference>,
    /// Overdue runs that fired before it.
    #[serde(skip)]
    pub fired: usize,
}

impl Change {
    pub fn new(kind: &'static str, key: String, action: &'static str, id: Option<String>) -> Self {
        Self { kind, key, action, id, ..Self::default() }
    }
}

#[derive(Debug)]
pub enum Difference {
    Cue { before: Box<Cue>, after: Box<Cue>, fields: Vec<&'static str>, payload: Vec<ChangedKey> },
    Channel { before: Box<ChannelFields>, after: Box<ChannelFields> },
}

/// A field before and after, as it may be shown, with dots before parts.
#[derive(Debug, Serialize)]
pub struct FieldChange {
    pub field: String,
    pub old: Value,
    pub new: Value,
}

/// A key of a payload that was added, changed or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedKey {
    /// `None` for the payload as a whole, or what is not listed of it.
    pub name: Option<String>,
    pub was_there: bool,
    pub is_there: bool,
}

/// Compares two payloads key by key, in the order of the keys. `None` if one of them is not an object.
pub fn changed_keys(before: &str, after: &str) -> Option<Vec<ChangedKey>> {
    let (before, after) = (read(before.as_bytes()).ok()?, read(after.as_bytes()).ok()?);
    let mut before = before.get().entries()?.peekable();
    let mut after = after.get().entries()?.peekable();
    let mut changed = Vec::new();
    loop {
        let order = match (before.peek(), after.peek()) {
            (None, None) => return Some(changed),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((old, _)), Some((new, _))) => compare_keys(old, new),
        };
        let old = before.next_if(|_| order.is_le());
        let new = after.next_if(|_| order.is_ge());
        if old.map(|(_, value)| value) == new.map(|(_, value)| value) {
            continue;
        }
        if changed.len() == MAX_KEYS {
            changed.push(ChangedKey { name: None, was_there: true, is_there: true });
            return Some(changed);
        }
        let name = old.or(new).map(|(key, _)| unescaped(key).chars().take(MAX_KEY).collect());
        changed.push(ChangedKey { name, was_there: old.is_some(), is_there: new.is_some() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_in_which_payloads_differ_are_listed() {
        let keys = |before: &str, after: &str| -> Option<Vec<String>> {
            let sign = |it: &ChangedKey| match (it.was_there, it.is_there) {
                (true, true) => '~',
                (false, _) => '+',
                (_, false) => '-',
            };
            let name = |it: &ChangedKey| it.name.clone().unwrap_or_else(|| "…".to_owned());
            let changed = changed_keys(before, after)?;
            Some(changed.iter().map(|it| format!("{}{}", sign(it), name(it))).collect())
        };
        let listed = |names: &[&str]| Some(names.iter().map(|it| (*it).to_owned()).collect());
        assert_eq!(keys(r#"{"a": 1}"#, r#"{"a": 1}"#), listed(&[]));
        assert_eq!(
            keys(r#"{"a": 1, "b": null, "d": [1]}"#, r#"{"a": 2, "c": 1, "d": [1]}"#),
            listed(&["~a", "-b", "+c"])
        );
        assert_eq!(keys(r#"{"\u00e9\n": 1}"#, "{\"z\": 1}"), listed(&["+z", "-é\n"]));
        assert_eq!(keys("[]", "{}"), None);
        let many = |value: u32| {
            let entries: Vec<String> = (0..200).map(|it| format!("\"{it}\": {value}")).collect();
            format!("{{{}}}", entries.join(", "))
        };
        let changed = keys(&many(1), &many(2)).unwrap();
        assert_eq!((changed.len(), changed.last().unwrap().as_str()), (101, "~…"));
        let long = format!("{{\"{}\": 1}}", "k".repeat(5_000));
        assert_eq!(keys("{}", &long).unwrap()[0].len(), 101);
    }
}
