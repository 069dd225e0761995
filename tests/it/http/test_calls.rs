//! Test calls of a callback (contract §6.11): what is sent and shown, what bounds them, and what ends them.

use cued::domain::webhook::signature::{SigningSecrets, signature_v1, standard_signature};

use crate::http::device_login::MailingServer;
use crate::support::*;

const PATH: &str = "/v1/callbacks/test";
const START: &str = "2030-01-01T00:00:00Z";

fn call_of(url: &str) -> Value {
    json!({"callback": {"url": url}})
}

fn test(user: &Client, receiver: &Receiver) -> Response {
    user.post(PATH, &call_of(&receiver.url()))
}

/// Starts a test call on a connection of its own.
fn begin(server: &Server, user: &Client, receiver: &Receiver) -> Connection {
    let body = call_of(&receiver.url()).to_string();
    let mut connection = Connection::open(server.addr()).unwrap();
    connection.send(&format!(
        "POST {PATH} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n{body}",
        server.addr(),
        user.key(),
        body.len()
    ));
    connection
}

#[test]
fn a_test_call_is_signed_as_a_delivery_says_that_it_is_one_and_is_stored_nowhere() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let headers = vec![("X-Why", "done".to_owned()), ("Set-Cookie", "id=secret".to_owned())];
    receiver.react(Reaction::Full(201, headers, "made".to_owned()));
    let url = receiver.url_of("/hook?a=1");
    let callback =
        json!({"url": url, "method": "PUT", "headers": {"X-Own": "1", "User-Agent": "mine"}});
    let body = json!({"callback": callback, "payload": {"b": 1, "a": "é"}});
    let result = user.post(PATH, &body).expect(200);
    assert_has(
        &result,
        json!({
            "result": "success", "started_at": START, "cause": null, "http_status": 201, "error_message": null,
            "response_body": "made", "response_truncated": false,
        }),
    );
    let kept = result.list("response_headers");
    assert!(kept.contains(&json!(["x-why", "done"])), "{kept:?}");
    assert!(!json!(kept).to_string().contains("secret"), "{kept:?}");
    let sent = &receiver.deliveries()[0];
    assert_eq!(
        (sent.line().as_str(), &*sent.body),
        ("PUT /hook?a=1 HTTP/1.1", r#"{"a": "\u00e9", "b": 1}"#.as_bytes())
    );
    for (name, value) in [
        ("x-cueapi-test", "true"),
        ("x-cueapi-cue-id", "cue_000000000000"),
        ("x-cueapi-attempt", "1"),
        ("x-cueapi-scheduled-for", START),
        ("x-own", "1"),
        ("user-agent", "mine"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(sent.header(name), Some(value), "{name}");
    }
    let secret = user.read("/v1/auth/webhook-secret").text("webhook_secret").to_owned();
    let seconds = sent.header("x-cueapi-timestamp").unwrap().parse().unwrap();
    assert_eq!(
        sent.header("x-cueapi-signature"),
        Some(&*signature_v1(&secret, seconds, &sent.body))
    );
    let secrets = SigningSecrets { current: &secret, previous: None };
    let standard = standard_signature(secrets, &sent.execution_id, seconds, &sent.body);
    assert_eq!(sent.header("webhook-signature"), Some(&*standard));
    assert_eq!(sent.header("webhook-id"), Some(&*sent.execution_id));
    // The request in the answer is the one that was sent.
    assert_has(&result["request"], json!({"method": "PUT", "url": url}));
    for pair in result["request"].list("headers") {
        let (name, value) = (pair[0].as_str().unwrap().to_lowercase(), pair[1].as_str());
        assert_eq!(sent.header(&name), value, "{name}");
    }
    let second = test(&user, &receiver).expect(200);
    assert_eq!(second["result"], "success");
    let ids =
        receiver.deliveries().iter().map(|sent| sent.execution_id.clone()).collect::<Vec<_>>();
    assert_ne!(ids[0], ids[1], "each has an id of its own");
    user.get(&format!("/v1/executions/{}", ids[0])).expect_error(404, "execution_not_found");
    assert_eq!(user.read("/v1/executions")["total"], 0);
    assert_eq!(user.read("/v1/usage")["executions"]["used"], 0);
}

#[test]
fn the_secret_before_a_rotation_signs_too() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    user.post("/v1/auth/webhook-secret/regenerate", &json!({})).expect(200);
    test(&user, &receiver).expect(200);
    let signatures = receiver.deliveries()[0].header("webhook-signature").unwrap().to_owned();
    assert_eq!(signatures.split(' ').count(), 2, "{signatures}");
}

