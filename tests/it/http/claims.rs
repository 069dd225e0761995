//! Claims over HTTP: many workers at once, long polls, and runs that no worker claims in time.

use std::sync::Barrier;

use crate::http::cues::{START, without, worker_cue};
use crate::support::*;

/// Fires a worker cue `count` times; returns the ids of the executions.
fn executions(user: &Client, count: usize) -> Vec<String> {
    let schedule = json!({"type": "recurring", "cron": "0 9 * * *"});
    let cue = json!({"name": "work", "transport": "worker", "schedule": schedule, "payload": {"task": "t"}});
    let fire = format!("/v1/cues/{}/fire", user.create(&cue).text("id"));
    let fired = (0..count).map(|_| user.post(&fire, &json!({})).expect(200));
    fired.map(|fired| fired.text("execution_id").to_owned()).collect()
}

/// Claims until nothing is left: odd workers from the list, even ones with `POST /v1/executions/claim`.
fn claim_all(client: &Client, number: usize) -> Vec<String> {
    let me = json!({"worker_id": format!("worker-{number}")});
    let mut mine = Vec::new();
    loop {
        if number.is_multiple_of(2) {
            let response = client.post("/v1/executions/claim", &me);
            match response.status {
                200 => mine.push(response.json().text("execution_id").to_owned()),
                _ => {
                    response.expect_error(409, "claim_failed");
                    return mine;
                }
            }
            continue;
        }
        let list = client.get("/v1/executions/claimable?limit=10").expect(200);
        let waiting = list.list("executions");
        if waiting.is_empty() {
            return mine;
        }
        for execution in waiting {
            let id = id(execution);
            let response = client.post(&format!("/v1/executions/{id}/claim"), &me);
            match response.status {
                200 => mine.push(id.to_owned()),
                _ => drop(response.expect_error(409, "already_claimed")),
            }
        }
    }
}

#[test]
fn fifty_clients_claim_each_of_five_hundred_executions_once() {
    let (_server, user) = Server::with_user(DEV_UNLIMITED);
    let made = executions(&user, 500);
    let (claimed, start) = (Mutex::new(BTreeMap::<String, Vec<usize>>::new()), Barrier::new(50));
    thread::scope(|scope| {
        for number in 0..50 {
            let (client, claimed, start) = (user.clone(), &claimed, &start);
            scope.spawn(move || {
                start.wait();
                for id in claim_all(&client, number) {
                    claimed.lock().unwrap().entry(id).or_default().push(number);
                }
            });
        }
    });
    let claimed = claimed.into_inner().unwrap();
    let twice: Vec<_> = claimed.iter().filter(|(_, workers)| workers.len() > 1).collect();
    assert_eq!(twice, Vec::<(&String, &Vec<usize>)>::new());
    let mut made = made;
    made.sort();
    // All are claimed and no other exists.
    assert_eq!(claimed.keys().cloned().collect::<Vec<_>>(), made);
    for id in made.iter().step_by(50) {
        let seen = user.execution(id);
        assert_eq!(seen["claimed_by_worker"], format!("worker-{}", claimed[id][0]));
    }
}

#[test]
fn of_two_concurrent_outcomes_the_acknowledged_one_is_kept() {
    let (_server, user) = Server::with_user(DEV_UNLIMITED);
    let start = Barrier::new(2);
    for id in executions(&user, 50) {
        let path = format!("/v1/executions/{id}");
        user.post(&format!("{path}/claim"), &json!({})).expect(200);
        let report = |result: &'static str| {
            let (client, path, start) = (user.clone(), &path, &start);
            move || {
                start.wait();
                let response = client
                    .post(&format!("{path}/outcome"), &json!({"success": true, "result": result}));
                match response.status {
                    200 => Some(result),
                    _ => {
                        response.expect_error(409, "outcome_already_reported");
                        None
                    }
                }
            }
        };
        let (left, right) = thread::scope(|scope| {
            let (left, right) = (scope.spawn(report("left")), scope.spawn(report("right")));
            (left.join().unwrap(), right.join().unwrap())
        });
        let winners: Vec<&str> = left.into_iter().chain(right).collect();
        assert_eq!(winners.len(), 1, "{winners:?}");
        assert_eq!(user.get(&path).expect(200)["outcome"]["result"], winners[0]);
    }
}

