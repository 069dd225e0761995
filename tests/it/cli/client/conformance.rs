//! `cued conformance`: against this server, one that lies, and none. What the promises are is in `http/conformance.rs`.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::support::*;

/// A proxy. `refusal` is its own response to a request, and `change` what becomes of one of the server: `None` closes the
/// connection.
fn proxy(
    server: &Server,
    refusal: impl Fn(&str) -> Option<String> + Clone + Send + Sync + 'static,
    change: impl Fn(String) -> Option<String> + Send + Sync + 'static,
) -> Receiver {
    let addr = server.addr();
    Receiver::on_accept(move |client| {
        let mut upstream = TcpStream::connect(addr).unwrap();
        let (mut from, mut back, mut to) = (
            client.try_clone().unwrap(),
            client.try_clone().unwrap(),
            upstream.try_clone().unwrap(),
        );
        let refusal = refusal.clone();
        thread::spawn(move || {
            let mut buffer = vec![0; 1 << 20];
            while let Ok(length @ 1..) = from.read(&mut buffer) {
                let sent = match refusal(&String::from_utf8_lossy(&buffer[..length])) {
                    Some(response) => back.write_all(response.as_bytes()),
                    None => to.write_all(&buffer[..length]),
                };
                if sent.is_err() {
                    return;
                }
            }
        });
        let mut buffer = vec![0; 1 << 20];
        while let Ok(length @ 1..) = upstream.read(&mut buffer) {
            // A text that is cut between two reads stays true; the responses of these tests are short.
            let changed = change(String::from_utf8_lossy(&buffer[..length]).into_owned());
            if changed.is_none_or(|text| client.write_all(text.as_bytes()).is_err()) {
                // The other half has a copy of the connection. It may be closed already.
                drop(client.shutdown(Shutdown::Both));
                return;
            }
        }
    })
}

/// A proxy that replaces a text in the responses of the server by one of the same length.
fn liar(server: &Server, truth: &'static str, lie: &'static str) -> Receiver {
    assert_eq!(truth.len(), lie.len());
    proxy(server, |_| None, move |text| Some(text.replace(truth, lie)))
}

/// A proxy that refuses the first deletion for the rate.
fn limiter(server: &Server, retry_after: u32) -> Receiver {
    let is_refused = Arc::new(AtomicBool::new(false));
    let refusal = move |request: &str| {
        let is_first = request.starts_with("DELETE ") && !is_refused.swap(true, Ordering::Relaxed);
        let head = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\nRetry-After";
        is_first.then(|| format!("{head}: {retry_after}\r\n\r\n"))
    };
    proxy(server, refusal, Some)
}

#[track_caller]
fn assert_nothing_is_left(user: &Client) {
    for (path, field) in [("/v1/cues", "cues"), ("/v1/workers", "workers")] {
        assert_eq!(user.get(path).expect(200)[field], json!([]));
    }
    assert_eq!(user.get("/v1/auth/keys").expect(200)["keys"].as_array().unwrap().len(), 1);
    assert_eq!(user.get("/v1/alerts").expect(200)["total"], 0);
}

#[test]
fn this_server_keeps_the_promises() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let home = ClientHome::new().env("CUED_API_KEY", user.key());
    let run = home.run(&["conformance", &server.url()]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
    assert!(run.stdout.contains("Webhooks\t6 of 6\t4.6 5.5 6.1–6.5\n"), "{}", run.stdout);
    let last = "\n1 not checked, Every response: no response with 429 came\n";
    assert!(run.stdout.ends_with(last), "{}", run.stdout);
    assert_nothing_is_left(&user);
}

#[test]
fn a_part_is_run_with_a_key_of_its_own() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let home = ClientHome::new();
    let part = |only: &str| {
        let arguments = ["conformance", &server.url(), "--key", "-", "--only", only, "--json"];
        let run = home.run_with_stdin(&arguments, &format!("{}\n", user.key()));
        assert_eq!(run.code, 0, "{run:?}");
        serde_json::from_str::<Value>(&run.stdout).unwrap()["promises"].as_array().unwrap().clone()
    };
    let leases = part("§7.3");
    assert_eq!(leases.len(), 2, "{leases:?}");
    let lease = json!({"group": "Executions and workers", "section": "7.3", "promise": "A lease needs a claim", "result": "holds"});
    assert_eq!(leases[0], lease);
    let of_2 = part("2");
    assert!(of_2.iter().all(|it| it["section"].as_str().unwrap().starts_with("2.")), "{of_2:?}");
    assert_eq!(part("second CLAIM").len(), 1);
    let unknown = home.env("CUED_API_KEY", user.key()).run(&[
        "conformance",
        &server.url(),
        "--only",
        "pigeon",
    ]);
    assert_eq!(unknown.code, 2, "{unknown:?}");
    assert!(
        unknown.stderr.contains("no promise has the section or the word \"pigeon\""),
        "{unknown:?}"
    );
}