#[test]
fn a_test_call_that_fails_says_why_as_an_attempt_does() {
    let ((_server, user), receiver) = (Server::with_user(DEV_UNLIMITED), Receiver::start());
    let long = "x".repeat(2_001);
    receiver.first([Reaction::Full(503, Vec::new(), long.clone()), Reaction::HangUp]);
    let failed = test(&user, &receiver).expect(200);
    assert_has(
        &failed,
        json!({
            "result": "failed", "cause": "status_5xx", "http_status": 503,
            "error_message": "the URL returned 503", "response_body": long[..2_000], "response_truncated": true,
        }),
    );
    let none = json!({
        "result": "failed", "http_status": null, "response_headers": null, "response_body": null,
        "response_truncated": false,
    });
    let cut = test(&user, &receiver).expect(200);
    assert_has(&cut, none.clone());
    assert_eq!(cut["cause"], "connection");
    let unknown = user.post(PATH, &call_of("http://nowhere.invalid/")).expect(200);
    assert_has(&unknown, none);
    assert_eq!(unknown["cause"], "unknown_name");
}

#[test]
fn a_test_call_ends_at_the_timeout_of_its_callback() {
    let ((_server, user), receiver) =
        (Server::with_user(DEV_UNLIMITED), Receiver::with(Reaction::Hang));
    let body = json!({"callback": {"url": receiver.url(), "timeout_seconds": 1}});
    let slow = user.post(PATH, &body).expect(200);
    assert_has(&slow, json!({"cause": "timeout", "error_message": "no response within 1 s"}));
    assert!((1_000..10_000).contains(&slow["duration_ms"].as_i64().unwrap()), "{slow}");
    receiver.release();
}

#[test]
fn a_name_that_resolves_to_a_blocked_address_is_not_called() {
    let receiver = Receiver::on_all_addresses();
    let (_server, user) = Server::with_user(&["--registration", "open", "--limits", "off"]);
    // The name of this machine, which is known without a request to the network.
    let Ok(name) = std::fs::read_to_string("/proc/sys/kernel/hostname") else { return };
    let url = format!("http://{}:{}/hook", name.trim(), receiver.addr.port());
    let blocked = user.post(PATH, &call_of(&url)).expect(200);
    assert_eq!(blocked["result"], "failed", "{blocked}");
    let nowhere = format!("http://nowhere.invalid:{}/hook", receiver.addr.port());
    let mut unknown = user.post(PATH, &call_of(&nowhere)).expect(200);
    let message = unknown.text("error_message").replace("nowhere.invalid", name.trim());
    unknown["error_message"] = json!(message);
    for name in ["duration_ms", "request", "started_at"] {
        unknown[name] = blocked[name].clone();
    }
    assert_eq!(blocked, unknown, "a name that exists is not told from one that does not");
    assert!(message.contains("`cued serve --allow-callbacks-to public,private`"), "{message}");
    assert_eq!(receiver.count(), 0);
}

#[test]
fn an_address_that_callbacks_may_not_reach_is_not_tried_out() {
    let (_server, user) = Server::with_user(&["--registration", "open"]);
    let refused = user.post(PATH, &call_of("http://127.0.0.1:9/"));
    refused.refuses(400, "invalid_callback_url", "callback.url");
}

