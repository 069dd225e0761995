//! A client of `GET /v1/events` over HTTP/1.1.

use std::io::{self, BufRead, BufReader, Read, Write};

use crate::openapi::checks::{check, check_event};
use crate::support::*;

/// An open stream.
pub struct EventReader {
    reader: BufReader<TcpStream>,
    pub headers: Vec<(String, String)>,
    text: String,
}

/// A block of a stream, up to an empty line.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    pub id: Option<String>,
    pub event: Option<String>,
    pub data: Option<Value>,
    pub comment: Option<String>,
    pub retry: Option<String>,
}

impl EventReader {
    /// Opens a stream of the user of `client`, which must be admitted.
    pub fn open(addr: SocketAddr, client: &Client, query: &str) -> Self {
        Self::resume(addr, client, query, None)
    }

    /// As [`EventReader::open`], after the greeting.
    #[track_caller]
    pub fn follow(addr: SocketAddr, client: &Client, query: &str) -> Self {
        let mut stream = Self::open(addr, client, query);
        assert_eq!(stream.next().0, "hello");
        stream
    }

    /// As [`EventReader::open`], with a `Last-Event-ID`.
    pub fn resume(addr: SocketAddr, client: &Client, query: &str, id: Option<&str>) -> Self {
        let id = id.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        Self::with_headers(addr, query, &format!("Authorization: Bearer {}\r\n{id}", client.key()))
    }

    /// As [`EventReader::open`], through a proxy that names the address of the client.
    pub fn from(addr: SocketAddr, client: &Client, address: &str) -> Self {
        let headers =
            format!("Authorization: Bearer {}\r\nX-Forwarded-For: {address}\r\n", client.key());
        Self::with_headers(addr, "", &headers)
    }

    /// Opens a stream of the user whose session has this cookie.
    pub fn with_cookie(addr: SocketAddr, cookie: &str) -> Self {
        Self::with_headers(addr, "", &format!("Cookie: {cookie}\r\n"))
    }

    fn with_headers(addr: SocketAddr, query: &str, headers: &str) -> Self {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
        let request = format!("GET /v1/events{query} HTTP/1.1\r\nHost: {addr}\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let (first, headers) = read_head(&mut reader).unwrap().expect("a response");
        assert!(first.contains(" 200 "), "{first}");
        check(
            request.as_bytes(),
            &Response { status: 200, headers: headers.clone(), body: Vec::new() },
        );
        Self { reader, headers, text: String::new() }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    /// The next block; `None` at the end of the response.
    pub fn next_block(&mut self) -> io::Result<Option<Block>> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (parse(block), rest.to_owned());
                self.text = rest;
                if let (Some(event), Some(data)) = (&block.event, &block.data) {
                    check_event(event, data);
                }
                return Ok(Some(block));
            }
            let mut line = String::new();
            self.reader.read_line(&mut line)?;
            if line.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let length =
                u64::from_str_radix(line.trim(), 16).map_err(|_| io::ErrorKind::InvalidData)?;
            (&mut self.reader).take(length).read_to_string(&mut self.text)?;
            self.reader.read_line(&mut String::new())?;
            if length == 0 {
                return Ok(None);
            }
        }
    }

    /// The next event, after beats.
    #[track_caller]
    pub fn next(&mut self) -> (String, Value) {
        let block = self.next_event().expect("an event, not the end of the stream");
        (block.event.unwrap(), block.data.unwrap())
    }

    /// As [`EventReader::next`], with its id; `None` at the end.
    pub fn next_event(&mut self) -> Option<Block> {
        loop {
            let block = self.next_block().unwrap()?;
            if block.event.is_some() {
                return Some(block);
            }
        }
    }

    /// The events up to the first one for which `is_last` holds.
    pub fn until(&mut self, is_last: impl Fn(&str, &Value) -> bool) -> Vec<(String, Value)> {
        let mut events = Vec::new();
        loop {
            let (event, data) = self.next();
            let ends = is_last(&event, &data);
            events.push((event, data));
            if ends {
                return events;
            }
        }
    }

    /// The events up to the move of the test clock, which comes after all that it caused.
    pub fn until_clock_moved(&mut self) -> Vec<(String, Value)> {
        let mut events =
            self.until(|event, data| event == "server.state" && data["state"] == "clock_moved");
        events.pop();
        events
    }
}

fn parse(text: &str) -> Block {
    let field = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
        lines.next().map(|value| value.strip_prefix(": ").unwrap_or(value).to_owned())
    };
    let comment = text.lines().find_map(|line| line.strip_prefix(": ")).map(str::to_owned);
    let data = field("data").map(|data| serde_json::from_str(&data).unwrap());
    Block { id: field("id"), event: field("event"), data, comment, retry: field("retry") }
}
