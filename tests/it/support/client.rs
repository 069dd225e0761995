//! A blocking HTTP/1.1 client: a [`Client`] calls the API with a key; a [`Connection`] sends bytes, also invalid ones.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};

use crate::openapi::checks;
use crate::support::*;

/// A client of the API with or without a key. One per thread: it keeps one connection open.
pub struct Client {
    addr: SocketAddr,
    key: Option<String>,
    connection: RefCell<Option<Connection>>,
    /// Responses are compared with the description of the API.
    is_checked: bool,
}

/// One connection to a server. Its responses are compared with the description of the API, as those of a [`Client`].
pub struct Connection {
    reader: BufReader<TcpStream>,
    /// What was sent by [`Connection::send`] and has no response yet.
    sent: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Clone for Client {
    fn clone(&self) -> Self {
        Self {
            addr: self.addr,
            key: self.key.clone(),
            connection: RefCell::default(),
            is_checked: self.is_checked,
        }
    }
}

impl Client {
    /// A client without a key.
    pub fn new(addr: SocketAddr) -> Self {
        Self { addr, key: None, connection: RefCell::default(), is_checked: true }
    }

    /// A client of the metrics listener, which the description of the API leaves out.
    pub fn for_metrics(addr: SocketAddr) -> Self {
        Self { is_checked: false, ..Self::new(addr) }
    }

    /// The same client, whose responses are too large to be compared: a debug build reads a mebibyte in a second.
    pub fn unchecked(&self) -> Self {
        Self { is_checked: false, ..self.clone() }
    }

    /// The same client with `key`.
    pub fn with_key(&self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self.clone() }
    }

    /// The same client without a key.
    pub fn anonymous(&self) -> Self {
        Self { key: None, ..self.clone() }
    }

    /// The same account at another address, after a restart.
    pub fn at(&self, addr: SocketAddr) -> Self {
        Self { addr, ..self.clone() }
    }

    /// The key of its requests.
    pub fn key(&self) -> &str {
        self.key.as_deref().expect("a client with a key")
    }

    /// A client of a new account.
    pub fn register(&self, email: &str) -> Self {
        let user = self.post("/v1/auth/register", &json!({ "email": email })).expect(201);
        self.with_key(user["api_key"].as_str().unwrap())
    }

    pub fn get(&self, path: &str) -> Response {
        self.call("GET", path, &[], b"").unwrap()
    }

