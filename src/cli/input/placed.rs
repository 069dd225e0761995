//! The value of a text with the places of its parts, so that a fault is found where it was written.

use std::fmt;

use serde_json::{Map, Value};

/// A place in a text, counted from 1: `7:15`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

impl Place {
    pub const START: Self = Self { line: 1, column: 1 };
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A value, and where it begins.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    pub place: Place,
    pub node: Node,
    /// A variable of the environment is a part of the text, which may be a secret.
    pub has_variable: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    Scalar(Value),
    List(Vec<Placed>),
    /// In the order of the text.
    Object(Vec<Entry>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub key: String,
    /// Of the key.
    pub place: Place,
    pub value: Placed,
}

impl Placed {
    pub fn new(place: Place, node: Node) -> Self {
        Self { place, node, has_variable: false }
    }

    pub fn scalar(place: Place, value: impl Into<Value>) -> Self {
        Self::new(place, Node::Scalar(value.into()))
    }

    pub fn object(place: Place) -> Self {
        Self::new(place, Node::Object(Vec::new()))
    }

    /// A value whose parts all have one place.
    pub fn of_value(place: Place, value: Value) -> Self {
        match value {
            Value::Array(items) => {
                let items = items.into_iter().map(|item| Self::of_value(place, item));
                Self::new(place, Node::List(items.collect()))
            }
            Value::Object(entries) => {
                let entry =
                    |(key, value)| Entry { key, place, value: Self::of_value(place, value) };
                Self::new(place, Node::Object(entries.into_iter().map(entry).collect()))
            }
            scalar => Self::scalar(place, scalar),
        }
    }

    pub fn into_value(self) -> Value {
        match self.node {
            Node::Scalar(value) => value,
            Node::List(items) => items.into_iter().map(Self::into_value).collect(),
            Node::Object(entries) => {
                let entries =
                    entries.into_iter().map(|entry| (entry.key, entry.value.into_value()));
                Value::Object(entries.collect::<Map<_, _>>())
            }
        }
    }

    pub fn to_value(&self) -> Value {
        self.clone().into_value()
    }

    /// None unless it is an object.
    pub fn entries(&self) -> &[Entry] {
        if let Node::Object(entries) = &self.node { entries } else { &[] }
    }

    pub fn is_object(&self) -> bool {
        matches!(self.node, Node::Object(_))
    }

    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entry(key).map(|entry| &entry.value)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Self> {
        let Node::Object(entries) = &mut self.node else { return None };
        entries.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.value)
    }

    pub fn as_str(&self) -> Option<&str> {
        if let Node::Scalar(Value::String(text)) = &self.node { Some(text) } else { None }
    }

    pub fn as_bool(&self) -> Option<bool> {
        if let Node::Scalar(Value::Bool(is_true)) = self.node { Some(is_true) } else { None }
    }

    pub fn is_null(&self) -> bool {
        matches!(self.node, Node::Scalar(Value::Null))
    }

    /// Sets an entry, and returns the one that had the key.
    pub fn insert(&mut self, entry: Entry) -> Option<Entry> {
        let Node::Object(entries) = &mut self.node else { return None };
        match entries.iter_mut().find(|known| known.key == entry.key) {
            Some(known) => Some(std::mem::replace(known, entry)),
            None => {
                entries.push(entry);
                None
            }
        }
    }

    /// The value with this key, which is the given one if there was none. `None` unless this is an object.
    pub fn get_or_insert(&mut self, key: &str, value: Self) -> Option<&mut Self> {
        let Node::Object(entries) = &mut self.node else { return None };
        let index = entries.iter().position(|entry| entry.key == key).unwrap_or(entries.len());
        if index == entries.len() {
            entries.push(Entry { key: key.to_owned(), place: value.place, value });
        }
        Some(&mut entries[index].value)
    }

    pub fn remove(&mut self, key: &str) -> Option<Entry> {
        let Node::Object(entries) = &mut self.node else { return None };
        let index = entries.iter().position(|entry| entry.key == key)?;
        Some(entries.remove(index))
    }

    /// The part with this key or index, and the place of its key.
    fn part(&self, part: &Value) -> Option<(&Self, Place)> {
        match (&self.node, part) {
            (Node::Object(_), Value::String(key)) => {
                self.entry(key).map(|entry| (&entry.value, entry.place))
            }
            (Node::List(items), index) => {
                let index = usize::try_from(index.as_u64()?).ok()?;
                items.get(index).map(|item| (item, item.place))
            }
            _ => None,
        }
    }

    /// The place of the part with this path of keys and indices, or of the nearest part around it. `wants_key` asks for
    /// the place of its key.
    pub fn place_of(&self, path: &[Value], wants_key: bool) -> Place {
        let (mut found, mut place) = (self, self.place);
        for part in path {
            // What is missing belongs to the key of the object that it is missing in.
            let Some(next) = found.part(part) else { return place };
            (found, place) = next;
        }
        if wants_key { place } else { found.place }
    }

    /// The part with this path of keys and indices.
    pub fn find(&self, path: &[Value]) -> Option<&Self> {
        path.iter().try_fold(self, |found, part| found.part(part).map(|(part, _)| part))
    }

    /// Whether it, or a part of it, is such a value.
    pub fn has(&self, is_such: &dyn Fn(&Self) -> bool) -> bool {
        let is_in_parts = match &self.node {
            Node::Scalar(_) => false,
            Node::List(items) => items.iter().any(|item| item.has(is_such)),
            Node::Object(entries) => entries.iter().any(|entry| entry.value.has(is_such)),
        };
        is_in_parts || is_such(self)
    }

    /// Whether a variable of the environment is a part of it.
    pub fn is_of_environment(&self) -> bool {
        self.has(&|part| part.has_variable)
    }
}
