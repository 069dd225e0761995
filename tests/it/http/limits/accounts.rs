//! Operator commands: another plan, and disabling an account.

use cued::domain::account::plan::PlanLimits;
use cued::service::accounts::change_plan;
use serde_json::{Value, json};

use super::{Plans, administer, email, id, worker};
use crate::support::client::Client;
use crate::support::fixture::Fixture;
use crate::support::receiver::{Reaction, Receiver};
use crate::support::server::Server;

fn statuses(user: &Client, cues: &[Value]) -> Vec<String> {
    let status = |cue: &Value| {
        let shown = user.get(&format!("/v1/cues/{}", id(cue))).expect(200);
        assert_eq!(shown["status"] == "active", !shown["next_run"].is_null(), "{shown}");
        shown["status"].as_str().unwrap().to_owned()
    };
    cues.iter().map(status).collect()
}

#[test]
fn a_downgrade_pauses_the_newest_cues_above_the_limit() {
    let plans = Plans::small();
    let server = plans.server();
    let user = server.user();
    let email = email(&user);
    administer(&server, &["set-plan", &email, "pro", "--plans", &plans.path()]);
    let cues: Vec<Value> = (0..5).map(|_| user.create(&worker("0 * * * *"))).collect();
    user.post("/v1/cues", &worker("0 * * * *")).expect_error(403, "cue_limit_exceeded");
    user.patch(&format!("/v1/cues/{}", id(&cues[0])), &json!({"status": "paused"})).expect(200);
    // Without limits a smaller plan pauses no cue.
    administer(&server, &["set-plan", &email, "free", "--plans", &plans.path(), "--limits", "off"]);
    assert_eq!(statuses(&user, &cues), ["paused", "active", "active", "active", "active"]);
    administer(&server, &["set-plan", &email, "free", "--plans", &plans.path()]);
    assert_eq!(statuses(&user, &cues), ["paused", "active", "active", "active", "paused"]);
    let usage = user.get("/v1/usage").expect(200)["cues"].clone();
    assert_eq!((&usage["active"], &usage["limit"], &usage["remaining"]), (&json!(3), &json!(3), &json!(0)));
    let newest = format!("/v1/cues/{}", id(&cues[4]));
    user.patch(&newest, &json!({"status": "active"})).expect_error(403, "cue_limit_exceeded");
    administer(&server, &["set-plan", &email, "pro", "--plans", &plans.path()]);
    user.patch(&newest, &json!({"status": "active"})).expect(200);
    assert_eq!(user.advance("PT1H")["fired"], 4, "only the active ones");
}

