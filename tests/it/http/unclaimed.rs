//! Executions that no worker claims, over HTTP: the field `claim_within_minutes`, the warning of a new cue, the alert.

use serde_json::{Value, json};

use super::cues::{START, without, worker_cue};
use crate::support::client::Client;
use crate::support::receiver::Receiver;
use crate::support::server::Server;

const NO_WORKER: &str =
    "No worker of this account was seen in the last 15 minutes: executions wait until a worker claims them";

/// A worker cue that runs by request only.
fn manual(within: &Value) -> Value {
    json!({
        "name": "report", "transport": "worker", "claim_within_minutes": within, "payload": {"task": "resize"},
        "schedule": {"type": "recurring", "cron": "0 0 1 1 *"},
    })
}

fn path(cue: &Value) -> String {
    format!("/v1/cues/{}", cue["id"].as_str().unwrap())
}

fn fire(user: &Client, cue: &Value, body: &Value) -> String {
    let fired = user.post(&format!("{}/fire", path(cue)), body).expect(200);
    format!("/v1/executions/{}", fired["execution_id"].as_str().unwrap())
}

fn alerts(user: &Client) -> Vec<Value> {
    user.get("/v1/alerts?alert_type=unclaimed").expect(200)["alerts"].as_array().unwrap().clone()
}

#[test]
fn the_time_for_a_claim_is_a_field_of_worker_cues() {
    let server = Server::with_test_clock(START);
    let user = server.user();
    let cue = user.create(&manual(&json!(60)));
    assert_eq!(cue["claim_within_minutes"], 60);
    let shown = || user.get(&path(&cue)).expect(200)["claim_within_minutes"].clone();
    assert_eq!(
        (shown(), &user.get("/v1/cues").expect(200)["cues"][0]["claim_within_minutes"]),
        (json!(60), &json!(60))
    );
    for (given, expected) in
        [(json!(1), json!(1)), (json!(10_080), json!(10_080)), (Value::Null, Value::Null)]
    {
        let changed = user.patch(&path(&cue), &json!({"claim_within_minutes": given})).expect(200);
        assert_eq!((&changed["claim_within_minutes"], shown()), (&expected, expected.clone()));
        assert_eq!(user.create(&manual(&given))["claim_within_minutes"], expected);
    }
    for wrong in [json!(0), json!(10_081), json!(1.5), json!("60"), json!(true)] {
        let refused = user.post("/v1/cues", &manual(&wrong)).expect_error(422, "validation_error");
        assert!(refused["error"]["message"].as_str().unwrap().contains("claim_within_minutes"), "{refused}");
        user.patch(&path(&cue), &json!({"claim_within_minutes": wrong}))
            .expect_error(422, "validation_error");
    }
    assert_eq!(shown(), Value::Null);
}

#[test]
fn a_webhook_cue_has_no_time_for_a_claim() {
    let server = Server::with_test_clock(START);
    let user = server.user();
    let (mut hook, _) = without(&manual(&json!(60)), "transport");
    hook["callback"] = json!({"url": "http://127.0.0.1:9/"});
    let refused = user.post("/v1/cues", &hook).expect_error(422, "validation_error");
    assert!(
        refused["error"]["message"].as_str().unwrap().contains("only executions of a worker cue"),
        "{refused}"
    );
    hook["claim_within_minutes"] = Value::Null;
    let cue = user.create(&hook);
    assert_eq!((&cue["claim_within_minutes"], &cue["warning"]), (&Value::Null, &Value::Null));
    let patch = |change: Value| user.patch(&path(&cue), &change);
    let refused =
        patch(json!({"name": "other", "claim_within_minutes": 5})).expect_error(422, "validation_error");
    assert!(
        refused["error"]["message"].as_str().unwrap().contains("only executions of a worker cue"),
        "{refused}"
    );
    assert_eq!(user.get(&path(&cue)).expect(200)["name"], "report", "nothing has changed");
    assert_eq!(patch(json!({"claim_within_minutes": null})).expect(200)["claim_within_minutes"], Value::Null);
}

#[test]
fn a_new_worker_cue_warns_if_no_worker_was_seen_lately() {
    let server = Server::with_test_clock(START);
    let (user, other) = (server.user(), server.user());
    let warning = |user: &Client| user.create(&worker_cue("work"))["warning"].clone();
    let cue = user.create(&worker_cue("work"));
    assert_eq!(cue["warning"], NO_WORKER);
    assert_eq!(user.get(&path(&cue)).expect(200)["warning"], Value::Null, "it is not stored");
    let mut odd = worker_cue("odd");
    odd["color"] = "red".into();
    let odd = user.create(&odd);
    assert_eq!(odd["warning"], format!("Ignored fields: color. {NO_WORKER}"));
    assert_eq!(user.get(&path(&odd)).expect(200)["warning"], "Ignored fields: color");
    user.post("/v1/worker/heartbeat", &json!({"worker_id": "w", "handlers": []})).expect(200);
    assert_eq!((warning(&user), warning(&other)), (Value::Null, json!(NO_WORKER)));
    user.advance("PT14M59S");
    assert_eq!(warning(&user), Value::Null);
    user.advance("PT1S");
    assert_eq!(warning(&user), NO_WORKER);
    // A worker without heartbeats is seen by its claim.
    let execution = fire(&user, &cue, &json!({}));
    user.post(&format!("{execution}/claim"), &json!({})).expect(200);
    assert_eq!(warning(&user), Value::Null);
}

