//! HTTP/2 on the wire, and the time limits of connections.

use std::io::{ErrorKind, Read, Write};

use cued::http::assets::{BUILD, FILES};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2::{Connection, SendRequest, handshake};
use hyper::header::HeaderValue;
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::http::wire::http1::assert_headers;
use crate::http::wire::test_routes::{CROWD, CROWD_PEAK, FOREVER, TestServer, get};
use crate::openapi::checks::check_http2;
use crate::support::*;

type Sender = SendRequest<Full<Bytes>>;

async fn connect(
    addr: SocketAddr,
) -> (Sender, Connection<TokioIo<tokio::net::TcpStream>, Full<Bytes>, TokioExecutor>) {
    let stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap()
}

fn request(method: Method, path: &str, body: &[u8]) -> Request<Full<Bytes>> {
    let uri = format!("http://x{path}");
    Request::builder()
        .method(method)
        .uri(uri)
        .body(Full::new(Bytes::copy_from_slice(body)))
        .unwrap()
}

async fn ask(
    sender: &mut Sender,
    method: Method,
    path: &str,
    body: &[u8],
) -> (u16, hyper::HeaderMap, Bytes) {
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
        let (status, headers, body) =
            ask(&mut sender, Method::POST, "/echo", &vec![b'x'; 2_097_152]).await;
        assert_eq!(status, 200);
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["length"], 2_097_152);
        for name in [
            "x-request-id",
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset",
            "date",
        ] {
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
    let paths =
        FILES.iter().map(|file| format!("/ui/{BUILD}/{}", file.path)).chain(["/".to_owned()]);
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
        for (cookies, expected) in [
            (vec!["a=1", "b=2", &cookie, "c=ä"], 200),
            (vec!["a=ä; b=2", &cookie], 200),
            (vec!["a=1"], 401),
        ] {
            let mut request = request(Method::GET, "/v1/auth/me", b"");
            for value in &cookies {
                request
                    .headers_mut()
                    .append("cookie", HeaderValue::from_bytes(value.as_bytes()).unwrap());
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
            tokio::spawn(async move {
                ask(&mut sender, Method::GET, &format!("/free/{number}"), b"").await.0
            })
        });
        for status in asks.collect::<Vec<_>>() {
            assert_eq!(status.await.unwrap(), 200);
        }
    });
}

#[test]
fn an_idle_connection_is_closed() {
    let short = Duration::from_millis(200);
    let server = TestServer::with(|limits| limits.idle_time = short);
    server.block_on(async {
        let (mut sender, connection) = connect(server.addr).await;
        let connection = tokio::spawn(connection);
        assert_eq!(ask(&mut sender, Method::GET, "/items/a", b"").await.0, 200);
        connection.await.unwrap().unwrap();
    });
}

#[test]
fn a_stop_lets_a_stream_finish_and_closes_the_connection() {
    let mut server = TestServer::with(|limits| limits.drain_time = LONG);
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

const SHORT: Duration = Duration::from_millis(300);
/// A timeout that no test reaches.
const LONG: Duration = Duration::from_secs(300);

/// A server for which the connections of a test count as those of many clients, as behind a proxy.
fn for_many_clients(max_connections: usize) -> TestServer {
    TestServer::with(|limits| {
        limits.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
        (limits.max_connections, limits.header_time) = (max_connections, LONG);
    })
}

/// A server with these limits for heads and for connections without a request.
fn impatient(header_time: Duration, idle_time: Duration) -> TestServer {
    TestServer::with(|limits| (limits.header_time, limits.idle_time) = (header_time, idle_time))
}

#[test]
fn a_silent_connection_is_closed_and_an_incomplete_head_gets_408() {
    let server = impatient(SHORT, LONG);
    assert_eq!(server.connect().rest(), "");
    for good_ones in [0, 1] {
        let mut connection = server.connect();
        (0..good_ones).for_each(|_| assert_eq!(connection.ask(&get("/items/a")).status, 200));
        let response = connection.ask("GET /items/a HTTP/1.1\r\nHo");
        assert_eq!((response.status, response.header("connection")), (408, Some("close")));
        assert_eq!(connection.rest(), "");
    }
}

#[test]
fn an_idle_connection_outlives_the_head_timeout_and_its_next_head_has_the_same() {
    let server = impatient(SHORT, LONG);
    let mut idle = server.connect();
    for request in [get("/items/a"), get("/items/a"), "GET /items/a HTTP/1.1\r\nHo".to_owned()] {
        let status = if request.ends_with("Ho") { 408 } else { 200 };
        assert_eq!(idle.ask(&request).status, status);
        // A connection opened later reaches its head timeout, so the idle one has passed its own.
        assert_eq!(server.connect().rest(), "");
    }
}

#[test]
fn a_slowly_sent_head_has_the_same_timeout() {
    let server = impatient(SHORT, LONG);
    let mut connection = server.connect();
    connection.send("GET /items/a HTTP/1.1\r\n");
    let stream = connection.stream();
    stream.set_read_timeout(Some(SHORT / 10)).unwrap();
    let mut response = [0; 12];
    // One header after the other, until the response comes.
    let read = until("the server responds", || {
        stream.write_all(b"X: y\r\n").unwrap();
        match stream.read(&mut response) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                None
            }
            read => Some(read.unwrap()),
        }
    });
    assert_eq!(&response[..read], b"HTTP/1.1 408");
}