#[test]
fn workers_filter_by_words_of_up_to_255_characters() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let schedule = json!({"type": "recurring", "cron": "0 9 1 1 *"});
    let (short, long) = ("a".repeat(255), "b".repeat(400_000));
    for (number, word) in [&short, &long].into_iter().enumerate() {
        let payload = json!({"task": word, "agent": word, "number": number});
        let cue = json!({"name": "work", "transport": "worker", "schedule": schedule, "payload": payload});
        let cue = user.create(&cue);
        assert_eq!(cue["payload"], payload, "the payload keeps a word of any length");
        let fire = format!("/v1/cues/{}/fire", id(&cue));
        user.post(&fire, &json!({})).expect(200);
        user.post(&fire, &json!({"payload_override": {"number": 7}})).expect(200);
        user.post(&fire, &json!({"payload_override": payload, "merge_strategy": "replace"}))
            .expect(200);
    }
    let stored = |table: &str| -> (i64, i64, i64) {
        let sql =
            format!("SELECT count(*), count(task), coalesce(sum(length(task)), 0) FROM {table}");
        server
            .sqlite()
            .query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .unwrap()
    };
    assert_eq!((stored("executions"), stored("payloads")), ((6, 3, 765), (6, 3, 765)));
    let found = |query: &str| {
        let list = user.get(&format!("/v1/executions/claimable{query}")).expect(200);
        list.list("executions").len()
    };
    assert_eq!((found(&format!("?task={short}")), found(&format!("?agent={short}"))), (3, 3));
    assert_eq!(found(&format!("?task={}", &long[..256])), 0);
    assert_eq!(found(""), 6);
    user.post("/v1/executions/claim", &json!({"task": long})).expect_error(409, "claim_failed");
}

#[test]
fn an_override_is_merged_into_the_payload_of_its_instant() {
    let (_server, user) = Server::with_user(DEV_UNLIMITED);
    let schedule = json!({"type": "recurring", "cron": "0 9 1 1 *"});
    let payload = |version: u32| json!({"a": version, "b": version, "task": version.to_string()});
    let cue =
        json!({"name": "work", "transport": "worker", "schedule": schedule, "payload": payload(0)});
    let path = format!("/v1/cues/{}", user.create(&cue).text("id"));
    let path = &path;
    thread::scope(|scope| {
        let patcher = user.clone();
        scope.spawn(move || {
            for version in 1..=100 {
                let patched =
                    patcher.patch(path, &json!({"payload": payload(version)})).expect(200);
                assert_eq!(patched["payload"], payload(version));
            }
        });
        for name in 0..3 {
            let renamer = user.clone();
            scope.spawn(move || {
                for _ in 0..30 {
                    let renamed =
                        renamer.patch(path, &json!({"name": name.to_string()})).expect(200);
                    assert!(
                        renamed["payload"]["a"].is_u64()
                            && renamed["payload"]["a"] == renamed["payload"]["b"]
                    );
                }
            });
        }
        for _ in 0..30 {
            user.post(&format!("{path}/fire"), &json!({"payload_override": {"over": true}}))
                .expect(200);
        }
    });
    let list = user.get("/v1/executions/claimable?limit=100").expect(200);
    let runs = list.list("executions");
    assert_eq!((runs.len(), &list["has_more"]), (30, &json!(false)));
    let mut last = 0;
    for run in runs {
        let version = run["payload"]["a"].as_u64().unwrap();
        let mut expected = payload(u32::try_from(version).unwrap());
        expected["over"] = json!(true);
        assert_eq!((&run["payload"], &run["task"]), (&expected, &expected["task"]));
        assert!(version >= last, "no execution has an older payload than one before it");
        last = version;
    }
}

const NO_WORKER: &str = "No worker for runs without a task was seen in the last 15 minutes: runs wait until a worker claims them";

/// A worker cue that runs by request only.
fn manual(within: &Value) -> Value {
    json!({
        "name": "report", "transport": "worker", "claim_within_minutes": within, "payload": {"task": "resize"},
        "schedule": {"type": "recurring", "cron": "0 0 1 1 *"},
    })
}

fn fire(user: &Client, cue: &Value, body: &Value) -> String {
    let fired = user.post(&format!("{}/fire", cue_path(cue)), body).expect(200);
    format!("/v1/executions/{}", fired.text("execution_id"))
}

fn alerts(user: &Client) -> Vec<Value> {
    user.get("/v1/alerts?alert_type=unclaimed").expect(200).list("alerts").clone()
}

