//! Programs that were written for the released API keep working: nothing that they read or send is taken away.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::openapi::document::{DOCUMENT, METHODS};

/// The description of the last release; a release replaces it.
const RELEASED: &str = include_str!("../../data/openapi-released.json");

/// The use of a schema. A reader suffers from what is missing, a writer from what is demanded.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Request,
    Response,
}

struct Walk<'a> {
    old: &'a Value,
    new: &'a Value,
    found: Vec<String>,
    /// Pairs of schemas that were compared, by name: schemas refer to each other.
    done: BTreeSet<String>,
}

/// The breaks that a program written for `old` would meet in `new`.
fn breaks(old: &Value, new: &Value) -> Vec<String> {
    let mut walk = Walk { old, new, found: Vec::new(), done: BTreeSet::new() };
    for (path, item) in old["paths"].as_object().unwrap() {
        for method in METHODS.iter().filter(|method| item.get(*method).is_some()) {
            let (before, after) = (&item[*method], &new["paths"][path][*method]);
            let place = format!("{method} {path}");
            if after.is_null() {
                walk.found.push(format!("{place} is gone"));
                continue;
            }
            walk.operation(&place, before, after);
        }
    }
    walk.found
}

impl<'a> Walk<'a> {
    fn operation(&mut self, place: &str, old: &'a Value, new: &'a Value) {
        if old["operationId"] != new["operationId"] {
            self.found.push(format!("{place} has another operationId"));
        }
        if old["security"] != new["security"] {
            self.found.push(format!("{place} has another security"));
        }
        let (before, after) = (self.parameters(self.old, old), self.parameters(self.new, new));
        for (name, parameter) in &before {
            match after.iter().find(|(known, _)| known == name) {
                None => self.found.push(format!("{place}: parameter {name} is gone")),
                Some((_, after)) => {
                    self.schema(
                        &format!("{place} {name}"),
                        &parameter["schema"],
                        &after["schema"],
                        Side::Request,
                    );
                }
            }
        }
        for (name, parameter) in &after {
            let was_required = before.iter().any(|(known, it)| known == name && it["required"] == true);
            if parameter["required"] == true && !was_required {
                self.found.push(format!("{place}: parameter {name} is now required"));
            }
        }
        if new["requestBody"]["required"] == true && old["requestBody"]["required"] != true {
            self.found.push(format!("{place}: a body is now required"));
        }
        for (name, event) in old["x-events"].as_object().into_iter().flatten() {
            match new["x-events"].get(name) {
                None => self.found.push(format!("{place}: event {name} is gone")),
                Some(after) => self.schema(&format!("{place} {name}"), event, after, Side::Response),
            }
        }
        self.contents(&format!("{place} request"), &old["requestBody"], &new["requestBody"], Side::Request);
        for (status, response) in old["responses"].as_object().unwrap() {
            let before = follow(self.old, response);
            let after = follow(self.new, &new["responses"][status]);
            let place = format!("{place} {status}");
            // A refusal may disappear: what was refused is then accepted.
            if after.is_null() && status.starts_with('2') {
                self.found.push(format!("{place} is gone"));
            }
            if !after.is_null() {
                for name in before["headers"].as_object().into_iter().flat_map(serde_json::Map::keys) {
                    if after["headers"].get(name).is_none() {
                        self.found.push(format!("{place}: header {name} is gone"));
                    }
                }
                self.contents(&place, before, after, Side::Response);
            }
        }
    }

    fn parameters(&self, root: &'a Value, operation: &'a Value) -> Vec<(String, &'a Value)> {
        let all = operation["parameters"].as_array().into_iter().flatten().map(|it| follow(root, it));
        all.map(|it| (format!("{} {}", it["in"], it["name"]), it)).collect()
    }

    fn contents(&mut self, place: &str, old: &'a Value, new: &'a Value, side: Side) {
        for (kind, content) in old["content"].as_object().into_iter().flatten() {
            match new["content"].get(kind) {
                None => self.found.push(format!("{place}: {kind} is gone")),
                Some(after) => self.schema(place, &content["schema"], &after["schema"], side),
            }
        }
    }

    fn schema(&mut self, place: &str, old: &'a Value, new: &'a Value, side: Side) {
        if let Some(name) = old["$ref"].as_str() {
            let is_request = side == Side::Request;
            if !self.done.insert(format!("{name} {} {is_request}", new["$ref"])) {
                return;
            }
        }
        let (old, new) = (follow(self.old, old), follow(self.new, new));
        self.kinds(place, old, new, side);
        self.words(place, old, new, side);
        let fields = |schema| {
            let mut found = Vec::new();
            properties(schema, &mut found);
            found
        };
        let (before, after) = (fields((self.old, old)), fields((self.new, new)));
        for (name, field) in &before {
            match after.iter().find(|(known, _)| known == name) {
                None => self.found.push(format!("{place}: field {name} is gone")),
                Some((_, after)) => self.schema(&format!("{place}.{name}"), field, after, side),
            }
        }
        let (was, is) = (required(self.old, old), required(self.new, new));
        match side {
            Side::Request => {
                let added = is.difference(&was).map(|name| format!("{place}: field {name} is now required"));
                self.found.extend(added);
            }
            Side::Response => {
                let lost = was.difference(&is).map(|name| format!("{place}: field {name} may now be absent"));
                self.found.extend(lost);
            }
        }
        for below in ["items", "additionalProperties"] {
            if old[below].is_object() && new[below].is_object() {
                self.schema(&format!("{place}[]"), &old[below], &new[below], side);
            }
        }
        if side == Side::Request
            && new["additionalProperties"] == false
            && old["additionalProperties"] != false
        {
            self.found.push(format!("{place}: other fields are now refused"));
        }
        let choices = |schema: &'a Value| schema["anyOf"].as_array().into_iter().flatten();
        for (before, after) in choices(old).zip(choices(new)) {
            self.schema(place, before, after, side);
        }
    }

