//! A receiver of webhooks that records what comes, sees what overlaps, and answers as it is told.

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::support::client::read_head;
use crate::support::server::PATIENCE;

/// What the receiver does with a request.
#[derive(Debug, Clone)]
pub enum Reaction {
    /// Answers with this status.
    Status(u16),
    /// Answers with this status, these headers and this body.
    Full(u16, Vec<(&'static str, String)>, String),
    /// Answers 200, but not before [`Recorder::release`].
    Hang,
    /// Closes the connection without an answer.
    HangUp,
}

/// One request that came.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub execution_id: String,
    pub cue_id: String,
    pub attempt: u32,
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// When its head was read.
    #[allow(dead_code)] // the benchmark's
    pub wall: Timestamp,
}

impl Delivery {
    /// A header's value, by name in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// A listener on a port of its own.
pub struct Recorder {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    deliveries: Vec<Delivery>,
    reaction: Reaction,
    script: VecDeque<Reaction>,
    /// Executions that are being answered, each with the connection it came on.
    in_progress: HashMap<String, Arc<TcpStream>>,
    overlaps: Vec<String>,
    hanging: usize,
    releases: u64,
    connections: Vec<Arc<TcpStream>>,
    closed: bool,
}

impl Default for State {
    fn default() -> Self {
        Self {
            deliveries: Vec::new(),
            reaction: Reaction::Status(200),
            script: VecDeque::new(),
            in_progress: HashMap::new(),
            overlaps: Vec::new(),
            hanging: 0,
            releases: 0,
            connections: Vec::new(),
            closed: false,
        }
    }
}

impl Recorder {
    /// Answers 200 until told otherwise.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accepting.accept(&listener));
        Self { addr, shared }
    }