#[test]
fn a_server_that_lies_is_caught() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let home = ClientHome::new().env("CUED_API_KEY", user.key());
    for (truth, lie, only, said) in [
        (
            "409 Conflict",
            "200 Conflict",
            "7.2",
            [
                "§7.2 A second claim is 409\n",
                "  request   POST /v1/executions/",
                "  expected  409 already_claimed\n",
                "  came      200 {\"error\":{\"code\":\"already_claimed\"",
            ],
        ),
        (
            "x-request-id:",
            "x-sequest-id:",
            "request id",
            [
                "§2.2 A response has a request id\n",
                "  request   GET /health\n",
                "  expected  x-request-id: <some>\n",
                "  came      x-request-id: nothing\n",
            ],
        ),
        (
            "\"run_count\"",
            "\"run-count\"",
            "default",
            [
                "§4.1 A new cue has every field with its default\n",
                "POST /v1/cues {\"callback\":",
                "  expected  /run_count 0\n",
                "  came      nothing\n",
            ],
        ),
        (
            "\"total\":2,",
            "\"total\":3,",
            "4.8",
            [
                "§4.8 A list counts the cues that a search finds, newest first\n",
                "  request   GET /v1/cues?q=cued-conformance-",
                "  expected  /total 2\n",
                "  came      3\n",
            ],
        ),
        (
            "\"total\":3,",
            "\"total\":4,",
            "5.3",
            [
                "§5.3 Executions are listed newest first",
                "&limit=2\n",
                "  expected  /total 3\n",
                "  came      4\n",
            ],
        ),
        (
            "cue_sk_",
            "cue_sj_",
            "named",
            [
                "§3.3 A second key is made, named and listed\n",
                "  request   POST /v1/auth/keys",
                "/api_key \"cue_sk_…",
                "cue_sj_",
            ],
        ),
    ] {
        let proxy = liar(&server, truth, lie);
        let url = format!("http://{}", proxy.addr);
        let run = home.run(&["conformance", &url, "--only", only]);
        assert_eq!(run.code, 8, "{lie}: {run:?}");
        assert!(said.iter().all(|said| run.stdout.contains(said)), "{lie}: {}", run.stdout);
        assert!(run.stderr.ends_with("not kept\n"), "{run:?}");
        assert_nothing_is_left(&user);
    }
}

#[test]
fn promises_about_deliveries_are_not_checked_where_the_server_cannot_call() {
    let last_lines = |home: &ClientHome, receiver: &[&str]| {
        let run = home.run(&[&["conformance", "--only", "6"], receiver].concat());
        assert_eq!(run.code, 0, "{run:?}");
        let lines: Vec<String> = run.stdout.lines().rev().take(2).map(str::to_owned).collect();
        assert!(lines[0].starts_with("4 not checked, Webhooks: "), "{}", run.stdout);
        lines
    };
    let server = Server::start(&["--registration", "open", "--limits", "off"]);
    let lines = last_lines(&ClientHome::signed_in(&server, &server.user()), &[]);
    assert!(lines[1].starts_with("0 of 4 promises hold: 2 requests in "), "{lines:?}");
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let home = ClientHome::signed_in(&server, &user);
    let lines = last_lines(&home, &["--receiver-url", "http://127.0.0.1:1"]);
    assert!(lines[0].contains("refused"), "{lines:?}");
    assert_nothing_is_left(&user);
}

