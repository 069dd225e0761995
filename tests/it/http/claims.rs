//! Claims over HTTP: many workers at once, long polls, and runs that no worker claims in time.

use std::iter;
use std::sync::Barrier;

use crate::http::cues::START;
use crate::support::*;

/// Fires a worker cue `count` times; returns the ids of the executions.
fn executions(user: &Client, count: usize) -> Vec<String> {
    let cue = user.create(&work(json!({"task": "t"})));
    (0..count).map(|_| user.fire(&cue)).collect()
}

/// A worker cue that runs by request only.
fn work(payload: Value) -> Value {
    with(worker_cue("report", YEARLY), json!({ "payload": payload }))
}

/// The same, with a time for the claim of its runs.
fn manual(within: &Value) -> Value {
    with(work(json!({"task": "resize"})), json!({ "claim_within_minutes": within }))
}

/// Claims until nothing is left: odd workers from the list, even ones with `POST /v1/executions/claim`.
fn claim_all(client: &Client, number: usize) -> Vec<String> {
    let me = json!({"worker_id": format!("worker-{number}")});
    let claim = |path: &str, taken: &str| {
        let response = client.post(path, &me);
        match response.status {
            200 => Some(response.json().text("execution_id").to_owned()),
            _ => {
                response.expect_error(409, taken);
                None
            }
        }
    };
    if number.is_multiple_of(2) {
        return iter::from_fn(|| claim("/v1/executions/claim", "claim_failed")).collect();
    }
    let mut mine = Vec::new();
    loop {
        let waiting = client.read("/v1/executions/claimable?limit=10").column("executions", "id");
        if waiting.is_empty() {
            return mine;
        }
        let paths =
            waiting.iter().map(|id| format!("/v1/executions/{}/claim", id.as_str().unwrap()));
        mine.extend(paths.filter_map(|path| claim(&path, "already_claimed")));
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
        user.act(&id, "claim").expect(200);
        let report = |result: &'static str| {
            let (client, path, start) =
                (user.clone(), format!("/v1/executions/{id}/outcome"), &start);
            move || {
                start.wait();
                let response = client.post(&path, &json!({"success": true, "result": result}));
                if response.status != 200 {
                    response.expect_error(409, "outcome_already_reported");
                }
                (response.status == 200).then_some(result)
            }
        };
        let (left, right) = thread::scope(|scope| {
            let (left, right) = (scope.spawn(report("left")), scope.spawn(report("right")));
            (left.join().unwrap(), right.join().unwrap())
        });
        let winners: Vec<&str> = left.into_iter().chain(right).collect();
        assert_eq!(winners.len(), 1, "{winners:?}");
        assert_eq!(user.execution(&id)["outcome"]["result"], winners[0]);
    }
}

#[test]
fn workers_filter_by_words_of_up_to_255_characters() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let (short, long) = ("a".repeat(255), "b".repeat(400_000));
    for (number, word) in [&short, &long].into_iter().enumerate() {
        let payload = json!({"task": word, "agent": word, "number": number});
        let cue = user.create(&work(payload.clone()));
        assert_eq!(cue["payload"], payload, "the payload keeps a word of any length");
        for body in [
            json!({}),
            json!({"payload_override": {"number": 7}}),
            json!({"payload_override": payload, "merge_strategy": "replace"}),
        ] {
            user.fire_with(&cue, &body);
        }
    }
    for (what, expected) in [("*", 6), ("task", 3)] {
        for table in ["executions", "payloads"] {
            assert_eq!(server.count(&format!("SELECT count({what}) FROM {table}")), expected);
            let length = format!("SELECT sum(length(task)) FROM {table}");
            assert_eq!(server.count(&length), 765, "{table}");
        }
    }
    let found = |query: &str| {
        let list = user.read(&format!("/v1/executions/claimable{query}"));
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
    let payload = |version: u32| json!({"a": version, "b": version, "task": version.to_string()});
    let cue = &user.create(&work(payload(0)));
    thread::scope(|scope| {
        let patcher = user.clone();
        scope.spawn(move || {
            for version in 1..=100 {
                let patched = patcher.change(cue, &json!({"payload": payload(version)}));
                assert_eq!(patched["payload"], payload(version));
            }
        });
        for name in 0..3 {
            let renamer = user.clone();
            scope.spawn(move || {
                for _ in 0..30 {
                    let renamed = renamer.change(cue, &json!({"name": name.to_string()}));
                    let payload = &renamed["payload"];
                    assert!(payload["a"].is_u64() && payload["a"] == payload["b"], "{payload}");
                }
            });
        }
        for _ in 0..30 {
            user.fire_with(cue, &json!({"payload_override": {"over": true}}));
        }
    });
    let list = user.read("/v1/executions/claimable?limit=100");
    let runs = list.list("executions");
    assert_eq!((runs.len(), &list["has_more"]), (30, &json!(false)));
    let mut last = 0;
    for run in runs {
        let version = run["payload"]["a"].as_u64().unwrap();
        let expected = with(payload(u32::try_from(version).unwrap()), json!({"over": true}));
        assert_eq!((&run["payload"], &run["task"]), (&expected, &expected["task"]));
        assert!(version >= last, "no execution has an older payload than one before it");
        last = version;
    }
}

