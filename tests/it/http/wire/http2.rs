//! Cleartext HTTP/2 by prior knowledge, on the same port.

use std::net::SocketAddr;
use std::time::Duration;

use cued::config::HttpLimits;
use cued::http::pages::assets::{BUILD, FILES};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2::{Connection, SendRequest, handshake};
use hyper::header::HeaderValue;
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpStream;

use super::test_routes::TestServer;
use crate::openapi::checks::check_http2;
use crate::support::api::Api;
use crate::support::client::Client;

type Sender = SendRequest<Full<Bytes>>;

async fn connect(addr: SocketAddr) -> (Sender, Connection<TokioIo<TcpStream>, Full<Bytes>, TokioExecutor>) {
    let stream = TcpStream::connect(addr).await.unwrap();
    handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap()
}

fn request(method: Method, path: &str, body: &[u8]) -> Request<Full<Bytes>> {
    let uri = format!("http://x{path}");
    Request::builder().method(method).uri(uri).body(Full::new(Bytes::copy_from_slice(body))).unwrap()
}

async fn ask(sender: &mut Sender, method: Method, path: &str, body: &[u8]) -> (u16, hyper::HeaderMap, Bytes) {
    ask_with(sender, request(method, path, body), body).await
}

/// Sends a request with `body`; its response must be as the API is described.
async fn ask_with(
    sender: &mut Sender,
    request: Request<Full<Bytes>>,
    body: &[u8],
) -> (u16, hyper::HeaderMap, Bytes) {
    let line = format!("{} {}", request.method(), request.uri().path_and_query().unwrap());
    let (head, received) = sender.send_request(request).await.unwrap().into_parts();
    let received = received.collect().await.unwrap().to_bytes();
    check_http2(&line, body, &head, &received);
    (head.status.as_u16(), head.headers, received)
}

#[test]
fn http2_is_served_like_http1() {
    let server = TestServer::start();
    server.block_on(async {
        let (mut sender, connection) = connect(server.addr).await;
        tokio::spawn(connection);
        let (status, headers, body) = ask(&mut sender, Method::POST, "/echo", &vec![b'x'; 2_097_152]).await;
        assert_eq!(status, 200);
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["length"], 2_097_152);
        for name in
            ["x-request-id", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "date"]
        {
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
        // An error on one stream does not end the others.
        assert_eq!(ask(&mut sender, Method::GET, "/items/a", b"").await.0, 200);
    });
}

#[test]
fn the_page_over_http2_is_the_same() {
    let api = Api::start();
    let client = Client::new(api.addr());
    let paths = FILES.iter().map(|file| format!("/ui/{BUILD}/{}", file.path)).chain(["/".to_owned()]);
    let addr = api.addr();
    api.block_on(async {
        let (mut sender, connection) = connect(addr).await;
        tokio::spawn(connection);
        for path in paths {
            let (status, headers, body) = ask(&mut sender, Method::GET, &path, b"").await;
            let first = client.get(&path);
            assert_eq!((status, body.as_ref()), (200, first.body.as_slice()), "{path}");
            for name in ["content-type", "cache-control", "etag", "content-security-policy"] {
                let value = headers.get(name).map(|value| value.to_str().unwrap());
                assert_eq!(value, first.header(name), "{name}");
            }
            let (status, headers, body) = ask(&mut sender, Method::HEAD, &path, b"").await;
            assert_eq!((status, body.len()), (200, 0));
            assert_eq!(headers["content-length"], first.body.len().to_string());
        }
        assert_eq!(ask(&mut sender, Method::GET, "/ui/0/app.css", b"").await.0, 404);
    });
}

