//! Every list of words in the document, and every constant word, is that of a type of the program.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use cued::domain::account::device_login::{LoginPurpose, LoginState};
use cued::domain::account::figures::Step;
use cued::domain::account::session::SignInWay;
use cued::domain::account::user::{CredentialKind, RegistrationPolicy};
use cued::domain::api_error::SchedulePart;
use cued::domain::billing::offer::{Interval, PaidPlan};
use cued::domain::cue::list_order::CueSort;
use cued::domain::cue::patch::{RequestedStatus, ScheduleKind};
use cued::domain::cue::{CueStatus, Transport};
use cued::domain::execution::attempt::AttemptEnd;
use cued::domain::execution::failure_cause::FailureCause;
use cued::domain::execution::verification::{OutcomeState, VerificationMode};
use cued::domain::execution::worker::HeartbeatStatus;
use cued::domain::execution::{ExecutionStatus, Trigger};
use cued::domain::notification::alert::{AlertType, Severity};
use cued::domain::notification::event::{EventType, ServerChange};
use cued::domain::notification::test_alert::TestStatus;
use cued::domain::schedule::CatchUp;
use cued::domain::schedule::catch_up::MissReason;
use cued::domain::webhook::address_policy::AddressPolicy;
use cued::domain::webhook::callback::Method;
use cued::events::ResetReason;
use cued::http::api::cues::{MergeStrategy, PayloadForm};
use cued::http::api::echo::EchoStatus;
use cued::http::api::operations::health::{DatabaseStatus, PollerStatus, ServerStatus, WorkerStatus};
use cued::http::api::operations::info::BillingMode;
use cued::mail::MailTransport;
use cued::service::bulk::cues::CueAction;
use serde_json::{Value, json};

use crate::openapi::document::DOCUMENT;
use crate::openapi::words::codes;

/// A state that no login has: a code that is unknown or too old.
const EXPIRED: &str = "expired";

/// Events that a stream makes by itself.
const OF_STREAMS: [&str; 2] = ["hello", "reset"];

/// Single words that no type of the program lists, each with the reason.
const CONSTANTS: [(&str, &str, &str); 11] = [
    ("/openapi.json get 200 headers Content-Encoding", "gzip", "a value of the standard"),
    ("headers Access-Control-Allow-Origin", "*", "a value of the standard"),
    ("headers Referrer-Policy", "same-origin", "a value of the standard"),
    ("headers Vary", "accept-encoding", "a name of the standard"),
    ("headers WWW-Authenticate", "Bearer", "a value of the standard"),
    ("headers X-Accel-Buffering", "no", "a value of nginx"),
    ("headers X-CueAPI-Usage-Warning", "approaching_limit", "the only value of the header"),
    ("headers X-Frame-Options", "DENY", "a value of the standard"),
    ("schemas Health services cache", "ok", "there is no cache: kept for clients that read it"),
    ("schemas Info name", "cued", "the name of the program"),
    ("schemas ValidationError allOf 1 error code", "validation_error", "the schema of one error code"),
];

type Words = Vec<&'static str>;

/// Lists of words in the schemas that have a name.
fn of_schemas() -> Vec<(&'static str, Words)> {
    vec![
        ("schemas AlertType", AlertType::WORDS.to_vec()),
        ("schemas AttemptResult", AttemptEnd::WORDS.to_vec()),
        ("schemas CallbackMethod", Method::WORDS.to_vec()),
        ("schemas CatchUp", CatchUp::WORDS.to_vec()),
        ("schemas Cause", FailureCause::WORDS.to_vec()),
        ("schemas CueStatus", CueStatus::WORDS.to_vec()),
        ("schemas ErrorCode", codes().into_keys().collect()),
        ("schemas EventType", EventType::WORDS.into_iter().chain(OF_STREAMS).collect()),
        ("schemas ExecutionStatus", ExecutionStatus::WORDS.to_vec()),
        ("schemas HeartbeatStatus", HeartbeatStatus::WORDS.to_vec()),
        ("schemas LoginState", LoginState::WORDS.into_iter().chain([EXPIRED]).collect()),
        ("schemas MissReason", MissReason::WORDS.to_vec()),
        ("schemas OutcomeState", OutcomeState::WORDS.to_vec()),
        ("schemas PaidPlan", PaidPlan::WORDS.to_vec()),
        ("schemas PlanInterval", Interval::WORDS.to_vec()),
        ("schemas Registration", RegistrationPolicy::WORDS.to_vec()),
        ("schemas ScheduleType", ScheduleKind::WORDS.to_vec()),
        ("schemas Transport", Transport::WORDS.to_vec()),
        ("schemas Trigger", Trigger::WORDS.to_vec()),
        ("schemas VerificationMode", VerificationMode::WORDS.to_vec()),
    ]
}

