//! The echo path and `/v1/info`.

use cued::http::assets::BUILD;

use crate::support::*;

const START: &str = "2030-01-01T00:00:00Z";
const TOKEN: &str = "qs-0123456789abcdef";
const ECHO: &str = "/v1/echo/qs-0123456789abcdef";
/// Callbacks go to public addresses only; the server itself is on loopback.
const SAFE: &[&str] = &["--registration", "open", "--limits", "off", "--test-clock", START];

fn status(user: &Client, path: &str) -> String {
    user.read(path).text("status").to_owned()
}

fn to(url: &str) -> Value {
    json!({
        "name": "quickstart", "schedule": {"type": "recurring", "cron": "* * * * *"},
        "callback": {"url": url}, "payload": {"message": "grüße", "number": 1.5},
    })
}

/// Runs a cue once; returns the execution once it is finished or waits for a retry.
fn run(user: &Client, cue: &Value) -> Value {
    let id = id(cue);
    let fired = user.post(&format!("/v1/cues/{id}/fire"), &json!({})).expect(200);
    user.settle();
    user.read(&format!("/v1/executions/{}", fired.text("execution_id")))
}

#[test]
fn an_echo_is_available_for_five_minutes() {
    let (server, user) = Server::with_clock_and_user(START);
    server.client().get(ECHO).expect_error(401, "invalid_api_key");
    assert_eq!(user.read(ECHO), json!({"status": "waiting"}));
    let body = r#"{"a": [1, 2.50, 123456789012345678901234567890], "é": null}"#;
    let headers = [("X-Twice", "one"), ("x-twice", "two"), ("Content-Type", "application/json")];
    let posted = server.client().call("POST", ECHO, &headers, body.as_bytes()).unwrap();
    assert_eq!(
        posted.expect(200),
        json!({"status": "delivered", "stored": true, "received_at": START})
    );
    user.advance("PT4M59S");
    let shown = user.get(ECHO);
    assert!(shown.text().contains("123456789012345678901234567890"), "{}", shown.text());
    let seen = shown.expect(200);
    assert_eq!((&seen["status"], &seen["received_at"]), (&json!("delivered"), &json!(START)));
    assert_eq!((&seen["payload"]["a"][0], &seen["payload"]["é"]), (&json!(1), &Value::Null));
    let names = ["content-length", "content-type", "host", "x-twice"];
    assert_eq!(seen["headers"].as_object().unwrap().keys().collect::<Vec<_>>(), names);
    assert_eq!(seen["headers"]["x-twice"], "one, two");
    user.advance("PT1S");
    assert_eq!(status(&user, ECHO), "waiting");
}

#[test]
fn a_later_post_replaces_an_earlier_one() {
    let (server, user) = Server::with_clock_and_user(START);
    for (payload, wait) in [(json!(1), "PT4M"), (json!([2]), "PT4M")] {
        server.client().post(ECHO, &payload).expect(200);
        user.advance(wait);
        assert_eq!(user.read(ECHO)["payload"], payload);
    }
    server.client().post("/v1/echo/another-token-0001", &json!("other")).expect(200);
    assert_eq!(user.read(ECHO)["payload"], json!([2]));
}

#[test]
fn an_echo_has_at_most_one_megabyte() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let post = |length: usize| {
        let body = format!("\"{}\"", "a".repeat(length - 2));
        server.client().call("POST", ECHO, &[], body.as_bytes()).unwrap()
    };
    post((1 << 20) + 1).expect_error(413, "payload_too_large");
    assert_eq!(status(&user, ECHO), "waiting");
    post(1 << 20).expect(200);
    assert_eq!(user.read(ECHO).text("payload").len(), (1 << 20) - 2);
}

#[test]
fn echoes_use_bounded_memory() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
    };
    let before = memory();
    let body = format!("\"{}\"", "a".repeat(1_000_000));
    for number in 0..80 {
        let path = format!("/v1/echo/token-{number:010}");
        // With a key, to avoid the limit on requests without one.
        user.call("POST", &path, &[], body.as_bytes()).unwrap().expect(200);
    }
    assert_eq!(status(&user, "/v1/echo/token-0000000079"), "delivered", "the newest is kept");
    assert_eq!(status(&user, "/v1/echo/token-0000000000"), "waiting", "the oldest was dropped");
    assert!(memory() < before + 48, "{before} MB before, {} MB after 80 MB of echoes", memory());
}

