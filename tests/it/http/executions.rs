//! Executions and workers over HTTP (contract §5 and §7): fields, errors, long polls, and the effects of a report.

use crate::support::*;

#[test]
fn an_execution_is_listed_claimed_extended_and_reported() {
    let (api, ada) = Api::with_user("ada");
    let payload = json!({"task": "resize", "n": 12345678901234567890123_u128 });
    let cue = api.fixture.worker_cue(ada.key, |_| ());
    let (id, cue_id) = (api.fixture.run(&cue, payload.clone()).to_string(), cue.id);
    let scheduled_for = "2026-01-01T10:00:00Z";
    assert_eq!(
        ada.read("/v1/executions/claimable?task=resize"),
        json!({"executions": [{
            "id": id, "execution_id": id, "cue_id": cue_id, "cue_name": "resize images", "task": "resize",
            "attempt": 1, "scheduled_for": scheduled_for, "payload": payload,
        }], "has_more": false})
    );
    assert_eq!(
        ada.post(&format!("/v1/executions/{id}/claim"), &json!({"worker_id": "w1"})).expect(200),
        json!({
            "claimed": true, "execution_id": id, "cue_id": cue_id, "cue_name": "resize images", "attempt": 1,
            "scheduled_for": scheduled_for, "lease_seconds": 900, "payload": payload,
        })
    );
    assert_eq!(ada.read("/v1/executions/claimable"), json!({"executions": [], "has_more": false}));
    api.fixture.advance(60);
    let oldest =
        |user: &User| user.read("/v1/executions?status=failed")["oldest_claimed_at"].clone();
    assert_eq!(oldest(&ada), "2026-01-01T10:00:00Z", "of the account, whatever the filter");
    assert_eq!(oldest(&api.user("eve")), Value::Null);
    let path = format!("/v1/executions/{id}/heartbeat");
    let heartbeat = ada.call("POST", &path, &[("X-Worker-Id", "w1")], b"").unwrap();
    assert_eq!(
        heartbeat.expect(200),
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
        ada.post(&format!("/v1/executions/{id}/outcome"), &report).expect(200),
        json!({
            "execution_id": id, "outcome": outcome, "outcome_recorded": true, "outcome_state": "reported_success",
        })
    );
    assert_eq!(
        ada.read(&format!("/v1/executions/{id}")),
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
fn a_claim_needs_no_body_and_returns_an_empty_object_for_a_missing_payload() {
    let (api, ada) = Api::with_user("ada");
    let cue = api.fixture.worker_cue(ada.key, |_| ());
    let runs = api.fixture.runs(&cue, [json!({}), json!({}), json!({})]);
    let [first, second, third] = [0, 1, 2].map(|number| runs[number].to_string());
    let claim = |id: &str| format!("/v1/executions/{id}/claim");
    assert_eq!(ada.bare("POST", &claim(&first)).expect(200)["payload"], json!({}));
    let claimed = json!({"claimed_by_worker": "anonymous-worker", "status": "delivering"});
    assert_has(&ada.execution(&first), claimed);
    assert_eq!(ada.claim("w2"), second);
    assert_eq!(ada.post(&claim(&third), &json!(null)).expect(200)["claimed"], true);
    ada.bare("POST", "/v1/executions/claim").expect_error(409, "claim_failed");
}

#[test]
fn workers_are_listed_with_their_heartbeat_status_and_can_be_deleted() {
    let (api, ada) = Api::with_user("ada");
    let beat = |worker: &str| {
        ada.post("/v1/worker/heartbeat", &json!({"worker_id": worker, "handlers": ["a", "b"]}))
            .expect(200)
    };
    assert_eq!(beat("old/1"), json!({"acknowledged": true, "server_time": "2026-01-01T10:00:00Z"}));
    api.fixture.advance(700);
    beat("middle");
    api.fixture.advance(200);
    beat("new");
    let listed = ada.read("/v1/workers");
    assert_eq!(
        listed["workers"][2],
        json!({
            "worker_id": "old/1", "handlers": ["a", "b"], "last_heartbeat": "2026-01-01T10:00:00Z",
            "seconds_since_heartbeat": 900, "heartbeat_status": "dead", "registered_since": "2026-01-01T10:00:00Z",
        })
    );
    assert_eq!(listed.column("workers", "heartbeat_status"), ["active", "stale", "dead"]);
    assert_eq!(api.user("eve").read("/v1/workers"), json!({"workers": [], "has_more": false}));
    assert_eq!(ada.delete("/v1/workers/old%2F1").status, 204);
    assert_eq!(ada.read("/v1/workers").list("workers").len(), 2);
}

#[test]
fn a_long_poll_returns_only_for_matching_work() {
    let (api, ada) = Api::with_user("ada");
    let cue = api.fixture.worker_cue(ada.key, |_| ());
    let poll = api.poll(&ada, "/v1/executions/claimable?task=mail&wait=30");
    api.fixture.run(&cue, json!({"task": "resize"}));
    // The response to another request shows that the server has processed the execution for another task.
    assert_eq!(ada.read("/v1/executions/claimable").list("executions").len(), 1);
    assert!(!poll.has_come());
    let id = api.fixture.run(&cue, json!({"task": "mail"})).to_string();
    let begun = api.fixture.app.clock.monotonic();
    assert_eq!(poll.wait().expect(200)["executions"][0]["id"], id);
    // Woken by the work, not by the end of its wait.
    assert!((api.fixture.app.clock.monotonic() - begun).as_secs() < 10);
}

#[test]
fn a_long_poll_ends_empty_after_its_wait_or_at_shutdown() {
    let (mut api, ada) = Api::with_user("ada");
    let begun = api.fixture.app.clock.monotonic();
    assert_eq!(
        ada.read("/v1/executions/claimable?wait=1"),
        json!({"executions": [], "has_more": false})
    );
    assert!((api.fixture.app.clock.monotonic() - begun).as_millis() >= 1_000);
    let poll = api.poll(&ada, "/v1/executions/claimable?wait=30");
    api.stop();
    let begun = api.fixture.app.clock.monotonic();
    assert_eq!(poll.wait().expect(200), json!({"executions": [], "has_more": false}));
    assert!((api.fixture.app.clock.monotonic() - begun).as_secs() < 10, "ended by the stop");
}
