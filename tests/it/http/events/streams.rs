//! The streams: greeting, filters, resumption over HTTP, beats, ends.

use std::sync::Arc;
use std::time::Duration;

use cued::clock::Clock;
use cued::domain::notification::event::{Emitted, Event, EventSink, EventType};
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::types;
use crate::openapi::checks::check_http2;
use crate::support::api::{Api, User};
use crate::support::event_stream::EventReader;
use crate::support::fixture::{BEGIN, Fixture};
use crate::support::server::{DEV_UNLIMITED, Server, until};

/// A server with short times.
fn impatient() -> Api {
    let clock = Clock::test(Some(BEGIN.parse().unwrap()));
    Api::from_fixture(Fixture::with_config(clock, |config| {
        config.http.beat_interval = Duration::from_millis(50);
        config.http.response_time = Duration::from_secs(2);
    }))
}

fn follow(api: &Api, user: &User) -> EventReader {
    let mut stream = EventReader::open(api.addr(), user, "");
    assert_eq!(stream.next().0, "hello");
    stream
}

/// An event with 4 KB of data.
fn large(user_key: i64) -> Vec<Emitted> {
    let data = json!({"text": "x".repeat(4_000)});
    vec![Emitted::Event(Event { user_key: None, ..Event::new(EventType::CueUpdated, user_key, None, &data) })]
}

#[test]
fn a_stream_begins_with_a_greeting() {
    let server = Server::with_test_clock("2030-01-01T00:00:00Z");
    let user = server.user();
    let mut stream = EventReader::open(server.addr(), &user, "");
    assert_eq!(stream.header("content-type"), Some("text/event-stream"));
    assert_eq!(stream.header("cache-control"), Some("no-store, no-transform"));
    assert_eq!(stream.header("x-accel-buffering"), Some("no"));
    assert_eq!(stream.header("content-length"), None);
    assert!(stream.header("x-ratelimit-limit").is_some());
    assert_eq!(stream.next_block().unwrap().unwrap().retry.as_deref(), Some("2000"));
    let hello = stream.next_event().unwrap();
    assert_eq!(hello.event.as_deref(), Some("hello"));
    let info = user.get("/v1/info").expect(200);
    assert_eq!(
        hello.data.unwrap(),
        json!({
            "time": "2030-01-01T00:00:00Z", "build": info["build"], "version": info["version"], "test_clock": true,
            "held": false, "resumed": false,
        })
    );
    let head = user.call("HEAD", "/v1/events", &[], b"").unwrap();
    assert_eq!(
        (head.status, head.header("content-type"), head.header("content-length")),
        (200, Some("text/event-stream"), None)
    );
    assert_eq!(user.get("/v1/workers").status, 200, "the connection goes on after a HEAD");
}

#[test]
fn bad_input_gets_a_clear_error() {
    let api = Api::start();
    let ada = api.user("ada");
    let body = ada.get("/v1/events?types=execution,nonsense").expect_error(422, "validation_error");
    assert_eq!(body["detail"][0]["loc"], json!(["query", "types"]));
    let message = body["detail"][0]["msg"].as_str().unwrap();
    assert!(
        message.contains("\"nonsense\"")
            && message.contains("execution.claim_lost")
            && message.contains(", quota"),
        "{message}"
    );
    let body = ada.get("/v1/events?last_event_id=nonsense").expect_error(422, "validation_error");
    assert_eq!(body["detail"][0]["loc"], json!(["query", "last_event_id"]));
    let garbage = ada.call("GET", "/v1/events", &[("Last-Event-ID", "12")], b"").unwrap();
    let body = garbage.expect_error(422, "validation_error");
    assert_eq!(body["detail"][0]["loc"], json!(["header", "Last-Event-ID"]));
    assert!(body["error"]["message"].as_str().unwrap().contains("5f3a9c-1842"), "{body}");
    let eve = api.user("eve");
    let cue = api.fixture.worker_cue(eve.key, |_| ());
    ada.get(&format!("/v1/events?cue_id={}", cue.id)).expect_error(404, "cue_not_found");
    ada.get("/v1/events?cue_id=cue_000000000000").expect_error(404, "cue_not_found");
    api.user("bob").with_key("cue_sk_0").get("/v1/events").expect_error(401, "invalid_api_key");
    assert_eq!(api.fixture.app.events.streams(), 0);
}

