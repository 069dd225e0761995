//! Invalid filters of the alert list and invalid alert webhooks.

use serde_json::{Value, json};

use super::{Case, check, server};

#[test]
fn alert_filters_are_validated() {
    let get = |query: &str| Case::get(&format!("/v1/alerts?{query}"));
    check(
        &server().user(),
        [
            get("limit=0").invalid("greater_than_equal", "query.limit"),
            get("limit=101").invalid("less_than_equal", "query.limit"),
            get("limit=ten").invalid("int_parsing", "query.limit"),
            get("offset=-1").invalid("greater_than_equal", "query.offset"),
            get("alert_type=fire").invalid("literal_error", "query.alert_type"),
            get("alert_type=").invalid("literal_error", "query.alert_type"),
            get("since=yesterday").invalid("value_error", "query.since"),
            get("since=").invalid("value_error", "query.since"),
            get("since=2026-02-30T00:00:00Z").invalid("value_error", "query.since"),
            get(&format!("cue_id={}", "x".repeat(256)))
                .named("long id")
                .invalid("string_too_long", "query.cue_id"),
            get("since=2026-02-28T00:00:00&limit=100&offset=9223372036854775807").accepted(200),
            get("cue_id=cue_000000000000&alert_type=claim_lost").accepted(200),
        ],
    );
}

#[test]
fn account_changes_are_validated() {
    let patch = |body: Value| Case::new("PATCH", "/v1/auth/me", &body).named(&body.to_string());
    let url = |url: &str| patch(json!({"alert_webhook_url": url})).expect_error(400, "invalid_callback_url");
    let server = server();
    let user = server.user();
    check(
        &user,
        [
            patch(json!({"alert_webhook_url": ""})).accepted(200),
            url(" "),
            url("nowhere"),
            url("ftp://example.com/"),
            url("https://user:secret@example.com/"),
            url("https://example.com/a b"),
            url(&format!("https://example.com/{}", "a".repeat(2_029))),
            patch(json!({"alert_webhook_url": 5})).invalid("string_type", "body.alert_webhook_url"),
            patch(json!({"alert_webhook_url": "http://10.0.0.1/", "x": 1}))
                .invalid("extra_forbidden", "body.x"),
            patch(json!({"email": "b@example.com"})).invalid("extra_forbidden", "body.email"),
            patch(json!({"plan": "scale"})).invalid("extra_forbidden", "body.plan"),
            patch(json!([])).invalid("model_attributes_type", "body"),
            Case::raw("PATCH", "/v1/auth/me", "{").expect_error(400, "invalid_json"),
            Case::raw("PATCH", "/v1/auth/me", "").expect_error(400, "invalid_json"),
            patch(json!({"alert_webhook_url": "https://example.com/alerts"})).accepted(200),
            patch(json!({"alert_webhook_url": null})).accepted(200),
            patch(json!({"alert_webhook_url": ""})).accepted(200),
            Case::new("PUT", "/v1/auth/me", &json!({})).expect_error(405, "method_not_allowed"),
        ],
    );
    let refused = user.patch("/v1/auth/me", &json!({"alert_webhook_url": "nowhere"})).expect(400);
    assert!(refused["error"]["message"].as_str().unwrap().starts_with("alert_webhook_url "), "{refused}");
}