#[test]
fn the_time_for_a_claim_is_a_field_of_worker_cues() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&manual(&json!(60)));
    assert_eq!(cue["claim_within_minutes"], 60);
    let shown = || user.cue(&cue)["claim_within_minutes"].clone();
    assert_eq!(
        (shown(), &user.get("/v1/cues").expect(200)["cues"][0]["claim_within_minutes"]),
        (json!(60), &json!(60))
    );
    for (given, expected) in
        [(json!(1), json!(1)), (json!(10_080), json!(10_080)), (Value::Null, Value::Null)]
    {
        let changed = user.change(&cue, &json!({"claim_within_minutes": given}));
        assert_eq!((&changed["claim_within_minutes"], shown()), (&expected, expected.clone()));
        assert_eq!(user.create(&manual(&given))["claim_within_minutes"], expected);
    }
    assert_eq!(shown(), Value::Null);
}

#[test]
fn a_webhook_cue_has_no_time_for_a_claim() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (mut hook, _) = without(&manual(&json!(60)), "transport");
    hook["callback"] = json!({"url": "http://127.0.0.1:9/"});
    user.post("/v1/cues", &hook).refuses(
        422,
        "validation_error",
        "only executions of a worker cue",
    );
    hook["claim_within_minutes"] = Value::Null;
    let cue = user.create(&hook);
    assert_eq!((&cue["claim_within_minutes"], &cue["warning"]), (&Value::Null, &Value::Null));
    let patch = |change: Value| user.patch(&cue_path(&cue), &change);
    patch(json!({"name": "other", "claim_within_minutes": 5})).refuses(
        422,
        "validation_error",
        "only executions of a worker cue",
    );
    assert_eq!(user.cue(&cue)["name"], "report", "nothing has changed");
    assert_eq!(
        patch(json!({"claim_within_minutes": null})).expect(200)["claim_within_minutes"],
        Value::Null
    );
}

