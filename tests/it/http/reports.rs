//! The effects of a report on its execution, and the URLs in it.

use serde_json::{Value, json};

use crate::support::client::{Client, Response};
use crate::support::server::{DEV_UNLIMITED, Server};

/// Runs a worker cue with this verification mode, and returns the path of the claimed execution.
fn claimed(user: &Client, mode: &str) -> String {
    let cue = user.create(&json!({
        "name": "work", "transport": "worker", "schedule": {"type": "recurring", "cron": "@yearly"},
        "verification": {"mode": mode},
    }));
    let fired = user.post(&format!("/v1/cues/{}/fire", cue["id"].as_str().unwrap()), &json!({})).expect(200);
    user.post("/v1/executions/claim", &json!({})).expect(200);
    format!("/v1/executions/{}", fired["execution_id"].as_str().unwrap())
}

#[test]
fn the_url_of_an_artifact_that_is_no_web_address_is_refused() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    let execution = claimed(&user, "require_artifacts");
    let (outcome, evidence) = (format!("{execution}/outcome"), format!("{execution}/evidence"));
    let long = format!("https://example.com/{}", "x".repeat(2_029));
    let bad: [Value; 7] = [
        json!("done"),
        json!("javascript:alert(1)"),
        json!("ftp://example.com/7"),
        json!("/reports/7"),
        json!(long),
        json!(7),
        json!({}),
    ];
    let good = json!(["log", {"name": "a"}, {"url": null}, {"url": ""}, {"url": " https://example.com/7 "},
                      {"name": "b", "url": long[..2_048]}]);
    let refused = |send: &dyn Fn(Value) -> Response| {
        for url in &bad {
            let refused =
                send(json!(["log", {"name": "a", "url": url}])).expect_error(422, "validation_error");
            let detail = refused["detail"].as_array().unwrap();
            assert_eq!((detail.len(), &detail[0]["loc"]), (1, &json!(["body", "artifacts"])), "{url}");
            let msg = detail[0]["msg"].as_str().unwrap();
            assert!(msg.contains("artifacts[1].url"), "{msg}");
        }
    };
    refused(&|artifacts| user.post(&outcome, &json!({"success": true, "artifacts": artifacts})));
    assert_eq!(user.get(&execution).expect(200)["status"], "delivering", "no report was taken");
    let taken = user.post(&outcome, &json!({"success": true, "artifacts": good})).expect(200);
    assert_eq!(taken["outcome_state"], "verified_success");
    refused(&|artifacts| user.patch(&evidence, &json!({ "artifacts": artifacts })));
    user.patch(&evidence, &json!({"artifacts": good})).expect(200);
    // Blanks around a URL are not stored.
    let mut stored = good.clone();
    stored[4]["url"] = json!("https://example.com/7");
    assert_eq!(user.get(&execution).expect(200)["evidence"]["artifacts"], stored);
}

#[test]
fn a_reported_error_is_the_error_message_of_its_execution() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    let long = "é".repeat(2_001);
    for (report, message) in [
        (json!({"success": false, "error": "card declined"}), json!("card declined")),
        (json!({"success": false, "error": long}), json!("é".repeat(2_000))),
        (json!({"success": false}), Value::Null),
        (json!({"success": true, "error": "a warning"}), Value::Null),
    ] {
        let execution = claimed(&user, "none");
        user.post(&format!("{execution}/outcome"), &report).expect(200);
        let shown = user.get(&execution).expect(200);
        assert_eq!(shown["error_message"], message, "{report}");
        assert_eq!(shown["outcome"]["error"], report.get("error").cloned().unwrap_or_default());
    }
}

#[test]
fn verify_says_what_it_recorded() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    for (body, valid) in [(json!({}), true), (json!({"valid": true}), true), (json!({"valid": false}), false)]
    {
        let execution = claimed(&user, "manual");
        user.post(&format!("{execution}/outcome"), &json!({"success": true})).expect(200);
        let verified = user.post(&format!("{execution}/verify"), &body).expect(200);
        assert_eq!((&verified["valid"], &verified["verdict"]["valid"]), (&json!(valid), &json!(valid)));
    }
    let alert = &user.get("/v1/alerts?alert_type=verification_failed").expect(200)["alerts"][0];
    assert_eq!(alert["metadata"]["outcome_state"], "verification_failed");
}

#[test]
fn an_empty_text_removes_the_alert_webhook_url() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    for nothing in [json!(""), Value::Null] {
        let set = json!({"alert_webhook_url": "https://example.com/alerts"});
        assert_eq!(
            user.patch("/v1/auth/me", &set).expect(200)["alert_webhook_url"],
            "https://example.com/alerts"
        );
        let removed = user.patch("/v1/auth/me", &json!({ "alert_webhook_url": nothing })).expect(200);
        assert_eq!(removed["alert_webhook_url"], Value::Null);
    }
}