#[test]
fn a_stream_of_one_cue_has_the_events_of_that_cue() {
    let api = Api::start();
    let ada = api.user("ada");
    let [one, two] = [(), ()].map(|()| api.fixture.worker_cue(ada.key, |_| ()));
    let mut stream = EventReader::open(api.addr(), &ada, &format!("?cue_id={}", two.id));
    stream.next();
    for cue in [&one, &two] {
        ada.post(&format!("/v1/cues/{}/fire", cue.id), &json!({})).expect(200);
    }
    assert_eq!(stream.next().1["cue_id"], json!(two.id));
}

#[test]
fn a_client_resumes_where_it_has_stopped() {
    let api = Api::start();
    let ada = api.user("ada");
    let cue = api.fixture.worker_cue(ada.key, |_| ());
    let rename =
        |name: &str| ada.patch(&format!("/v1/cues/{}", cue.id), &json!({ "name": name })).expect(200);
    let mut stream = follow(&api, &ada);
    rename("a");
    let last = stream.next_event().unwrap().id.unwrap();
    drop(stream);
    rename("b");
    rename("c");
    let names = |mut stream: EventReader| {
        let (event, data) = stream.next();
        assert_eq!((event.as_str(), &data["resumed"]), ("hello", &json!(true)));
        [stream.next().1["cue_name"].clone(), stream.next().1["cue_name"].clone()]
    };
    assert_eq!(names(EventReader::resume(api.addr(), &ada, "", Some(&last))), ["b", "c"]);
    // The header is newer than the query of the first request.
    let query = "?last_event_id=000000-0";
    assert_eq!(names(EventReader::resume(api.addr(), &ada, query, Some(&last))), ["b", "c"]);
    assert_eq!(names(EventReader::open(api.addr(), &ada, &format!("?last_event_id={last}"))), ["b", "c"]);
}

#[test]
fn after_a_restart_a_stream_is_reset() {
    let mut server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    let mut stream = EventReader::open(server.addr(), &user, "");
    let id = stream.next_event().unwrap().id.unwrap();
    server.kill();
    server.restart();
    let mut stream = EventReader::resume(server.addr(), &user, "", Some(&id));
    assert_eq!(stream.next().1["resumed"], false);
    assert_eq!(stream.next(), ("reset".to_owned(), json!({"reason": "restart"})));
}

#[test]
fn a_quiet_stream_beats_and_brings_its_position() {
    let api = impatient();
    let ada = api.user("ada");
    let mut stream = EventReader::open(api.addr(), &ada, "?types=alert");
    let id = stream.next_event().unwrap().id;
    let beat = stream.next_block().unwrap().unwrap();
    assert_eq!((beat.comment.as_deref(), beat.id, beat.event), (Some("beat"), None, None));
    api.fixture.worker_cue(ada.key, |_| ());
    let cue = api.fixture.worker_cue(ada.key, |_| ());
    ada.patch(&format!("/v1/cues/{}", cue.id), &json!({"name": "x"})).expect(200);
    let moved = until("a beat has a position", || stream.next_block().unwrap().unwrap().id);
    assert_ne!(Some(moved), id);
}

#[test]
fn a_stream_ends_when_its_key_is_revoked_or_its_account_disabled() {
    let api = impatient();
    for (name, sql) in [
        ("ada", "DELETE FROM api_keys WHERE user_key ="),
        ("eve", "UPDATE users SET disabled_at = 0 WHERE key ="),
    ] {
        let user = api.user(name);
        let mut stream = follow(&api, &user);
        api.fixture.sql(&format!("{sql} {}", user.key));
        assert_eq!(stream.next_event(), None, "{name}");
    }
    until("both places are free", || (api.fixture.app.events.streams() == 0).then_some(()));
}

/// The beats of this server are 15 s apart: the event comes first, and is not sent.
#[test]
fn a_stream_brings_no_event_after_its_key_was_revoked() {
    let api = Api::start();
    let ada = api.user("ada");
    let mut stream = follow(&api, &ada);
    api.fixture.sql(&format!("DELETE FROM api_keys WHERE user_key = {}", ada.key));
    api.fixture.app.events.publish(large(ada.key));
    assert_eq!(stream.next_event(), None);
}

#[test]
fn a_stop_ends_streams_at_once() {
    let mut api = Api::start();
    let ada = api.user("ada");
    let mut streams = [follow(&api, &ada), follow(&api, &ada)];
    api.stop();
    for stream in &mut streams {
        let (event, data) = stream.next();
        assert_eq!((event.as_str(), &data["state"]), ("server.state", &json!("stopping")));
        assert_eq!(stream.next_event(), None);
    }
    api.wait_until_stopped();
}