#[test]
fn an_incomplete_body_gets_408() {
    let server = TestServer::with(|limits| limits.request_time = SHORT);
    let mut connection = server.connect();
    let response = connection.ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12");
    response.expect_error(408, "request_timeout");
    assert_eq!(response.header("connection"), Some("close"));
    assert_headers(&response);
}

#[test]
fn an_idle_connection_is_closed_after_the_idle_timeout() {
    let server = impatient(LONG, SHORT);
    let mut connection = server.connect();
    assert_eq!(connection.ask(&get("/items/a")).status, 200);
    assert_eq!(connection.rest(), "");
}

#[test]
fn a_client_that_does_not_read_its_response_is_disconnected() {
    let server =
        TestServer::with(|limits| (limits.max_connections, limits.response_time) = (1, SHORT));
    let mut unread = server.connect();
    unread.send(&get("/large"));
    // Served only once the first connection is closed. Of the same address it would be refused.
    let mut other = server.connect_from("127.0.0.2");
    assert_eq!(other.ask(&get("/items/a")).status, 200);
}

#[test]
fn concurrent_connections_stay_within_the_limit() {
    let server = for_many_clients(CROWD);
    let request = get("/crowd").replace("Host: x", "Host: x\r\nConnection: close");
    // A connection that gives way before its request is read closes without a response: its client tries again.
    let served = |_| {
        let attempt = |_| {
            let mut connection = server.connect();
            connection.send(&request);
            connection.try_rest().unwrap_or_default()
        };
        let response = (0..100).map(attempt).find(|rest| !rest.is_empty()).unwrap();
        assert!(response.starts_with("HTTP/1.1 204 "), "{response}");
    };
    std::thread::scope(|scope| {
        (0..12).for_each(|client| drop(scope.spawn(move || served(client))));
    });
    assert_eq!(CROWD_PEAK.load(Ordering::SeqCst), CROWD);
}

#[test]
fn at_the_limit_a_new_connection_closes_the_one_that_is_idle_longest() {
    let server = for_many_clients(3);
    let (mut silent, mut kept, mut half) = (server.connect(), server.connect(), server.connect());
    for connection in [&mut kept, &mut half] {
        assert_eq!(connection.ask(&get("/items/a")).status, 200);
    }
    half.send("GET /items/a HTTP/1.1\r\n");
    let mut newcomers = Vec::new();
    for gone in [&mut silent, &mut kept] {
        let mut newcomer = server.connect();
        assert_eq!(newcomer.ask(&[get("/items/a"), get("/poll")].concat()).status, 200);
        assert_eq!(gone.rest(), "");
        newcomers.push(newcomer);
    }
    assert_eq!(half.ask("Host: x\r\n\r\n").status, 200, "its place was not needed");
}

#[test]
fn a_stop_ends_long_polls_and_closes_idle_connections() {
    let mut server = TestServer::with(|limits| limits.drain_time = LONG);
    let (mut idle, mut fresh, mut polling) = (server.connect(), server.connect(), server.connect());
    assert_eq!(idle.ask(&get("/items/a")).status, 200);
    // The poll is the second request: it is read as soon as the first has its response.
    assert_eq!(polling.ask(&[get("/items/a"), get("/poll")].concat()).status, 200);
    server.stop();
    assert_eq!(polling.response().json()["ended"], "by the stop");
    assert_eq!(polling.rest(), "");
    assert_eq!(idle.rest(), "");
    assert_eq!(fresh.rest(), "");
    server.wait_until_stopped();
    assert!(TcpStream::connect(server.addr).is_err());
}

#[test]
fn a_disconnect_and_the_end_of_the_drain_cancel_the_handler() {
    let until_running = |count| {
        until_true("handlers start or end", || FOREVER.load(Ordering::SeqCst) == count);
    };
    let mut server = TestServer::with(|limits| limits.drain_time = SHORT);
    let (mut first, mut second) = (server.connect(), server.connect());
    first.send(&get("/forever"));
    second.send(&get("/forever"));
    until_running(2);
    drop(first);
    until_running(1);
    server.stop();
    server.wait_until_stopped();
    until_running(0);
}
