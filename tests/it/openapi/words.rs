//! The error codes, examples and free-form objects of the document.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::openapi::document::{DOCUMENT, OPERATIONS, faults, is_object, resolved};

/// The source of the error codes: the enum has no list of its variants.
const CODES: &str = include_str!("../../../src/domain/api_error.rs");

/// The error codes of the program with their status: the lines `Self::X => ("x", 404),`.
pub fn codes() -> BTreeMap<&'static str, u64> {
    let row = |line: &'static str| {
        let (code, status) = line.trim().strip_suffix("),")?.split_once("=> (\"")?.1.split_once("\", ")?;
        Some((code, status.parse().ok()?))
    };
    CODES.lines().filter_map(row).collect()
}

#[test]
fn every_response_lists_codes_of_its_status() {
    let codes = codes();
    assert!(codes.len() > 45, "{codes:?}");
    for (it, key, response) in
        OPERATIONS.iter().flat_map(|it| it.responses().map(move |(key, response)| (it, key, response)))
    {
        for code in codes_of(response) {
            assert_eq!(Some(codes[code.as_str()]), key.parse().ok(), "{} {key} {code}", it.id);
            let description = response["description"].as_str().unwrap();
            assert!(description.contains(&format!("`{code}`")), "{} {key} does not describe {code}", it.id);
        }
        let is_error = key.starts_with(['4', '5']) && response["content"]["application/json"] != Value::Null;
        assert!(!is_error || !codes_of(response).is_empty(), "{} {key} lists no codes", it.id);
    }
}

/// The error codes that a response may have.
pub fn codes_of(response: &Value) -> Vec<String> {
    let schema = &response["content"]["application/json"]["schema"];
    if schema["$ref"] == "#/components/schemas/ValidationError" {
        return vec!["validation_error".to_owned()];
    }
    let listed = |schema: &Value| {
        let parts = schema["allOf"].as_array().into_iter().flatten();
        let words = parts.flat_map(|it| it["properties"]["error"]["properties"]["code"]["enum"].as_array());
        words.flatten().map(|it| it.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let choices = schema["anyOf"].as_array().into_iter().flatten();
    choices.chain([schema]).flat_map(listed).collect()
}

/// Every place with an example and a schema: a media type, a parameter, a header.
fn examples(value: &'static Value, found: &mut Vec<(&'static Value, &'static Value)>) {
    if let (Some(schema), Some(example)) = (value.get("schema"), value.get("example")) {
        found.push((schema, example));
    }
    if let (Some(schema), Some(several)) = (value.get("schema"), value["examples"].as_object()) {
        found.extend(several.values().map(|it| (schema, &resolved(&DOCUMENT, it)["value"])));
    }
    match value {
        Value::Object(fields) => {
            let is_data = |name: &str| matches!(name, "example" | "examples" | "schemas");
            fields.iter().filter(|(name, _)| !is_data(name)).for_each(|(_, it)| examples(it, found));
        }
        Value::Array(items) => items.iter().for_each(|item| examples(item, found)),
        _ => {}
    }
}

#[test]
fn examples_are_valid() {
    let mut found = Vec::new();
    examples(&DOCUMENT, &mut found);
    assert!(found.len() > 100, "{}", found.len());
    for (schema, example) in found {
        assert_eq!(faults(&DOCUMENT, schema, example), Vec::<String>::new(), "{schema} {example}");
    }
}

#[test]
fn every_body_has_an_example() {
    for it in OPERATIONS.iter() {
        let responses = it.responses().map(|(key, response)| (key.to_owned(), response));
        for (key, body) in responses.chain([("request".to_owned(), &it.json["requestBody"])]) {
            for (kind, content) in body["content"].as_object().into_iter().flatten() {
                let has_one = content.get("example").is_some() || content["examples"].is_object();
                assert!(has_one, "{} {key} {kind} has no example", it.id);
            }
        }
    }
}

/// An object without named fields says that it takes any: then it is meant.
#[test]
fn free_form_objects_are_marked() {
    fn look(value: &Value, path: &str) {
        if is_object(value.get("type")) && value["properties"].is_null() {
            let is_marked =
                value.get("additionalProperties").is_some() || value.get("maxProperties").is_some();
            assert!(is_marked, "{path} names no fields and does not say additionalProperties");
        }
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, it)| look(it, &format!("{path}/{name}"))),
            Value::Array(items) => items.iter().for_each(|it| look(it, path)),
            _ => {}
        }
    }
    look(&DOCUMENT["components"]["schemas"], "schemas");
    look(&DOCUMENT["paths"], "paths");
}

#[test]
fn every_component_is_used() {
    let text = DOCUMENT.to_string();
    for (kind, components) in DOCUMENT["components"].as_object().unwrap() {
        for name in components.as_object().unwrap().keys().filter(|_| kind != "securitySchemes") {
            let is_used = text.contains(&format!("\"#/components/{kind}/{name}\""));
            assert!(is_used, "{kind}/{name} is not used");
        }
    }
}

/// Whether a schema says what it is, by itself or by its name.
fn is_described(schema: &'static Value) -> bool {
    [schema, resolved(&DOCUMENT, schema)]
        .iter()
        .any(|it| it["description"].as_str().is_some_and(|text| !text.is_empty()))
}

/// The fields below a part of the document that no description explains. `described` are the schemas that the part narrows:
/// what they explain is not repeated.
fn unexplained(part: &'static Value, described: &[&'static Value], place: &str, found: &mut Vec<String>) {
    for (name, field) in part["properties"].as_object().into_iter().flatten() {
        let place = format!("{place}.{name}");
        let narrowed: Vec<&Value> =
            described.iter().map(|it| &it["properties"][name]).filter(|it| !it.is_null()).collect();
        // A field that must be absent is described where it may be there.
        if !is_described(field) && !narrowed.iter().any(|it| is_described(it)) && field["type"] != "null" {
            found.push(place.clone());
        }
        unexplained(field, &narrowed, &place, found);
    }
    for (name, below) in part.as_object().into_iter().flatten() {
        match (name.as_str(), below) {
            ("properties" | "default" | "enum" | "example" | "examples", _) => {}
            ("allOf" | "anyOf" | "oneOf", Value::Array(choices)) => {
                let bases = choices.iter().filter(|it| name == "allOf" && it["$ref"].is_string());
                let bases: Vec<&Value> = bases.map(|it| resolved(&DOCUMENT, it)).chain([part]).collect();
                choices.iter().for_each(|it| unexplained(it, &bases, place, found));
            }
            (_, Value::Array(items)) => items.iter().for_each(|it| unexplained(it, &[], place, found)),
            _ => unexplained(below, &[], &format!("{place} {name}"), found),
        }
    }
}

#[test]
fn every_field_is_described() {
    let mut found = Vec::new();
    unexplained(&DOCUMENT, &[], "", &mut found);
    assert!(found.is_empty(), "without a description:\n{}", found.join("\n"));
}
