//! A receiver of callbacks on a real socket, which counts its connections and answers as a test tells it to.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver as Channel, Sender, channel};
use std::thread;
use std::time::Duration;

pub struct Receiver {
    pub address: SocketAddr,
    /// Each request as it came in.
    pub requests: Channel<Request>,
    /// One message for each connection that this side has closed.
    pub closed: Channel<()>,
    connections: Arc<AtomicUsize>,
}

#[derive(Debug)]
pub struct Request {
    pub line: String,
    /// Names in lower case, in the order of the wire.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// What to do with the connection after an answer.
pub enum Then {
    Listen,
    Close,
}

impl Receiver {
    /// Reads whole requests and lets `answer` write what it likes.
    pub fn start(answer: impl Fn(&mut TcpStream) -> Then + Send + Sync + 'static) -> Self {
        let (requests, requests_out) = channel();
        Self::raw("127.0.0.1", requests_out, move |stream| {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while let Some(request) = read_request(&mut reader) {
                if requests.send(request).is_err() {
                    return;
                }
                if matches!(answer(stream), Then::Close) {
                    return;
                }
            }
        })
    }

    /// Answers every request with the same bytes and keeps the connection.
    pub fn always(answer: &str) -> Self {
        let answer = answer.to_owned();
        Self::start(move |stream| {
            // The client may have what it wants and be gone.
            match stream.write_all(answer.as_bytes()) {
                Ok(()) => Then::Listen,
                Err(_) => Then::Close,
            }
        })
    }

    /// Hands over each connection as it is accepted, before a byte is read.
    pub fn untouched(handle: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> Self {
        Self::raw("127.0.0.1", channel().1, handle)
    }

    /// Accepts on every address of this machine and answers 200 once a connection.
    pub fn everywhere() -> Self {
        Self::raw("0.0.0.0", channel().1, |stream| {
            read_request(&mut BufReader::new(stream.try_clone().unwrap()));
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        })
    }

    fn raw(
        host: &str,
        requests: Channel<Request>,
        handle: impl Fn(&mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((host, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (closing, closed) = channel();
        let (count, handle) = (connections.clone(), Arc::new(handle));
        thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
                let (handle, closing): (_, Sender<()>) = (handle.clone(), closing.clone());
                thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    handle(&mut stream);
                    drop(stream);
                    // Nobody listens once the test is over.
                    closing.send(()).unwrap_or_default();
                });
            }
        });
        Self { address, requests, closed, connections }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.address.port())
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Writes one byte at a time, a little apart, until all is out or the other side is gone.
pub fn drip(stream: &mut TcpStream, bytes: &[u8]) {
    let mut nothing = [0; 1];
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    for byte in bytes {
        // The client has nothing more to say: this waits, or sees the end.
        if matches!(stream.read(&mut nothing), Ok(0)) || stream.write_all(&[*byte]).is_err() {
            return;
        }
    }
}

/// Waits until the other side closes the connection.
pub fn hang(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    // A reset is an end too.
    stream.read_to_end(&mut rest).unwrap_or_default();
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let line = read_line(reader).filter(|line| !line.is_empty())?;
    let mut headers = Vec::new();
    while let Some(header) = read_line(reader).filter(|header| !header.is_empty()) {
        let (name, value) = header.split_once(": ").unwrap();
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let mut request = Request { line, headers, body: Vec::new() };
    assert_eq!(request.header("transfer-encoding"), None);
    let length = request.header("content-length").map_or(0, |length| length.parse().unwrap());
    request.body.resize(length, 0);
    reader.read_exact(&mut request.body).ok()?;
    Some(request)
}

fn read_line(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    Some(line.trim_end_matches("\r\n").to_owned())
}