/// Lists of words of single fields.
fn of_fields() -> Vec<(&'static str, Words)> {
    let healthy = || vec![ServerStatus::Healthy.as_str(), ServerStatus::Degraded.as_str()];
    let pending = || vec![ExecutionStatus::Pending.as_str()];
    vec![
        ("schemas Alert severity", Severity::WORDS.to_vec()),
        ("schemas CueCreate anyOf 1 transport", vec![Transport::Worker.as_str()]),
        ("schemas CuePatch status", RequestedStatus::WORDS.to_vec()),
        ("schemas Echo status", EchoStatus::WORDS.to_vec()),
        ("schemas Error error field", SchedulePart::FIELDS.to_vec()),
        ("schemas Health services database", DatabaseStatus::WORDS.to_vec()),
        ("schemas Health services poller", PollerStatus::WORDS.to_vec()),
        ("schemas Health services worker", WorkerStatus::WORDS.to_vec()),
        ("schemas Health status", healthy()),
        ("schemas Info billing", BillingMode::WORDS.to_vec()),
        ("schemas Info callbacks items", AddressPolicy::CLASSES.to_vec()),
        ("schemas Info mail", MailTransport::WORDS.to_vec()),
        ("schemas ResetEvent reason", ResetReason::WORDS.to_vec()),
        ("schemas Run status", pending()),
        ("schemas Run triggered_by", vec![Trigger::ManualFire.as_str()]),
        ("schemas ServerEvent state", ServerChange::WORDS.to_vec()),
        ("schemas SignInWay", SignInWay::WORDS.to_vec()),
        ("schemas Status status", ServerStatus::WORDS.to_vec()),
        ("schemas User auth via", CredentialKind::WORDS.to_vec()),
        ("/v1/alerts/test post 200 status", TestStatus::WORDS.to_vec()),
        ("/v1/auth/device-code post request for", LoginPurpose::WORDS.to_vec()),
        ("/v1/auth/device-code/submit-email post 200 status", vec![LoginState::EmailSent.as_str()]),
        ("/v1/cues get sort", CueSort::WORDS.to_vec()),
        ("/v1/cues/bulk post request oneOf 0 action", CueAction::WORDS.to_vec()),
        ("/v1/cues/bulk post request oneOf 1 action", CueAction::WORDS.to_vec()),
        ("/v1/cues/{cue_id} get payload", PayloadForm::WORDS.to_vec()),
        ("/v1/cues/{cue_id}/fire post request merge_strategy", MergeStrategy::WORDS.to_vec()),
        ("/v1/echo/{token} post 200 status", vec![EchoStatus::Delivered.as_str()]),
        ("/v1/executions/replay post request oneOf 1 filter status", vec![ExecutionStatus::Failed.as_str()]),
        ("/v1/executions/{execution_id}/replay post 200 status", pending()),
        ("/v1/executions/{execution_id}/replay post 200 triggered_by", vec![Trigger::Replay.as_str()]),
        (
            "/v1/executions/{execution_id}/retry post 200 status",
            vec![ExecutionStatus::Pending.as_str(), ExecutionStatus::Retrying.as_str()],
        ),
        ("/v1/overview get 200 server status", healthy()),
        ("/v1/stats get 200 step", Step::WORDS.to_vec()),
        ("/v1/stats get step", Step::WORDS.to_vec()),
    ]
}

