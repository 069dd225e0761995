//! A receiver of webhooks on a real socket: records requests, detects overlapping ones, and reacts as a test says.

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufReader, Read, Write};
use std::net::Shutdown;
use std::sync::{Condvar, MutexGuard};

use crate::support::*;

/// A listener on a port of its own.
pub struct Receiver {
    pub addr: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Takes each connection before a byte is read.
    on_accept: Option<Script>,
}

#[derive(Default)]
struct State {
    deliveries: Vec<Delivery>,
    /// For requests beyond the script; 200 if none is set.
    reaction: Option<Reaction>,
    script: VecDeque<Reaction>,
    /// Executions with a request in progress, each with its connection.
    in_progress: HashMap<String, Arc<TcpStream>>,
    overlaps: Vec<String>,
    hanging: usize,
    releases: u64,
    connections: usize,
    open_connections: Vec<Arc<TcpStream>>,
    closed_connections: usize,
    is_closed: bool,
}

impl Receiver {
    /// Responds with 200 until another reaction is set.
    pub fn start() -> Self {
        Self::bind("127.0.0.1", None)
    }

    pub fn with(reaction: Reaction) -> Self {
        let receiver = Self::start();
        receiver.react(reaction);
        receiver
    }

    /// Runs `on_accept` on each connection before a byte is read, then closes it.
    pub fn on_accept(on_accept: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> Self {
        Self::bind("127.0.0.1", Some(Arc::new(on_accept)))
    }

    /// Listens on every address of this machine; one 200 a connection.
    pub fn on_all_addresses() -> Self {
        let receiver = Self::bind("0.0.0.0", None);
        receiver.react(Reaction::script(|stream| {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        }));
        receiver
    }

    fn bind(host: &str, on_accept: Option<Script>) -> Self {
        let listener = TcpListener::bind((host, 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let shared =
            Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), on_accept });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accepting.accept(&listener));
        Self { addr, shared }
    }

    /// A callback URL.
    pub fn url(&self) -> String {
        self.url_of("/hook")
    }

    pub fn url_of(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.addr.port())
    }

    /// Sets the reaction to all requests after those of [`Receiver::first`].
    pub fn react(&self, reaction: Reaction) {
        self.shared.lock().reaction = Some(reaction);
    }

    /// Sets the reactions to the next requests, one each.
    pub fn first(&self, reactions: impl IntoIterator<Item = Reaction>) {
        self.shared.lock().script.extend(reactions);
    }

    /// Ends every [`Reaction::Hang`]; from now on the reaction is 200.
    pub fn release(&self) {
        let mut state = self.shared.lock();
        state.releases += 1;
        state.reaction = None;
        self.shared.changed.notify_all();
    }

    /// All requests in the order of arrival.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.shared.lock().deliveries.clone()
    }

    pub fn count(&self) -> usize {
        self.shared.lock().deliveries.len()
    }

    /// The number of connections so far.
    pub fn connections(&self) -> usize {
        self.shared.lock().connections
    }

    /// The number of requests that wait for [`Receiver::release`].
    pub fn hanging(&self) -> usize {
        self.shared.lock().hanging
    }

    /// Executions with two requests in progress at once.
    pub fn overlaps(&self) -> Vec<String> {
        self.shared.lock().overlaps.clone()
    }

    #[track_caller]
    pub fn wait_for(&self, count: usize) {
        self.wait(&format!("{count} deliveries"), HANG_TIMEOUT, |state| {
            state.deliveries.len() >= count
        });
    }

    #[track_caller]
    pub fn wait_hanging(&self, count: usize) {
        self.wait(&format!("{count} hanging deliveries"), HANG_TIMEOUT, |state| {
            state.hanging >= count
        });
    }

    /// Waits until this side has closed `count` connections.
    #[track_caller]
    pub fn wait_closed(&self, count: usize) {
        let is_met = |state: &State| state.closed_connections >= count;
        self.wait(&format!("{count} closed connections"), HANG_TIMEOUT, is_met);
    }

    #[track_caller]
    fn wait(&self, what: &str, timeout: Duration, is_met: impl Fn(&State) -> bool) {
        let state = self.shared.lock();
        let (state, _) =
            self.shared.changed.wait_timeout_while(state, timeout, |state| !is_met(state)).unwrap();
        let (count, is_met) = (state.deliveries.len(), is_met(&state));
        drop(state); // a panic must not poison the lock, which the destructor needs
        assert!(is_met, "no {what} within {timeout:?}; {count} deliveries arrived");
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_closed = true;
        state.releases += 1;
        self.shared.changed.notify_all();
        for connection in &state.open_connections {
            drop(connection.shutdown(Shutdown::Both)); // it may be closed already
        }
        // Wakes the accepting thread, which then ends.
        drop(TcpStream::connect(("127.0.0.1", self.addr.port())));
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
            if state.is_closed {
                return;
            }
            state.connections += 1;
            state.open_connections.push(Arc::clone(&stream));
            let shared = Arc::clone(&self);
            let serve = move || {
                // A broken connection is seen by the client; the tests notice the missing request.
                drop(match &shared.on_accept {
                    Some(script) => stream.try_clone().map(|mut stream| script(&mut stream)),
                    None => shared.serve(&stream),
                });
                let mut state = shared.lock();
                state.open_connections.retain(|open| !Arc::ptr_eq(open, &stream));
                // The last handle closes the connection, with a reset if bytes are unread.
                drop(stream);
                state.closed_connections += 1;
                shared.changed.notify_all();
            };
            thread::Builder::new().stack_size(256 * 1024).spawn(serve).unwrap();
        }
    }

    fn serve(&self, stream: &Arc<TcpStream>) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(&**stream);
        while let Some((first, headers)) = read_head(&mut reader)? {
            let text = |name| header(&headers, name).unwrap_or_default().to_owned();
            let mut words = first.split(' ').map(str::to_owned);
            let mut delivery = Delivery {
                execution_id: text("x-cueapi-execution-id"),
                cue_id: text("x-cueapi-cue-id"),
                attempt: text("x-cueapi-attempt").parse().unwrap_or(0),
                method: words.next().unwrap_or_default(),
                path: words.next().unwrap_or_default(),
                version: words.next().unwrap_or_default(),
                body: vec![0; text("content-length").parse().unwrap_or(0)],
                headers,
            };
            reader.read_exact(&mut delivery.body)?;
            let execution_id = delivery.execution_id.clone();
            let reaction = self.begin(delivery, stream);
            if let Reaction::Hang = reaction {
                self.hang();
            }
            self.end(&execution_id, stream);
            match respond(&reaction, stream) {
                Ok(true) => {}
                Ok(false) => return stream.shutdown(Shutdown::Both),
                Err(error) => return stream.shutdown(Shutdown::Both).and(Err(error)),
            }
        }
        Ok(())
    }

    fn begin(&self, delivery: Delivery, stream: &Arc<TcpStream>) -> Reaction {
        let mut state = self.lock();
        let execution_id = delivery.execution_id.clone();
        let earlier = state.in_progress.insert(execution_id.clone(), Arc::clone(stream));
        // The request of a killed process does not count.
        if earlier.is_some_and(|earlier| is_open(&earlier)) {
            state.overlaps.push(execution_id);
        }
        let next = state.script.pop_front().or_else(|| state.reaction.clone());
        let reaction = match next.unwrap_or(Reaction::Status(200)) {
            Reaction::Choose(choose) => choose(&delivery),
            reaction => reaction,
        };
        state.deliveries.push(delivery);
        self.changed.notify_all();
        reaction
    }

    fn hang(&self) {
        let mut state = self.lock();
        let seen = state.releases;
        state.hanging += 1;
        self.changed.notify_all();
        let mut state = self.changed.wait_while(state, |state| state.releases == seen).unwrap();
        state.hanging -= 1;
    }

    /// Before the response is written: requests after it are no overlap.
    fn end(&self, execution_id: &str, stream: &Arc<TcpStream>) {
        let mut state = self.lock();
        if state.in_progress.get(execution_id).is_some_and(|latest| Arc::ptr_eq(latest, stream)) {
            state.in_progress.remove(execution_id);
        }
    }
}

