//! When the server ends a connection, and how it ends itself.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cued::app::HttpLimits;
use tokio::io::AsyncWriteExt;

use crate::http::wire::http1::assert_headers;
use crate::support::wire::{CROWD_PEAK, FOREVER, World, get, soon};

const SHORT: Duration = Duration::from_millis(300);
/// Longer than any test waits.
const LONG: Duration = Duration::from_secs(300);

#[tokio::test]
async fn a_silent_connection_is_closed_without_a_response() {
    let world = World::with(HttpLimits { header_time: SHORT, ..HttpLimits::default() }).await;
    assert_eq!(world.connect().await.rest().await, "");
}

#[tokio::test]
async fn an_incomplete_head_gets_408() {
    let world = World::with(HttpLimits { header_time: SHORT, ..HttpLimits::default() }).await;
    for good_ones in [0, 1] {
        let mut wire = world.connect().await;
        for _ in 0..good_ones {
            wire.send(&get("/items/a")).await;
            assert_eq!(wire.response().await.status, 200);
        }
        wire.send("GET /items/a HTTP/1.1\r\nHo").await;
        let response = wire.response().await;
        assert_eq!((response.status, response.code().as_str()), (408, "request_timeout"));
        assert_headers(&response);
        assert_eq!(wire.rest().await, "");
    }
}

#[tokio::test]
async fn a_later_head_has_the_same_timeout_as_the_first() {
    let world = World::with(HttpLimits { header_time: SHORT, ..HttpLimits::default() }).await;
    let mut wire = world.connect().await;
    wire.send(&get("/items/a")).await;
    assert_eq!(wire.response().await.status, 200);
    // A silent connection's end tells that this one now waits for the end of its idle time.
    assert_eq!(world.connect().await.rest().await, "");
    wire.send("GET /items/a HTTP/1.1\r\nHo").await;
    assert_eq!(wire.response().await.status, 408);
}

#[tokio::test]
async fn a_slowly_sent_head_has_the_same_timeout() {
    let world = World::with(HttpLimits { header_time: SHORT, ..HttpLimits::default() }).await;
    let mut wire = world.connect().await;
    wire.send("GET /items/a HTTP/1.1\r\n").await;
    let (mut read, mut write) = wire.0.split();
    let drip = async {
        let mut pause = tokio::time::interval(SHORT / 10);
        loop {
            pause.tick().await;
            if write.write_all(b"X: y\r\n").await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    let mut first = [0; 12];
    let answer = tokio::io::AsyncReadExt::read_exact(&mut read, &mut first);
    tokio::select! {
        read = soon(answer) => assert_eq!(read.unwrap(), 12),
        () = drip => {}
    }
    assert_eq!(&first, b"HTTP/1.1 408");
}

#[tokio::test]
async fn an_incomplete_body_gets_408() {
    let world = World::with(HttpLimits { request_time: SHORT, ..HttpLimits::default() }).await;
    let mut wire = world.connect().await;
    wire.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12").await;
    let response = wire.response().await;
    assert_eq!((response.status, response.code().as_str()), (408, "request_timeout"));
    assert_eq!(response.header("connection"), Some("close"));
    assert_headers(&response);
}

#[tokio::test]
async fn the_idle_timeout_is_longer_than_the_head_timeout() {
    let config = HttpLimits { header_time: SHORT, idle_time: SHORT * 4, ..HttpLimits::default() };
    let mut wire = World::with(config).await.connect().await;
    wire.send(&get("/items/a")).await;
    assert_eq!(wire.response().await.status, 200);
    let answered = tokio::time::Instant::now();
    assert_eq!(wire.rest().await, "");
    assert!(answered.elapsed() >= SHORT * 2, "closed after {:?}", answered.elapsed());
}

#[tokio::test]
async fn a_client_that_does_not_read_its_response_is_disconnected() {
    let world =
        World::with(HttpLimits { max_connections: 1, request_time: SHORT, ..HttpLimits::default() }).await;
    let mut deaf = world.connect().await;
    deaf.send(&get("/large")).await;
    // Served only when the place of the first is free.
    assert_eq!(world.ask(&get("/items/a")).await.status, 200);
}

#[tokio::test]
async fn concurrent_connections_stay_within_the_limit() {
    let world = World::with(HttpLimits { max_connections: 3, ..HttpLimits::default() }).await;
    let request = get("/crowd").replace("Host: x", "Connection: close");
    let mut clients = Vec::new();
    for _ in 0..12 {
        let mut wire = world.connect().await;
        wire.send(&request).await;
        clients.push(wire);
    }
    for mut wire in clients {
        assert_eq!(wire.response().await.status, 204);
    }
    assert_eq!(CROWD_PEAK.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn at_the_limit_a_new_connection_closes_the_least_used_one() {
    let config = HttpLimits { header_time: LONG, max_connections: 3, ..HttpLimits::default() };
    let world = World::with(config).await;
    let (mut half, mut kept, mut silent) =
        (world.connect().await, world.connect().await, world.connect().await);
    for wire in [&mut kept, &mut half] {
        wire.send(&get("/items/a")).await;
        assert_eq!(wire.response().await.status, 200);
    }
    half.send("GET /items/a HTTP/1.1\r\n").await;
    let mut newcomers = Vec::new();
    for gone in [&mut silent, &mut kept] {
        let mut newcomer = world.connect().await;
        newcomer.send(&[get("/items/a"), get("/poll")].concat()).await;
        assert_eq!(newcomer.response().await.status, 200);
        assert_eq!(gone.rest().await, "");
        newcomers.push(newcomer);
    }
    half.send("Host: x\r\n\r\n").await;
    assert_eq!(half.response().await.status, 200, "it was needed by nobody");
}

#[tokio::test]
async fn a_stop_ends_long_polls_and_closes_idle_connections() {
    let mut world = World::with(HttpLimits { drain_time: LONG, ..HttpLimits::default() }).await;
    let (mut idle, mut fresh, mut polling) =
        (world.connect().await, world.connect().await, world.connect().await);
    idle.send(&get("/items/a")).await;
    assert_eq!(idle.response().await.status, 200);
    // A good request first, so that the poll is surely under way when its head is read.
    polling.send(&[get("/items/a"), get("/poll")].concat()).await;
    assert_eq!(polling.response().await.status, 200);
    world.stop();
    assert_eq!(polling.response().await.json()["ended"], "by the stop");
    assert_eq!(polling.rest().await, "");
    assert_eq!(idle.rest().await, "");
    assert_eq!(fresh.rest().await, "");
    let address = world.address;
    world.ended().await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_disconnect_and_the_end_of_the_drain_cancel_the_handler() {
    let running = async |count| {
        soon(async {
            while FOREVER.load(Ordering::SeqCst) != count {
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    let mut world = World::with(HttpLimits { drain_time: SHORT, ..HttpLimits::default() }).await;
    let (mut first, mut second) = (world.connect().await, world.connect().await);
    first.send(&get("/forever")).await;
    second.send(&get("/forever")).await;
    running(2).await;
    drop(first);
    running(1).await;
    world.stop();
    world.ended().await;
    running(0).await;
}
