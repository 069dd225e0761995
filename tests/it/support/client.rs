//! A blocking HTTP/1.1 client with one kept connection: what a caller of the API does, and what none should.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

/// Longer than anything that the server may take; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A caller, with or without a key. One per thread: it holds one connection.
pub struct Client {
    addr: SocketAddr,
    key: Option<String>,
    connection: RefCell<Option<BufReader<TcpStream>>>,
}

/// What came back.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Clone for Client {
    fn clone(&self) -> Self {
        Self { addr: self.addr, key: self.key.clone(), connection: RefCell::default() }
    }
}

impl Client {
    /// A caller without a key.
    pub fn new(addr: SocketAddr) -> Self {
        Self { addr, key: None, connection: RefCell::default() }
    }

    /// The same caller with `key`.
    pub fn with_key(&self, key: &str) -> Self {
        Self { addr: self.addr, key: Some(key.to_owned()), connection: RefCell::default() }
    }

    /// The same account at another address, after a restart.
    pub fn at(&self, addr: SocketAddr) -> Self {
        Self { addr, key: self.key.clone(), connection: RefCell::default() }
    }

    /// The key that it calls with.
    pub fn key(&self) -> &str {
        self.key.as_deref().expect("a client with a key")
    }

    /// A new account's caller.
    pub fn register(&self, email: &str) -> Self {
        let user = self.post("/v1/auth/register", &json!({ "email": email })).expect(201);
        self.with_key(user["api_key"].as_str().unwrap())
    }

    pub fn get(&self, path: &str) -> Answer {
        self.call("GET", path, &[], b"").unwrap()
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.try_post(path, body).unwrap()
    }

    /// As [`Client::post`], for servers that may be killed meanwhile.
    pub fn try_post(&self, path: &str, body: &Value) -> io::Result<Answer> {
        self.call("POST", path, &[], body.to_string().as_bytes())
    }

    pub fn patch(&self, path: &str, body: &Value) -> Answer {
        self.call("PATCH", path, &[], body.to_string().as_bytes()).unwrap()
    }

    pub fn delete(&self, path: &str) -> Answer {
        self.call("DELETE", path, &[], b"").unwrap()
    }

    /// Creates a cue, which must succeed.
    pub fn create(&self, cue: &Value) -> Value {
        self.post("/v1/cues", cue).expect(201)
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

    /// Moves the test clock on; answers when all that fell due has been done.
    pub fn advance(&self, span: &str) -> Value {
        self.post("/v1/test/clock", &json!({ "advance": span })).expect(200)
    }

    /// Moves the test clock to an instant.
    pub fn advance_to(&self, instant: &str) -> Value {
        self.post("/v1/test/clock", &json!({ "to": instant })).expect(200)
    }

    /// Waits, without moving the test clock, until all that is due has been done.
    pub fn settle(&self) -> Value {
        self.advance("PT0S")
    }

    /// Sends a request with this caller's key and a body of known length.
    pub fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Answer> {
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

    /// Sends bytes as they are and reads one answer.
    pub fn send(&self, bytes: &[u8]) -> io::Result<Answer> {
        let mut slot = self.connection.borrow_mut();
        let mut connection = match slot.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        // A server that refuses early may close before all is written: its answer is there all the same.
        let written = connection.get_mut().write_all(bytes);
        let answer = read_answer(&mut connection, bytes.starts_with(b"HEAD "))
            .or_else(|error| written.and(Err(error)))?;
        if !answer.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")) {
            *slot = Some(connection);
        }
        Ok(answer)
    }

    fn connect(&self) -> io::Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect(self.addr)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(BufReader::new(stream))
    }
}

impl Answer {
    /// The body of an answer that must have this status.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        self.json()
    }

    /// The body of a refusal that must have this status and code.
    #[track_caller]
    pub fn refused(&self, status: u16, code: &str) -> Value {
        let body = self.expect(status);
        assert_eq!(body["error"]["code"], code, "{body}");
        body
    }

    /// The body; null when there is none.
    #[track_caller]
    pub fn json(&self) -> Value {
        if self.body.is_empty() {
            return Value::Null;
        }
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// A header's value, by name in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// A request's or an answer's first line, and its headers.
pub type Head = (String, Vec<(String, String)>);

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
            Some((name, value)) => headers.push((name.to_owned(), value.trim().to_owned())),
            None => return Ok(Some((first.trim_end().to_owned(), headers))),
        }
    }
}

fn read_answer(reader: &mut BufReader<TcpStream>, is_head: bool) -> io::Result<Answer> {
    let cut = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let (first, headers) = read_head(reader)?.ok_or_else(cut)?;
    let status =
        first.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
    let mut answer = Answer { status, headers, body: Vec::new() };
    if is_head || status == 204 || status < 200 {
        return Ok(answer);
    }
    if let Some(length) = answer.header("content-length").and_then(|value| value.parse().ok()) {
        answer.body.resize(length, 0);
        reader.read_exact(&mut answer.body)?;
    } else if answer.header("transfer-encoding").is_some() {
        read_chunks(reader, &mut answer.body)?;
    } else {
        reader.read_to_end(&mut answer.body)?;
    }
    Ok(answer)
}

fn read_chunks(reader: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let length = u64::from_str_radix(line.trim(), 16).map_err(|_| io::ErrorKind::InvalidData)?;
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
