//! `tests/conformance`: what the server must do, and that a server which does something else is noticed.

use cued::domain::webhook::signature::{SigningSecrets, signature_headers};

use crate::support::delivery_fixture::SECRET;
use crate::support::*;

/// Its pauses take no time.
const ON_TEST_CLOCK: &[&str] = &["--dev", "--limits", "off", "--test-clock"];

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance");

/// A proxy that answers a request itself, or changes the response of the server, which must be as the description of the
/// API says. Without a response it closes the connection.
fn proxy(
    server: &Server,
    respond: impl Fn(&Delivery, &dyn Fn() -> Response) -> Option<Response> + Send + Sync + 'static,
) -> Receiver {
    let addr = server.addr();
    Receiver::with(Reaction::choose(move |request| {
        let of_the_proxy = ["host", "connection", "content-length"];
        let headers: Vec<(&str, &str)> = request
            .headers
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .filter(|(name, _)| !of_the_proxy.contains(name))
            .collect();
        let forward = || {
            let client = Client::new(addr);
            client.call(&request.method, &request.path, &headers, &request.body).unwrap()
        };
        let Some(response) = respond(request, &forward) else { return Reaction::HangUp };
        let mut text = format!("HTTP/1.1 {} X\r\n", response.status);
        for (name, value) in response.headers.iter().filter(|(name, _)| name != "content-length") {
            text += &format!("{name}: {value}\r\n");
        }
        let text =
            format!("{text}content-length: {}\r\n\r\n{}", response.body.len(), response.text());
        Reaction::bytes(&text)
    }))
}

/// A proxy that replaces a text in the bodies of responses.
fn liar(server: &Server, truth: &'static str, lie: &'static str) -> Receiver {
    proxy(server, move |_, forward| {
        let response = forward();
        let body = response.text().replace(truth, lie).into_bytes();
        Some(Response { body, ..response })
    })
}

fn refusal(status: u16, retry_after: u32) -> Response {
    let headers = vec![("retry-after".to_owned(), retry_after.to_string())];
    Response { status, headers, body: b"{}".to_vec() }
}

