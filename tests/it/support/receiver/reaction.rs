//! A received request, and the reaction to it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::support::client::header;

/// The reaction to a request.
#[derive(Clone)]
pub enum Reaction {
    /// This status without a body.
    Status(u16),
    /// This status, these headers and this body.
    Full(u16, Vec<(&'static str, String)>, String),
    /// 200, after [`release`](super::Receiver::release).
    Hang,
    /// The end of the connection, without a response.
    HangUp,
    /// These bytes, whatever they are.
    Bytes(Arc<[u8]>),
    /// The reaction that the function chooses for the request.
    Choose(Arc<dyn Fn(&Delivery) -> Reaction + Send + Sync>),
    /// Whatever the function writes, then the end of the connection.
    Script(Script),
}

pub type Script = Arc<dyn Fn(&mut TcpStream) + Send + Sync>;

impl Reaction {
    pub fn bytes(bytes: &str) -> Self {
        Self::Bytes(bytes.as_bytes().into())
    }

    pub fn choose(choose: impl Fn(&Delivery) -> Reaction + Send + Sync + 'static) -> Self {
        Self::Choose(Arc::new(choose))
    }

    pub fn script(script: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> Self {
        Self::Script(Arc::new(script))
    }
}

/// A received request.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub execution_id: String,
    pub cue_id: String,
    pub attempt: u32,
    pub method: String,
    pub path: String,
    pub version: String,
    /// Names in lower case, in the order of arrival.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Delivery {
    /// The request line.
    pub fn line(&self) -> String {
        format!("{} {} {}", self.method, self.path, self.version)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// Writes the response; returns whether the connection stays open.
pub fn respond(reaction: &Reaction, mut stream: &TcpStream) -> io::Result<bool> {
    match reaction {
        Reaction::Status(status) => {
            stream.write_all(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").as_bytes())?;
        }
        Reaction::Full(status, headers, body) => {
            let headers: String =
                headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let length = body.len();
            let response = format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {length}\r\n\r\n{body}");
            stream.write_all(response.as_bytes())?;
        }
        Reaction::Hang => stream.write_all(b"HTTP/1.1 200 X\r\nContent-Length: 0\r\n\r\n")?,
        Reaction::Bytes(bytes) => stream.write_all(bytes)?,
        Reaction::HangUp | Reaction::Choose(_) => return Ok(false),
        Reaction::Script(script) => {
            script(&mut stream.try_clone()?);
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes one byte every 20 ms until all are written or the client has closed the connection.
pub fn drip(stream: &mut TcpStream, bytes: &[u8]) {
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    for byte in bytes {
        // The client sends nothing more: the read waits, or sees the end.
        if matches!(stream.read(&mut [0]), Ok(0)) || stream.write_all(&[*byte]).is_err() {
            return;
        }
    }
}
