//! Accepted values, and the errors for all others.

use super::*;
use crate::domain::api_error::FieldError;
use crate::domain::json::JsonText;
use crate::error::Error;
use serde_json::{Value, json};

/// Runs a reader on a body. Returns its result and `type path.of.field: msg` for each error.
fn read<T>(body: &Value, reader: impl Fn(&mut JsonFields<'_>) -> T) -> (T, Vec<String>) {
    let text = JsonText::from(body);
    let mut fields = JsonFields::of_body(JsonObject::of(text.get()).unwrap());
    let read = reader(&mut fields);
    match fields.finish() {
        Ok(()) => (read, Vec::new()),
        Err(Error::Refused(refusal)) => (read, refusal.problems.iter().map(format_error).collect()),
        Err(other) => panic!("{other}"),
    }
}

fn format_error(error: &FieldError) -> String {
    let path: Vec<String> = error
        .loc
        .iter()
        .map(|segment| match segment {
            LocSegment::Field(name) => name.to_string(),
            LocSegment::Index(index) => index.to_string(),
        })
        .collect();
    format!("{} {}: {}", error.kind, path.join("."), error.msg)
}

#[test]
fn every_error_is_collected_with_its_path() {
    let body = json!({
        "name": "", "transport": "pigeon", "payload": [], "retry": {"max_attempts": 11, "backoff_minutes": [1, "x"]},
        "handlers": ["a", 2, ""], "schedule": "daily", "success": "yes", "description": 7
    });
    let (_, errors) = read(&body, |fields| {
        fields.required_string("name", 1..=255);
        fields.required_string("worker_id", 1..=255);
        fields.string("description", 0..=1000);
        fields.one_of("transport", &["webhook", "worker"]);
        fields.dictionary("payload");
        fields.required_object("schedule");
        if let Some(mut retry) = fields.object("retry") {
            retry.integer("max_attempts", 1..=10);
            retry.numbers("backoff_minutes", 1..=32);
        }
        fields.required_strings("handlers", 0..=100, 1..=255);
        fields.required_boolean("success");
    });
    assert_eq!(
        errors,
        [
            "string_too_short body.name: String should have at least 1 character",
            "missing body.worker_id: Field required",
            "string_type body.description: Input should be a valid string",
            "literal_error body.transport: Input should be 'webhook' or 'worker'",
            "dict_type body.payload: Input should be a valid dictionary",
            "model_attributes_type body.schedule: Input should be a valid dictionary or object to extract fields from",
            "less_than_equal body.retry.max_attempts: Input should be less than or equal to 10",
            "float_type body.retry.backoff_minutes.1: Input should be a valid number",
            "string_type body.handlers.1: Input should be a valid string",
            "string_too_short body.handlers.2: String should have at least 1 character",
            "bool_type body.success: Input should be a valid boolean",
        ]
    );
}

#[test]
fn valid_values_are_returned_unchanged() {
    let body = json!({"name": "ä", "n": 3, "on": false, "list": ["a", "b"], "minutes": [0.5, 2], "deep": {"x": "y"}});
    let (read, errors) = read(&body, |fields| {
        (
            fields.required_string("name", 1..=1),
            fields.integer("n", 1..=10),
            fields.boolean("on"),
            fields.required_strings("list", 0..=2, 1..=1),
            fields.numbers("minutes", 1..=2),
            fields.object("deep").and_then(|mut deep| deep.string("x", 0..=9)),
            fields.unknown(),
        )
    });
    assert_eq!(errors, Vec::<String>::new());
    let list = vec!["a".to_owned(), "b".to_owned()];
    let (name, y) = (Some("ä".to_owned()), Some("y".to_owned()));
    assert_eq!(read, (name, Some(3), Some(false), Some(list), Some(vec![0.5, 2.0]), y, Vec::new()));
}

#[test]
fn null_is_absent_for_an_optional_field_and_a_wrong_type_for_a_required_one() {
    let body = json!({"description": null, "name": null, "retry": null});
    let (_, errors) = read(&body, |fields| {
        assert_eq!(fields.string("description", 1..=9), None);
        assert!(fields.object("retry").is_none());
        fields.required_string("name", 1..=9);
    });
    assert_eq!(errors, ["string_type body.name: Input should be a valid string"]);
}

#[test]
fn absent_and_null_are_distinguished() {
    let body = json!({"payload": null, "name": "x"});
    let (presences, _) =
        read(&body, |fields| ["payload", "name", "description"].map(|name| fields.presence(name)));
    assert_eq!(presences, [Presence::Null, Presence::Given, Presence::Absent]);
}

#[test]
fn unknown_fields_are_listed_or_forbidden() {
    let body = json!({"name": "x", "colour": 1, "schedule": {"cron": "* * * * *", "every": 5}});
    let (unknown, errors) = read(&body, |fields| {
        fields.string("name", 0..=9);
        if let Some(mut schedule) = fields.object("schedule") {
            schedule.string("cron", 0..=99);
            schedule.forbid_unknown();
        }
        fields.forbid_unknown();
        fields.unknown()
    });
    assert_eq!(unknown, ["colour"]);
    assert_eq!(
        errors,
        [
            "extra_forbidden body.schedule.every: Extra inputs are not permitted",
            "extra_forbidden body.colour: Extra inputs are not permitted"
        ]
    );
}

#[test]
fn the_input_is_the_value_the_object_or_the_name() {
    let body = json!({"a": 5, "extra": true});
    let text = JsonText::from(&body);
    let mut fields = JsonFields::of_body(JsonObject::of(text.get()).unwrap());
    fields.string("a", 0..=9);
    fields.required_string("b", 0..=9);
    fields.forbid_unknown();
    let Err(Error::Refused(refusal)) = fields.finish() else { panic!("accepted") };
    let inputs: Vec<&Value> = refusal.problems.iter().map(|error| &error.input).collect();
    assert_eq!(inputs, [&json!(5), &body, &json!("extra")]);
}

#[test]
fn integers_are_strict_and_of_any_length() {
    for (value, expected) in [
        ("5", None),
        ("5.0", Some("int_type")),
        ("\"5\"", Some("int_type")),
        ("true", Some("int_type")),
        ("0", Some("greater_than_equal")),
        ("-99999999999999999999999", Some("greater_than_equal")),
        ("99999999999999999999999", Some("less_than_equal")),
    ] {
        let body: Value = serde_json::from_str(&format!("{{\"n\": {value}}}")).unwrap();
        let (_, errors) = read(&body, |fields| fields.integer("n", 1..=10));
        let kind = errors.first().and_then(|error| error.split(' ').next());
        assert_eq!(kind, expected, "{value}");
    }
}

#[test]
fn a_nul_character_is_rejected() {
    let (_, errors) = read(&json!({"name": "a\u{0}b"}), |fields| fields.string("name", 0..=9));
    assert_eq!(errors, ["value_error body.name: Value error, a NUL character is not permitted"]);
}

#[test]
fn a_handler_can_add_errors() {
    let (_, errors) = read(&json!({"email": "x"}), |fields| {
        fields.reject("email", "not an email address");
        fields.add_missing("callback");
    });
    assert_eq!(
        errors,
        [
            "value_error body.email: Value error, not an email address",
            "missing body.callback: Field required"
        ]
    );
}