#[test]
fn an_open_stream_delays_neither_the_test_clock_nor_the_end_of_the_program() {
    let mut server = Server::with_test_clock("2030-01-01T00:00:00Z");
    let user = server.user();
    let mut stream = EventReader::open(server.addr(), &user, "");
    stream.next();
    user.settle();
    user.advance("P30D");
    assert_eq!(types(&[stream.next()]), ["server.state"]);
    assert_eq!(server.stop(), Some(0));
    assert!(!server.log().contains("still open"), "{}", server.log());
    assert_eq!(stream.next().1["state"], "stopping");
}

#[test]
fn a_stream_outlives_the_time_of_a_request() {
    let clock = Clock::test(Some(BEGIN.parse().unwrap()));
    let short = Duration::from_millis(100);
    let api = Api::from_fixture(Fixture::with_config(clock, |config| {
        let http = &mut config.http;
        (http.request_time, http.idle_time, http.beat_interval) = (short, short, short * 2);
    }));
    let ada = api.user("ada");
    let mut stream = follow(&api, &ada);
    for _ in 0..5 {
        assert!(stream.next_block().unwrap().is_some(), "longer than either of the times");
    }
    let cue = api.fixture.worker_cue(ada.key, |_| ());
    ada.patch(&format!("/v1/cues/{}", cue.id), &json!({"name": "x"})).expect(200);
    assert_eq!(stream.next().0, "cue.updated");
}

#[test]
fn a_client_that_reads_nothing_is_cut_off() {
    let api = impatient();
    let ada = api.user("ada");
    let stream = follow(&api, &ada);
    until("the place is free", || {
        for _ in 0..50 {
            api.fixture.app.events.publish(large(ada.key));
        }
        (api.fixture.app.events.streams() == 0).then_some(())
    });
    drop(stream);
}

#[test]
fn a_connection_of_http2_with_a_stream_whose_window_stays_closed_is_closed() {
    let api = impatient();
    let ada = api.user("ada");
    let (addr, key) = (api.addr(), ada.key().to_owned());
    let events = Arc::clone(&api.fixture.app.events);
    let user_key = ada.key;
    api.block_on(async move {
        let request = || {
            Request::get("http://x/v1/events")
                .header("authorization", format!("Bearer {key}"))
                .body(Empty::<Bytes>::new())
                .unwrap()
        };
        let socket = TokioIo::new(TcpStream::connect(addr).await.unwrap());
        // A window of one part.
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(4_096);
        let (mut sender, connection) = builder.handshake(socket).await.unwrap();
        tokio::spawn(connection);
        let (head, mut body) = sender.send_request(request()).await.unwrap().into_parts();
        assert_eq!(head.headers["content-type"], "text/event-stream");
        check_http2("GET /v1/events", b"", &head, b"");
        // A second one on the same connection reads nothing.
        let unread = sender.send_request(request()).await.unwrap();
        assert_eq!(events.streams(), 2);
        while events.streams() > 0 {
            events.publish(large(user_key));
            if !matches!(body.frame().await, Some(Ok(_))) {
                break;
            }
        }
        drop(unread);
    });
    until("both places are free", || (api.fixture.app.events.streams() == 0).then_some(()));
}

#[test]
fn two_users_see_their_own_events_and_those_of_the_server() {
    let server = Server::with_test_clock("2030-01-01T00:00:00Z");
    let (ada, eve) = (server.user(), server.user());
    let mut streams = [&ada, &eve].map(|user| EventReader::open(server.addr(), user, ""));
    let cues = [&ada, &eve].map(|user| {
        let cue = json!({"name": "c", "transport": "worker", "schedule": {"type": "recurring", "cron": "0 * * * *"}});
        user.create(&cue)["id"].clone()
    });
    ada.advance("PT1H");
    for (stream, cue) in streams.iter_mut().zip(&cues) {
        let events = stream.until_clock_moved();
        assert_eq!(types(&events), ["hello", "cue.created", "execution.created"]);
        assert!(events[1..].iter().all(|(_, data): &(String, Value)| data["cue_id"] == *cue), "{events:?}");
    }
}

#[test]
fn a_burst_is_one_event_of_a_herd() {
    let server = Server::with_test_clock("2030-01-01T00:00:00Z");
    let user = server.user();
    for _ in 0..40 {
        let cue = json!({"name": "c", "transport": "worker", "schedule": {"type": "recurring", "cron": "0 * * * *"}});
        user.create(&cue);
    }
    let mut stream = EventReader::open(server.addr(), &user, "?types=execution,server");
    stream.next();
    user.advance("PT1H");
    let events = stream.until_clock_moved();
    assert_eq!(events.len(), 33, "{:?}", types(&events));
    assert_eq!(events[32], ("burst".to_owned(), json!({"span_ms": 0, "counts": {"execution.created": 8}})));
}
