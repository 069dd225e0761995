//! Executions and workers over HTTP (contract §5 and §7): fields, errors, long polls, and the effects of a report.

use crate::support::*;

fn ok(response: &Response) -> Value {
    assert_eq!(response.status, 200, "{response:?}");
    response.json()
}

fn refused(response: &Response) -> (u16, String) {
    assert_eq!(response.json()["error"]["status"], response.status);
    (response.status, response.code())
}

/// A user with one execution that is claimable.
fn with_work(api: &Api, payload: Value) -> (User, String, String) {
    let user = api.user("ada");
    let cue = api.fixture.worker_cue(user.key, |_| ());
    let id = api.fixture.run(&cue, payload).to_string();
    (user, cue.id, id)
}

#[test]
fn an_execution_is_listed_claimed_extended_and_reported() {
    let api = Api::start();
    let (ada, cue_id, id) =
        with_work(&api, json!({"task": "resize", "n": 12345678901234567890123_u128 }));
    let payload = json!({"task": "resize", "n": 12345678901234567890123_u128 });
    let scheduled_for = "2026-01-01T10:00:00Z";
    assert_eq!(
        ok(&ada.get("/v1/executions/claimable?task=resize")),
        json!({"executions": [{
            "id": id, "execution_id": id, "cue_id": cue_id, "cue_name": "resize images", "task": "resize",
            "attempt": 1, "scheduled_for": scheduled_for, "payload": payload,
        }], "has_more": false})
    );
    assert_eq!(
        ok(&ada.post(&format!("/v1/executions/{id}/claim"), &json!({"worker_id": "w1"}))),
        json!({
            "claimed": true, "execution_id": id, "cue_id": cue_id, "cue_name": "resize images", "attempt": 1,
            "scheduled_for": scheduled_for, "lease_seconds": 900, "payload": payload,
        })
    );
    assert_eq!(
        ok(&ada.get("/v1/executions/claimable")),
        json!({"executions": [], "has_more": false})
    );
    api.fixture.advance(60);
    let oldest =
        |user: &User| ok(&user.get("/v1/executions?status=failed"))["oldest_claimed_at"].clone();
    assert_eq!(oldest(&ada), "2026-01-01T10:00:00Z", "of the account, whatever the filter");
    assert_eq!(oldest(&api.user("eve")), Value::Null);
    let path = format!("/v1/executions/{id}/heartbeat");
    let heartbeat = ada.call("POST", &path, &[("X-Worker-Id", "w1")], b"").unwrap();
    assert_eq!(
        ok(&heartbeat),
        json!({"execution_id": id, "lease_extended_until": "2026-01-01T10:16:00Z", "acknowledged": true})
    );
    let report = json!({
        "success": true, "result": "done", "metadata": {"bytes": 7}, "result_url": "https://example.com/7",
        "artifacts": [{"name": "a"}], "unknown": 1,
    });
    let outcome = json!({
        "success": true, "result": "done", "metadata": {"bytes": 7}, "recorded_at": "2026-01-01T10:01:00Z",
    });
    assert_eq!(
        ok(&ada.post(&format!("/v1/executions/{id}/outcome"), &report)),
        json!({
            "execution_id": id, "outcome": outcome, "outcome_recorded": true, "outcome_state": "reported_success",
        })
    );
    assert_eq!(
        ok(&ada.get(&format!("/v1/executions/{id}"))),
        json!({
            "id": id, "cue_id": cue_id, "cue_name": "resize images", "status": "success",
            "scheduled_for": scheduled_for, "triggered_by": "schedule", "replayed_from": null, "attempts": 1,
            "max_attempts": 4, "cause": null, "duration_ms": 60_000, "late_ms": 0, "http_status": null, "error_message": null,
            "response_body": null, "started_at": "2026-01-01T10:00:00Z", "last_attempt_at": "2026-01-01T10:00:00Z",
            "delivered_at": "2026-01-01T10:01:00Z", "next_retry": null, "waits_for": null, "expires_at": null,
            "outcome_due_at": null, "claimed_by_worker": "w1",
            "claimed_at": "2026-01-01T10:00:00Z", "lease_expires_at": null, "outcome_state": "reported_success",
            "evidence": {"result_url": "https://example.com/7", "artifacts": [{"name": "a"}]},
            "created_at": "2026-01-01T10:00:00Z", "updated_at": "2026-01-01T10:01:00Z", "outcome": outcome,
        })
    );
}