const NO_WORKER: &str = "No worker for runs without a task has polled in the last 15 minutes; runs wait until a worker claims them";

fn alerts(user: &Client) -> Vec<Value> {
    user.read("/v1/alerts?alert_type=unclaimed").list("alerts").clone()
}

#[test]
fn a_new_worker_cue_warns_if_no_worker_was_seen_lately() {
    let server = Server::with_test_clock(START);
    let (user, other) = (server.user(), server.user());
    let warning = |user: &Client| user.create(&hourly_cue("work"))["warning"].clone();
    let cue = user.create(&hourly_cue("work"));
    assert_eq!(cue["warning"], NO_WORKER);
    assert_eq!(user.cue(&cue)["warning"], Value::Null, "it is not stored");
    let odd = user.create(&with(hourly_cue("odd"), json!({"color": "red"})));
    assert_eq!(odd["warning"], format!("Ignored fields: color. {NO_WORKER}"));
    assert_eq!(user.cue(&odd)["warning"], "Ignored fields: color");
    user.beat("w").expect(200);
    assert_eq!((warning(&user), warning(&other)), (Value::Null, json!(NO_WORKER)));
    user.advance("PT14M59S");
    assert_eq!(warning(&user), Value::Null);
    user.advance("PT1S");
    assert_eq!(warning(&user), NO_WORKER);
    // A worker without heartbeats is seen by its claim.
    user.act(&user.fire(&cue), "claim").expect(200);
    assert_eq!(warning(&user), Value::Null);
}

#[test]
fn a_new_worker_cue_warns_if_no_worker_takes_its_task() {
    let (_server, user) = Server::with_clock_and_user(START);
    let warning = |task: &str| user.create(&work(json!({"task": task})))["warning"].clone();
    let none = |task: &str, word: &str| {
        json!(format!(
            "No worker for task {task} has polled in the last 15 minutes; start one: `cued work --task {word} -- ./COMMAND`"
        ))
    };
    let beat = json!({"worker_id": "w", "handlers": ["report", "a \"b\""]});
    user.post("/v1/worker/heartbeat", &beat).expect(200);
    assert_eq!(warning("report"), Value::Null);
    assert_eq!(warning("a \"b\""), Value::Null);
    assert_eq!(warning("resize"), none("resize", "resize"));
    assert_eq!(warning("repor"), none("repor", "repor"));
    assert_eq!(warning("it's"), none("it's", r"'it'\''s'"));
    assert_eq!(user.create(&hourly_cue("any"))["warning"], NO_WORKER, "it names its tasks");
    let cue = user.create(&manual(&Value::Null));
    user.act(&user.fire(&cue), "claim").expect(200);
    assert_eq!(warning("resize"), Value::Null, "a worker without heartbeats has claimed one");
    user.beat("all").expect(200);
    assert_eq!(
        (warning("other"), user.create(&hourly_cue("any"))["warning"].clone()),
        (Value::Null, Value::Null)
    );
}

