//! Many workers at once: each execution is claimed once and reported once.

use std::collections::BTreeMap;
use std::sync::{Barrier, Mutex};
use std::thread;

use serde_json::json;

use crate::support::client::Client;
use crate::support::server::{DEV_UNLIMITED, Server};

/// Fires a worker cue `count` times; returns the ids of the executions.
fn executions(user: &Client, count: usize) -> Vec<String> {
    let schedule = json!({"type": "recurring", "cron": "0 9 * * *"});
    let cue = json!({"name": "work", "transport": "worker", "schedule": schedule, "payload": {"task": "t"}});
    let fire = format!("/v1/cues/{}/fire", user.create(&cue)["id"].as_str().unwrap());
    let fired = (0..count).map(|_| user.post(&fire, &json!({})).expect(200));
    fired.map(|fired| fired["execution_id"].as_str().unwrap().to_owned()).collect()
}

/// Claims until nothing is left: odd workers from the list, even ones with `POST /v1/executions/claim`.
fn claim_all(client: &Client, number: usize) -> Vec<String> {
    let me = json!({"worker_id": format!("worker-{number}")});
    let mut mine = Vec::new();
    loop {
        if number.is_multiple_of(2) {
            let response = client.post("/v1/executions/claim", &me);
            match response.status {
                200 => mine.push(response.json()["execution_id"].as_str().unwrap().to_owned()),
                _ => {
                    response.expect_error(409, "claim_failed");
                    return mine;
                }
            }
            continue;
        }
        let list = client.get("/v1/executions/claimable?limit=10").expect(200);
        let waiting = list["executions"].as_array().unwrap();
        if waiting.is_empty() {
            return mine;
        }
        for execution in waiting {
            let id = execution["id"].as_str().unwrap();
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
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
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
    assert_eq!(claimed.keys().cloned().collect::<Vec<_>>(), made, "all are claimed and no other exists");
    for id in made.iter().step_by(50) {
        let seen = user.get(&format!("/v1/executions/{id}")).expect(200);
        assert_eq!(seen["claimed_by_worker"], format!("worker-{}", claimed[id][0]));
    }
}

#[test]
fn of_two_concurrent_outcomes_the_acknowledged_one_is_kept() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    let start = Barrier::new(2);
    for id in executions(&user, 50) {
        let path = format!("/v1/executions/{id}");
        user.post(&format!("{path}/claim"), &json!({})).expect(200);
        let report = |result: &'static str| {
            let (client, path, start) = (user.clone(), &path, &start);
            move || {
                start.wait();
                let response =
                    client.post(&format!("{path}/outcome"), &json!({"success": true, "result": result}));
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
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    let schedule = json!({"type": "recurring", "cron": "0 9 1 1 *"});
    let (short, long) = ("a".repeat(255), "b".repeat(400_000));
    for (number, word) in [&short, &long].into_iter().enumerate() {
        let payload = json!({"task": word, "agent": word, "number": number});
        let cue = json!({"name": "work", "transport": "worker", "schedule": schedule, "payload": payload});
        let cue = user.create(&cue);
        assert_eq!(cue["payload"], payload, "the payload keeps a word of any length");
        let fire = format!("/v1/cues/{}/fire", cue["id"].as_str().unwrap());
        user.post(&fire, &json!({})).expect(200);
        user.post(&fire, &json!({"payload_override": {"number": 7}})).expect(200);
        user.post(&fire, &json!({"payload_override": payload, "merge_strategy": "replace"})).expect(200);
    }
    let stored = |table: &str| -> (i64, i64, i64) {
        let sql = format!("SELECT count(*), count(task), coalesce(sum(length(task)), 0) FROM {table}");
        server.sqlite().query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap()
    };
    assert_eq!((stored("executions"), stored("payloads")), ((6, 3, 765), (6, 3, 765)));
    let found = |query: &str| {
        let list = user.get(&format!("/v1/executions/claimable{query}")).expect(200);
        list["executions"].as_array().unwrap().len()
    };
    assert_eq!((found(&format!("?task={short}")), found(&format!("?agent={short}"))), (3, 3));
    assert_eq!(found(&format!("?task={}", &long[..256])), 0);
    assert_eq!(found(""), 6);
    user.post("/v1/executions/claim", &json!({"task": long})).expect_error(409, "claim_failed");
}

#[test]
fn an_override_is_merged_into_the_payload_of_its_instant() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    let schedule = json!({"type": "recurring", "cron": "0 9 1 1 *"});
    let payload = |version: u32| json!({"a": version, "b": version, "task": version.to_string()});
    let cue = json!({"name": "work", "transport": "worker", "schedule": schedule, "payload": payload(0)});
    let path = format!("/v1/cues/{}", user.create(&cue)["id"].as_str().unwrap());
    let path = &path;
    thread::scope(|scope| {
        let patcher = user.clone();
        scope.spawn(move || {
            for version in 1..=100 {
                let patched = patcher.patch(path, &json!({"payload": payload(version)})).expect(200);
                assert_eq!(patched["payload"], payload(version));
            }
        });
        for name in 0..3 {
            let renamer = user.clone();
            scope.spawn(move || {
                for _ in 0..30 {
                    let renamed = renamer.patch(path, &json!({"name": name.to_string()})).expect(200);
                    assert!(
                        renamed["payload"]["a"].is_u64()
                            && renamed["payload"]["a"] == renamed["payload"]["b"]
                    );
                }
            });
        }
        for _ in 0..30 {
            user.post(&format!("{path}/fire"), &json!({"payload_override": {"over": true}})).expect(200);
        }
    });
    let list = user.get("/v1/executions/claimable?limit=100").expect(200);
    let runs = list["executions"].as_array().unwrap();
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