    pub fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        self.call("GET", path, headers, b"").unwrap()
    }

    /// A request without a body.
    pub fn bare(&self, method: &str, path: &str) -> Response {
        self.call(method, path, &[], b"").unwrap()
    }

    pub fn post(&self, path: &str, body: &Value) -> Response {
        self.try_post(path, body).unwrap()
    }

    /// As [`Client::post`], for servers that may be killed during the request.
    pub fn try_post(&self, path: &str, body: &Value) -> io::Result<Response> {
        self.call("POST", path, &[], body.to_string().as_bytes())
    }

    pub fn patch(&self, path: &str, body: &Value) -> Response {
        self.call("PATCH", path, &[], body.to_string().as_bytes()).unwrap()
    }

    pub fn put(&self, path: &str, body: &Value) -> Response {
        self.call("PUT", path, &[], body.to_string().as_bytes()).unwrap()
    }

    pub fn delete(&self, path: &str) -> Response {
        self.call("DELETE", path, &[], b"").unwrap()
    }

    /// A POST with an `Idempotency-Key`.
    pub fn keyed(&self, path: &str, key: &str, body: &Value) -> Response {
        self.post_with(path, &[("Idempotency-Key", key)], body)
    }

    /// A POST of JSON with further headers.
    pub fn post_with(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Response {
        let headers = [&[("Content-Type", "application/json")], headers].concat();
        self.call("POST", path, &headers, body.to_string().as_bytes()).unwrap()
    }

    /// The body of a GET that must succeed.
    #[track_caller]
    pub fn read(&self, path: &str) -> Value {
        self.get(path).expect(200)
    }

    /// The account.
    #[track_caller]
    pub fn me(&self) -> Value {
        self.read("/v1/auth/me")
    }

    pub fn email(&self) -> String {
        self.me().text("email").to_owned()
    }

    /// The number of objects in a list.
    #[track_caller]
    pub fn total(&self, path: &str) -> Value {
        self.read(path)["total"].clone()
    }

    /// Creates a cue, which must succeed.
    #[track_caller]
    pub fn create(&self, cue: &Value) -> Value {
        self.post("/v1/cues", cue).expect(201)
    }

    /// Reads a cue.
    #[track_caller]
    pub fn cue(&self, cue: &Value) -> Value {
        self.read(&cue_path(cue))
    }

    /// Changes a cue, which must succeed.
    #[track_caller]
    pub fn change(&self, cue: &Value, patch: &Value) -> Value {
        self.patch(&cue_path(cue), patch).expect(200)
    }

    pub fn try_fire(&self, cue: &Value, body: &Value) -> Response {
        self.post(&format!("{}/fire", cue_path(cue)), body)
    }

    /// Runs a cue now; returns the id of the execution.
    #[track_caller]
    pub fn fire(&self, cue: &Value) -> String {
        self.fire_with(cue, &json!({}))
    }

    /// As [`Client::fire`], with a payload or an instant.
    #[track_caller]
    pub fn fire_with(&self, cue: &Value, body: &Value) -> String {
        self.try_fire(cue, body).expect(200).text("execution_id").to_owned()
    }

    /// Does something to an execution: `claim`, `cancel`, `retry`, `replay`.
    pub fn act(&self, execution: &str, action: &str) -> Response {
        self.post(&format!("/v1/executions/{execution}/{action}"), &json!({}))
    }

    /// Claims the next execution, which must be there; returns its id.
    #[track_caller]
    pub fn claim(&self, worker: &str) -> String {
        let claimed = self.post("/v1/executions/claim", &json!({"worker_id": worker})).expect(200);
        claimed.text("execution_id").to_owned()
    }

    /// A heartbeat of a worker.
    pub fn beat(&self, worker: &str) -> Response {
        self.post("/v1/worker/heartbeat", &json!({"worker_id": worker, "handlers": []}))
    }

    /// Reads an execution.
    pub fn execution(&self, id: &str) -> Value {
        self.get(&format!("/v1/executions/{id}")).expect(200)
    }

    /// Reports the outcome of an execution, which must be accepted.
    pub fn report(&self, execution: &str, outcome: &Value) -> Value {
        self.post(&format!("/v1/executions/{execution}/outcome"), outcome).expect(200)
    }

    /// The only execution of a cue.
    pub fn only_execution(&self, cue_id: &str) -> Value {
        let mut found = self.executions_of(cue_id);
        assert_eq!(found.len(), 1, "{found:#?}");
        found.remove(0)
    }

    /// The newest executions of a cue, newest first, at most 100.
    pub fn executions_of(&self, cue_id: &str) -> Vec<Value> {
        let cue = self.get(&format!("/v1/cues/{cue_id}?execution_limit=100")).expect(200);
        cue["executions"].as_array().unwrap().clone()
    }

    /// Advances the test clock; returns when everything that became due is done.
    pub fn advance(&self, span: &str) -> Value {
        self.post("/v1/test/clock", &json!({ "advance": span })).expect(200)
    }

    /// Advances the test clock to an instant.
    pub fn advance_to(&self, instant: &str) -> Value {
        self.post("/v1/test/clock", &json!({ "to": instant })).expect(200)
    }

    /// Waits until everything that is due is done; the test clock stays.
    pub fn settle(&self) -> Value {
        self.advance("PT0S")
    }

    /// Sends a request with the key of this client and a body of known length.
    pub fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Response> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.addr);
        let given = |name: &str| headers.iter().any(|(it, _)| it.eq_ignore_ascii_case(name));
        if let Some(key) = self.key.as_deref().filter(|_| !given("authorization")) {
            write!(head, "Authorization: Bearer {key}\r\n").unwrap();
        }
        if !body.is_empty() && !given("content-length") && !given("transfer-encoding") {
            write!(head, "Content-Length: {}\r\n", body.len()).unwrap();
        }
        for (name, value) in headers {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        head.push_str("\r\n");
        self.send(&[head.as_bytes(), body].concat())
    }

    /// Sends bytes unchanged and reads one response.
    pub fn send(&self, bytes: &[u8]) -> io::Result<Response> {
        let mut slot = self.connection.borrow_mut();
        let mut connection = match slot.take() {
            Some(connection) => connection,
            None => Connection::open(self.addr)?,
        };
        // A server that refuses early may close before everything is written; its response is readable all the same.
        let written = connection.stream().write_all(bytes);
        let response = connection
            .read_response(bytes.starts_with(b"HEAD "))
            .or_else(|error| written.and(Err(error)))?;
        if self.is_checked {
            checks::check(bytes, &response);
        }
        if !response.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")) {
            *slot = Some(connection);
        }
        Ok(response)
    }
}

impl Connection {
    pub fn open(addr: SocketAddr) -> io::Result<Self> {
        Self::from_stream(TcpStream::connect(addr)?)
    }

