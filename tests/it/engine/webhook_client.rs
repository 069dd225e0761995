//! The webhook client against real sockets: requests, responses, errors and timeouts.

use std::io::Write;

use cued::domain::webhook::address_policy::{AddressPolicy, AllowRule};
use cued::domain::webhook::callback::Method;
use cued::engine::webhook_client::{
    ClientOptions, DeliveryError, HttpWebhookClient, MAX_KEPT_BODY, WebhookClient, WebhookRequest,
    WebhookResponse,
};

use crate::support::*;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// Long enough for a busy machine to start the exchange, short enough to wait for.
const SHORT: Duration = Duration::from_millis(400);

fn client_with(timeout: Duration) -> HttpWebhookClient {
    let policy = AddressPolicy::new(&[AllowRule::Loopback]);
    let options = ClientOptions { policy, timeout, ..ClientOptions::default() };
    HttpWebhookClient::new(&options, Arc::new(|| Duration::ZERO)).unwrap()
}

fn request(url: String) -> WebhookRequest {
    WebhookRequest {
        method: Method::Post,
        url: url.into(),
        headers: Vec::new().into(),
        body: Some(b"{}".to_vec().into()),
        timeout: None,
        max_response: MAX_KEPT_BODY,
        keeps_headers: false,
    }
}

fn send(url: String) -> Result<WebhookResponse, DeliveryError> {
    client_with(Duration::from_secs(30)).send(&request(url))
}

fn respond_with(response: &str) -> Result<WebhookResponse, DeliveryError> {
    send(Receiver::with(Reaction::bytes(response)).url())
}

fn connection_fault(result: &Result<WebhookResponse, DeliveryError>) -> String {
    match result {
        Err(delivery_error @ DeliveryError::Connection(_)) => delivery_error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Sends a request to a path; returns the received one.
fn sent(request: &WebhookRequest) -> Delivery {
    let receiver = Receiver::with(Reaction::bytes(OK));
    let url = receiver.url_of(request.url.expose()).into();
    let request = WebhookRequest { url, ..request.clone() };
    let response = client_with(Duration::from_secs(30)).send(&request).unwrap();
    assert_eq!(
        response,
        WebhookResponse {
            http_status: 200,
            retry_after: None,
            headers: Vec::new(),
            body: b"hi".to_vec(),
            note: None
        }
    );
    receiver.deliveries().remove(0)
}

#[test]
fn the_request_has_exactly_the_given_headers_and_body() {
    let headers =
        [("Content-Type", "application/json"), ("X-CueAPI-Attempt", "2"), ("User-Agent", "mine/1")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec().into();
    let body = Some(b"{\"a\": 1}".to_vec().into());
    let request = sent(&WebhookRequest {
        method: Method::Put,
        url: "/a/b?c=d&e#f".to_owned().into(),
        headers,
        body,
        timeout: None,
        max_response: MAX_KEPT_BODY,
        keeps_headers: false,
    });
    assert_eq!(request.line(), "PUT /a/b?c=d&e HTTP/1.1");
    assert_eq!(request.body, b"{\"a\": 1}");
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("x-cueapi-attempt"), Some("2"));
    assert_eq!(request.header("user-agent"), Some("mine/1"));
    assert_eq!(request.header("content-length"), Some("8"));
    let mut names: Vec<_> = request.headers.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["content-length", "content-type", "host", "user-agent", "x-cueapi-attempt"]);
}

#[test]
fn a_default_user_agent_is_sent_if_the_request_has_none() {
    let request = sent(&request("/".to_owned()));
    assert!(request.header("user-agent").unwrap().starts_with("cued/"));
}

#[test]
fn get_and_delete_carry_no_body_and_the_others_at_least_an_empty_one() {
    for method in [Method::Get, Method::Delete] {
        let request = sent(&WebhookRequest { method, ..request("/".to_owned()) });
        assert_eq!(request.line(), format!("{} / HTTP/1.1", method.as_str()));
        assert_eq!((request.header("content-length"), request.body.len()), (None, 0));
    }
    for method in [Method::Post, Method::Put, Method::Patch] {
        let request = sent(&WebhookRequest { method, body: None, ..request("/".to_owned()) });
        assert_eq!((request.header("content-length"), request.body.len()), (Some("0"), 0));
    }
}

#[test]
fn the_largest_allowed_headers_and_a_large_body_arrive() {
    let headers: Vec<_> = (0..40).map(|n| (format!("X-{n}"), "v".repeat(4096))).collect();
    let body = Some(vec![b'x'; 1024 * 1024].into());
    let url = format!("/{}", "p".repeat(2000));
    let request = sent(&WebhookRequest { body, headers: headers.into(), ..request(url) });
    assert_eq!(request.headers.iter().filter(|(_, value)| value.len() == 4096).count(), 40);
    assert_eq!(request.body.len(), 1024 * 1024);
}

#[test]
fn every_status_is_returned_as_a_response() {
    for status in [200, 201, 299, 304, 400, 404, 410, 500, 503, 599, 700] {
        let bytes = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\nRetry-After: 120\r\n\r\n");
        let response = respond_with(&bytes).unwrap();
        assert_eq!((response.http_status, response.retry_after.as_deref()), (status, Some("120")));
    }
    assert_eq!(respond_with("HTTP/1.1 204 No Content\r\n\r\n").unwrap().http_status, 204);
}

#[test]
fn a_redirect_is_a_response_and_is_not_followed() {
    for status in [301, 302, 303, 307, 308] {
        let other = Receiver::with(Reaction::bytes(OK));
        let bytes = format!(
            "HTTP/1.1 {status} X\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n",
            other.url()
        );
        assert_eq!(respond_with(&bytes).unwrap().http_status, status);
        assert_eq!(other.connections(), 0);
    }
}

#[test]
fn interim_responses_are_skipped_and_101_is_a_final_response() {
    let bytes =
        format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n{OK}");
    assert_eq!(respond_with(&bytes).unwrap().http_status, 200);
    let switch = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n";
    assert_eq!(respond_with(switch).unwrap().http_status, 101);
}

#[test]
fn a_silent_server_is_cut_by_the_timeout() {
    let receiver = Receiver::with(Reaction::Hang);
    let delivery_error = client_with(SHORT).send(&request(receiver.url())).unwrap_err();
    assert_eq!(delivery_error, DeliveryError::Timeout { within: SHORT, status: None });
    assert_eq!(delivery_error.to_string(), "no response within 0.4 s");
}

#[test]
fn slowly_sent_headers_are_cut_by_the_timeout() {
    let receiver = Receiver::with(Reaction::script(|stream| {
        drip(stream, format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(200)).as_bytes());
    }));
    let delivery_error = client_with(SHORT).send(&request(receiver.url())).unwrap_err();
    assert_eq!(delivery_error, DeliveryError::Timeout { within: SHORT, status: None });
}