/// Parts of a place that only the form of a document demands.
const SILENT: [&str; 8] =
    ["paths", "components", "parameters", "responses", "content", "application/json", "schema", "properties"];

/// The lists of words in a part of the document by place; a constant word is a list of one.
fn lists(value: &'static Value, place: &str, found: &mut BTreeMap<String, BTreeSet<&'static str>>) {
    let constant = value["const"].as_str();
    let listed: BTreeSet<&str> =
        value["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).chain(constant).collect();
    if !listed.is_empty() {
        assert!(found.insert(place.to_owned(), listed).is_none(), "{place} names two lists");
    }
    let below = |name: &str| match name {
        "requestBody" => format!("{place} request"),
        _ if SILENT.contains(&name) => place.to_owned(),
        _ => format!("{place} {name}").trim_start().to_owned(),
    };
    match value {
        Value::Object(fields) => {
            let is_data = |name: &str| matches!(name, "default" | "example" | "examples");
            for (name, it) in fields.iter().filter(|(name, _)| !is_data(name)) {
                lists(it, &below(name), found);
            }
        }
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                let name = item["name"].as_str().map_or_else(|| number.to_string(), str::to_owned);
                lists(item, &below(&name), found);
            }
        }
        _ => {}
    }
}

fn all_lists() -> BTreeMap<String, BTreeSet<&'static str>> {
    let mut found = BTreeMap::new();
    lists(&DOCUMENT, "", &mut found);
    found
}

#[test]
fn every_list_of_words_is_that_of_the_program() {
    let mut expected: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let constants = CONSTANTS.into_iter().map(|(place, word, _)| (place, vec![word]));
    for (place, words) in of_schemas().into_iter().chain(of_fields()).chain(constants) {
        assert!(expected.insert(place, words.into_iter().collect()).is_none(), "{place} is given twice");
    }
    let codes: BTreeSet<&str> = codes().into_keys().collect();
    let mut problems = Vec::new();
    for (place, listed) in all_lists() {
        match expected.remove(place.as_str()) {
            Some(words) if words == listed => {}
            Some(words) => problems.push(format!("{place}: {listed:?}, but the program has {words:?}")),
            // The codes of a response; `words` compares their status.
            None if place.ends_with("error code") && listed.is_subset(&codes) => {}
            None => problems.push(format!("{place}: {listed:?} is compared with no words of the program")),
        }
    }
    problems.extend(expected.keys().map(|place| format!("{place} is not in the document")));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_list_is_found_wherever_it_stands() {
    static PART: LazyLock<Value> = LazyLock::new(|| {
        let new = json!({"type": "string", "enum": ["a", null]});
        json!({
            "/x": {"get": {
                "parameters": [{"name": "sort", "in": "query", "schema": new}],
                "responses": {"200": {"content": {"application/json": {"schema": {"anyOf": [{"items": new}]}}}}},
                "x-events": {"e": {"additionalProperties": {"const": "b"}}},
                "example": new,
            }},
        })
    });
    let mut found = BTreeMap::new();
    lists(&PART, "", &mut found);
    let places: Vec<&str> = found.keys().map(String::as_str).collect();
    let expected = ["/x get 200 anyOf 0 items", "/x get sort", "/x get x-events e additionalProperties"];
    assert_eq!(places, expected);
}

#[test]
fn every_type_of_event_has_a_schema() {
    let schemas = DOCUMENT["paths"]["/v1/events"]["get"]["x-events"].as_object().unwrap();
    let types: BTreeSet<&str> = EventType::WORDS.into_iter().chain(OF_STREAMS).collect();
    assert_eq!(schemas.keys().map(String::as_str).collect::<BTreeSet<_>>(), types);
}