#[test]
fn many_echoes_of_one_account_drop_none_of_another() {
    let server = Server::start(SAFE);
    let (owner, flooder) = (server.user(), server.user());
    assert_eq!(
        run(&owner, &owner.create(&to(&format!("{}{ECHO}", server.url()))))["status"],
        "success"
    );
    let text = "a".repeat(1_000_000);
    let body = format!("\"{text}\"");
    for number in 0..20 {
        let path = format!("/v1/echo/token-{number:010}");
        flooder.call("POST", &path, &[], body.as_bytes()).unwrap().expect(200);
    }
    assert_eq!(status(&owner, ECHO), "delivered", "after posts with a key");
    // Deliveries of all accounts come from one address, that of the server.
    for number in 20..26 {
        let mut cue = to(&format!("{}/v1/echo/token-{number:010}", server.url()));
        cue["payload"] = json!({ "text": text });
        assert_eq!(run(&flooder, &flooder.create(&cue))["status"], "success");
    }
    assert_eq!(status(&owner, ECHO), "delivered", "after deliveries");
    // The share of the account is used up.
    assert_eq!(status(&owner, "/v1/echo/token-0000000020"), "waiting");
    for number in 30..36 {
        let path = format!("/v1/echo/token-{number:010}");
        server.client().call("POST", &path, &[], body.as_bytes()).unwrap().expect(200);
    }
    assert_eq!(status(&owner, ECHO), "delivered", "after posts without a key");
}

#[test]
fn echoes_without_an_account_use_a_quarter_of_the_memory_in_fair_shares() {
    let server = Server::start(&[SAFE, &["--trust-proxy", "127.0.0.1"]].concat());
    let users = [(); 3].map(|()| server.user());
    let body = |bytes: usize| format!("\"{}\"", "a".repeat(bytes));
    let echo_of = |number: usize| format!("/v1/echo/token-{number:010}");
    for (number, user) in users.iter().chain(&users).enumerate() {
        user.call("POST", &echo_of(number), &[], body(900_000).as_bytes()).unwrap().expect(200);
    }
    let post_from = |address: &str, number: usize, bytes: usize| {
        let headers = [("X-Forwarded-For", address)];
        server
            .client()
            .call("POST", &echo_of(number), &headers, body(bytes).as_bytes())
            .unwrap()
            .expect(200);
    };
    post_from("192.0.2.1", 10, 300_000);
    for number in 20..40 {
        post_from(&format!("192.0.2.{}", 2 + number % 5), number, 600_000);
    }
    for number in (0..6).chain([10, 39]) {
        assert_eq!(status(&users[0], &echo_of(number)), "delivered", "{number}");
    }
    let kept =
        (20..40).filter(|number| status(&users[0], &echo_of(*number)) == "delivered").count();
    assert_eq!(kept, 2, "of 2 MiB, beside the small one");
}

#[test]
fn only_a_delivery_of_the_account_to_its_own_echo_takes_from_its_share() {
    let server = Server::start(SAFE);
    let owner = server.user();
    let mut cue = to(&format!("{}{ECHO}", server.url()));
    cue["payload"] = json!({ "text": "a".repeat(900_000) });
    let cue = owner.create(&cue);
    assert_eq!(run(&owner, &cue)["status"], "success");
    let echo = owner.read(ECHO);
    // What every receiver of a delivery gets.
    let received = |name: &'static str| (name, echo["headers"][name].as_str().unwrap());
    let signed = ["x-cueapi-cue-id", "x-cueapi-timestamp", "x-cueapi-signature"].map(received);
    let body = echo["payload"].to_string();
    for headers in [&signed[..1], &signed] {
        for number in 0..6 {
            let path = format!("/v1/echo/token-{}{number:09}", headers.len());
            server.client().call("POST", &path, headers, body.as_bytes()).unwrap().expect(200);
        }
        assert_eq!(
            status(&owner, ECHO),
            "delivered",
            "after posts with {} of its headers",
            headers.len()
        );
    }
}