#[test]
fn the_owner_is_told_of_an_execution_that_nobody_claims() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    user.patch("/v1/auth/me", &json!({"alert_webhook_url": receiver.url()})).expect(200);
    let cue = user.create(&manual(&Value::Null));
    let ids = [(); 2].map(|()| user.fire(&cue));
    user.advance("PT14M59.999S");
    assert_eq!(alerts(&user), Vec::<Value>::new());
    user.advance("PT0.001S");
    let found = alerts(&user);
    let expected = json!({
        "id": found[0]["id"], "alert_type": "unclaimed", "severity": "warning", "cue_id": cue["id"],
        "execution_id": ids[0],
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
        user.create(&with(worker_cue("report", "0 3 * * *"), json!({"overlap": overlap})));
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
            user.report(&user.claim("w"), &json!({"success": true}));
            user.advance("PT1S");
        }
        user.advance_to("2026-01-10T12:00:00Z");
        assert_eq!(alerts(&user)[0]["metadata"]["due_runs"], 2, "{overlap}");
    }
}

#[test]
fn a_cue_that_is_due_every_minute_tells_of_an_unclaimed_run_once_an_hour() {
    let (_server, user) = Server::with_clock_and_user(START);
    user.create(&with(worker_cue("report", "* * * * *"), json!({"overlap": "skip"})));
    user.advance("PT3H");
    let told = alerts(&user);
    let at: Vec<&Value> = told.iter().rev().map(|alert| &alert["created_at"]).collect();
    assert_eq!(at, ["2026-01-05T09:16:00Z", "2026-01-05T10:16:00Z", "2026-01-05T11:16:00Z"]);
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
    user.act(id, "claim").expect_error(409, "already_claimed");
    user.act(id, "replay").expect(200);
}

#[test]
fn the_time_runs_from_send_at() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&manual(&json!(10)));
    let execution = user.fire_with(&cue, &json!({"send_at": "2026-01-05T12:00:00Z"}));
    let status = || user.execution(&execution)["status"].clone();
    user.advance_to("2026-01-05T12:09:59Z");
    assert_eq!(status(), "pending");
    user.advance("PT1S");
    assert_eq!(status(), "failed");
}

#[test]
fn a_change_of_the_time_wakes_the_scheduler_for_executions_that_wait() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&manual(&Value::Null));
    let execution = user.fire(&cue);
    user.advance("PT1H");
    for (minutes, status) in [(90, "pending"), (30, "failed")] {
        user.change(&cue, &json!({"claim_within_minutes": minutes}));
        user.settle();
        assert_eq!(user.execution(&execution)["status"], status);
    }
}

#[test]
fn a_restart_does_not_begin_the_wait_anew() {
    let (mut server, user) = Server::with_clock_and_user(START);
    let (cue, failing) = (user.create(&manual(&Value::Null)), user.create(&manual(&json!(15))));
    let (_, failed) = (user.fire(&cue), user.fire(&failing));
    user.advance("PT10M");
    server.kill();
    let user = user.at(server.restart_at("2026-01-05T09:12:00Z"));
    for (to, told, status) in
        [("2026-01-05T09:14:59.999Z", 0, "pending"), ("2026-01-05T09:15:00Z", 1, "failed")]
    {
        user.advance_to(to);
        assert_eq!(
            (alerts(&user).len(), &user.execution(&failed)["status"]),
            (told, &json!(status))
        );
    }
}

const POLL: &str = "/v1/executions/claimable?wait=30";

/// Starts a long poll of a new user. Its key has been checked when this returns: the request has counted.
fn admitted_poll(api: &Api, user: &User) -> PendingResponse {
    let poll = api.poll(user, POLL);
    // The poll, and the request that precedes it.
    let mut requests = 2;
    until("the poll is admitted", || {
        requests += 1;
        let usage = user.read("/v1/usage");
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
    refused.refuses_for(5, 429, "rate_limit_exceeded");
    assert!(refused.text().contains("20 long polls"), "{}", refused.text());
    ada.read("/v1/executions/claimable");
    let other = api.poll(&eve, POLL);
    // A poll that ends makes room.
    let cue = api.fixture.worker_cue(ada.key, |_| ());
    api.fixture.run(&cue, json!({}));
    for poll in polls {
        poll.wait().expect(200);
    }
    ada.read(POLL);
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