    /// A callback URL.
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.addr)
    }

    /// What it does from now on, but for what [`Recorder::first`] still holds.
    pub fn react(&self, reaction: Reaction) {
        self.shared.lock().reaction = reaction;
    }

    /// What it does with the next requests, one each.
    pub fn first(&self, reactions: impl IntoIterator<Item = Reaction>) {
        self.shared.lock().script.extend(reactions);
    }

    /// Lets all that hangs be answered, and hangs no more.
    pub fn release(&self) {
        let mut state = self.shared.lock();
        state.releases += 1;
        state.reaction = Reaction::Status(200);
        self.shared.changed.notify_all();
    }

    /// All that came, in the order of arrival.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.shared.lock().deliveries.clone()
    }

    /// How many came.
    pub fn count(&self) -> usize {
        self.shared.lock().deliveries.len()
    }

    /// How many wait for [`Recorder::release`].
    pub fn hanging(&self) -> usize {
        self.shared.lock().hanging
    }

    /// Executions of which two requests were in progress at once.
    pub fn overlaps(&self) -> Vec<String> {
        self.shared.lock().overlaps.clone()
    }

    /// Waits until `count` requests have come.
    #[track_caller]
    pub fn wait_for(&self, count: usize) {
        self.wait_longer_for(count, PATIENCE);
    }

    /// As [`Recorder::wait_for`], for what takes its time by design.
    #[track_caller]
    pub fn wait_longer_for(&self, count: usize, patience: Duration) {
        self.wait(&format!("{count} deliveries"), patience, |state| state.deliveries.len() >= count);
    }

    /// Waits until `count` requests hang.
    #[track_caller]
    pub fn wait_hanging(&self, count: usize) {
        self.wait(&format!("{count} hanging deliveries"), PATIENCE, |state| state.hanging >= count);
    }

    #[track_caller]
    fn wait(&self, what: &str, patience: Duration, met: impl Fn(&State) -> bool) {
        let state = self.shared.lock();
        let (state, _) =
            self.shared.changed.wait_timeout_while(state, patience, |state| !met(state)).unwrap();
        let (came, met) = (state.deliveries.len(), met(&state));
        drop(state); // a panic must not poison what the destructor needs
        assert!(met, "waited {patience:?} in vain for {what}; {came} came");
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        state.releases += 1;
        self.shared.changed.notify_all();
        for connection in &state.connections {
            drop(connection.shutdown(Shutdown::Both)); // it may be closed already
        }
        // Wakes the accepting thread, which then sees that it is over.
        drop(TcpStream::connect(self.addr));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        while let Ok((stream, _)) = listener.accept() {
            let stream = Arc::new(stream);
            let mut state = self.lock();
            if state.closed {
                return;
            }
            state.connections.push(Arc::clone(&stream));
            let shared = Arc::clone(&self);
            // A connection that breaks is the sender's to notice; the tests see it by what did not come.
            let serve = move || drop(shared.serve(&stream));
            thread::Builder::new().stack_size(256 * 1024).spawn(serve).unwrap();
        }
    }

    fn serve(&self, stream: &Arc<TcpStream>) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(&**stream);
        while let Some((first, headers)) = read_head(&mut reader)? {
            let wall = Timestamp::now();
            let mut words = first.split(' ').map(str::to_owned);
            let mut delivery = Delivery {
                method: words.next().unwrap_or_default(),
                path: words.next().unwrap_or_default(),
                execution_id: String::new(),
                cue_id: String::new(),
                attempt: 0,
                headers,
                body: Vec::new(),
                wall,
            };
            let text = |name| delivery.header(name).unwrap_or_default().to_owned();
            let (execution_id, cue_id) = (text("x-cueapi-execution-id"), text("x-cueapi-cue-id"));
            let (attempt, length) = (text("x-cueapi-attempt"), text("content-length"));
            delivery.attempt = attempt.parse().unwrap_or(0);
            delivery.body.resize(length.parse().unwrap_or(0), 0);
            reader.read_exact(&mut delivery.body)?;
            (delivery.execution_id, delivery.cue_id) = (execution_id.clone(), cue_id);
            let reaction = self.begin(delivery, stream);
            if !self.answer(&reaction, &execution_id, stream)? {
                return stream.shutdown(Shutdown::Both);
            }
        }
        Ok(())
    }

    fn begin(&self, delivery: Delivery, stream: &Arc<TcpStream>) -> Reaction {
        let mut state = self.lock();
        let execution_id = delivery.execution_id.clone();
        let earlier = state.in_progress.insert(execution_id.clone(), Arc::clone(stream));
        // The request of a process that was killed is in progress for nobody.
        if earlier.is_some_and(|earlier| is_open(&earlier)) {
            state.overlaps.push(execution_id);
        }
        state.deliveries.push(delivery);
        let reaction = state.script.pop_front().unwrap_or_else(|| state.reaction.clone());
        self.changed.notify_all();
        reaction
    }

    /// Whether the connection goes on.
    fn answer(&self, reaction: &Reaction, execution_id: &str, stream: &Arc<TcpStream>) -> io::Result<bool> {
        let mut writer = &**stream;
        match reaction {
            Reaction::Status(status) => {
                self.end(execution_id, stream);
                writer
                    .write_all(format!("HTTP/1.1 {status} Told\r\nContent-Length: 0\r\n\r\n").as_bytes())?;
            }
            Reaction::Full(status, headers, body) => {
                self.end(execution_id, stream);
                let headers: String =
                    headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
                let length = body.len();
                let answer =
                    format!("HTTP/1.1 {status} Told\r\n{headers}Content-Length: {length}\r\n\r\n{body}");
                writer.write_all(answer.as_bytes())?;
            }
            Reaction::Hang => {
                self.hang();
                self.end(execution_id, stream);
                writer.write_all(b"HTTP/1.1 200 Told\r\nContent-Length: 0\r\n\r\n")?;
            }
            Reaction::HangUp => {
                self.end(execution_id, stream);
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn hang(&self) {
        let mut state = self.lock();
        let seen = state.releases;
        state.hanging += 1;
        self.changed.notify_all();
        let mut state = self.changed.wait_while(state, |state| state.releases == seen).unwrap();
        state.hanging -= 1;
    }

    /// Before the answer is written: what the sender does after it has read it is no overlap.
    fn end(&self, execution_id: &str, stream: &Arc<TcpStream>) {
        let mut state = self.lock();
        if state.in_progress.get(execution_id).is_some_and(|latest| Arc::ptr_eq(latest, stream)) {
            state.in_progress.remove(execution_id);
        }
    }
}

/// Whether the other side still holds the connection. Its thread is answering and does not read meanwhile.
fn is_open(stream: &TcpStream) -> bool {
    let wait = |time| stream.set_read_timeout(time).is_ok();
    if !wait(Some(Duration::from_millis(1))) {
        return false;
    }
    let peeked = stream.peek(&mut [0]);
    let timed_out =
        |error: &io::Error| matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
    wait(None) && peeked.map_or_else(|error| timed_out(&error), |bytes| bytes > 0)
}

#[test]
fn overlapping_requests_of_one_execution_are_detected() {
    let receiver = Recorder::start();
    receiver.react(Reaction::Hang);
    let send = |id: &str| {
        let mut stream = TcpStream::connect(receiver.addr).unwrap();
        let request =
            format!("POST /hook HTTP/1.1\r\nX-CueAPI-Execution-Id: {id}\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    let cut = send("cut");
    receiver.wait_hanging(1);
    drop(cut);
    let streams = [send("cut"), send("twice"), send("twice"), send("other")];
    receiver.wait_hanging(5);
    assert_eq!(receiver.overlaps(), ["twice"]);
    receiver.release();
    drop(streams);
}