/// The script with a key of its environment.
fn script(url: &str, key: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.args(["-B", &format!("{FOLDER}/run.py"), url]).args(arguments);
    command.env("CUED_API_KEY", key).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A server and the client of an account, or nothing if the script cannot run here.
fn start(flags: &[&str]) -> Option<(Server, Client)> {
    if Command::new("python3").arg("--version").output().is_err() {
        skip("there is no python3");
        return None;
    }
    Some(Server::with_user(flags))
}

#[track_caller]
fn run(url: &str, key: &str, arguments: &[&str]) -> ClientRun {
    let child = script(url, key, arguments).spawn().unwrap();
    let output = bounded("the script", move || child.wait_with_output().unwrap());
    ClientRun {
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        code: output.status.code().unwrap_or(-1),
    }
}

/// As [`run`], through a proxy.
#[track_caller]
fn run_through(proxy: &Receiver, user: &Client, arguments: &[&str]) -> ClientRun {
    run(&format!("http://{}", proxy.addr), user.key(), arguments)
}

fn report(run: &ClientRun) -> Value {
    serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"))
}

/// The promises of a report that do not hold.
fn misses(report: &Value) -> Vec<&Value> {
    let promises = report.list("promises").iter();
    promises.filter(|it| it["result"] != "holds").collect()
}

#[track_caller]
fn assert_nothing_is_left(user: &Client) {
    for (path, field) in [("/v1/cues", "cues"), ("/v1/workers", "workers")] {
        assert_eq!(user.read(path)[field], json!([]));
    }
    assert_eq!(user.read("/v1/auth/keys").list("keys").len(), 1);
    assert_eq!(user.read("/v1/alerts")["total"], 0);
}

#[test]
fn the_server_keeps_every_promise() {
    let Some((server, user)) = start(ON_TEST_CLOCK) else { return };
    let proxy = proxy(&server, |_, forward| Some(forward()));
    let run = run_through(&proxy, &user, &["--long", "--test-clock", "--json"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
    let report = report(&run);
    let reasons: Vec<&Value> = misses(&report).iter().map(|it| &it["reason"]).collect();
    assert_eq!(reasons, ["no response with 429 came"]);
    let promises = report.list("promises").len();
    assert!(promises > 120, "{promises}");
    user.advance("PT1M");
    assert_nothing_is_left(&user);
}

#[test]
fn a_free_plan_is_enough_and_costs_a_minute() {
    let Some((server, user)) = start(&["--dev", "--test-clock"]) else { return };
    let run = run(&server.url(), user.key(), &["--test-clock", "--json"]);
    assert_eq!(run.code, 0, "{run:?}");
    let report = report(&run);
    assert_eq!(misses(&report), Vec::<&Value>::new());
    let waited = report["waited"].as_u64().unwrap();
    assert!((30..=60).contains(&waited), "{waited} s");
}

#[test]
fn the_report_is_in_sections_and_needs_no_test_clock() {
    let Some((server, user)) = start(DEV_UNLIMITED) else { return };
    let run = run(&server.url(), user.key(), &[]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
    assert_contains(&run.stdout, &["\nWebhooks  ", "  6 of 6 hold  4.6 5.5 6.1 6.2 6.3 6.5\n"]);
    let last = "\n1 not checked, Every response: no response with 429 came\n";
    assert!(run.stdout.ends_with(last), "{}", run.stdout);
    assert_nothing_is_left(&user);
}

#[test]
fn an_instant_is_a_later_one_after_a_pause_for_the_rate() {
    let Some((server, user)) = start(ON_TEST_CLOCK) else { return };
    let is_refused = AtomicBool::new(false);
    let proxy = proxy(&server, move |request, forward| {
        let is_soon = String::from_utf8_lossy(&request.body).contains("\"once\"");
        let is_first = is_soon && !is_refused.swap(true, Ordering::Relaxed);
        Some(if is_first { refusal(429, 60) } else { forward() })
    });
    let arguments = ["--test-clock", "--json", "--only", "instant runs at it"];
    let run = run_through(&proxy, &user, &arguments);
    assert_eq!(run.code, 0, "{run:?}");
    let report = report(&run);
    assert_eq!((&report["waited"], misses(&report)), (&json!(60), vec![]));
}

#[test]
fn a_part_is_run_with_a_key_from_standard_input() {
    let Some((server, user)) = start(ON_TEST_CLOCK) else { return };
    let part = |only: &str| {
        let arguments = [&server.url(), "--key", "-", "--only", only, "--json", "--test-clock"];
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "echo \"$KEY\" | python3 -B \"$0\" \"$@\"",
            &format!("{FOLDER}/run.py"),
        ]);
        let output = command.args(arguments).env("KEY", user.key()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report.list("promises").clone()
    };
    let leases = part("§7.3");
    assert_eq!(leases.len(), 2, "{leases:?}");
    let lease = json!({"group": "Executions and workers", "section": "7.3", "promise": "A lease needs a claim", "result": "holds"});
    assert_eq!(leases[0], lease);
    let of_2 = part("2");
    assert!(of_2.iter().all(|it| it.text("section").starts_with("2.")), "{of_2:?}");
    assert_eq!(part("second CLAIM").len(), 1);
    let unknown = run(&server.url(), user.key(), &["--only", "pigeon"]);
    assert_eq!(unknown.code, 2, "{unknown:?}");
    assert_contains(&unknown.stderr, &["no promise has the section or the word 'pigeon'"]);
}

#[test]
fn a_body_or_a_number_that_differs_is_reported_with_its_request() {
    let Some((server, user)) = start(ON_TEST_CLOCK) else { return };
    for (truth, lie, only, said) in [
        (
            "\"run_count\"",
            "\"run-count\"",
            "default",
            [
                "\n§4.1 A new cue has every field with its default\n  request   POST /v1/cues {",
                "\n  expected  /run_count 0\n  came      nothing\n",
            ],
        ),
        (
            "\"total\":2,",
            "\"total\":3,",
            "4.8",
            [
                "\n§4.8 A list counts the cues that a search finds, newest first\n  request   GET /v1/cues?q=",
                "\n  expected  /total 2\n  came      3\n",
            ],
        ),
        (
            "\"f\": 0.1",
            "\"f\": 0.10",
            "digit for digit",
            ["\n§4.6 A payload comes back digit for digit\n", "\n  expected  /payload/f 0.1\n"],
        ),
        (
            "\"claimed\":true",
            "\"claimed\":1",
            "7.2",
            [
                "\n§7.2 A claim has the payload and a lease\n",
                "\n  expected  /claimed true\n  came      1\n",
            ],
        ),
        (
            "\"missing\"",
            "\"absent\"",
            "every problem",
            [
                "\n§4.7 Every problem of a new cue is in one response\n",
                "\n  expected  /detail [<all>, ",
            ],
        ),
        (
            "cue_sk_",
            "cue_sj_",
            "named",
            [
                "\n§3.3 A second key is made, named and listed\n",
                "\n  expected  /api_key \"cue_sk_…",
            ],
        ),
        (
            "\"webhook_secret\":\"whsec_",
            "\"webhook_secret\":\"whsec_0000",
            "6.3",
            [
                "\n§6.3 A delivery is signed with the secret of the account, in both schemes\n",
                "\n  request   RECEIVED\n  expected  /verified true\n  came      false\n",
            ],
        ),
    ] {
        let proxy = liar(&server, truth, lie);
        let run = run_through(&proxy, &user, &["--test-clock", "--only", only]);
        assert_eq!(run.code, 1, "{lie}: {run:?}");
        assert_contains(&run.stdout, &said);
        assert_nothing_is_left(&user);
    }
}

#[test]
fn a_status_a_header_and_an_order_that_differ_are_reported() {
    let Some((server, user)) = start(ON_TEST_CLOCK) else { return };
    let proxy = proxy(&server, |_, forward| {
        let mut response = forward();
        response.status = if response.status == 409 { 200 } else { response.status };
        response.headers.retain(|(name, _)| name != "x-request-id");
        // A list in the wrong order.
        if let Ok(mut body) = serde_json::from_slice::<Value>(&response.body)
            && let Some(object) = body.as_object_mut()
        {
            object.values_mut().filter_map(Value::as_array_mut).for_each(|list| list.reverse());
            response.body = body.to_string().into_bytes();
        }
        Some(response)
    });
    let run = run_through(&proxy, &user, &["--test-clock", "--json"]);
    assert_eq!(run.code, 1, "{run:?}");
    let report = report(&run);
    let misses = misses(&report);
    let of = |promise: &str| {
        let miss = misses.iter().find(|it| it["promise"] == promise && it["result"] == "differs");
        miss.unwrap_or_else(|| panic!("{promise}: {misses:#?}"))
    };
    let claim = of("A second claim is 409");
    assert_eq!(claim["expected"], "409 already_claimed");
    assert_contains(&claim["came"].to_string(), &["200 {\\\"error\\\""]);
    let id = of("A response has a request id");
    assert_eq!(
        [&id["request"], &id["expected"]],
        ["GET /health authorization: null", "x-request-id: <some>"]
    );
    for promise in [
        "A list begins with the newest cue and leaves out payloads",
        "A list counts the cues that a search finds, newest first",
        "Executions are listed newest first, by cue and status",
        "A cue shows its newest executions",
    ] {
        of(promise);
    }
    assert_nothing_is_left(&user);
}

#[test]
fn a_delivery_is_verified_by_both_signatures_and_their_time() {
    if start(DEV_UNLIMITED).is_none() {
        return;
    }
    let secrets = SigningSecrets { current: SECRET, previous: None };
    let now = Timestamp::now().as_second();
    let headers = |at: i64| -> BTreeMap<String, String> {
        let headers = signature_headers(secrets, "id", at, b"{}");
        headers.into_iter().map(|(name, value)| (name.to_lowercase(), value)).collect()
    };
    let mut cases = vec![headers(now), headers(now - 400), headers(now + 400)];
    for name in headers(now).into_keys() {
        let mut changed = headers(now);
        changed.get_mut(&name).unwrap().push('0');
        cases.push(changed);
    }
    let code = "import json, sys, receiver\n\
        cases = json.loads(sys.argv[2])\n\
        print([receiver.is_verified(sys.argv[1], headers, b'{}') for headers in cases])";
    let mut python = Command::new("python3");
    python.args(["-B", "-c", code, SECRET, &json!(cases).to_string()]).current_dir(FOLDER);
    let output = python.output().unwrap();
    let found = format!("[True{}]\n", ", False".repeat(cases.len() - 1));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), found, "{cases:#?}");
}

#[test]
fn deliveries_are_not_checked_where_the_server_cannot_call() {
    let Some((open, _)) = start(DEV_UNLIMITED) else { return };
    let guarded = Server::start(&["--registration", "open", "--limits", "off"]);
    for (server, arguments, reason) in [
        (&guarded, &[][..], "127.0.0.1"),
        (&open, &["--receiver-url", "http://127.0.0.1:1"], "refused"),
        (&open, &["--no-deliveries"], "--no-deliveries"),
    ] {
        let user = server.user();
        let run = run(&server.url(), user.key(), &[&["--only", "6"], arguments].concat());
        assert_eq!(run.code, 0, "{run:?}");
        assert_contains(
            &run.stdout,
            &["\n0 of 4 promises hold: ", "\n4 not checked, Webhooks: ", reason],
        );
        assert_nothing_is_left(&user);
    }
}

#[test]
fn a_delivery_that_came_is_checked_also_if_the_server_knows_no_response() {
    let Some((server, user)) = start(DEV_UNLIMITED) else { return };
    let proxy = proxy(&server, |request, forward| {
        let mut response = forward();
        if request.method == "GET" && request.path.starts_with("/v1/executions/") {
            let mut body = response.json();
            // Where the machine is slow, the second attempt is over.
            for (name, lie) in [("http_status", json!(null)), ("status", json!("failed"))] {
                body[name] = lie;
            }
            response.body = body.to_string().into_bytes();
        }
        Some(response)
    });
    let run = run_through(&proxy, &user, &["--only", "6"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert_contains(&run.stdout, &["\n  expected  the status that the receiver has sent\n"]);
    assert_nothing_is_left(&user);
}

#[test]
fn an_interrupted_run_deletes_what_it_has_created_and_a_second_interrupt_ends_at_once() {
    for is_twice in [false, true] {
        let Some((server, user)) = start(DEV_UNLIMITED) else { return };
        let is_interrupted = Arc::new(AtomicBool::new(false));
        let (is_made, is_refused) = (AtomicBool::new(false), AtomicBool::new(false));
        let interrupted = Arc::clone(&is_interrupted);
        // From its first cue on, the run waits for the rate limit, and its first deletion does once more.
        let proxy = proxy(&server, move |request, forward| {
            let is_first = request.method == "DELETE" && !is_refused.swap(true, Ordering::Relaxed);
            let waits = is_made.load(Ordering::Relaxed) && !interrupted.load(Ordering::Relaxed);
            is_made.fetch_or(request.line().contains("POST /v1/cues"), Ordering::Relaxed);
            Some(if is_first {
                refusal(429, if is_twice { 3_600 } else { 1 })
            } else if waits {
                refusal(429, 3_600)
            } else {
                forward()
            })
        });
        let url = format!("http://{}", proxy.addr);
        let arguments = ["--only", "6"];
        let mut command = LiveCommand::new(script(&url, user.key(), &arguments).spawn().unwrap());
        command.wait_for_note("waiting 120 s for the rate limit");
        assert_eq!(user.get("/v1/cues").json()["total"], 1);
        is_interrupted.store(true, Ordering::Relaxed);
        command.signal("-INT");
        command.wait_for_note("interrupted: what was created is being deleted");
        if is_twice {
            command.wait_for_note("waiting 120 s for the rate limit");
            command.signal("-INT");
        }
        assert_eq!(command.end().0, Some(130), "{}", command.stderr);
        if !is_twice {
            assert_nothing_is_left(&user);
        }
    }
}

#[test]
fn what_a_lost_response_has_named_is_deleted() {
    let Some((server, user)) = start(ON_TEST_CLOCK) else { return };
    for (lost, only) in [
        ("POST /v1/cues", "default"),
        ("POST /v1/auth/keys", "named"),
        ("heartbeat", "second CLAIM"),
    ] {
        let proxy = proxy(&server, move |request, forward| {
            let response = forward();
            let is_lost = request.line().contains(lost) && response.status < 300;
            (!is_lost).then_some(response)
        });
        let run = run_through(&proxy, &user, &["--test-clock", "--only", only]);
        // Three lost in a row end the run.
        assert!([1, 2].contains(&run.code), "{run:?}");
        assert_contains(&run.stdout, &["no response: "]);
        assert_nothing_is_left(&user);
    }
}

#[test]
fn a_full_account_is_no_success() {
    let Some((server, user)) = start(&["--dev", "--test-clock"]) else { return };
    for number in 0..10 {
        user.create(&worker_cue(&format!("{number}"), YEARLY));
    }
    // The first of 4.1 creates a cue that 4.9 changes.
    for only in ["4.1", "4.9"] {
        let run = run(&server.url(), user.key(), &["--only", only, "--test-clock"]);
        assert_eq!(run.code, 2, "{run:?}");
        assert_contains(&run.stderr, &["the account is full: "]);
    }
}

#[test]
fn a_server_without_a_date_keeps_the_promises_about_instants() {
    let Some((server, user)) = start(DEV_UNLIMITED) else { return };
    let proxy = proxy(&server, |_, forward| {
        let mut response = forward();
        response.headers.retain(|(name, _)| name != "date");
        Some(response)
    });
    let run = run_through(&proxy, &user, &["--only", "values that it was given"]);
    assert_eq!(run.code, 0, "{run:?}");
}

#[test]
fn a_key_of_another_form_is_not_shown() {
    if start(DEV_UNLIMITED).is_none() {
        return;
    }
    for filler in [0, 275] {
        let other = Receiver::with(Reaction::choose(move |request| {
            let key = request.header("authorization").unwrap_or_default();
            let body = json!({"a": ".".repeat(filler), "key": key}).to_string();
            Reaction::Full(if request.path == "/v1/auth/me" { 200 } else { 418 }, vec![], body)
        }));
        let url = format!("http://{}", other.addr);
        let run = run(&url, "tok_51aXbYcZ", &["--only", "named"]);
        assert_eq!(run.code, 1, "{run:?}");
        assert_contains(&run.stdout, &["came      418 {"]);
        assert!(!format!("{run:?}").contains("tok_"), "{run:?}");
    }
}

#[test]
fn a_wrong_key_a_server_of_another_kind_and_none_are_named() {
    let Some((server, _)) = start(DEV_UNLIMITED) else { return };
    let other = Receiver::with(Reaction::Full(200, vec![], "<p/>".to_owned()));
    let other = format!("http://{}", other.addr);
    for (url, said) in [
        (&*server.url(), "401 {"),
        (&other, "200 <p/>"),
        ("http://127.0.0.1:1", "no response: "),
        ("cue.example.com", "the URL begins with"),
    ] {
        let run = run(url, "cue_sk_none", &[]);
        assert_eq!(run.code, 2, "{run:?}");
        assert_contains(&run.stderr, &[said]);
    }
}

#[test]
fn what_cannot_be_deleted_costs_no_report() {
    let Some((server, user)) = start(ON_TEST_CLOCK) else { return };
    let proxy = proxy(&server, |request, forward| {
        let is_refused = request.line().starts_with("DELETE /v1/cues/");
        Some(if is_refused { refusal(500, 1) } else { forward() })
    });
    for (only, code) in [("default", 2), ("4.10", 1)] {
        let run = run_through(&proxy, &user, &["--test-clock", "--only", only]);
        assert_eq!(run.code, code, "{run:?}");
        assert_contains(&run.stdout, &[" promises hold: "]);
        assert_contains(&run.stderr, &["not deleted: /v1/cues/cue_"]);
    }
    let all = run_through(&proxy, &user, &["--test-clock", "--json"]);
    let promises = report(&all).list("promises").len();
    assert!(all.code == 1 && promises > 80, "{promises}: {all:?}");
}
