//! The words, examples and free-form objects of the document.

use std::collections::{BTreeMap, BTreeSet};

use cued::domain::account::device_login::LoginState;
use cued::domain::account::user::RegistrationPolicy;
use cued::domain::billing::offer::{Interval, PaidPlan};
use cued::domain::cue::patch::ScheduleKind;
use cued::domain::cue::{CueStatus, Transport};
use cued::domain::execution::attempt::AttemptEnd;
use cued::domain::execution::failure_cause::FailureCause;
use cued::domain::execution::verification::{OutcomeState, VerificationMode};
use cued::domain::execution::worker::HeartbeatStatus;
use cued::domain::execution::{ExecutionStatus, Trigger};
use cued::domain::notification::alert::AlertType;
use cued::domain::notification::event::EventType;
use cued::domain::schedule::CatchUp;
use cued::domain::schedule::catch_up::MissReason;
use cued::domain::webhook::callback::Method;
use serde_json::Value;

use crate::openapi::document::{DOCUMENT, OPERATIONS, faults, is_object, resolved};

/// The source of the error codes: the enum has no list of its variants.
const CODES: &str = include_str!("../../../src/domain/api_error.rs");

/// A state that no login has: a code that is unknown or too old.
const EXPIRED: &str = "expired";

/// Events that a stream makes by itself.
const OF_STREAMS: [&str; 2] = ["hello", "reset"];

/// Every list of words in the schemas that have a name, with the words of the program.
fn words() -> BTreeMap<&'static str, Vec<&'static str>> {
    BTreeMap::from([
        ("AttemptResult", AttemptEnd::WORDS.to_vec()),
        ("AlertType", AlertType::WORDS.to_vec()),
        ("CallbackMethod", Method::WORDS.to_vec()),
        ("Cause", FailureCause::WORDS.to_vec()),
        ("CatchUp", CatchUp::WORDS.to_vec()),
        ("CueStatus", CueStatus::WORDS.to_vec()),
        ("ErrorCode", codes().into_keys().collect()),
        ("EventType", EventType::WORDS.into_iter().chain(OF_STREAMS).collect()),
        ("ExecutionStatus", ExecutionStatus::WORDS.to_vec()),
        ("HeartbeatStatus", HeartbeatStatus::WORDS.to_vec()),
        ("LoginState", LoginState::WORDS.into_iter().chain([EXPIRED]).collect()),
        ("MissReason", MissReason::WORDS.to_vec()),
        ("OutcomeState", OutcomeState::WORDS.to_vec()),
        ("PaidPlan", PaidPlan::WORDS.to_vec()),
        ("PlanInterval", Interval::WORDS.to_vec()),
        ("Registration", RegistrationPolicy::WORDS.to_vec()),
        ("ScheduleType", ScheduleKind::WORDS.to_vec()),
        ("Transport", Transport::WORDS.to_vec()),
        ("Trigger", Trigger::WORDS.to_vec()),
        ("VerificationMode", VerificationMode::WORDS.to_vec()),
    ])
}

/// The error codes of the program with their status: the lines `Self::X => ("x", 404),`.
fn codes() -> BTreeMap<&'static str, u64> {
    let row = |line: &'static str| {
        let (code, status) = line.trim().strip_suffix("),")?.split_once("=> (\"")?.1.split_once("\", ")?;
        Some((code, status.parse().ok()?))
    };
    CODES.lines().filter_map(row).collect()
}

#[test]
fn lists_of_words_are_those_of_the_program() {
    let schemas = DOCUMENT["components"]["schemas"].as_object().unwrap();
    let mut expected = words();
    for (name, schema) in schemas {
        let Some(listed) = schema["enum"].as_array() else { continue };
        let listed: BTreeSet<&str> = listed.iter().filter_map(Value::as_str).collect();
        let known = expected.remove(name.as_str()).unwrap_or_else(|| panic!("no words are given for {name}"));
        assert_eq!(listed, known.into_iter().collect(), "{name}");
    }
    assert!(expected.is_empty(), "the document has no {:?}", expected.keys());
}

#[test]
fn every_type_of_event_has_a_schema() {
    let schemas = DOCUMENT["paths"]["/v1/events"]["get"]["x-events"].as_object().unwrap();
    let types: BTreeSet<&str> = EventType::WORDS.into_iter().chain(OF_STREAMS).collect();
    assert_eq!(schemas.keys().map(String::as_str).collect::<BTreeSet<_>>(), types);
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