#[test]
fn a_delivery_that_came_is_checked_also_if_the_server_knows_no_response() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let home = ClientHome::new().env("CUED_API_KEY", user.key());
    let lies = [
        (
            r#""http_status":500,"error_message":"the URL returned 500""#,
            r#""http_status":null,"error_message":"the URL returned 50""#,
        ),
        // Where the machine is slow, the second attempt is over.
        (r#""http_status":200,"error_message":null"#, r#""http_status":null,"error_message": """#),
        (r#""status":"success","#, r#""status":"failed" ,"#),
    ];
    assert!(lies.iter().all(|(truth, lie)| truth.len() == lie.len()));
    let change =
        move |text: String| lies.iter().fold(text, |text, (truth, lie)| text.replace(truth, lie));
    let proxy = proxy(&server, |_| None, move |text| Some(change(text)));
    let run = home.run(&["conformance", &format!("http://{}", proxy.addr), "--only", "6"]);
    assert_eq!(run.code, 8, "{run:?}");
    assert!(
        run.stdout.contains("\n  expected  the status that the receiver has sent\n"),
        "{}",
        run.stdout
    );
    assert_nothing_is_left(&user);
}

#[test]
fn an_interrupted_run_deletes_what_it_has_created() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let mut command = LiveCommand::start(&ClientHome::signed_in(&server, &user), &["conformance"]);
    command.wait_for_note("/v1/worker/heartbeat 200");
    command.signal("-INT");
    assert_eq!(command.end().0, Some(130), "{}", command.stderr);
    assert!(
        command.stderr.contains("interrupted; what was created is deleted"),
        "{}",
        command.stderr
    );
    assert_nothing_is_left(&user);
}

/// The webhooks delete nothing before their end.
fn start_webhooks(user: &Client, proxy: &Receiver) -> LiveCommand {
    let home = ClientHome::new().env("CUED_API_KEY", user.key());
    let url = format!("http://{}", proxy.addr);
    let mut command = LiveCommand::start(&home, &["conformance", &url, "--only", "6"]);
    command.wait_for_note(" 429");
    command.signal("-INT");
    command.wait_for_note("what was created is being deleted");
    command
}

#[test]
fn an_interrupt_waits_for_the_deletion() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let proxy = limiter(&server, 1);
    let mut command = start_webhooks(&user, &proxy);
    assert_eq!(command.end().0, Some(130), "{}", command.stderr);
    assert!(
        command.stderr.ends_with("interrupted; what was created is deleted\n"),
        "{}",
        command.stderr
    );
    assert_nothing_is_left(&user);
}

#[test]
fn a_second_interrupt_ends_at_once() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let proxy = limiter(&server, 3600);
    let mut command = start_webhooks(&user, &proxy);
    command.signal("-INT");
    assert_eq!(command.end().0, Some(130), "{}", command.stderr);
    assert_receiver_ends(&user);
}

#[test]
fn a_receiver_ends_with_a_command_that_is_killed() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let proxy = limiter(&server, 3600);
    let mut command = start_webhooks(&user, &proxy);
    command.signal("-KILL");
    assert_eq!(command.end().0, None);
    assert_receiver_ends(&user);
}

/// The cue that is left has its address.
fn assert_receiver_ends(user: &Client) {
    let cues = user.get("/v1/cues").expect(200);
    assert_eq!(cues["total"], 1);
    let url = cues["cues"][0]["callback"]["url"].as_str().unwrap();
    let address = url.trim_start_matches("http://").trim_end_matches("/hook");
    until("the receiver ends", || TcpStream::connect(address).is_err().then_some(()));
}

#[test]
fn what_a_lost_response_has_named_is_deleted() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let home = ClientHome::new().env("CUED_API_KEY", user.key());
    for (lost, only) in [(" 201 ", "default"), (" 201 ", "named"), ("acknowledged", "second CLAIM")]
    {
        let proxy = proxy(&server, |_| None, move |text| (!text.contains(lost)).then_some(text));
        let url = format!("http://{}", proxy.addr);
        let run = home.run(&["conformance", &url, "--only", only]);
        // Three lost in a row end the command.
        assert!([1, 8].contains(&run.code), "{run:?}");
        assert_nothing_is_left(&user);
    }
}

#[test]
fn a_full_account_is_no_success() {
    let server = Server::start(&["--dev"]);
    let user = server.user();
    for number in 0..10 {
        user.create(&json!({"name": format!("{number}"), "transport": "worker",
            "schedule": {"type": "recurring", "cron": "0 0 1 1 *"}}));
    }
    let home = ClientHome::new().env("CUED_API_KEY", user.key());
    // The first of 4.1 creates a cue that 4.9 changes.
    for only in ["4.1", "4.9"] {
        let run = home.run(&["conformance", &server.url(), "--only", only]);
        assert_eq!(run.code, 1, "{run:?}");
        assert!(run.stderr.contains("promises not checked, the account is full: "), "{run:?}");
    }
}