#[test]
fn callbacks_reach_the_echo_path_under_every_address_policy() {
    let (server, user) = Server::with_user(SAFE);
    let cue = user.create(&to(&format!("{}{ECHO}", server.url())));
    let execution = run(&user, &cue);
    assert_has(&execution, json!({"status": "success", "http_status": 200}));
    let seen = user.read(ECHO);
    assert_eq!((&seen["status"], &seen["payload"]), (&json!("delivered"), &cue["payload"]));
    assert_eq!(seen["headers"]["x-cueapi-execution-id"], execution["id"]);
    assert!(seen["headers"]["webhook-signature"].as_str().unwrap().starts_with("v1,"));
}

#[test]
fn the_echo_exemption_covers_no_other_path_or_port() {
    let (server, user) = Server::with_user(SAFE);
    let (port, other) = (server.addr().port(), Receiver::start());
    let other_port = other.url().rsplit(':').next().unwrap().split('/').next().unwrap().to_owned();
    for url in [
        format!("http://127.0.0.1:{port}/v1/cues"),
        format!("http://127.0.0.1:{port}/v1/test/clock"),
        format!("http://127.0.0.1:{port}/v1/echo/short"),
        format!("http://127.0.0.1:{port}{ECHO}/../../cues"),
        format!("http://127.0.0.1:{port}/v1/echo/..%2fauth%2fregister"),
        format!("http://127.0.0.2:{port}{ECHO}"),
        format!("http://localhost:{port}{ECHO}"),
        format!("http://127.0.0.1:{other_port}{ECHO}"),
    ] {
        user.post("/v1/cues", &to(&url)).expect_error(400, "invalid_callback_url");
    }
    // Another notation of the same address is the same address.
    let cue = user.create(&to(&format!("http://2130706433:{port}{ECHO}")));
    assert_eq!(run(&user, &cue)["status"], "success");
}

#[test]
fn the_echo_exemption_includes_the_path_of_the_public_url() {
    let receiver = Receiver::start();
    let base = receiver.url().replace("/hook", "");
    let public = format!("{base}/cued/");
    let (server, user) = Server::with_user(&[SAFE, &["--public-url", &public]].concat());
    let cue = user.create(&to(&format!("{base}/cued/v1/echo/{TOKEN}?a=b")));
    assert_eq!(run(&user, &cue)["status"], "success");
    assert_eq!(receiver.deliveries()[0].path, format!("/cued/v1/echo/{TOKEN}?a=b"));
    user.post("/v1/cues", &to(&format!("{base}{ECHO}"))).expect_error(400, "invalid_callback_url");
    user.post("/v1/cues", &to(&format!("{}{ECHO}", server.url())))
        .expect_error(400, "invalid_callback_url");

    // A response of that host may redirect elsewhere; redirects are not followed.
    let elsewhere = format!("{base}/v1/cues");
    receiver.react(Reaction::Full(302, vec![("Location", elsewhere)], String::new()));
    let before = receiver.deliveries().len();
    assert_eq!(run(&user, &cue)["http_status"], 302);
    assert_eq!(receiver.deliveries().len(), before + 1);
}

#[test]
fn info_returns_the_settings_without_secrets() {
    let version = env!("CARGO_PKG_VERSION");
    let plain = Server::start(&[]);
    let mut info = plain.client().read("/v1/info");
    assert!(info["time"].take().is_string());
    assert_eq!(
        info,
        json!({
            "name": "cued", "version": version, "build": BUILD, "registration": "first-user", "limits": true, "billing": "manual",
            "mail": "log", "callbacks": ["public"], "test_clock": false, "dev": false, "users": false,
            "sign_in": ["key", "mail", "link"], "public_url": plain.url(), "time": null,
        })
    );
    let secret = "sesame-open";
    let flags = format!(
        "--registration closed --limits off --test-clock {START} --allow-callbacks-to loopback,private,10.9.8.0/24 \
         --smtp-url smtps://me:{secret}@mail.example.com --mail-from cued@example.com"
    );
    let server = Server::start(&words(&flags));
    let open = server.client().get("/v1/info");
    assert!(!open.text().contains(secret) && !open.text().contains("10.9.8.0"), "{}", open.text());
    assert_eq!(
        open.expect(200),
        json!({
            "name": "cued", "version": version, "build": BUILD, "registration": "closed", "limits": false, "billing": "manual",
            "mail": "smtp", "callbacks": ["private", "loopback"], "test_clock": true,
            "dev": false, "users": false, "sign_in": ["key", "mail", "link"], "public_url": server.url(), "time": START,
        })
    );
}
