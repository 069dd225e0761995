//! Missing, unknown, ill-typed and out-of-range fields.

use crate::http::bad_input::{Case, check, server};
use crate::support::*;

#[test]
fn a_422_lists_at_most_a_hundred_problems() {
    let server = server();
    let user = server.user();
    let created = user.create(&super::good_cue());
    let unknown: Value = (0..150).map(|number| (format!("field_{number}"), json!(1))).collect();
    let path = format!("/v1/cues/{}", created.text("id"));
    let body = user.patch(&path, &unknown).expect_error(422, "validation_error");
    assert_eq!(body.list("detail").len(), 100);
}

#[test]
fn an_error_names_its_field() {
    let server = server();
    let user = server.user();
    let cue = super::changed(super::good_cue(), "on_failure.webhook", Some(json!("nowhere")));
    let refused = user.post("/v1/cues", &cue).expect_error(400, "invalid_callback_url");
    let message = |refused: &Value| refused.message().to_owned();
    assert!(message(&refused).starts_with("on_failure.webhook: "), "{refused}");
    let url = json!("https://user:secret@example.com/");
    let cue = super::changed(super::good_cue(), "on_failure.webhook", Some(url.clone()));
    let me = user.patch("/v1/auth/me", &json!({ "alert_webhook_url": url }));
    for refused in [user.post("/v1/cues", &cue), me] {
        let refused = refused.expect_error(400, "invalid_callback_url");
        let text = message(&refused);
        assert!(
            text.contains("is signed") && !text.contains("callback."),
            "no headers go with it: {text}"
        );
    }
    let fire = format!("/v1/cues/{}/fire", user.create(&super::good_cue()).text("id"));
    let refused =
        user.post(&fire, &json!({"send_at": "noon"})).expect_error(400, "invalid_schedule");
    assert!(message(&refused).starts_with("send_at: "), "{refused}");
}

#[test]
fn registration_requires_a_new_valid_address() {
    let server = server();
    let anyone = server.client();
    anyone.register("known@example.com");
    let register = |value: Value| Case::post("/v1/auth/register", &value);
    check(
        &anyone,
        [
            register(json!({})).invalid("missing", "body.email"),
            register(json!({"email": 5})).invalid("string_type", "body.email"),
            register(json!({"email": null})).invalid("string_type", "body.email"),
            register(json!({"email": ""})).invalid("value_error", "body.email"),
            register(json!({"email": "no-address"})).invalid("value_error", "body.email"),
            register(json!({"email": "a@b.com\r\nBcc: c@d.com"}))
                .invalid("value_error", "body.email"),
            register(json!({"email": "known@example.com"})).expect_error(409, "duplicate_email"),
            register(json!({"email": " KNOWN@example.COM "})).expect_error(409, "duplicate_email"),
            register(json!({"email": "new@example.com"})).accepted(201),
        ],
    );
}
