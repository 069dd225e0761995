//! The number of streams, and what they do not take.

use serde_json::json;

use crate::support::api::Api;
use crate::support::client::Client;
use crate::support::event_stream::EventReader;
use crate::support::server::{DEV_UNLIMITED, Server, until};

#[test]
fn a_sixth_stream_is_refused_until_another_ends() {
    let api = Api::start();
    let (ada, eve) = (api.user("ada"), api.user("eve"));
    let mut open: Vec<_> = (0..5).map(|_| EventReader::open(api.addr(), &ada, "")).collect();
    let refused = ada.get("/v1/events");
    let body = refused.expect_error(429, "too_many_streams");
    assert!(body["error"]["message"].as_str().unwrap().contains("5 event streams"), "{body}");
    assert_eq!(refused.header("retry-after"), Some("10"));
    drop(EventReader::open(api.addr(), &eve, ""));
    open.pop();
    until("a place is free", || {
        (ada.call("HEAD", "/v1/events", &[], b"").unwrap().status == 200).then_some(())
    });
    let mut again = EventReader::open(api.addr(), &ada, "");
    assert_eq!(again.next().0, "hello");
}

#[test]
fn the_number_of_streams_of_a_server_is_a_flag() {
    let server = Server::start(&[DEV_UNLIMITED, &["--max-streams", "2"]].concat());
    let (ada, eve) = (server.user(), server.user());
    let open = [EventReader::open(server.addr(), &ada, ""), EventReader::open(server.addr(), &eve, "")];
    eve.get("/v1/events").expect_error(429, "too_many_streams");
    drop(open);
    let server = Server::start(&[DEV_UNLIMITED, &["--max-streams", "0"]].concat());
    server.user().get("/v1/events").expect_error(404, "not_found");
}

#[test]
fn at_the_limit_accounts_and_addresses_share_the_streams() {
    let flags = ["--max-streams", "4", "--trust-proxy", "127.0.0.1"];
    let server = Server::start(&[DEV_UNLIMITED, &flags].concat());
    let [ada, bob, eve, fay, gil] = [(); 5].map(|()| server.user());
    let open = |user: &Client, address: &str| {
        let mut stream = EventReader::from(server.addr(), user, address);
        assert_eq!(stream.next().0, "hello");
        stream
    };
    let refused = |user: &Client, address: &str| {
        let response = user.call("GET", "/v1/events", &[("X-Forwarded-For", address)], b"").unwrap();
        response.expect_error(429, "too_many_streams");
    };
    let ends = |stream: &mut EventReader| assert_eq!(stream.next_event(), None);
    let mut of_ada = ["2001:db8::1", "2001:db8::2", "2001:db8::3"].map(|address| open(&ada, address));
    let _bob = open(&bob, "198.51.100.2");
    refused(&ada, "2001:db8::4");
    refused(&bob, "2001:db8::4");
    let mut of_eve = open(&eve, "2001:db8::4");
    ends(&mut of_ada[2]);
    refused(&ada, "2001:db8::4");
    let mut bob_elsewhere = open(&bob, "198.51.100.20");
    ends(&mut of_ada[1]);
    let mut of_fay = open(&fay, "2001:db8::5");
    ends(&mut bob_elsewhere);
    // Each account has one: only another address gets one now, from the address that has three.
    refused(&gil, "2001:db8::6");
    let _gil = open(&gil, "198.51.100.21");
    ends(&mut of_fay);
    let mut bob_again = open(&bob, "198.51.100.22");
    ends(&mut of_eve);
    let _fay = open(&fay, "198.51.100.23");
    ends(&mut bob_again);
    refused(&eve, "198.51.100.24");
}

#[test]
fn a_stream_counts_as_one_request() {
    let api = Api::start();
    let ada = api.user("ada");
    let used = || ada.get("/v1/usage").expect(200)["rate_limit"]["current_usage"].as_i64().unwrap();
    let before = used();
    let mut stream = EventReader::open(api.addr(), &ada, "");
    stream.next();
    let cue = api.fixture.worker_cue(ada.key, |_| ());
    ada.post(&format!("/v1/cues/{}/fire", cue.id), &json!({})).expect(200);
    stream.next();
    assert_eq!(used() - before, 3, "the stream, the fire, this one");
}

#[test]
fn open_streams_and_events_are_metrics() {
    let server = Server::start(&[DEV_UNLIMITED, &["--metrics-listen", "127.0.0.1:0"]].concat());
    let user = server.user();
    let metrics = || {
        let client = crate::support::client::Client::new(server.metrics_addr().unwrap());
        client.get("/metrics").text()
    };
    assert!(metrics().contains("\ncued_event_streams 0\n") && metrics().contains("\ncued_events_total 0\n"));
    let mut stream = EventReader::open(server.addr(), &user, "");
    stream.next();
    user.post("/v1/worker/heartbeat", &json!({"worker_id": "w", "handlers": []})).expect(200);
    stream.next();
    assert!(metrics().contains("\ncued_event_streams 1\n") && metrics().contains("\ncued_events_total 1\n"));
    assert_eq!(user.get("/health").expect(200)["status"], "healthy");
}
