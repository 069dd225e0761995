//! The counters that the file keeps of its own rows. Every fixture and server checks them at the end of a test; these
//! tests cover every transition of executions and cues.

use cued::store::db::counters;
use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::server::{DEV_UNLIMITED, Server, cued};

const BEGIN: &str = "2026-01-01T10:30:00Z";

fn hook(schedule: &Value) -> Value {
    json!({"name": "hook", "schedule": schedule, "callback": {"url": "http://127.0.0.1:9/"},
           "retry": {"max_attempts": 3, "backoff_minutes": [10]}})
}

fn waiting(user: &Client) -> (Value, Value, Value) {
    let queue = user.get("/health").expect(200)["queue"].clone();
    (
        queue["pending_outbox"].clone(),
        queue["pending_worker_claims"].clone(),
        queue["pending_retries"].clone(),
    )
}

#[test]
fn the_queue_counters_follow_every_transition_of_an_execution() {
    let server = Server::with_test_clock(BEGIN);
    let user = server.user();
    let is = |claims: i64, retries: i64| {
        assert_eq!(waiting(&user), (json!(0), json!(claims), json!(retries)));
        assert_eq!(counters::discrepancies(&server.sqlite()).unwrap(), Vec::<String>::new());
    };
    let hourly = json!({"type": "recurring", "cron": "0 * * * *"});
    let work = user.create(&json!({"name": "work", "schedule": hourly, "transport": "worker"}));
    let call = user.create(&hook(&hourly));
    let fire = |cue: &Value, body: &Value| {
        let run = user.post(&format!("/v1/cues/{}/fire", cue["id"].as_str().unwrap()), body).expect(200);
        run["execution_id"].as_str().unwrap().to_owned()
    };
    fire(&work, &json!({"send_at": "2026-01-01T10:35:00Z"}));
    fire(&call, &json!({"send_at": "2026-01-01T10:35:00Z"}));
    is(0, 0); // a later `fire` is not a retry
    user.advance("PT5M");
    is(1, 1);
    user.advance("PT20M"); // the last attempt fails
    is(1, 0);
    let claim = user.post("/v1/executions/claim", &json!({"worker_id": "w"})).expect(200);
    is(0, 0);
    user.advance("PT16M"); // the claim expires, and an hour begins
    is(2, 1);
    let outcome = format!("/v1/executions/{}/outcome", claim["execution_id"].as_str().unwrap());
    user.post(&outcome, &json!({"success": true})).expect(200); // of an execution that is pending again
    is(1, 1);
    assert_eq!(user.delete(&format!("/v1/cues/{}", work["id"].as_str().unwrap())).status, 204);
    is(0, 1);
    assert_eq!(user.delete(&format!("/v1/cues/{}", call["id"].as_str().unwrap())).status, 204);
    is(0, 0);
}

#[test]
fn the_cue_counters_follow_every_change_of_a_cue() {
    let server = Server::with_test_clock(BEGIN);
    let user = server.user();
    let is = |counts: [i64; 4]| {
        assert_eq!(user.get("/v1/usage").expect(200)["cues"]["active"], json!(counts[0]));
        for (status, count) in ["active", "paused", "completed", "failed"].iter().zip(counts) {
            let list = user.get(&format!("/v1/cues?limit=1&status={status}")).expect(200);
            assert_eq!(list["total"], json!(count), "{status}");
        }
        assert_eq!(user.get("/v1/cues?limit=1").expect(200)["total"], json!(counts.iter().sum::<i64>()));
        assert_eq!(counters::discrepancies(&server.sqlite()).unwrap(), Vec::<String>::new());
    };
    let path = |cue: &Value| format!("/v1/cues/{}", cue["id"].as_str().unwrap());
    let hourly = json!({"type": "recurring", "cron": "0 * * * *"});
    let mut pausing = hook(&hourly);
    pausing["retry"] = json!({"max_attempts": 1});
    pausing["on_failure"] = json!({"pause": true});
    let pausing = user.create(&pausing);
    let once = user.create(&hook(&json!({"type": "once", "at": "2026-01-01T10:45:00Z"})));
    let other = user.create(&hook(&hourly));
    is([3, 0, 0, 0]);
    user.patch(&path(&other), &json!({"status": "paused"})).expect(200);
    is([2, 1, 0, 0]);
    user.patch(&path(&other), &json!({"name": "still paused"})).expect(200);
    is([2, 1, 0, 0]);
    user.patch(&path(&other), &json!({"status": "active"})).expect(200);
    is([3, 0, 0, 0]);
    let mut work = hook(&json!({"type": "once", "at": "2026-01-01T10:45:00Z"}));
    work["transport"] = "worker".into();
    work.as_object_mut().unwrap().remove("callback");
    let work = user.create(&work);
    user.advance("PT40M"); // the once cue fails, the other is paused by its failure
    is([2, 1, 0, 1]);
    let claim = user.post("/v1/executions/claim", &json!({"worker_id": "w"})).expect(200);
    let outcome = format!("/v1/executions/{}/outcome", claim["execution_id"].as_str().unwrap());
    user.post(&outcome, &json!({"success": true})).expect(200);
    is([1, 1, 1, 1]);
    user.patch(&path(&once), &json!({"schedule": {"at": "2026-02-01T00:00:00Z"}})).expect(200);
    user.patch(&path(&pausing), &json!({"status": "active"})).expect(200);
    is([3, 0, 1, 0]);
    for (cue, counts) in [(&once, [2, 0, 1, 0]), (&work, [2, 0, 0, 0])] {
        assert_eq!(user.delete(&path(cue)).status, 204);
        is(counts);
    }
    user.patch(&path(&other), &json!({"status": "paused"})).expect(200);
    assert_eq!(user.delete(&path(&other)).status, 204);
    is([1, 0, 0, 0]);
}