#[test]
fn a_slowly_sent_body_is_cut_by_the_timeout() {
    let receiver = Receiver::with(Reaction::script(|stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n").unwrap();
        drip(stream, &[b'x'; 200]);
    }));
    let delivery_error = client_with(SHORT).send(&request(receiver.url())).unwrap_err();
    assert_eq!(delivery_error, DeliveryError::Timeout { within: SHORT, status: Some(200) });
    assert_eq!(delivery_error.to_string(), "returned 200, but the body did not end within 0.4 s");
}

#[test]
fn an_endless_response_body_is_cut_and_its_start_kept() {
    for framing in ["Content-Length: 1073741824", "Connection: close"] {
        let receiver = Receiver::with(Reaction::script(move |stream| {
            stream.write_all(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n").as_bytes()).unwrap();
            while stream.write_all(&[b'x'; 8192]).is_ok() {}
        }));
        let response = send(receiver.url()).unwrap();
        assert_eq!((response.http_status, response.body), (200, vec![b'x'; MAX_KEPT_BODY]));
        // The write of the receiver failed because the client closed the connection.
        receiver.wait_closed(1);
    }
}

#[test]
fn a_2xx_whose_body_breaks_off_is_a_success_with_a_note() {
    let answer = |bytes: &'static str| {
        let receiver =
            Receiver::with(Reaction::script(|stream| stream.write_all(bytes.as_bytes()).unwrap()));
        send(receiver.url())
    };
    let response = answer("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhi").unwrap();
    assert_eq!((response.http_status, response.body.as_slice()), (200, b"hi".as_slice()));
    let note = "returned 200, but the connection was closed before the response was complete";
    assert_eq!(response.note.as_deref(), Some(note));
    let response =
        answer("HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n").unwrap();
    assert!(response.note.unwrap().starts_with("returned 201, but the response is not valid HTTP"));
    let text = connection_fault(&answer("HTTP/1.1 500 X\r\nContent-Length: 10\r\n\r\nhi"));
    assert_eq!(
        text,
        "returned 500, but the connection was closed before the response was complete"
    );
}