#[test]
fn an_account_makes_ten_test_calls_in_a_minute() {
    let ((server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    // One that is refused for its body does not count.
    user.post(PATH, &call_of("no URL")).expect_error(400, "invalid_callback_url");
    (0..10).for_each(|_| drop(test(&user, &receiver).expect(200)));
    let refused = test(&user, &receiver);
    refused.refuses_for(60, 429, "rate_limit_exceeded");
    assert_eq!(receiver.count(), 10);
    test(&server.user(), &receiver).expect(200);
    user.advance("PT1M");
    test(&user, &receiver).expect(200);
}

#[test]
fn an_account_makes_one_test_call_at_a_time_and_others_are_not_held_up() {
    let ((server, user), slow) = (Server::with_user(DEV_UNLIMITED), Receiver::with(Reaction::Hang));
    let mut first = begin(&server, &user, &slow);
    slow.wait_hanging(1);
    let refused = test(&user, &slow);
    refused.refuses_for(5, 429, "rate_limit_exceeded");
    let (other, quick) = (server.user(), Receiver::start());
    test(&other, &quick).expect(200);
    slow.release();
    assert_eq!(first.response().expect(200)["result"], "success");
    slow.react(Reaction::Status(200));
    test(&user, &slow).expect(200);
}

#[test]
fn many_test_calls_that_hang_leave_the_api_and_the_deliveries_alone() {
    let (server, slow) = (Server::start(DEV_UNLIMITED), Receiver::with(Reaction::Hang));
    let users: Vec<Client> = (0..32).map(|_| server.user()).collect();
    let calls: Vec<Connection> = users.iter().map(|user| begin(&server, user, &slow)).collect();
    slow.wait_hanging(32);
    let (user, quick) = (server.user(), Receiver::start());
    let refused = test(&user, &quick);
    refused.refuses_for(5, 503, "server_busy");
    user.fire(&user.create(&webhook_cue("x", YEARLY, &quick.url())));
    quick.wait_for(1);
    drop(calls);
    slow.release();
}

#[test]
fn a_client_that_goes_away_ends_the_wait_and_the_call_counts_until_its_end() {
    let ((server, user), slow) = (Server::with_user(DEV_UNLIMITED), Receiver::with(Reaction::Hang));
    let gone = begin(&server, &user, &slow);
    slow.wait_hanging(1);
    drop(gone);
    test(&user, &slow).expect_error(429, "rate_limit_exceeded");
    slow.react(Reaction::Status(200));
    slow.release();
    let call = || Some(test(&user, &slow)).filter(|response| response.status == 200);
    until("another test call", call);
}

#[test]
fn a_server_that_stops_waits_for_no_test_call() {
    let ((mut server, user), slow) =
        (Server::with_user(DEV_UNLIMITED), Receiver::with(Reaction::Hang));
    let mut call = begin(&server, &user, &slow);
    slow.wait_hanging(1);
    let began = Instant::now();
    server.terminate();
    call.response().expect_error(503, "server_busy");
    assert_eq!(server.wait_for_exit(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn the_test_calls_of_an_unconfirmed_account_count_as_its_calls() {
    let mailing =
        MailingServer::open(&["--registration", "open", "--allow-callbacks-to", "loopback"]);
    // Nothing listens there: a call that fails counts too.
    let call = call_of("http://127.0.0.1:9/");
    mailing.client().register("ann@example.com");
    let bob = mailing.client().register("bob@example.com");
    for _ in 0..6 {
        (0..10).for_each(|_| assert_eq!(bob.post(PATH, &call).expect(200)["result"], "failed"));
        mailing.advance("PT1M");
    }
    let refused = bob.post(PATH, &call).refuses_for(3_240, 429, "rate_limit_exceeded");
    let remedy = "60 times an hour: wait 3240 s, or confirm the address";
    assert_contains(refused.message(), &[remedy]);
}

#[test]
fn a_large_payload_arrives_whole_and_its_memory_is_returned() {
    let ((_server, user), receiver) = (Server::with_user(DEV_UNLIMITED), Receiver::start());
    let text = "é".repeat(500_000);
    let body = json!({"callback": {"url": receiver.url()}, "payload": {"x": text}});
    // More than the share of the account, if what they hold stayed.
    (0..8).for_each(|_| assert_eq!(user.post(PATH, &body).expect(200)["result"], "success"));
    assert_eq!(receiver.deliveries()[7].json()["x"], text);
}

#[test]
fn a_url_beyond_ascii_is_called_stored_and_shown_percent_encoded() {
    let ((_server, user), receiver) = (Server::with_user(DEV_UNLIMITED), Receiver::start());
    let (given, encoded) = (receiver.url_of("/käse?q=ü"), receiver.url_of("/k%C3%A4se?q=%C3%BC"));
    let result = user.post(PATH, &call_of(&given)).expect(200);
    assert_eq!(result["request"]["url"], *encoded);
    let on_failure = json!({"on_failure": {"webhook": given}});
    let cue = user.create(&with(webhook_cue("x", YEARLY, &given), on_failure));
    assert_eq!(cue["callback"]["url"], json!(encoded));
    assert_eq!(cue["on_failure"]["webhook"], json!(encoded));
    user.fire(&cue);
    receiver.wait_for(2);
    let paths: Vec<String> = receiver.deliveries().iter().map(|sent| sent.path.clone()).collect();
    assert_eq!(paths, ["/k%C3%A4se?q=%C3%BC"; 2]);
    let me = user.patch("/v1/auth/me", &json!({"alert_webhook_url": given})).expect(200);
    assert_eq!(me["alert_webhook_url"], *encoded);
    let channel = user.post("/v1/channels", &json!({"type": "webhook", "url": given})).expect(201);
    assert_eq!(channel["url"], *encoded);
}

#[test]
fn a_name_beyond_ascii_is_stored_shown_and_called_in_its_ascii_form() {
    let ((_server, user), receiver) =
        (Server::with_clock_and_user(START), Receiver::on_all_addresses());
    let port = receiver.addr.port();
    let given = format!("http://ｌｏｃａｌｈｏｓｔ:{port}/a");
    let kept = format!("http://localhost:{port}/a");
    let on_failure = json!({"on_failure": {"webhook": "https://BÜCHER.example/x"}});
    let cue = user.create(&with(webhook_cue("hook", "* * * * *", &given), on_failure));
    assert_eq!(cue["callback"]["url"], json!(kept));
    assert_eq!(cue["on_failure"]["webhook"], "https://xn--bcher-kva.example/x");
    user.advance("PT1M");
    assert_eq!(receiver.deliveries()[0].header("host"), Some(format!("localhost:{port}").as_str()));
    let changed = user.change(&cue, &json!({"callback": {"url": "http://faß.example/"}}));
    assert_eq!(changed["callback"]["url"], "http://xn--fa-hia.example/");
    let me =
        user.patch("/v1/auth/me", &json!({"alert_webhook_url": "http://例え.テスト/"})).expect(200);
    assert_eq!(me["alert_webhook_url"], "http://xn--r8jz45g.xn--zckzah/");
}

/// A thread of its own for each call: two callers of one account at the same instant are told apart.
#[test]
fn of_test_calls_at_the_same_instant_one_is_made() {
    let ((_server, user), slow) =
        (Server::with_user(DEV_UNLIMITED), Receiver::with(Reaction::Hang));
    let call = |user: Client, body: Value| thread::spawn(move || user.post(PATH, &body).status);
    let calls: Vec<_> = (0..4).map(|_| call(user.clone(), call_of(&slow.url()))).collect();
    until_true("three refusals", || calls.iter().filter(|call| call.is_finished()).count() == 3);
    slow.wait_hanging(1);
    slow.release();
    let mut statuses: Vec<u16> = calls.into_iter().map(|call| call.join().unwrap()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 429, 429, 429]);
}
