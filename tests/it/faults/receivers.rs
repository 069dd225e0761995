//! Faulty receivers, as seen by the user. Their exact bytes are tested in `engine::webhook_client` and
//! `engine::address_guard`.

use std::io::Write;
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};

use crate::journeys::monitoring::metrics::scrape;
use crate::support::client::Client;
use crate::support::receiver::reaction::drip;
use crate::support::receiver::{Reaction, Receiver};
use crate::support::server::{DEV_UNLIMITED, Server, is_full_run, resident_mb};

/// Writes a gigabyte, or as much as the client reads.
fn pour(stream: &mut TcpStream) {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n";
    let piece = vec![b'x'; 100_000];
    let mut left = 10_000;
    if stream.write_all(head.as_bytes()).is_ok() {
        while left > 0 && stream.write_all(&piece).is_ok() {
            left -= 1;
        }
    }
}

fn fire(user: &Client, url: &str) -> String {
    let cue = user.create(&json!({
        "name": "hook",
        "schedule": {"type": "recurring", "cron": "0 0 1 1 *"},
        "callback": {"url": url},
        "retry": {"max_attempts": 1},
        "on_failure": {"email": false},
    }));
    let fired = user.post(&format!("/v1/cues/{}/fire", cue["id"].as_str().unwrap()), &json!({})).expect(200);
    fired["execution_id"].as_str().unwrap().to_owned()
}

/// Status, HTTP status and error of an execution.
fn seen(user: &Client, execution: &str) -> (String, Value, String) {
    let execution = user.get(&format!("/v1/executions/{execution}")).expect(200);
    let text = |name: &str| execution[name].as_str().unwrap_or_default().to_owned();
    (text("status"), execution["http_status"].clone(), text("error_message"))
}

#[test]
fn every_receiver_fault_is_shown_and_delays_no_other_delivery() {
    let flags = ["--metrics-listen", "127.0.0.1:0", "--test-clock", "2030-01-01T00:00:00Z"];
    let server = Server::start(&[DEV_UNLIMITED, &flags].concat());
    let user = server.user();
    let before = resident_mb(server.pid());
    let sound = Receiver::start();
    let resets = Receiver::on_accept(|_| ());
    let babbles = Receiver::with(Reaction::bytes("220 mail.example.com ESMTP\r\n"));
    let pours = Receiver::with(Reaction::script(pour));
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let cases = [
        (resets.url(), "failed", json!(null), "the connection was closed before the response was complete"),
        (babbles.url(), "failed", json!(null), "the response is not valid HTTP"),
        (format!("http://{closed}/"), "failed", json!(null), "the connection was refused"),
        (
            "http://nowhere.invalid/".to_owned(),
            "failed",
            json!(null),
            "the name nowhere.invalid has no address that callbacks may reach",
        ),
        // The body was cut: a response that starts with 200 is a success.
        (pours.url(), "success", json!(200), ""),
        (sound.url(), "success", json!(200), ""),
    ];
    let executions = cases.clone().map(|(url, ..)| fire(&user, &url));
    user.settle();
    for ((url, status, http_status, error), execution) in cases.iter().zip(&executions) {
        let seen = seen(&user, execution);
        assert_eq!((seen.0.as_str(), &seen.1), (*status, http_status), "{url}: {}", seen.2);
        assert!(seen.2.starts_with(error) && seen.2.is_empty() == error.is_empty(), "{url}: {}", seen.2);
    }
    let kept = user.get(&format!("/v1/executions/{}", executions[4])).expect(200);
    assert_eq!(kept["response_body"], "x".repeat(2_000));
    let grown = resident_mb(server.pid()).saturating_sub(before);
    assert!(grown < 20, "{grown} MB more than before");
    let page = scrape(&server);
    for (cause, count) in [("connection", 3.0), ("unknown_name", 1.0)] {
        let labels = [("result", "failed"), ("cause", cause)];
        assert_eq!(page.value("cued_deliveries_total", &labels), count, "{cause}");
    }
}

#[test]
fn a_slow_response_is_cut_after_thirty_seconds() {
    if !is_full_run() {
        eprintln!("left out but in the long tests: it takes thirty seconds");
        return;
    }
    let server = Server::start(&[DEV_UNLIMITED, &["--test-clock"]].concat());
    let user = server.user();
    let endless = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n".to_owned() + &"x".repeat(100_000);
    let trickles = Receiver::with(Reaction::script(move |stream| drip(stream, endless.as_bytes())));
    let execution = fire(&user, &trickles.url());
    user.settle();
    let seen = seen(&user, &execution);
    assert_eq!(seen.0, "failed");
    assert_eq!(seen.2, "returned 200, but the body did not end within 30 s");
}