/// RFC 9112 §5.1 and §5.2 say what a client bears with.
#[test]
fn old_and_long_heads_do_not_fail_a_response() {
    let many = "X-Trace: a\r\n".repeat(400);
    for head in [
        "HTTP/1.1 200 OK\r\nServer : v\r\nContent-Length : 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX-Long: one\r\n two\r\n\tthree\r\nContent-Length:\r\n 2\r\n\r\n",
        "HTTP/1.1 200 OK\nServer : v\nContent-Length: 2\n\n",
        "HTTP/1.1 103 Early Hints\r\nLink : <x>\r\n\r\nHTTP/1.1 200 OK\r\nServer : v\r\nContent-Length: 2\r\n\r\n",
        &format!("HTTP/1.1 200 OK\r\n{many}Content-Length: 2\r\n\r\n"),
    ] {
        let receiver = Receiver::with(Reaction::bytes(&format!("{head}hi")));
        let webhook_client = client_with(Duration::from_secs(30));
        for _ in 0..2 {
            let request = WebhookRequest { keeps_headers: true, ..request(receiver.url()) };
            let response =
                webhook_client.send(&request).unwrap_or_else(|error| panic!("{head:?}: {error}"));
            assert_eq!(response.http_status, 200, "{head:?}");
            assert_eq!(response.body.as_slice(), b"hi".as_slice(), "{head:?}");
            assert!(response.headers.len() <= 100);
            let long = response.headers.iter().find(|(name, _)| name == "x-long");
            assert!(long.is_none_or(|(_, value)| value == "one two three"), "{long:?}");
        }
        assert_eq!(receiver.connections(), 1, "{head:?}");
    }
    let busy = respond_with(&format!(
        "HTTP/1.1 503 X\r\n{many}Retry-After : 7\r\nContent-Length: 0\r\n\r\n"
    ));
    assert_eq!(busy.unwrap().retry_after.as_deref(), Some("7"));
}

/// `text` in gzip, without compression.
fn gzip(flags: u8, fields: &[u8], text: &[u8]) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap();
    let stored = [[1].as_slice(), &length.to_le_bytes(), &(!length).to_le_bytes(), text].concat();
    [&[0x1f, 0x8b, 8, flags, 0, 0, 0, 0, 0, 3], fields, &stored, &[0; 8]].concat()
}

#[test]
fn a_body_in_gzip_is_decoded_and_bounded() {
    let long = vec![b'x'; 50_000];
    // Twelve bytes that say 2 MB of zeros, and no end.
    let bomb = miniz_oxide::deflate::compress_to_vec(&vec![0; 2 << 20], 9);
    let bomb = [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3], bomb.as_slice()].concat();
    for (body, expected) in [
        (gzip(0, b"", b"hello"), b"hello".to_vec()),
        (gzip(4 | 8 | 16 | 2, b"\x02\x00abname\0comment\0hh", b"hello"), b"hello".to_vec()),
        (gzip(0, b"", &long), long[..MAX_KEPT_BODY].to_vec()),
        (bomb, vec![0; MAX_KEPT_BODY]),
        (b"not gzip".to_vec(), b"not gzip".to_vec()),
        (Vec::new(), Vec::new()),
    ] {
        let receiver = Receiver::with(Reaction::script(move |stream| {
            let length = body.len();
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Encoding: GZIP\r\nContent-Length: {length}\r\n\r\n"
            );
            stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
        }));
        assert_eq!(send(receiver.url()).unwrap().body, expected);
    }
}

#[test]
fn a_reset_and_a_close_without_a_response_are_the_same_error() {
    // Closing a socket with an unread byte makes the kernel send a reset.
    let reset = Receiver::on_accept(|stream| assert_eq!(stream.peek(&mut [0]).unwrap(), 1));
    let close = Receiver::with(Reaction::script(|_| ()));
    for receiver in [reset, close] {
        let text = connection_fault(&send(receiver.url()));
        assert_eq!(text, "the connection was closed before the response was complete");
    }
}

