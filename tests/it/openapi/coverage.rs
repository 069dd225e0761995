//! Every response in the document was received by a test.

use std::collections::BTreeSet;

use crate::openapi::document::OPERATIONS;
use crate::openapi::recorded::{line, lines};
use crate::openapi::words::codes_of;

/// The program gives these the same way for every operation, before or around its handler: one operation that received
/// each of them is enough.
const ALIKE: [&str; 13] = [
    "bad_request",
    "cross_site_request",
    "forbidden_host",
    "headers_too_large",
    "internal_error",
    "invalid_json",
    "invalid_request",
    "payload_too_large",
    "rate_limit_exceeded",
    "request_timeout",
    "server_busy",
    "storage_unavailable",
    "uri_too_long",
];

const EARLY: &str = "the connection sends it; the tests of the connection have routes of their own";

const ROOM: &str = "the check is that of changeCues, which is tried without room for its key";

/// Responses that no test receives, each with the reason.
const UNSEEN: [(&str, &str); 9] = [
    ("headers_too_large", EARLY),
    ("request_timeout", EARLY),
    ("uri_too_long", EARLY),
    ("claimNext 404 execution_not_found", "the cue is deleted between the claim and the read of its payload"),
    (
        "createPortal 502 billing_error",
        "the call is that of createCheckout, which is tried with a failing provider",
    ),
    (
        "deleteCues 409 invalid_state",
        "the request with the same key is still running; replayExecutions is tried so",
    ),
    ("deleteCues 403 storage_limit_exceeded", ROOM),
    ("replayExecutions 403 storage_limit_exceeded", ROOM),
    ("fireCue 409 invalid_state", "the payload of the cue changes during each of eight merges"),
];

/// All responses of the document, as they are recorded; those that are alike without their operation.
fn documented() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (it, key, response) in
        OPERATIONS.iter().flat_map(|it| it.responses().map(move |(key, response)| (it, key, response)))
    {
        let codes = codes_of(response);
        if key == "5XX" {
            continue;
        }
        if codes.is_empty() {
            found.insert(line(it.id, key, ""));
        }
        found.extend(codes.iter().map(|code| shared(&line(it.id, key, code))));
    }
    found
}

fn shared(line: &str) -> String {
    let code = line.rsplit(' ').next().unwrap_or_default();
    if ALIKE.contains(&code) { code.to_owned() } else { line.to_owned() }
}

#[test]
#[ignore = "reads what a run of all tests has recorded: cargo test, then cargo test --test it -- --ignored openapi"]
fn every_documented_response_was_received() {
    let seen: BTreeSet<String> = lines().iter().map(|line| shared(line)).collect();
    let excused: BTreeSet<String> = UNSEEN.into_iter().map(|(line, _)| line.to_owned()).collect();
    let missing: Vec<String> =
        documented().into_iter().filter(|line| !seen.contains(line) && !excused.contains(line)).collect();
    assert!(missing.is_empty(), "no test received\n{}", missing.join("\n"));
    let outdated: Vec<&String> = excused.iter().filter(|line| seen.contains(*line)).collect();
    assert!(outdated.is_empty(), "these were received and need no reason: {outdated:?}");
}

#[test]
fn reasons_are_given_for_documented_responses_only() {
    let documented = documented();
    for (line, reason) in UNSEEN {
        assert!(documented.contains(line) && !reason.is_empty(), "{line}");
    }
    for code in ALIKE {
        assert!(documented.contains(code), "{code}");
    }
}