#[test]
fn an_execution_shows_the_payload_that_it_was_given() {
    let (_server, user) = Server::with_user(DEV_UNLIMITED);
    let mut cue = json!({"name": "a", "transport": "worker", "payload": {"task": "t", "n": 1}});
    cue["schedule"] = json!({"type": "recurring", "cron": "0 9 1 1 *"});
    let path = format!("/v1/cues/{}", user.create(&cue).text("id"));
    let fire = |body: &Value| -> String {
        let run = user.post(&format!("{path}/fire"), body).expect(200);
        format!("/v1/executions/{}", run.text("id"))
    };
    let (plain, special) = (fire(&json!({})), fire(&json!({"payload_override": {"special": 1}})));
    user.patch(&path, &json!({"payload": null})).expect(200);
    let none = fire(&json!({}));
    for (run, payload) in [
        (&plain, json!({"task": "t", "n": 1})),
        (&special, json!({"task": "t", "n": 1, "special": 1})),
        (&none, Value::Null),
    ] {
        assert_eq!(user.get(run).expect(200).get("payload"), None);
        assert_eq!(user.get(&format!("{run}?payload=json")).expect(200)["payload"], payload);
        let shown = user.get(&format!("{run}?payload=text")).expect(200);
        let text = shown["payload_text"].as_str().map(|text| serde_json::from_str(text).unwrap());
        assert_eq!((shown.get("payload"), text.unwrap_or_default()), (None, payload));
    }
    user.get(&format!("{plain}?payload=xml")).expect(422);
    let listed = user.get("/v1/executions").expect(200);
    assert!(listed.list("executions").iter().all(|run| run.get("payload").is_none()));
    let shown = user.get(&path).expect(200);
    assert!(shown.list("executions").iter().all(|run| run.get("payload").is_none()));
}

#[test]
fn a_claim_needs_no_body_and_returns_an_empty_object_for_a_missing_payload() {
    let (api, ada) = Api::with_user("ada");
    let cue = api.fixture.worker_cue(ada.key, |_| ());
    let ids: Vec<String> = api
        .fixture
        .runs(&cue, [json!({}), json!({}), json!({})])
        .iter()
        .map(ToString::to_string)
        .collect();
    let claim = format!("/v1/executions/{}/claim", ids[0]);
    let claimed = ok(&ada.call("POST", &claim, &[], b"").unwrap());
    assert_eq!(claimed["payload"], json!({}));
    let shown = ok(&ada.get(&format!("/v1/executions/{}", ids[0])));
    assert_has(&shown, json!({"claimed_by_worker": "anonymous-worker", "status": "delivering"}));
    assert_eq!(
        ok(&ada.post("/v1/executions/claim", &json!({"worker_id": "w2"})))["execution_id"],
        ids[1]
    );
    assert_eq!(
        ok(&ada.post(&format!("/v1/executions/{}/claim", ids[2]), &json!(null)))["claimed"],
        true
    );
    assert_eq!(
        refused(&ada.call("POST", "/v1/executions/claim", &[], b"").unwrap()),
        (409, "claim_failed".to_owned())
    );
}

