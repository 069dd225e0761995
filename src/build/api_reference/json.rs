//! JSON with its fields in the order of the text: that of the description of the API is for readers. A `serde_json`
//! that keeps it does so for the whole program.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    /// As it is written.
    Number(String),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    pub fn parse(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text).and_then(Self::of)
    }

    /// Numbers stay as they are written.
    fn of(value: &RawValue) -> serde_json::Result<Self> {
        let text = value.get();
        Ok(match text.as_bytes().first() {
            Some(b'{') => {
                let Entries(entries) = serde_json::from_str(text)?;
                let field = |(name, value)| Ok((name, Self::of(value)?));
                Self::Object(entries.into_iter().map(field).collect::<serde_json::Result<_>>()?)
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(text)?;
                Self::List(items.into_iter().map(Self::of).collect::<serde_json::Result<_>>()?)
            }
            Some(b'"') => Self::Text(serde_json::from_str(text)?),
            Some(b't' | b'f') => Self::Bool(text == "true"),
            Some(b'n') => Self::Null,
            _ => Self::Number(text.to_owned()),
        })
    }

    /// The field of this name; `Null` if there is none.
    pub fn get(&self, name: &str) -> &Self {
        self.fields()
            .iter()
            .find(|(known, _)| known == name)
            .map_or(&Self::Null, |(_, value)| value)
    }

    pub fn has(&self, name: &str) -> bool {
        self.fields().iter().any(|(known, _)| known == name)
    }

    pub fn text(&self) -> &str {
        if let Self::Text(text) | Self::Number(text) = self { text } else { "" }
    }

    pub fn list(&self) -> &[Self] {
        if let Self::List(items) = self { items } else { &[] }
    }

    pub fn fields(&self) -> &[(String, Self)] {
        if let Self::Object(fields) = self { fields } else { &[] }
    }

    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.list().iter().map(Self::text)
    }
}

/// The entries of an object in their order, which the maps of the library do not keep.
struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Entries(entries))
    }
}