#[test]
fn the_api_over_http2_is_as_it_is_described() {
    let api = Api::start();
    let (addr, key) = (api.addr(), api.user("ada").key().to_owned());
    api.block_on(async {
        let (mut sender, connection) = connect(addr).await;
        tokio::spawn(connection);
        let cue = br#"{"name": "a", "transport": "worker", "schedule": {"type": "recurring", "cron": "0 * * * *"}}"#;
        let no_cue = br#"{"name": "a"}"#;
        let calls: [(Method, &str, &[u8], u16); 7] = [
            (Method::POST, "/v1/cues", cue, 201),
            (Method::POST, "/v1/cues", no_cue, 422),
            (Method::POST, "/v1/cues", b"{", 400),
            (Method::GET, "/v1/cues?limit=1", b"", 200),
            (Method::HEAD, "/v1/cues", b"", 200),
            (Method::GET, "/v1/cues/cue_unknown", b"", 404),
            (Method::GET, "/health", b"", 200),
        ];
        for (method, path, body, expected) in calls {
            let mut request = request(method.clone(), path, body);
            request.headers_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
            let (status, ..) = ask_with(&mut sender, request, body).await;
            assert_eq!(status, expected, "{method} {path}");
        }
    });
}

/// Clients of HTTP/2 may send each cookie in a header of its own.
#[test]
fn a_session_is_found_among_several_cookie_headers() {
    let api = Api::start();
    let (addr, ada) = (api.addr(), api.user("ada"));
    let credential = serde_json::json!({"api_key": ada.key()}).to_string();
    api.block_on(async {
        let (mut sender, connection) = connect(addr).await;
        tokio::spawn(connection);
        let mut sign_in = request(Method::POST, "/v1/auth/session", credential.as_bytes());
        sign_in.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
        let (_, headers, _) = ask_with(&mut sender, sign_in, credential.as_bytes()).await;
        let cookie = headers["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
        for (cookies, expected) in
            [(vec!["a=1", "b=2", &cookie, "c=ä"], 200), (vec!["a=ä; b=2", &cookie], 200), (vec!["a=1"], 401)]
        {
            let mut request = request(Method::GET, "/v1/auth/me", b"");
            for value in &cookies {
                request.headers_mut().append("cookie", HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
            let (status, ..) = ask_with(&mut sender, request, b"").await;
            assert_eq!(status, expected, "{cookies:?}");
        }
        let mut foreign = request(Method::DELETE, "/v1/auth/session", b"");
        foreign.headers_mut().insert("cookie", cookie.parse().unwrap());
        foreign.headers_mut().insert("origin", "http://evil.example".parse().unwrap());
        assert_eq!(ask_with(&mut sender, foreign, b"").await.0, 403);
    });
}

#[test]
fn many_streams_share_a_connection() {
    let server = TestServer::start();
    server.block_on(async {
        let (sender, connection) = connect(server.addr).await;
        tokio::spawn(connection);
        let asks = (0..300).map(|number| {
            let mut sender = sender.clone();
            tokio::spawn(
                async move { ask(&mut sender, Method::GET, &format!("/free/{number}"), b"").await.0 },
            )
        });
        for status in asks.collect::<Vec<_>>() {
            assert_eq!(status.await.unwrap(), 200);
        }
    });
}

#[test]
fn an_idle_connection_is_closed() {
    let short = Duration::from_millis(200);
    let server = TestServer::with(HttpLimits { idle_time: short, ..HttpLimits::default() });
    server.block_on(async {
        let (mut sender, connection) = connect(server.addr).await;
        let connection = tokio::spawn(connection);
        assert_eq!(ask(&mut sender, Method::GET, "/items/a", b"").await.0, 200);
        connection.await.unwrap().unwrap();
    });
}

#[test]
fn a_stop_lets_a_stream_finish_and_closes_the_connection() {
    let config = HttpLimits { drain_time: Duration::from_secs(300), ..HttpLimits::default() };
    let mut server = TestServer::with(config);
    let (poll, connection) = server.block_on(async {
        let (mut sender, connection) = connect(server.addr).await;
        let connection = tokio::spawn(connection);
        assert_eq!(ask(&mut sender, Method::GET, "/items/a", b"").await.0, 200);
        let poll = sender.send_request(request(Method::GET, "/poll", b""));
        // The poll was sent first, so the server has it once this request has its response.
        assert_eq!(ask(&mut sender, Method::GET, "/items/a", b"").await.0, 200);
        (poll, connection)
    });
    server.stop();
    let response = server.block_on(poll).unwrap();
    assert_eq!(response.status(), 200);
    // The stream ends with the body of its response, the connection after it.
    server.block_on(response.into_body().collect()).unwrap();
    server.block_on(connection).unwrap().unwrap();
    server.wait_until_stopped();
}