#[test]
fn a_disabled_user_has_no_queued_work() {
    let server = Server::with_test_clock(BEGIN);
    let (user, other) = (server.user(), server.user());
    let hourly = json!({"type": "recurring", "cron": "0 * * * *"});
    for user in [&user, &other] {
        user.create(&json!({"name": "work", "schedule": hourly, "transport": "worker"}));
        user.create(&hook(&hourly));
    }
    other.advance("PT30M");
    assert_eq!(waiting(&other), (json!(0), json!(2), json!(2)));
    let email = user.get("/v1/auth/me").expect(200)["email"].as_str().unwrap().to_owned();
    let disabled = cued(&["user", "disable", &email, "--db"]).arg(server.db()).output().unwrap();
    assert!(disabled.status.success());
    assert_eq!(waiting(&other), (json!(0), json!(1), json!(1)));
    assert_eq!(counters::discrepancies(&server.sqlite()).unwrap(), Vec::<String>::new());
}

#[test]
fn a_wrong_counter_is_found_and_named() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    user.create(&json!({"name": "work", "schedule": {"type": "recurring", "cron": "0 * * * *"}, "transport": "worker"}));
    let file = server.sqlite();
    let wrong = "UPDATE backlog SET count = 7 WHERE name = 'claim'; UPDATE users SET active_cues = 5";
    file.execute_batch(wrong).unwrap();
    let found = counters::discrepancies(&file).unwrap().join("\n");
    assert!(found.contains("backlog claim is 7 but should be 0"), "{found}");
    assert!(found.contains(" is 5 but should be 1"), "{found}");
    file.execute_batch("UPDATE backlog SET count = 0; UPDATE users SET active_cues = 1").unwrap();
    for name in ["paused_cues", "completed_cues", "failed_cues"] {
        file.execute_batch(&format!("UPDATE users SET {name} = 4")).unwrap();
        let found = counters::discrepancies(&file).unwrap().join("\n");
        assert!(found.starts_with(&format!("{name} of user")), "{found}");
        assert!(found.ends_with(" is 4 but should be 0"), "{found}");
        file.execute_batch(&format!("UPDATE users SET {name} = 0")).unwrap();
    }
}

/// A row that refers to no cue is found while the deletion of another cue is in progress.
#[test]
fn a_reference_to_a_missing_cue_is_found_beside_a_pending_deletion() {
    let server = Server::start(DEV_UNLIMITED);
    let file = server.sqlite();
    let orphan =
        "INSERT INTO missed_runs (cue_key, first, last, count, reason) VALUES (77, 1, 1, 1, 'clock');
         INSERT INTO deleted_cues (cue_key, user_key) VALUES (88, 1)";
    file.execute_batch(orphan).unwrap();
    let found = counters::discrepancies(&file).unwrap();
    assert_eq!(found, ["missed run 1 refers to cue 77, which does not exist"]);
    file.execute_batch("UPDATE missed_runs SET cue_key = 88").unwrap();
    assert_eq!(counters::discrepancies(&file).unwrap(), Vec::<String>::new(), "of the deleted cue");
    file.execute_batch("DELETE FROM missed_runs; DELETE FROM deleted_cues").unwrap();
}