#[test]
fn a_new_worker_cue_warns_if_no_worker_was_seen_lately() {
    let server = Server::with_test_clock(START);
    let (user, other) = (server.user(), server.user());
    let warning = |user: &Client| user.create(&worker_cue("work"))["warning"].clone();
    let cue = user.create(&worker_cue("work"));
    assert_eq!(cue["warning"], NO_WORKER);
    assert_eq!(user.cue(&cue)["warning"], Value::Null, "it is not stored");
    let mut odd = worker_cue("odd");
    odd["color"] = "red".into();
    let odd = user.create(&odd);
    assert_eq!(odd["warning"], format!("Ignored fields: color. {NO_WORKER}"));
    assert_eq!(user.cue(&odd)["warning"], "Ignored fields: color");
    user.beat("w").expect(200);
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
fn a_new_worker_cue_warns_if_no_worker_takes_its_task() {
    let (_server, user) = Server::with_clock_and_user(START);
    let warning = |task: &str| {
        let cue = json!({"name": "w", "transport": "worker", "payload": {"task": task},
                         "schedule": {"type": "recurring", "cron": "0 0 1 1 *"}});
        user.create(&cue)["warning"].clone()
    };
    let none = |task: &str, word: &str| {
        json!(format!(
            "No worker for task {task} was seen in the last 15 minutes: `cued work --task {word} -- ./COMMAND`"
        ))
    };
    user.post(
        "/v1/worker/heartbeat",
        &json!({"worker_id": "w", "handlers": ["report", "a \"b\""]}),
    )
    .expect(200);
    assert_eq!(warning("report"), Value::Null);
    assert_eq!(warning("a \"b\""), Value::Null);
    assert_eq!(warning("resize"), none("resize", "resize"));
    assert_eq!(warning("repor"), none("repor", "repor"));
    assert_eq!(warning("it's"), none("it's", r"'it'\''s'"));
    assert_eq!(user.create(&worker_cue("any"))["warning"], NO_WORKER, "it names its tasks");
    let cue = user.create(&manual(&Value::Null));
    user.post(&format!("{}/claim", fire(&user, &cue, &json!({}))), &json!({})).expect(200);
    assert_eq!(warning("resize"), Value::Null, "a worker without heartbeats has claimed one");
    user.beat("all").expect(200);
    assert_eq!(
        (warning("other"), user.create(&worker_cue("any"))["warning"].clone()),
        (Value::Null, Value::Null)
    );
}

#[test]
fn the_owner_is_told_of_an_execution_that_nobody_claims() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
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
        "message": "No worker has claimed a run of report for 15 minutes; 2 are waiting",
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
fn each_due_time_that_finds_an_unclaimed_run_tells_so_again() {
    for overlap in ["skip", "buffer_one"] {
        let (_server, user) = Server::with_clock_and_user(START);
        let mut nightly = manual(&Value::Null);
        nightly["schedule"] = json!({"type": "recurring", "cron": "0 3 * * *"});
        nightly["overlap"] = overlap.into();
        user.create(&nightly);
        user.advance_to("2026-01-08T12:00:00Z");
        let told = alerts(&user);
        let at: Vec<&Value> = told.iter().rev().map(|alert| &alert["created_at"]).collect();
        assert_eq!(
            at,
            ["2026-01-06T03:15:00Z", "2026-01-07T03:00:00Z", "2026-01-08T03:00:00Z"],
            "{overlap}"
        );
        assert_eq!(
            told[0]["message"],
            "No worker has claimed a run of report for 2880 minutes; the cue was due 3 times and has not run"
        );
        assert_has(
            &told[0]["metadata"],
            json!({"due_runs": 3, "due_since": "2026-01-06T03:00:00Z", "pending_minutes": 2_880}),
        );
        // The runs that wait are done: the next due time begins to count again.
        for _ in 0..if overlap == "skip" { 1 } else { 2 } {
            let claim = user.post("/v1/executions/claim", &json!({})).expect(200);
            let outcome = format!("/v1/executions/{}/outcome", claim.text("execution_id"));
            user.post(&outcome, &json!({"success": true})).expect(200);
            user.advance("PT1S");
        }
        user.advance_to("2026-01-10T12:00:00Z");
        assert_eq!(alerts(&user)[0]["metadata"]["due_runs"], 2, "{overlap}");
    }
}

#[test]
fn a_cue_that_is_due_every_minute_tells_of_an_unclaimed_run_once_an_hour() {
    let (_server, user) = Server::with_clock_and_user(START);
    let mut cue = manual(&Value::Null);
    cue["schedule"] = json!({"type": "recurring", "cron": "* * * * *"});
    cue["overlap"] = "skip".into();
    user.create(&cue);
    user.advance("PT3H");
    let told = alerts(&user);
    let at: Vec<&Value> = told.iter().rev().map(|alert| &alert["created_at"]).collect();
    assert_eq!(at, ["2026-01-05T09:16:00Z", "2026-01-05T10:16:00Z", "2026-01-05T11:16:00Z"]);
}

#[test]
fn an_hourly_cue_without_a_worker_raises_an_alert_an_hour() {
    let (server, user) = Server::with_clock_and_user(START);
    user.create(&worker_cue("work"));
    user.advance("P1D");
    assert_eq!(alerts(&user).len(), 23, "the last run has waited for no minute");
    assert_eq!(server.client().get("/health").expect(200)["services"]["worker"], "waiting");
}

#[test]
fn an_execution_that_is_not_claimed_in_time_fails_and_ends_its_cue() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let mut once = manual(&json!(10));
    once["schedule"] = json!({"type": "once", "at": "2026-01-05T10:00:00Z"});
    once["on_failure"] = json!({"email": false, "webhook": receiver.url()});
    let cue = user.create(&once);
    user.advance_to("2026-01-05T10:09:59.999Z");
    assert_eq!(user.only_execution(id(&cue))["status"], "pending");
    user.advance("PT0.001S");
    let failed = user.only_execution(id(&cue));
    assert_has(
        &failed,
        json!({"status": "failed", "error_message": "not claimed in time", "attempts": 0}),
    );
    assert_eq!(user.cue(&cue)["status"], "failed");
    let sent = receiver.deliveries();
    assert_eq!((sent.len(), &sent[0].json()["last_error"]), (1, &json!("not claimed in time")));
    // A time of less than 15 minutes ends without an alert.
    assert_eq!(alerts(&user), Vec::<Value>::new());
    let id = id(&failed);
    user.act(&id, "claim").expect_error(409, "already_claimed");
    user.act(&id, "replay").expect(200);
}

