//! The test clock that moves to the next due instant, and the reset between two tests (contract §10).

use std::net::Shutdown;
use std::thread::JoinHandle;

use crate::support::*;

const START: &str = "2030-01-01T08:00:00Z";

fn daily(receiver: &Receiver) -> Value {
    let retry = json!({"retry": {"backoff_minutes": [5]}});
    with(webhook_cue("report", "0 9 * * *", &receiver.url()), retry)
}

#[test]
fn the_clock_moves_to_the_next_due_instant_and_says_which() {
    let (_server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::start();
    receiver.first([Reaction::Status(500)]);
    let until_next = || user.post("/v1/test/clock", &json!({"until": "next"})).expect(200);
    // Nothing is due.
    assert_eq!(until_next(), json!({"now": START, "next": null, "fired": 0, "delivered": 0}));
    user.create(&daily(&receiver));
    for (instant, fired) in
        [("2030-01-01T09:00:00Z", 1), ("2030-01-01T09:05:00Z", 0), ("2030-01-02T09:00:00Z", 1)]
    {
        assert_eq!(
            until_next(),
            json!({"now": instant, "next": instant, "fired": fired, "delivered": 1}),
            "the run, its retry, and the next run"
        );
    }
    assert_eq!(receiver.count(), 3);
}

#[test]
fn a_move_of_the_clock_takes_exactly_one_target() {
    let (_server, user) = Server::with_clock_and_user(START);
    for (body, place) in [
        (json!({}), "advance"),
        (json!({"until": null}), "advance"),
        (json!({"until": "then"}), "until"),
        (json!({"until": "next", "advance": "PT1H"}), "advance"),
        (json!({"until": "next", "to": "2030-01-01T09:00:00Z"}), "to"),
        (json!({"advance": "PT1H", "to": "2030-01-01T09:00:00Z"}), "advance"),
        (json!({"advance": "an hour"}), "advance"),
        (json!({"to": "2029-12-31T00:00:00Z"}), "to"),
        (json!({"until": "next", "by": 1}), "by"),
    ] {
        let refused = user.post("/v1/test/clock", &body).expect_error(422, "validation_error");
        assert_eq!(refused["detail"][0]["loc"], json!(["body", place]), "{body} {refused:#}");
    }
    assert_eq!(user.read("/v1/test/clock")["now"], START, "the clock stays");
}

/// Resets the server; returns once the accounts are gone.
fn begin_reset(user: &Client) -> JoinHandle<u16> {
    let client = user.clone();
    let reset = thread::spawn(move || client.post("/v1/test/reset", &Value::Null).status);
    until_true("the accounts are gone", || user.get("/v1/cues").status == 401);
    reset
}

/// Ends the connection of a request without a response; returns when the server has seen it.
fn leave(mut connection: Connection) {
    connection.stream().shutdown(Shutdown::Write).unwrap();
    assert_eq!(connection.rest(), "");
}

fn instant(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

/// The rows of each table.
fn rows(server: &Server) -> Vec<(String, i64)> {
    let file = server.sqlite();
    let mut tables = file
        .prepare(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name",
        )
        .unwrap();
    let names: Vec<String> =
        tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let count = |name: &String| {
        file.query_row(&format!("SELECT count(*) FROM {name}"), [], |row| row.get(0)).unwrap()
    };
    names.iter().map(|name| (name.clone(), count(name))).collect()
}

#[test]
fn a_reset_leaves_an_empty_database_and_the_clock_where_it_is() {
    let (mut server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::start();
    receiver.react(Reaction::Status(500));
    user.create(&daily(&receiver));
    let parts = json!({"payload": {"task": "a"}, "tags": ["b"], "slug": "c/d"});
    let worker = with(worker_cue("worker", "0 9 * * *"), parts);
    user.create(&worker);
    let channel = json!({"type": "webhook", "name": "all", "url": receiver.url_of("/channel")});
    user.post("/v1/channels", &channel).expect(201);
    user.advance("PT2H");
    user.claim("w");
    let before = rows(&server);
    let is_filled = |table: &str| before.iter().any(|(name, count)| name == table && *count > 0);
    for table in
        ["users", "api_keys", "cues", "executions", "attempts", "payloads", "cue_tags", "channels"]
    {
        assert!(is_filled(table), "{table}");
    }

    user.post("/v1/test/reset", &Value::Null).expect(204);

    let left: Vec<_> = rows(&server).into_iter().filter(|(_, count)| *count > 0).collect();
    let names: Vec<&str> = left.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["backlog", "meta"], "as in a new file");
    let health = user.read("/health");
    for count in ["pending_outbox", "pending_retries", "pending_worker_claims"] {
        assert_eq!(health["queue"][count], 0, "{health:#}");
    }
    assert_eq!(server.client().read("/v1/test/clock")["now"], "2030-01-01T10:00:00Z");
    user.get("/v1/cues").expect_error(401, "invalid_api_key");

    // The next test, with the same names and with rows that have the same keys.
    receiver.react(Reaction::Status(200));
    let next = server.user();
    assert_eq!(next.read("/v1/cues")["total"], 0);
    let cue = next.create(&daily(&receiver));
    next.create(&worker);
    next.advance("P1D");
    assert_eq!(next.only_execution(cue.text("id"))["status"], "success");
    next.delete(&format!("/v1/cues/{}", cue.text("id"))).expect(204);
    let me = next.me();
    assert_eq!(me["active_cues"], 1, "triggers and counters work as before: {me:#}");
    server.stop();
    let check = run(&["check", server.db().to_str().unwrap()]);
    assert!(check.status.success(), "{check:?}");
}

#[test]
fn a_reset_waits_for_the_delivery_under_way() {
    let (server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::with(Reaction::Hang);
    let cue = user.create(&daily(&receiver));
    user.fire(&cue);
    receiver.wait_hanging(1);
    let reset = begin_reset(&user);
    let (next, failing) = (server.user(), Receiver::with(Reaction::Status(500)));
    // In the rows of the cue and the run before the reset.
    let execution = next.fire(&next.create(&daily(&failing)));
    let is_recorded = || next.execution(&execution)["status"] == "retrying";
    until("the run of the next test is recorded", || is_recorded().then_some(()));
    assert!(!reset.is_finished(), "a call of the last test is still under way");
    receiver.release();
    assert_eq!(reset.join().unwrap(), 204);
    assert!(is_recorded(), "the result of the last test is not that of this run");
}

#[test]
fn a_reset_waits_for_the_message_under_way_and_the_next_test_gets_its_own() {
    let (server, user) = Server::with_clock_and_user(START);
    let failing = Receiver::with(Reaction::Status(500));
    let tell = |user: &Client, receiver: &Receiver| {
        let channel = json!({"type": "webhook", "url": receiver.url()});
        let channel = user.post("/v1/channels", &channel).expect(201);
        let once = json!({"retry": {"max_attempts": 1}, "on_failure": {"email": false}});
        user.fire(&user.create(&with(daily(&failing), once)));
        channel
    };
    let slow = Receiver::with(Reaction::Hang);
    tell(&user, &slow);
    slow.wait_hanging(1);
    let reset = begin_reset(&user);
    // Its channel and its message have the rows of those before the reset.
    let (next, phone) = (server.user(), Receiver::with(Reaction::Status(503)));
    let channel = tell(&next, &phone);
    let messages = || server.count("SELECT count(*) FROM outbox");
    until_true("the message of the next test is to be sent", || messages() == 1);
    assert!(!reset.is_finished(), "a message of the last test is still under way");
    slow.release();
    assert_eq!(reset.join().unwrap(), 204);
    phone.wait_for(1);
    next.settle();
    let channel = next.read(&format!("/v1/channels/{}", id(&channel)));
    assert_has(&channel, json!({"failures": 1, "last_sent_at": null}));
}

#[test]
fn a_reset_waits_for_the_test_call_under_way() {
    let (server, user) = Server::with_clock_and_user(START);
    let (slow, receiver) = (Receiver::with(Reaction::Hang), Receiver::start());
    let test_call = |receiver: &Receiver| json!({"callback": {"url": receiver.url()}});
    let called = thread::spawn({
        let (user, call) = (user.clone(), test_call(&slow));
        move || user.post("/v1/callbacks/test", &call).status
    });
    slow.wait_hanging(1);
    let reset = begin_reset(&user);
    let next = server.user();
    next.fire(&next.create(&daily(&receiver)));
    receiver.wait_for(1);
    assert!(!reset.is_finished(), "a test call of the last test is still under way");
    slow.release();
    assert_eq!((reset.join().unwrap(), called.join().unwrap()), (204, 200));
    next.post("/v1/callbacks/test", &test_call(&receiver)).expect(200);
}

#[test]
fn an_advance_ends_when_its_client_goes_away() {
    let (server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::start();
    user.create(&webhook_cue("report", "* * * * *", &receiver.url()));
    let begin = |path: &str, body: &Value| {
        let body = body.to_string();
        let mut connection = Connection::open(server.addr()).unwrap();
        let (host, length) = (server.addr(), body.len());
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n");
        connection.send(&(head + &body));
        connection
    };
    let now = || instant(&user.read("/v1/test/clock")["now"]);
    let year = begin("/v1/test/clock", &json!({"advance": "P1Y"}));
    until_true("the clock moves", || now() > START.parse().unwrap());
    // Two that wait for the end of that one, and whose clients go away before it.
    leave(begin("/v1/test/clock", &json!({"advance": "P2Y"})));
    leave(begin("/v1/test/reset", &Value::Null));
    leave(year);
    let stopped = instant(&user.settle()["now"]);
    assert!(stopped < "2031-01-01T08:00:00Z".parse().unwrap(), "{stopped}");
    let moved = user.advance("PT3M");
    assert_eq!(instant(&moved["now"]), stopped + SignedDuration::from_mins(3));
    assert_eq!(moved["fired"], 3, "the account is still there");
}

#[test]
fn nothing_of_a_disabled_account_is_due_in_the_next_test() {
    let (server, operator) = Server::with_clock_and_user(START);
    let user = server.user();
    let down = Receiver::with(Reaction::Status(503));
    let (up, slow) = (Receiver::start(), Receiver::with(Reaction::Hang));
    let cue = |receiver: &Receiver, change: Value| user.create(&with(daily(receiver), change));
    let quiet = json!({"from": "06:00", "to": "09:00", "timezone": "UTC"});
    let channel = |name: &str, receiver: &Receiver, quiet: &Value| {
        let body = json!({"type": "webhook", "name": name, "url": receiver.url(), "quiet": quiet});
        user.post("/v1/channels", &body).expect(201)
    };
    channel("repeats its message", &down, &Value::Null);
    let silent = channel("waits for the morning", &up, &quiet);
    let on_failure = json!({"email": false, "webhook": down.url()});
    let failing = cue(&down, json!({"retry": {"max_attempts": 1}, "on_failure": on_failure}));
    let reporting = cue(&up, json!({"outcome_deadline_seconds": 600}));
    let (delivered, _) = (user.fire(&reporting), user.fire(&failing));
    user.settle();
    // These two are under way at the end of the test.
    let cut = cue(&slow, json!({}));
    let late = cue(&slow, json!({"outcome_deadline_seconds": 600}));
    let (cut, late) = (user.fire(&cut), user.fire(&late));
    slow.wait_hanging(2);
    let count = |sql: &str| server.count(sql);
    for (waiting, sql) in [
        (2, "SELECT count(due_at) FROM outbox"),
        (1, "SELECT count(due_at) FROM channels"),
        (1, "SELECT count(outcome_due_at) FROM executions"),
    ] {
        assert_eq!(count(sql), waiting, "{sql}");
    }

    let user_id = user.me().text("id").to_owned();
    let account = format!("/v1/admin/users/{user_id}");
    operator.patch(&account, &json!({"is_disabled": true})).expect(200);
    slow.release();
    let next = operator.post("/v1/test/clock", &json!({"until": "next"})).expect(200);
    assert_eq!((&next["now"], &next["next"]), (&json!(START), &Value::Null));

    operator.patch(&account, &json!({"is_disabled": false})).expect(200);
    assert_has(
        &user.execution(&delivered),
        json!({"outcome_state": "missing", "outcome_due_at": null}),
    );
    user.report(&delivered, &json!({"success": true}));
    assert_eq!(user.execution(&delivered)["outcome_state"], "reported_success");
    assert_eq!(user.execution(&late)["outcome_state"], "missing");
    assert_eq!(user.execution(&cut)["status"], "success");
    // The channels tell what fails from now on, and nothing else.
    let before = up.count();
    user.fire(&failing);
    user.advance("PT1H");
    let told = &up.deliveries()[before..];
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].json()["event"], "execution.failed");
    assert_eq!(user.read(&format!("/v1/channels/{}", id(&silent)))["waiting"], 0);
}

#[test]
fn a_call_that_fails_after_its_account_is_disabled_is_not_repeated() {
    let (server, operator) = Server::with_clock_and_user(START);
    let user = server.user();
    let receiver = Receiver::with(Reaction::Hang);
    let channel = json!({"type": "webhook", "url": receiver.url()});
    user.post("/v1/channels", &channel).expect(201);
    let failing = Receiver::with(Reaction::Status(500));
    let single = with(daily(&failing), json!({"retry": {"max_attempts": 1}}));
    let retried = user.create(&daily(&receiver));
    user.fire(&user.create(&single));
    let execution = user.fire(&retried);
    receiver.wait_hanging(2);
    let user_id = user.me().text("id").to_owned();
    let account = format!("/v1/admin/users/{user_id}");
    operator.patch(&account, &json!({"is_disabled": true})).expect(200);
    // Ends both connections without an answer.
    drop(receiver);
    let next = operator.post("/v1/test/clock", &json!({"until": "next"})).expect(200);
    assert_eq!(next["next"], Value::Null, "neither the run nor the message is repeated");
    operator.patch(&account, &json!({"is_disabled": false})).expect(200);
    assert_has(&user.execution(&execution), json!({"status": "failed", "attempts": 1}));
}

#[test]
fn a_reset_does_not_deliver_what_waits() {
    let (_server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::with(Reaction::Hang);
    let cue = user.create(&daily(&receiver));
    (0..40).for_each(|_| drop(user.fire(&cue)));
    receiver.wait_hanging(1);
    let reset = begin_reset(&user);
    let begun = receiver.count();
    receiver.release();
    assert_eq!(reset.join().unwrap(), 204);
    assert!(
        begun < 40 && receiver.count() == begun,
        "{begun} of 40 had begun, {} came",
        receiver.count()
    );
}

#[test]
fn a_reset_ends_streams_and_forgets_what_callers_have_done() {
    let (server, user) = Server::with_clock_and_user(START);
    let mut stream = EventReader::open(server.addr(), &user, "");
    let info = || server.client().get("/v1/info").status;
    assert!((0..=60).any(|_| info() == 429), "requests without a key are bounded");
    user.post("/v1/test/reset", &Value::Null).expect(204);
    assert_eq!(info(), 200);
    // The stream of an account that is gone ends.
    while stream.next_event().is_some() {}
}

#[test]
fn only_a_server_with_a_test_clock_can_be_reset() {
    let (_server, user) = Server::with_user(DEV_UNLIMITED);
    user.post("/v1/test/reset", &Value::Null).expect_error(404, "not_found");
    user.me();
    let clock = Server::with_test_clock(START);
    clock.client().get("/v1/test/reset").expect_error(405, "method_not_allowed");
}