#[test]
fn a_closed_port_refuses_the_connection() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = connection_fault(&send(format!("http://127.0.0.1:{port}/")));
    assert_eq!(text, "the connection was refused");
}

#[test]
fn a_response_that_is_not_http_is_reported() {
    for bytes in [
        "SSH-2.0-OpenSSH_9.6\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\r\n\r\n",
        "HTTP/1.1 abc OK\r\n\r\n",
        "HTTP/3.9 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    ] {
        let text = connection_fault(&respond_with(bytes));
        assert!(text.contains("not valid HTTP"), "{bytes:?}: {text}");
    }
}

#[test]
fn response_headers_are_read_up_to_a_limit() {
    let bytes = |size: usize| {
        let header = format!("X: {}\r\n", "x".repeat(990)).repeat(size / 1000);
        format!("HTTP/1.1 200 OK\r\n{header}Content-Length: 0\r\n\r\n")
    };
    assert_eq!(respond_with(&bytes(7_000)).unwrap().http_status, 200);
    assert_eq!(respond_with(&bytes(15_000)).unwrap().http_status, 200);
    for size in [17_000, 100_000] {
        let text = connection_fault(&respond_with(&bytes(size)));
        assert_eq!(text, "the headers of the response are too large");
    }
}

#[test]
fn plain_http_behind_an_https_url_is_a_tls_error() {
    let receiver = Receiver::on_accept(|stream| stream.write_all(OK.as_bytes()).unwrap());
    let delivery_error = send(receiver.url().replace("http:", "https:")).unwrap_err();
    assert!(matches!(&delivery_error, DeliveryError::Tls(_)), "{delivery_error:?}");
    assert!(delivery_error.to_string().starts_with("no encrypted connection"), "{delivery_error}");
}

#[test]
fn an_invalid_request_is_not_sent() {
    let receiver = Receiver::with(Reaction::bytes(OK));
    let bad_header = WebhookRequest {
        headers: vec![("X".to_owned(), "a\r\nb".to_owned())].into(),
        ..request(receiver.url())
    };
    for request in
        [bad_header, request("http://exa mple/".to_owned()), request("/only/a/path".to_owned())]
    {
        let result = client_with(Duration::from_secs(30)).send(&request);
        assert!(matches!(result, Err(DeliveryError::Unsendable(_))), "{result:?}");
    }
    assert_eq!(receiver.connections(), 0);
}

#[test]
fn one_connection_serves_many_deliveries() {
    let receiver = Receiver::with(Reaction::Full(200, Vec::new(), "x".repeat(60_000)));
    let webhook_client = client_with(Duration::from_secs(30));
    for _ in 0..5 {
        assert_eq!(
            webhook_client.send(&request(receiver.url())).unwrap().body.len(),
            MAX_KEPT_BODY
        );
    }
    assert_eq!(receiver.connections(), 1);
}

#[test]
fn a_closed_idle_connection_is_replaced() {
    let receiver = Receiver::with(Reaction::script(|stream| {
        stream.write_all(OK.as_bytes()).unwrap();
    }));
    let webhook_client = client_with(Duration::from_secs(30));
    for connection in 1..=3 {
        assert_eq!(webhook_client.send(&request(receiver.url())).unwrap().http_status, 200);
        receiver.wait_closed(connection);
    }
    assert_eq!(receiver.connections(), 3);
}

/// Receivers close idle connections at the moment of the next request: what has got no byte of a response is repeated.
#[test]
fn a_request_on_a_kept_connection_that_is_closed_is_repeated_once_on_a_new_one() {
    for method in [Method::Post, Method::Get] {
        let receiver = Receiver::with(Reaction::bytes(OK));
        let webhook_client = client_with(Duration::from_secs(30));
        let send = || webhook_client.send(&WebhookRequest { method, ..request(receiver.url()) });
        assert_eq!(send().unwrap().http_status, 200);
        receiver.first([Reaction::script(|_| ())]);
        assert_eq!(send().unwrap().http_status, 200);
        assert_eq!((receiver.count(), receiver.connections()), (3, 2));
        // Not after a part of a response, and not twice.
        receiver.first([Reaction::HangUp]);
        connection_fault(&send());
        assert_eq!(send().unwrap().http_status, 200);
        receiver.first([Reaction::script(|_| ()), Reaction::script(|_| ())]);
        connection_fault(&send());
        assert_eq!(receiver.count(), 7);
    }
}
