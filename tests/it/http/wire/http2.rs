//! HTTP/2 in the clear, by prior knowledge, on the same port.

use std::time::Duration;

use cued::app::HttpLimits;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2::{Connection, SendRequest, handshake};
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpStream;

use crate::support::wire::{World, soon};

type Sender = SendRequest<Full<Bytes>>;

async fn connect(world: &World) -> (Sender, Connection<TokioIo<TcpStream>, Full<Bytes>, TokioExecutor>) {
    let stream = TcpStream::connect(world.address).await.unwrap();
    handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap()
}

async fn ask(sender: &mut Sender, method: Method, path: &str, body: &[u8]) -> (u16, hyper::HeaderMap, Bytes) {
    let uri = format!("http://x{path}");
    let request =
        Request::builder().method(method).uri(uri).body(Full::new(Bytes::copy_from_slice(body))).unwrap();
    let response = soon(sender.send_request(request)).await.unwrap();
    let (head, body) = response.into_parts();
    (head.status.as_u16(), head.headers, soon(body.collect()).await.unwrap().to_bytes())
}

#[tokio::test]
async fn http2_is_served_like_http1() {
    let world = World::start().await;
    let (mut sender, connection) = connect(&world).await;
    tokio::spawn(connection);
    let (status, headers, body) = ask(&mut sender, Method::POST, "/echo", &vec![b'x'; 2_097_152]).await;
    assert_eq!(status, 200);
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["length"], 2_097_152);
    for name in ["x-request-id", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "date"] {
        assert!(headers.contains_key(name), "{name}");
    }
    let (status, headers, body) = ask(&mut sender, Method::HEAD, "/items/a", b"").await;
    assert_eq!((status, body.len()), (200, 0));
    assert!(headers["content-length"] != "0");
    let (status, headers, _) = ask(&mut sender, Method::PUT, "/items/a", b"").await;
    assert_eq!((status, headers["allow"].to_str().unwrap()), (405, "GET, HEAD, DELETE"));
    let (status, headers, _) = ask(&mut sender, Method::POST, "/small", b"12345678901").await;
    assert_eq!(status, 413);
    assert!(!headers.contains_key("connection"));
    // One stream's refusal does not end the others.
    assert_eq!(ask(&mut sender, Method::GET, "/items/a", b"").await.0, 200);
}

#[tokio::test]
async fn many_streams_share_a_connection() {
    let world = World::start().await;
    let (sender, connection) = connect(&world).await;
    tokio::spawn(connection);
    let asks = (0..300).map(|number| {
        let mut sender = sender.clone();
        tokio::spawn(async move { ask(&mut sender, Method::GET, &format!("/free/{number}"), b"").await.0 })
    });
    for status in asks.collect::<Vec<_>>() {
        assert_eq!(status.await.unwrap(), 200);
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let short = Duration::from_millis(200);
    let world = World::with(HttpLimits { idle_time: short, ..HttpLimits::default() }).await;
    let (mut sender, connection) = connect(&world).await;
    let connection = tokio::spawn(connection);
    assert_eq!(ask(&mut sender, Method::GET, "/items/a", b"").await.0, 200);
    soon(connection).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_stop_lets_a_stream_finish_and_closes_the_connection() {
    let config = HttpLimits { drain_time: Duration::from_secs(300), ..HttpLimits::default() };
    let mut world = World::with(config).await;
    let (mut sender, connection) = connect(&world).await;
    let connection = tokio::spawn(connection);
    assert_eq!(ask(&mut sender, Method::GET, "/items/a", b"").await.0, 200);
    let mut polling = sender.clone();
    let poll = tokio::spawn(async move { ask(&mut polling, Method::GET, "/poll", b"").await.0 });
    // The poll was sent before this, so the server has it when this is answered.
    tokio::task::yield_now().await;
    assert_eq!(ask(&mut sender, Method::GET, "/items/a", b"").await.0, 200);
    world.stop();
    assert_eq!(poll.await.unwrap(), 200);
    soon(connection).await.unwrap().unwrap();
    world.ended().await;
}
