//! The stream of events: contents, limits and ends.

use std::sync::mpsc;

use cued::domain::notification::event::{Event, EventSink, EventType, PendingEvent};
use cued::domain::row_keys::UserKey;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::http::events::types;
use crate::openapi::checks::check_http2;
use crate::support::*;

/// A server with short times.
fn impatient() -> Api {
    Api::configured(|config| {
        config.http.beat_interval = Duration::from_millis(50);
        config.http.response_time = Duration::from_secs(2);
    })
}

fn follow(api: &Api, user: &User) -> EventReader {
    EventReader::follow(api.addr(), user, "")
}

/// An event with 4 KB of data.
fn large(user_key: UserKey) -> Vec<PendingEvent> {
    let data = json!({"text": "x".repeat(4_000)});
    vec![PendingEvent::Event(Event {
        user_key: None,
        ..Event::new(EventType::CueUpdated, user_key, None, &data)
    })]
}

#[test]
fn a_stream_begins_with_a_greeting() {
    let (server, user) = Server::with_clock_and_user("2030-01-01T00:00:00Z");
    let mut stream = EventReader::open(server.addr(), &user, "");
    assert_eq!(stream.header("content-type"), Some("text/event-stream"));
    assert_eq!(stream.header("cache-control"), Some("no-store, no-transform"));
    assert_eq!(stream.header("x-accel-buffering"), Some("no"));
    assert_eq!(stream.header("content-length"), None);
    assert!(stream.header("x-ratelimit-limit").is_some());
    assert_eq!(stream.next_block().unwrap().unwrap().retry.as_deref(), Some("2000"));
    let hello = stream.next_event().unwrap();
    assert_eq!(hello.event.as_deref(), Some("hello"));
    let info = user.read("/v1/info");
    assert_eq!(
        hello.data.unwrap(),
        json!({
            "time": "2030-01-01T00:00:00Z", "build": info["build"], "version": info["version"], "test_clock": true,
            "held": false, "resumed": false,
        })
    );
    let head = user.bare("HEAD", "/v1/events");
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    assert_eq!(head.header("content-length"), None);
    assert_eq!(user.get("/v1/workers").status, 200, "the connection goes on after a HEAD");
}

#[test]
fn a_stream_of_one_cue_has_the_events_of_that_cue() {
    let (api, ada) = Api::with_user("ada");
    let [one, two] = [(), ()].map(|()| api.fixture.worker_cue(ada.key, |_| ()));
    let mut stream = EventReader::follow(api.addr(), &ada, &format!("?cue_id={}", two.id));
    for cue in [&one, &two] {
        ada.fire(&json!({"id": cue.id}));
    }
    assert_eq!(stream.next().1["cue_id"], json!(two.id));
}

#[test]
fn a_client_resumes_where_it_has_stopped() {
    let (api, ada) = Api::with_user("ada");
    let cue = api.fixture.worker_cue(ada.key, |_| ());
    let rename = |name: &str| drop(ada.change(&json!({"id": cue.id}), &json!({ "name": name })));
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
    assert_eq!(
        names(EventReader::open(api.addr(), &ada, &format!("?last_event_id={last}"))),
        ["b", "c"]
    );
}

#[test]
fn after_a_restart_a_stream_is_reset() {
    let (mut server, user) = Server::with_user(DEV_UNLIMITED);
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
    ada.change(&json!({"id": cue.id}), &json!({"name": "x"}));
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
    until_true("both places are free", || api.fixture.app.events.streams() == 0);
}

/// The beats of this server are 15 s apart: the event comes first, and is not sent.
#[test]
fn a_stream_brings_no_event_after_its_key_was_revoked() {
    let (api, ada) = Api::with_user("ada");
    let mut stream = follow(&api, &ada);
    api.fixture.sql(&format!("DELETE FROM api_keys WHERE user_key = {}", ada.key));
    api.fixture.app.events.publish(large(ada.key));
    assert_eq!(stream.next_event(), None);
}