    /// A value that was sent is still taken; a value that is received was possible before.
    fn kinds(&mut self, place: &str, old: &'a Value, new: &'a Value, side: Side) {
        let (before, after) = (texts(&old["type"]), texts(&new["type"]));
        if before.is_empty() || after.is_empty() {
            return;
        }
        let (wanted, given) = if side == Side::Request { (&before, &after) } else { (&after, &before) };
        if !wanted.is_subset(given) {
            self.found.push(format!("{place}: the type was {before:?} and is {after:?}"));
        }
    }

    fn words(&mut self, place: &str, old: &'a Value, new: &'a Value, side: Side) {
        let list = |schema: &Value| texts(&schema["enum"]);
        // A response may have new words: readers are told to expect them. A code that is gone is one less refusal.
        let is_code = place.ends_with(".error.code") && side == Side::Response;
        let gone: Vec<String> = list(old).difference(&list(new)).cloned().collect();
        if !gone.is_empty() && !list(new).is_empty() && !is_code {
            self.found.push(format!("{place}: the words {gone:?} are gone"));
        }
    }
}

fn follow<'a>(root: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str() {
        Some(name) => root.pointer(name.trim_start_matches('#')).unwrap_or(&Value::Null),
        None => value,
    }
}

/// The named fields of a schema and of the schemas that it extends.
fn properties<'a>((root, schema): (&'a Value, &'a Value), found: &mut Vec<(&'a str, &'a Value)>) {
    let own = schema["properties"].as_object().into_iter().flatten();
    found.extend(own.map(|(name, field)| (name.as_str(), field)));
    for part in schema["allOf"].as_array().into_iter().flatten() {
        properties((root, follow(root, part)), found);
    }
}

fn required(root: &Value, schema: &Value) -> BTreeSet<String> {
    let parts = schema["allOf"].as_array().into_iter().flatten();
    let inherited = parts.flat_map(|part| required(root, follow(root, part)));
    texts(&schema["required"]).into_iter().chain(inherited).collect()
}

/// A text, or a list of texts, as a set.
fn texts(value: &Value) -> BTreeSet<String> {
    let several = value.as_array().into_iter().flatten();
    several.chain([value]).filter_map(Value::as_str).map(str::to_owned).collect()
}

#[test]
fn nothing_of_the_released_api_is_gone() {
    let released: Value = serde_json::from_str(RELEASED).unwrap();
    assert_eq!(breaks(&released, &DOCUMENT), Vec::<String>::new());
}

#[test]
fn each_kind_of_break_is_found() {
    let released: Value = serde_json::from_str(RELEASED).unwrap();
    let schemas = "/components/schemas";
    let cases: [(&str, &str, Value, &str); 9] = [
        ("/paths", "/v1/usage", Value::Null, "get /v1/usage is gone"),
        ("/paths/~1v1~1usage/get", "operationId", json!("other"), "another operationId"),
        ("/paths/~1v1~1usage/get", "security", json!([]), "another security"),
        ("/paths/~1v1~1events/get/x-events", "burst", Value::Null, "event burst is gone"),
        (&format!("{schemas}/ResetEvent/properties"), "reason", Value::Null, "reset: field reason is gone"),
        (
            &format!("{schemas}/CueFields/properties"),
            "missed_count",
            Value::Null,
            "field missed_count is gone",
        ),
        (&format!("{schemas}/CueStatus"), "enum", json!(["active", "paused", "completed"]), "are gone"),
        (&format!("{schemas}/CueCreate"), "required", json!(["name", "schedule", "payload"]), "now required"),
        (&format!("{schemas}/Retry/properties/max_attempts"), "type", json!("string"), "the type was"),
    ];
    for (place, name, value, expected) in cases {
        let mut changed = released.clone();
        let object = changed.pointer_mut(place).and_then(Value::as_object_mut).unwrap();
        if value.is_null() {
            object.remove(name)
        } else {
            object.insert(name.to_owned(), value)
        };
        let found = breaks(&released, &changed);
        assert!(found.iter().any(|it| it.contains(expected)), "{place} {name}: {found:#?}");
    }
    assert_eq!(breaks(&released, &released), Vec::<String>::new());
}