/// Three cues whose runs of the last three hours are due, but not fired, and what a change to a plan for one cue leaves
/// of each: status, runs and missed runs.
fn downgraded(hold: bool) -> [(&'static str, i64, i64); 3] {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    let cues = [(); 3].map(|()| fixture.worker_cue(user, |_| ()).key);
    fixture.advance(3 * 3_600);
    let (now, limits) = (fixture.now(), PlanLimits { cues: Some(1), ..PlanLimits::NONE });
    let firer = cued::service::fire::CueFirer::new(&fixture.app, now);
    let change = fixture.app.store.write(move |tx| {
        if hold {
            tx.execute("INSERT INTO meta (name, value) VALUES ('held_since', 0)", [])?;
        }
        change_plan(tx, user, "pro", limits, &firer)
    });
    assert_eq!(change.wait().unwrap(), 2);
    cues.map(|key| {
        let cue = fixture.cue(key);
        (cue.status.as_str(), cue.run_count, cue.missed_count)
    })
}

#[test]
fn due_runs_of_a_cue_fire_before_a_downgrade_pauses_it() {
    assert_eq!(downgraded(false), [("active", 0, 0), ("paused", 3, 0), ("paused", 3, 0)]);
}

#[test]
fn due_runs_of_a_cue_paused_by_a_downgrade_of_a_held_database_are_recorded_as_missed() {
    assert_eq!(downgraded(true), [("active", 0, 0), ("paused", 0, 3), ("paused", 0, 3)]);
}

#[test]
fn a_due_run_fires_before_a_command_without_a_server_pauses_its_cue() {
    let plans = Plans::small();
    let mut server = Server::start(&["--dev", "--plans", &plans.path()]);
    let user = server.user();
    let cues: Vec<Value> = (0..2).map(|_| user.create(&worker("0 0 1 1 *"))).collect();
    let email = email(&user);
    server.stop();
    let due_now = "UPDATE cues SET next_run = (SELECT max(created_at) FROM cues)";
    assert_eq!(server.sqlite().execute(due_now, []).unwrap(), 2);
    administer(&server, &["set-plan", &email, "tiny", "--plans", &plans.path()]);
    server.restart();
    let user = user.at(server.addr());
    assert_eq!(statuses(&user, &cues), ["active", "paused"]);
    let newest = user.get(&format!("/v1/cues/{}", id(&cues[1]))).expect(200);
    assert_eq!((&newest["run_count"], &newest["missed_count"]), (&json!(1), &json!(0)), "{newest}");
    let claimable = user.get("/v1/executions/claimable").expect(200);
    let cue_ids: Vec<&Value> =
        claimable["executions"].as_array().unwrap().iter().map(|run| &run["cue_id"]).collect();
    assert!(cue_ids.contains(&&cues[1]["id"]), "{claimable}");
}

/// Executions in the file by status and reason.
fn ends(server: &Server) -> Vec<(String, Option<String>)> {
    let file = server.sqlite();
    let mut all = file.prepare("SELECT status, error_message FROM executions ORDER BY key").unwrap();
    let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn a_disabled_users_keys_cues_and_deliveries_stop() {
    let (server, receiver) = (Server::with_test_clock(super::START), Receiver::start());
    let (user, other) = (server.user(), server.user());
    let email = email(&user);
    receiver.first([Reaction::Status(500)]);
    let hook = json!({"name": "hook", "schedule": {"type": "recurring", "cron": "0 * * * *"},
                      "callback": {"url": receiver.url()}});
    let cue = user.create(&hook);
    user.create(&worker("0 * * * *"));
    user.create(&worker("0 * * * *"));
    let kept = other.create(&worker("0 * * * *"));
    // One delivery waits for its second attempt, one execution for its instant, one for a worker; one is claimed.
    user.advance("PT30M");
    user.post("/v1/executions/claim", &json!({})).expect(200);
    user.post(&format!("/v1/cues/{}/fire", id(&cue)), &json!({"send_at": "2026-01-30T00:00:00Z"}))
        .expect(200);
    assert_eq!(receiver.deliveries().len(), 1);
    administer(&server, &["disable", &email]);
    user.get("/v1/auth/me").expect_error(401, "invalid_api_key");
    let disabled = ("failed".to_owned(), Some("account_disabled".to_owned()));
    let pending = ("pending".to_owned(), None);
    let mut all = ends(&server);
    all.sort();
    assert_eq!(all, [vec![disabled.clone(); 4], vec![pending]].concat());
    let queue = other.get("/health").expect(200)["queue"].clone();
    assert_eq!((&queue["pending_retries"], &queue["pending_worker_claims"]), (&json!(0), &json!(1)));
    let moved = other.advance("P1D");
    assert_eq!((&moved["delivered"], &moved["fired"]), (&json!(0), &json!(24)));
    assert_eq!(receiver.deliveries().len(), 1);
    assert_eq!(other.executions_of(id(&kept)).len(), 25);
}

#[test]
fn a_running_attempt_of_a_disabled_user_is_not_retried() {
    let (server, receiver) = (Server::with_test_clock(super::START), Receiver::start());
    let (user, other) = (server.user(), server.user());
    let email = email(&user);
    receiver.first([Reaction::Status(500)]);
    user.create(&json!({"name": "hook", "schedule": {"type": "recurring", "cron": "0 * * * *"},
                        "callback": {"url": receiver.url()}}));
    user.advance("PT30M");
    administer(&server, &["disable", &email]);
    // As if the response had arrived only now.
    let again =
        "UPDATE executions SET status = 'retrying', queue_name = 'waiting', due_at = last_attempt_at + 1000;
                 UPDATE backlog SET count = 1 WHERE name = 'retry'";
    server.sqlite().execute_batch(again).unwrap();
    other.advance("PT1H");
    assert_eq!(receiver.deliveries().len(), 1);
    let [(status, reason)] = &ends(&server)[..] else { panic!("more than one execution") };
    assert_eq!(status, "failed");
    assert!(reason.as_ref().unwrap().contains("account_disabled"), "{reason:?}");
}