/// Returns whether the client still has the connection open. The thread of the connection does not read during the
/// check.
fn is_open(stream: &TcpStream) -> bool {
    let set_timeout = |time| stream.set_read_timeout(time).is_ok();
    if !set_timeout(Some(Duration::from_millis(1))) {
        return false;
    }
    let peeked = stream.peek(&mut [0]);
    let timed_out = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
    };
    set_timeout(None) && peeked.map_or_else(|error| timed_out(&error), |bytes| bytes > 0)
}

#[test]
fn overlapping_requests_of_one_execution_are_detected() {
    let receiver = Receiver::with(Reaction::Hang);
    let send = |id: &str| {
        let mut stream = TcpStream::connect(receiver.addr).unwrap();
        let request = format!(
            "POST /hook HTTP/1.1\r\nX-CueAPI-Execution-Id: {id}\r\nContent-Length: 0\r\n\r\n"
        );
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

/// The reaction to a request.
#[derive(Clone)]
pub enum Reaction {
    /// This status without a body.
    Status(u16),
    /// This status, these headers and this body.
    Full(u16, Vec<(&'static str, String)>, String),
    /// 200, after [`release`](crate::support::receiver::Receiver::release).
    Hang,
    /// The end of the connection in the first line of the response.
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
            stream.write_all(
                format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").as_bytes(),
            )?;
        }
        Reaction::Full(status, headers, body) => {
            let headers: String =
                headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let length = body.len();
            let response =
                format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {length}\r\n\r\n{body}");
            stream.write_all(response.as_bytes())?;
        }
        Reaction::Hang => stream.write_all(b"HTTP/1.1 200 X\r\nContent-Length: 0\r\n\r\n")?,
        Reaction::Bytes(bytes) => stream.write_all(bytes)?,
        Reaction::HangUp => {
            stream.write_all(b"HTTP/1.1 ")?;
            return Ok(false);
        }
        Reaction::Choose(_) => return Ok(false),
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