#[test]
fn workers_are_listed_with_their_heartbeat_status_and_can_be_deleted() {
    let api = Api::start();
    let (ada, eve) = (api.user("ada"), api.user("eve"));
    let beat = |worker: &str| {
        ok(&ada.post("/v1/worker/heartbeat", &json!({"worker_id": worker, "handlers": ["a", "b"]})))
    };
    assert_eq!(beat("old/1"), json!({"acknowledged": true, "server_time": "2026-01-01T10:00:00Z"}));
    api.fixture.advance(700);
    beat("middle");
    api.fixture.advance(200);
    beat("new");
    let listed = ok(&ada.get("/v1/workers"));
    assert_eq!(
        listed["workers"][2],
        json!({
            "worker_id": "old/1", "handlers": ["a", "b"], "last_heartbeat": "2026-01-01T10:00:00Z",
            "seconds_since_heartbeat": 900, "heartbeat_status": "dead", "registered_since": "2026-01-01T10:00:00Z",
        })
    );
    let statuses: Vec<_> =
        listed.list("workers").iter().map(|it| &it["heartbeat_status"]).collect();
    assert_eq!(statuses, ["active", "stale", "dead"]);
    assert_eq!(ok(&eve.get("/v1/workers")), json!({"workers": [], "has_more": false}));
    assert_eq!(refused(&eve.delete("/v1/workers/new")), (404, "worker_not_found".to_owned()));
    assert_eq!(ada.delete("/v1/workers/old%2F1").status, 204);
    assert_eq!(ok(&ada.get("/v1/workers")).list("workers").len(), 2);
}

#[test]
fn a_long_poll_returns_only_for_matching_work() {
    let (api, ada) = Api::with_user("ada");
    let cue = api.fixture.worker_cue(ada.key, |_| ());
    let poll = api.poll(&ada, "/v1/executions/claimable?task=mail&wait=30");
    api.fixture.run(&cue, json!({"task": "resize"}));
    // The response to another request shows that the server has processed the execution for another task.
    assert_eq!(ok(&ada.get("/v1/executions/claimable")).list("executions").len(), 1);
    assert!(!poll.has_come());
    let id = api.fixture.run(&cue, json!({"task": "mail"})).to_string();
    let begun = api.fixture.app.clock.monotonic();
    assert_eq!(ok(&poll.wait())["executions"][0]["id"], id);
    // Woken by the work, not by the end of its wait.
    assert!((api.fixture.app.clock.monotonic() - begun).as_secs() < 10);
}

#[test]
fn a_long_poll_ends_empty_after_its_wait_or_at_shutdown() {
    let (mut api, ada) = Api::with_user("ada");
    let begun = api.fixture.app.clock.monotonic();
    assert_eq!(
        ok(&ada.get("/v1/executions/claimable?wait=1")),
        json!({"executions": [], "has_more": false})
    );
    assert!((api.fixture.app.clock.monotonic() - begun).as_millis() >= 1_000);
    let poll = api.poll(&ada, "/v1/executions/claimable?wait=30");
    api.stop();
    let begun = api.fixture.app.clock.monotonic();
    assert_eq!(ok(&poll.wait()), json!({"executions": [], "has_more": false}));
    assert!((api.fixture.app.clock.monotonic() - begun).as_secs() < 10, "ended by the stop");
}

/// Runs a worker cue with this verification mode, and returns the path of the claimed execution.
fn claimed(user: &Client, mode: &str) -> String {
    let cue = user.create(&json!({
        "name": "work", "transport": "worker", "schedule": {"type": "recurring", "cron": "@yearly"},
        "verification": {"mode": mode},
    }));
    let fired = user.post(&format!("/v1/cues/{}/fire", id(&cue)), &json!({})).expect(200);
    user.post("/v1/executions/claim", &json!({})).expect(200);
    format!("/v1/executions/{}", fired.text("execution_id"))
}

#[test]
fn the_url_of_an_artifact_that_is_no_web_address_is_refused() {
    let (_server, user) = Server::with_user(DEV_UNLIMITED);
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
            let refused = send(json!(["log", {"name": "a", "url": url}]))
                .expect_error(422, "validation_error");
            let detail = refused.list("detail");
            assert_eq!(detail.len(), 1, "{url}");
            assert_eq!(detail[0]["loc"], json!(["body", "artifacts"]), "{url}");
            let msg = detail[0].text("msg");
            assert!(msg.contains("in item 1"), "{msg}");
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
    let (_server, user) = Server::with_user(DEV_UNLIMITED);
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