#[test]
fn the_owner_is_told_of_an_execution_that_nobody_claims() {
    let (server, receiver) = (Server::with_test_clock(START), Receiver::start());
    let user = server.user();
    user.patch("/v1/auth/me", &json!({"alert_webhook_url": receiver.url()})).expect(200);
    let cue = user.create(&manual(&Value::Null));
    let ids = [(); 2].map(|()| fire(&user, &cue, &json!({})));
    user.advance("PT14M59.999S");
    assert_eq!(alerts(&user), Vec::<Value>::new());
    user.advance("PT0.001S");
    let found = alerts(&user);
    let expected = json!({
        "id": found[0]["id"], "alert_type": "unclaimed", "severity": "warning", "cue_id": cue["id"],
        "execution_id": ids[0].rsplit('/').next().unwrap(),
        "message": "No worker has claimed an execution of report for 15 minutes; 2 wait",
        "metadata": {"pending_minutes": 15, "waiting_executions": 2, "task": "resize"},
        "created_at": "2026-01-05T09:15:00Z",
    });
    assert_eq!(found, std::slice::from_ref(&expected));
    let sent = receiver.deliveries();
    assert_eq!((sent.len(), sent[0].json()), (1, expected));
    assert_eq!(sent[0].header("x-cueapi-alert-type"), Some("unclaimed"));
    user.advance("P7D");
    assert_eq!(alerts(&user).len(), 1);
}

#[test]
fn an_hourly_cue_without_a_worker_raises_an_alert_an_hour() {
    let server = Server::with_test_clock(START);
    let user = server.user();
    user.create(&worker_cue("work"));
    user.advance("P1D");
    assert_eq!(alerts(&user).len(), 23, "the last run has waited for no minute");
    assert_eq!(server.client().get("/health").expect(200)["services"]["worker"], "waiting");
}

#[test]
fn an_execution_that_is_not_claimed_in_time_fails_and_ends_its_cue() {
    let (server, receiver) = (Server::with_test_clock(START), Receiver::start());
    let user = server.user();
    let mut once = manual(&json!(10));
    once["schedule"] = json!({"type": "once", "at": "2026-01-05T10:00:00Z"});
    once["on_failure"] = json!({"email": false, "webhook": receiver.url()});
    let cue = user.create(&once);
    user.advance_to("2026-01-05T10:09:59.999Z");
    assert_eq!(user.only_execution(cue["id"].as_str().unwrap())["status"], "pending");
    user.advance("PT0.001S");
    let failed = user.only_execution(cue["id"].as_str().unwrap());
    assert_eq!(
        (&failed["status"], &failed["error_message"], &failed["attempts"]),
        (&json!("failed"), &json!("not claimed in time"), &json!(0))
    );
    assert_eq!(user.get(&path(&cue)).expect(200)["status"], "failed");
    let sent = receiver.deliveries();
    assert_eq!((sent.len(), &sent[0].json()["last_error"]), (1, &json!("not claimed in time")));
    assert_eq!(alerts(&user), Vec::<Value>::new(), "a time of less than 15 minutes ends without an alert");
    let id = failed["id"].as_str().unwrap();
    user.post(&format!("/v1/executions/{id}/claim"), &json!({})).expect_error(409, "already_claimed");
    user.post(&format!("/v1/executions/{id}/replay"), &json!({})).expect(200);
}

#[test]
fn the_time_runs_from_send_at() {
    let server = Server::with_test_clock(START);
    let user = server.user();
    let cue = user.create(&manual(&json!(10)));
    let execution = fire(&user, &cue, &json!({"send_at": "2026-01-05T12:00:00Z"}));
    let status = || user.get(&execution).expect(200)["status"].clone();
    user.advance_to("2026-01-05T12:09:59Z");
    assert_eq!(status(), "pending");
    user.advance("PT1S");
    assert_eq!(status(), "failed");
}

#[test]
fn a_change_of_the_time_wakes_the_scheduler_for_executions_that_wait() {
    let server = Server::with_test_clock(START);
    let user = server.user();
    let cue = user.create(&manual(&Value::Null));
    let execution = fire(&user, &cue, &json!({}));
    user.advance("PT1H");
    let patch = |minutes: u32| user.patch(&path(&cue), &json!({"claim_within_minutes": minutes})).expect(200);
    let status = || user.get(&execution).expect(200)["status"].clone();
    patch(90);
    user.settle();
    assert_eq!(status(), "pending");
    patch(30);
    user.settle();
    assert_eq!(status(), "failed");
}

#[test]
fn a_restart_does_not_begin_the_wait_anew() {
    let mut server = Server::with_test_clock(START);
    let user = server.user();
    let (cue, failing) = (user.create(&manual(&Value::Null)), user.create(&manual(&json!(15))));
    let (_, failed) = (fire(&user, &cue, &json!({})), fire(&user, &failing, &json!({})));
    user.advance("PT10M");
    server.kill();
    server.restart_at("2026-01-05T09:12:00Z");
    let user = user.at(server.addr());
    user.advance_to("2026-01-05T09:14:59.999Z");
    assert_eq!((alerts(&user).len(), &user.get(&failed).expect(200)["status"]), (0, &json!("pending")));
    user.advance("PT0.001S");
    assert_eq!((alerts(&user).len(), &user.get(&failed).expect(200)["status"]), (1, &json!("failed")));
}