#[test]
fn a_server_without_a_date_keeps_the_promises_about_instants() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let home = ClientHome::new().env("CUED_API_KEY", user.key());
    let proxy = liar(&server, "\r\ndate: ", "\r\ndote: ");
    let run = home.run(&[
        "conformance",
        &format!("http://{}", proxy.addr),
        "--only",
        "values that it was given",
    ]);
    assert_eq!(run.code, 0, "{run:?}");
}

#[test]
fn a_key_of_another_form_is_not_shown() {
    let home = ClientHome::new();
    for filler in [0, 275] {
        let other = Receiver::with(Reaction::choose(move |request| {
            let key = request.header("authorization").unwrap_or_default().to_owned();
            let body = json!({"a": ".".repeat(filler), "key": key}).to_string();
            let status = if request.path == "/v1/auth/me" { "200 OK" } else { "418 Teapot" };
            let length = body.len();
            Reaction::bytes(&format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}"))
        }));
        let url = format!("http://{}", other.addr);
        let run = home.run(&["conformance", &url, "--key", "tok_51aXbYcZ", "--only", "named"]);
        assert_eq!(run.code, 8, "{run:?}");
        assert!(run.stdout.contains("came      418 {"), "{run:?}");
        assert!(!run.stdout.contains("tok_"), "{run:?}");
    }
}

#[test]
fn a_wrong_key_and_a_server_of_another_kind_are_named() {
    let server = Server::start(DEV_UNLIMITED);
    let home = ClientHome::new();
    let text = home.fails(&["conformance", &server.url(), "--key", "cue_sk_none"], 4);
    assert!(text.contains("cued login"), "{text}");
    let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\n<p/>";
    let other = Receiver::with(Reaction::bytes(page));
    let text =
        home.fails(&["conformance", &format!("http://{}", other.addr), "--key", "cue_sk_none"], 1);
    assert!(text.contains("not a cued server"), "{text}");
}

/// The response with its lists in reverse, and as long as its head says: a stored payload is shorter without its spaces.
fn reversed(response: &str) -> Option<String> {
    let (head, text) = response.split_once("\r\n\r\n")?;
    let mut body: Value = serde_json::from_str(text).ok()?;
    for list in body.as_object_mut()?.values_mut().filter_map(Value::as_array_mut) {
        list.reverse();
    }
    let body = body.to_string();
    Some(format!("{head}\r\n\r\n{body}{}", " ".repeat(text.len().checked_sub(body.len())?)))
}

#[test]
fn a_list_in_the_wrong_order_is_noticed() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let home = ClientHome::new().env("CUED_API_KEY", user.key());
    let proxy = proxy(&server, |_| None, |text| Some(reversed(&text).unwrap_or(text)));
    let run =
        home.run(&["conformance", &format!("http://{}", proxy.addr), "--only", "newest", "--json"]);
    assert_eq!(run.code, 8, "{run:?}");
    let promises = serde_json::from_str::<Value>(&run.stdout).unwrap();
    let results: Vec<_> =
        promises["promises"].as_array().unwrap().iter().map(|it| &it["result"]).collect();
    assert_eq!(results, ["differs"; 4], "{promises:#}");
    assert_nothing_is_left(&user);
}

#[test]
fn what_cannot_be_deleted_costs_no_report() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let home = ClientHome::new().env("CUED_API_KEY", user.key());
    let refusal = |request: &str| {
        let response = "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n".to_owned();
        request.starts_with("DELETE /v1/cues").then_some(response)
    };
    let proxy = proxy(&server, refusal, Some);
    let url = format!("http://{}", proxy.addr);
    for (only, code) in [("default", 1), ("4.10", 8)] {
        let run = home.run(&["conformance", &url, "--only", only]);
        assert_eq!(run.code, code, "{run:?}");
        assert!(run.stdout.contains(" promises hold: "), "{run:?}");
        assert!(run.stderr.contains("not deleted from the server: /v1/cues/cue_"), "{run:?}");
    }
    let all = home.run(&["conformance", &url, "--json"]);
    let promises =
        serde_json::from_str::<Value>(&all.stdout).unwrap()["promises"].as_array().unwrap().len();
    assert!(all.code == 8 && promises > 80, "{promises}: {all:?}");
}
