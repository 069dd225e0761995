//! HTTP clients. Each is a thread with its own connection and sends its next request after the previous response.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::bench::{BenchError, Result};
use crate::clock::Clock;

pub struct Client {
    stream: TcpStream,
    response: Vec<u8>,
}

impl Client {
    pub fn connect(to: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self { stream, response: Vec::with_capacity(4_096) })
    }

    /// Sends a request and returns the body of the response. A status outside 2xx is an error.
    pub fn call(&mut self, request: &[u8]) -> io::Result<&[u8]> {
        let (status, body) = self.exchange(request)?;
        if status / 100 == 2 {
            return Ok(body);
        }
        Err(io::Error::other(format!("status {status}: {}", String::from_utf8_lossy(body))))
    }

    /// Sends a request and returns the status and the body of the response.
    pub fn exchange(&mut self, request: &[u8]) -> io::Result<(u16, &[u8])> {
        self.stream.write_all(request)?;
        self.response.clear();
        let mut chunk = [0; 16_384];
        loop {
            if let Some((status, begin, end)) = parse_frame(&self.response)
                && self.response.len() >= end
            {
                return Ok((status, &self.response[begin..end]));
            }
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.response.extend_from_slice(&chunk[..read]),
            }
        }
    }
}

/// Parses a response head. Returns the status and the start and end of the body, or `None` while the head is incomplete.
fn parse_frame(response: &[u8]) -> Option<(u16, usize, usize)> {
    let head = response.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&response[..head]).ok()?;
    let status = text.get(9..12)?.parse().ok()?;
    let length = text
        .split("\r\n")
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0);
    Some((status, head, head + length))
}

pub fn request(method: &str, path: &str, key: Option<&str>, body: &str) -> Vec<u8> {
    let authorization = key.map(|key| format!("Authorization: Bearer {key}\r\n")).unwrap_or_default();
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{authorization}Content-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// The results of a measurement with clients.
pub struct Measured {
    /// Completed calls per second, of all clients together.
    pub rate: f64,
    /// The number of completed calls.
    pub count: f64,
    /// The duration of each call in milliseconds.
    pub latencies: Vec<f64>,
}

/// Measures how many times per second `clients` clients together complete `work`, over `duration`, and how long each call
/// takes. Ends early when `work` returns `false`: there is nothing left to do.
pub fn measure(
    clock: &Clock,
    to: SocketAddr,
    clients: usize,
    duration: Duration,
    work: impl Fn(usize, &mut Client) -> io::Result<bool> + Sync,
) -> Result<Measured> {
    let connected = (0..clients).map(|_| Client::connect(to)).collect::<io::Result<Vec<_>>>()?;
    let (finished, work) = (AtomicBool::new(false), &work);
    let began = clock.monotonic();
    let latencies = thread::scope(|scope| {
        let run = |(number, mut client): (usize, Client)| {
            let finished = &finished;
            scope.spawn(move || {
                let mut latencies = Vec::new();
                let mut sent = clock.monotonic();
                while !finished.load(Ordering::Relaxed) {
                    if sent - began >= duration || !work(number, &mut client)? {
                        finished.store(true, Ordering::Relaxed);
                        break;
                    }
                    let answered = clock.monotonic();
                    latencies.push((answered - sent).as_secs_f64() * 1_000.0);
                    sent = answered;
                }
                io::Result::Ok(latencies)
            })
        };
        let threads: Vec<_> = connected.into_iter().enumerate().map(run).collect();
        let results = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a client thread panicked")))
        });
        results.collect::<io::Result<Vec<Vec<f64>>>>()
    })?;
    let elapsed = (clock.monotonic() - began).as_secs_f64();
    let latencies = latencies.concat();
    if latencies.is_empty() {
        return Err(BenchError::Failed(
            "no request completed in the measured time: use a larger --seconds".to_owned(),
        ));
    }
    #[allow(clippy::cast_precision_loss)]
    let count = latencies.len() as f64;
    Ok(Measured { rate: count / elapsed, count, latencies })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_complete_with_its_body() {
        let answer = b"HTTP/1.1 201 Created\r\ncontent-type: x\r\ncontent-length: 2\r\n\r\nok";
        assert_eq!(parse_frame(&answer[..20]), None);
        let (status, begin, end) = parse_frame(answer).unwrap();
        assert_eq!((status, &answer[begin..end]), (201, &b"ok"[..]));
        let (_, begin, end) = parse_frame(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        assert_eq!(begin, end, "no body");
    }

    #[test]
    fn a_request_has_its_length_and_its_key() {
        let request = String::from_utf8(request("POST", "/v1/cues", Some("k"), "{}")).unwrap();
        assert!(request.starts_with("POST /v1/cues HTTP/1.1\r\n"));
        assert!(request.ends_with("Authorization: Bearer k\r\nContent-Length: 2\r\n\r\n{}"));
    }
}