#[test]
fn the_time_runs_from_send_at() {
    let (_server, user) = Server::with_clock_and_user(START);
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
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&manual(&Value::Null));
    let execution = fire(&user, &cue, &json!({}));
    user.advance("PT1H");
    let patch = |minutes: u32| user.change(&cue, &json!({"claim_within_minutes": minutes}));
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
    let (mut server, user) = Server::with_clock_and_user(START);
    let (cue, failing) = (user.create(&manual(&Value::Null)), user.create(&manual(&json!(15))));
    let (_, failed) = (fire(&user, &cue, &json!({})), fire(&user, &failing, &json!({})));
    user.advance("PT10M");
    server.kill();
    server.restart_at("2026-01-05T09:12:00Z");
    let user = user.at(server.addr());
    user.advance_to("2026-01-05T09:14:59.999Z");
    assert_eq!(
        (alerts(&user).len(), &user.get(&failed).expect(200)["status"]),
        (0, &json!("pending"))
    );
    user.advance("PT0.001S");
    assert_eq!(
        (alerts(&user).len(), &user.get(&failed).expect(200)["status"]),
        (1, &json!("failed"))
    );
}

const POLL: &str = "/v1/executions/claimable?wait=30";

/// Starts a long poll of a new user. Its key has been checked when this returns: the request has counted.
fn admitted_poll(api: &Api, user: &User) -> PendingResponse {
    let poll = api.poll(user, POLL);
    // The poll, and the request that precedes it.
    let mut requests = 2;
    until("the poll is admitted", || {
        requests += 1;
        let usage = user.get("/v1/usage").expect(200);
        (usage["rate_limit"]["current_usage"] == requests).then_some(())
    });
    poll
}

#[test]
fn a_revoked_key_gets_no_work_from_its_open_long_poll() {
    let (api, ada) = Api::with_user("ada");
    let cue = api.fixture.worker_cue(ada.key, |_| ());
    let poll = admitted_poll(&api, &ada);
    let user = ada.key;
    api.fixture
        .write(move |tx| tx.execute("DELETE FROM api_keys WHERE user_key = ?1", [user]).unwrap());
    api.fixture.run(&cue, json!({}));
    poll.wait().expect_error(401, "invalid_api_key");
}

#[test]
fn a_long_poll_ends_soon_after_its_account_is_disabled() {
    let api = Api::start();
    let (ada, eve) = (api.user("ada"), api.user("eve"));
    let (poll, begun) = (admitted_poll(&api, &ada), api.fixture.app.clock.monotonic());
    let user = ada.key;
    api.fixture.write(move |tx| {
        tx.execute("UPDATE users SET disabled_at = 0 WHERE key = ?1", [user]).unwrap()
    });
    // Work of others does not put off the check.
    let cue = api.fixture.worker_cue(eve.key, |_| ());
    while !poll.has_come() {
        api.fixture.run(&cue, json!({}));
        std::thread::park_timeout(Duration::from_millis(500));
    }
    poll.wait().expect_error(401, "invalid_api_key");
    let waited = api.fixture.app.clock.monotonic() - begun;
    assert!(
        waited < Duration::from_secs(25),
        "{waited:?}: ended by the check, not by the end of its wait"
    );
}

#[test]
fn an_account_has_at_most_twenty_long_polls() {
    let mut api = Api::start();
    let (ada, eve) = (api.user("ada"), api.user("eve"));
    // The server admits them in any order.
    let mut polls: Vec<_> = (0..21).map(|_| api.poll(&ada, POLL)).collect();
    let refused = until("a poll is refused", || polls.iter().position(|poll| poll.has_come()));
    let refused = polls.swap_remove(refused).wait();
    refused.expect_error(429, "rate_limit_exceeded");
    assert_eq!(refused.header("retry-after"), Some("5"));
    assert!(refused.text().contains("20 long polls"), "{}", refused.text());
    ada.get("/v1/executions/claimable").expect(200);
    let other = api.poll(&eve, POLL);
    // A poll that ends makes room.
    let cue = api.fixture.worker_cue(ada.key, |_| ());
    api.fixture.run(&cue, json!({}));
    for poll in polls {
        poll.wait().expect(200);
    }
    ada.get(POLL).expect(200);
    api.stop();
    other.wait().expect(200);
}

#[test]
fn without_limits_the_number_of_long_polls_is_free() {
    let unlimited = Fixture::with_config(cued::clock::Clock::test(None), |config| {
        config.plans = config.plans.clone().limited(false);
    });
    let mut api = Api::from_fixture(unlimited);
    let ada = api.user("ada");
    let polls: Vec<_> = (0..25).map(|_| api.poll(&ada, POLL)).collect();
    api.stop();
    for poll in polls {
        poll.wait().expect(200);
    }
}
