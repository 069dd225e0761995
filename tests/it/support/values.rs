//! Bodies of requests and responses: cues to create, and the parts of a JSON value that a test expects to be there.

use crate::support::*;

/// An instant that no test reaches: a cue with it runs by request only.
pub const YEARLY: &str = "0 0 1 1 *";

/// A cue for workers that runs at the times of `cron`.
pub fn worker_cue(name: &str, cron: &str) -> Value {
    json!({"name": name, "transport": "worker", "schedule": {"type": "recurring", "cron": cron}})
}

/// A cue for workers that runs every hour.
pub fn hourly_cue(name: &str) -> Value {
    worker_cue(name, "0 * * * *")
}

/// A cue that calls `url` at the times of `cron`.
pub fn webhook_cue(name: &str, cron: &str, url: &str) -> Value {
    json!({"name": name, "schedule": {"type": "recurring", "cron": cron}, "callback": {"url": url}})
}

/// The object with further fields, or other values of those that it has.
pub fn with(mut object: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("{more} is no object") };
    object.as_object_mut().unwrap().extend(more);
    object
}

/// The object without the field, and the value of the field.
pub fn without(object: &Value, name: &str) -> (Value, Value) {
    let mut rest = object.clone();
    let value = rest.as_object_mut().unwrap().remove(name).unwrap();
    (rest, value)
}

/// The parts of a JSON value that a test expects to be there.
pub trait Fields {
    /// A field that is a text.
    fn text(&self, name: &str) -> &str;

    /// A field that is a list.
    fn list(&self, name: &str) -> &Vec<Value>;

    /// A field of each item of a list.
    fn column(&self, list: &str, name: &str) -> Vec<Value>;

    /// The message of an error.
    fn message(&self) -> &str;
}

impl Fields for Value {
    #[track_caller]
    fn text(&self, name: &str) -> &str {
        self[name].as_str().unwrap_or_else(|| panic!("no text {name} in {self}"))
    }

    #[track_caller]
    fn list(&self, name: &str) -> &Vec<Value> {
        self[name].as_array().unwrap_or_else(|| panic!("no list {name} in {self}"))
    }

    #[track_caller]
    fn column(&self, list: &str, name: &str) -> Vec<Value> {
        self.list(list).iter().map(|item| item[name].clone()).collect()
    }

    #[track_caller]
    fn message(&self) -> &str {
        self["error"].text("message")
    }
}

/// The id of an object that the server returned.
#[track_caller]
pub fn id(object: &Value) -> &str {
    object.text("id")
}

/// The path of a cue.
pub fn cue_path(cue: &Value) -> String {
    format!("/v1/cues/{}", id(cue))
}

/// Compares the fields that `expected` names.
#[track_caller]
pub fn assert_has(object: &Value, expected: Value) {
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&object[name], value, "{name} of {object}");
    }
}

#[track_caller]
pub fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

/// The words of a command line; those between single quotes may contain blanks.
pub fn words(line: &str) -> Vec<&str> {
    let parts = line.split('\'').enumerate();
    parts
        .flat_map(|(number, part)| match number % 2 {
            0 => part.split_whitespace().collect(),
            _ => vec![part],
        })
        .collect()
}