#[test]
fn a_stop_ends_streams_at_once() {
    let (mut api, ada) = Api::with_user("ada");
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
    let (mut server, user) = Server::with_clock_and_user("2030-01-01T00:00:00Z");
    let mut stream = EventReader::follow(server.addr(), &user, "");
    user.settle();
    user.advance("P30D");
    assert_eq!(types(&[stream.next()]), ["server.state"]);
    assert_eq!(server.stop(), Some(0));
    assert!(!server.log().contains("still open"), "{}", server.log());
    assert_eq!(stream.next().1["state"], "stopping");
}

#[test]
fn a_stream_outlives_the_time_of_a_request() {
    let short = Duration::from_millis(100);
    let api = Api::configured(|config| {
        let http = &mut config.http;
        (http.request_time, http.idle_time, http.beat_interval) = (short, short, short * 2);
    });
    let ada = api.user("ada");
    let mut stream = follow(&api, &ada);
    for _ in 0..5 {
        assert!(stream.next_block().unwrap().is_some(), "longer than either of the times");
    }
    let cue = api.fixture.worker_cue(ada.key, |_| ());
    ada.change(&json!({"id": cue.id}), &json!({"name": "x"}));
    assert_eq!(stream.next().0, "cue.updated");
}

#[test]
fn a_client_that_reads_nothing_is_cut_off() {
    let api = impatient();
    let ada = api.user("ada");
    let stream = follow(&api, &ada);
    until("the place is free", || {
        (0..50).for_each(|_| api.fixture.app.events.publish(large(ada.key)));
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
    until_true("both places are free", || api.fixture.app.events.streams() == 0);
}

#[test]
fn two_users_see_their_own_events_and_those_of_the_server() {
    let server = Server::with_test_clock("2030-01-01T00:00:00Z");
    let (ada, eve) = (server.user(), server.user());
    let mut streams = [&ada, &eve].map(|user| EventReader::open(server.addr(), user, ""));
    let cues = [&ada, &eve].map(|user| user.create(&hourly_cue("c"))["id"].clone());
    ada.advance("PT1H");
    for (stream, cue) in streams.iter_mut().zip(&cues) {
        let events = stream.until_clock_moved();
        assert_eq!(types(&events), ["hello", "cue.created", "execution.created"]);
        assert!(
            events[1..].iter().all(|(_, data): &(String, Value)| data["cue_id"] == *cue),
            "{events:?}"
        );
    }
}

#[test]
fn a_burst_is_one_event_of_a_herd() {
    let (server, user) = Server::with_clock_and_user("2030-01-01T00:00:00Z");
    (0..40).for_each(|_| drop(user.create(&hourly_cue("c"))));
    let mut stream = EventReader::follow(server.addr(), &user, "?types=execution,server");
    user.advance("PT1H");
    let events = stream.until_clock_moved();
    assert_eq!(events.len(), 33, "{:?}", types(&events));
    assert_eq!(
        events[32],
        ("burst".to_owned(), json!({"span_ms": 0, "counts": {"execution.created": 8}}))
    );
}

fn event(user_key: UserKey) -> PendingEvent {
    let data =
        json!({"cue_id": "c", "cue_name": "c", "status": "active", "next_run": null, "at": BEGIN});
    PendingEvent::Event(Event::new(EventType::CueUpdated, user_key, None, &data))
}

#[test]
fn a_stream_begins_after_the_writes_that_began_before_it() {
    let (api, ada) = Api::with_user("ada");
    let is_committed = Arc::new(AtomicBool::new(false));
    let ((began, has_begun), (release, released)) = (mpsc::channel(), mpsc::channel::<()>());
    let committed = Arc::clone(&is_committed);
    let write = api.fixture.app.store.write_for(ada.key, move |tx| {
        began.send(()).unwrap();
        // Ends when the client has the greeting, or after a while if the greeting waits for it.
        let _ = released.recv_timeout(Duration::from_millis(300));
        tx.on_commit(move || committed.store(true, Ordering::SeqCst));
        Ok(())
    });
    has_begun.recv().unwrap();
    let _stream = EventReader::follow(api.addr(), &ada, "");
    let was_committed = is_committed.load(Ordering::SeqCst);
    let _ = release.send(());
    write.wait().unwrap();
    assert!(was_committed, "a list read now lacks the write, and the stream has no event of it");
}

#[test]
fn a_stream_checks_its_key_also_while_events_wait() {
    const BACKLOG: usize = 4_000;
    let api = Api::configured(|config| {
        config.http.beat_interval = Duration::from_millis(1);
    });
    let ada = api.user("ada");
    let mut first = EventReader::open(api.addr(), &ada, "?types=cue");
    let id = first.next_event().unwrap().id.unwrap();
    drop(first);
    let PendingEvent::Event(event) = event(ada.key) else { unreachable!() };
    // For all: of the events of a user only 32 of a commit are single ones.
    let event = PendingEvent::Event(Event { user_key: None, ..event });
    for _ in 0..BACKLOG / 32 {
        api.fixture.app.events.publish(vec![event.clone(); 32]);
    }
    let mut stream = EventReader::resume(api.addr(), &ada, "?types=cue", Some(&id));
    assert_eq!(stream.next().1["resumed"], true);
    // A beat begins with the check.
    let waiting = (0..BACKLOG).map(|_| stream.next_block().unwrap().unwrap());
    let is_beat = waiting.map(|block| block.comment.as_deref() == Some("beat"));
    assert!(is_beat.skip_while(|is_beat| !is_beat).any(|is_beat| !is_beat), "events follow a beat");
}

#[test]
fn a_stop_hands_out_the_events_that_wait() {
    let (mut api, ada) = Api::with_user("ada");
    let mut stream = EventReader::follow(api.addr(), &ada, "");
    (0..250).for_each(|_| api.fixture.app.events.publish(vec![event(ada.key)]));
    api.stop();
    let events = stream.until(|event, _| event == "server.state");
    assert_eq!(events.iter().filter(|(event, _)| event == "cue.updated").count(), 250);
    api.wait_until_stopped();
}

#[test]
fn a_sixth_stream_is_refused_until_another_ends() {
    let api = Api::start();
    let (ada, eve) = (api.user("ada"), api.user("eve"));
    let mut open: Vec<_> = (0..5).map(|_| EventReader::open(api.addr(), &ada, "")).collect();
    let refused = ada.get("/v1/events").refuses_for(10, 429, "too_many_streams");
    assert_contains(refused.message(), &["5 event streams"]);
    drop(EventReader::open(api.addr(), &eve, ""));
    open.pop();
    until_true("a place is free", || ada.bare("HEAD", "/v1/events").status == 200);
    drop(EventReader::follow(api.addr(), &ada, ""));
}

#[test]
fn the_number_of_streams_of_a_server_is_a_flag() {
    let server = Server::start(&[DEV_UNLIMITED, &["--max-streams", "2"]].concat());
    let (ada, eve) = (server.user(), server.user());
    let open =
        [EventReader::open(server.addr(), &ada, ""), EventReader::open(server.addr(), &eve, "")];
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
        let response = user.get_with("/v1/events", &[("X-Forwarded-For", address)]);
        response.expect_error(429, "too_many_streams");
    };
    let ends = |stream: &mut EventReader| assert_eq!(stream.next_event(), None);
    let mut of_ada =
        ["2001:db8::1", "2001:db8::2", "2001:db8::3"].map(|address| open(&ada, address));
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
    let (api, ada) = Api::with_user("ada");
    let used = || ada.read("/v1/usage")["rate_limit"]["current_usage"].as_i64().unwrap();
    let before = used();
    let mut stream = EventReader::follow(api.addr(), &ada, "");
    let cue = api.fixture.worker_cue(ada.key, |_| ());
    ada.fire(&json!({"id": cue.id}));
    stream.next();
    assert_eq!(used() - before, 3, "the stream, the fire, this one");
}

#[test]
fn open_streams_and_events_are_metrics() {
    let (server, user) =
        Server::with_user(&[DEV_UNLIMITED, &["--metrics-listen", "127.0.0.1:0"]].concat());
    let assert_both = |count: u32| {
        let metrics = Client::new(server.metrics_addr().unwrap()).get("/metrics").text();
        for name in ["cued_event_streams", "cued_events_total"] {
            assert_contains(&metrics, &[&format!("\n{name} {count}\n")]);
        }
    };
    assert_both(0);
    let mut stream = EventReader::follow(server.addr(), &user, "");
    user.beat("w").expect(200);
    stream.next();
    assert_both(1);
    assert_eq!(user.read("/health")["status"], "healthy");
}
