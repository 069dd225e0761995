//! Serialization of bodies to JSON text.

use std::io::{self, Write};

use serde::Serialize;

use crate::error::{Error, Result};

/// Appends to a text. Most writes of serde_json are single bytes, such as a quote or a comma: those are appended here,
/// because the general way is a call and a copy for each. A list of 20 cues has 4,000 writes.
struct JsonWriter<'a>(&'a mut Vec<u8>);

impl Write for JsonWriter<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match bytes {
            [byte] => self.0.push(*byte),
            _ => self.0.extend_from_slice(bytes),
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Appends the JSON of `value`.
/// Errors: [`Error::Fault`] if a value has no JSON form.
pub fn append_json(text: &mut Vec<u8>, value: &impl Serialize) -> Result<()> {
    serde_json::to_writer(JsonWriter(text), value)
        .map_err(|error| Error::fault_from("a response could not be written as JSON", error))
}

/// Serializes a body as JSON.
/// Errors: as [`append_json`].
pub fn to_json(body: &impl Serialize) -> Result<String> {
    let mut text = Vec::with_capacity(1_024);
    append_json(&mut text, body)?;
    String::from_utf8(text).map_err(|error| Error::fault_from("JSON is not UTF-8", error))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_text_is_that_of_the_library() {
        let value =
            json!({"a": [1, "\"ä\n", null, {"": 1.5}], "b": "x".repeat(3_000), "c": {}, "d": [], "e": true});
        assert_eq!(to_json(&value).unwrap(), serde_json::to_string(&value).unwrap());
    }

    #[test]
    fn a_value_without_a_json_form_is_an_error() {
        let map = std::collections::HashMap::from([((1, 2), 3)]);
        assert!(to_json(&map).is_err());
    }
}