    pub fn from_stream(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(HANG_TIMEOUT))?;
        Ok(Self { reader: BufReader::new(stream), sent: Vec::new() })
    }

    pub fn send(&mut self, text: &str) {
        self.stream().write_all(text.as_bytes()).unwrap();
        self.sent.extend_from_slice(text.as_bytes());
    }

    #[track_caller]
    pub fn response(&mut self) -> Response {
        self.checked_response(false)
    }

    /// Sends a request and reads its response.
    #[track_caller]
    pub fn ask(&mut self, request: &str) -> Response {
        self.send(request);
        self.response()
    }

    /// Returns `true` if a part of a response has arrived, or the end of the connection.
    pub fn has_response(&self) -> bool {
        let stream = self.reader.get_ref();
        stream.set_nonblocking(true).unwrap();
        let arrived = stream.peek(&mut [0]);
        stream.set_nonblocking(false).unwrap();
        arrived.is_ok()
    }

    /// The response to a `HEAD`: no body follows, whatever `Content-Length` says.
    #[track_caller]
    pub fn response_without_body(&mut self) -> Response {
        self.checked_response(true)
    }

    /// The response of a server that the description of the API leaves out.
    #[track_caller]
    pub fn plain_response(&mut self) -> Response {
        self.read_response(false).unwrap()
    }

    #[track_caller]
    fn checked_response(&mut self, is_head: bool) -> Response {
        let response = self.read_response(is_head).unwrap();
        // A 100 is followed by the response.
        if response.status >= 200 {
            let request: Vec<u8> = self.sent.drain(..checks::request_length(&self.sent)).collect();
            checks::check(&request, &response);
        }
        response
    }

    /// Everything until the server closes the connection.
    pub fn rest(&mut self) -> String {
        self.try_rest().unwrap()
    }

    /// Errors: the server resets the connection.
    pub fn try_rest(&mut self) -> io::Result<String> {
        let mut rest = String::new();
        self.reader.read_to_string(&mut rest)?;
        Ok(rest)
    }

    /// Whether the server has sent anything that is not read yet.
    pub fn has_data(&self) -> bool {
        let stream = self.reader.get_ref();
        stream.set_nonblocking(true).unwrap();
        let peeked = stream.peek(&mut [0]);
        stream.set_nonblocking(false).unwrap();
        peeked.is_ok_and(|bytes| bytes > 0)
    }

    /// The socket, for tests that write in their own way.
    pub fn stream(&mut self) -> &mut TcpStream {
        self.reader.get_mut()
    }

    fn read_response(&mut self, is_head: bool) -> io::Result<Response> {
        let reader = &mut self.reader;
        let cut = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let (first, headers) = read_head(reader)?.ok_or_else(cut)?;
        let status = first
            .split(' ')
            .nth(1)
            .and_then(|word| word.parse().ok())
            .ok_or(io::ErrorKind::InvalidData)?;
        let mut response = Response { status, headers, body: Vec::new() };
        if is_head || matches!(status, 204 | 304) || status < 200 {
            return Ok(response);
        }
        if let Some(length) = response.header("content-length").and_then(|value| value.parse().ok())
        {
            response.body.resize(length, 0);
            reader.read_exact(&mut response.body)?;
        } else if response.header("transfer-encoding").is_some() {
            read_chunks(reader, &mut response.body)?;
        } else {
            reader.read_to_end(&mut response.body)?;
        }
        Ok(response)
    }
}

impl Response {
    /// The body of a response that must have this status.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text().chars().take(2_000).collect::<String>());
        self.json()
    }

    /// The body of an error that must have this status and code.
    #[track_caller]
    pub fn expect_error(&self, status: u16, code: &str) -> Value {
        let body = self.expect(status);
        assert_eq!(body["error"]["code"], code, "{body}");
        body
    }

    /// The body; null if it is empty.
    #[track_caller]
    pub fn json(&self) -> Value {
        if self.body.is_empty() {
            return Value::Null;
        }
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The content of a gzip file, by the program of the system, which also compares the checksum.
    pub fn unzipped(&self) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("body.gz");
        std::fs::write(&path, &self.body).unwrap();
        let output = std::process::Command::new("gzip").arg("-dc").arg(&path).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    }

    /// As [`Response::expect_error`], with a part of the message.
    #[track_caller]
    pub fn refuses(&self, status: u16, code: &str, part: &str) -> Value {
        let body = self.expect_error(status, code);
        assert_contains(body.message(), &[part]);
        body
    }

    /// As [`Response::expect_error`], of a caller that may come back after `seconds`.
    #[track_caller]
    pub fn refuses_for(&self, seconds: u32, status: u16, code: &str) -> Value {
        let body = self.expect_error(status, code);
        assert_eq!(self.header("retry-after"), Some(&*seconds.to_string()), "{body}");
        body
    }

    /// The code in the body of an error.
    #[track_caller]
    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap().to_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

/// The first line of a request or a response, and its headers with names in lower case.
pub type Head = (String, Vec<(String, String)>);

/// A header's value, by its name in any case.
pub fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.as_str())
}

/// Reads a head; `None` when the connection ends before it begins.
pub fn read_head(reader: &mut impl BufRead) -> io::Result<Option<Head>> {
    let mut first = String::new();
    if reader.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let mut headers = Vec::with_capacity(16);
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match line.trim_end().split_once(':') {
            Some((name, value)) => {
                headers.push((name.to_ascii_lowercase(), value.trim().to_owned()))
            }
            None => return Ok(Some((first.trim_end().to_owned(), headers))),
        }
    }
}

fn read_chunks(reader: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let length =
            u64::from_str_radix(line.trim(), 16).map_err(|_| io::ErrorKind::InvalidData)?;
        let before = body.len() as u64;
        reader.take(length).read_to_end(body)?;
        if body.len() as u64 - before < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        reader.read_line(&mut String::new())?;
        if length == 0 {
            return Ok(());
        }
    }
}
