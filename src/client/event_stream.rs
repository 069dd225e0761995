//! Follows the live events of a server; reconnects and resumes after the last event (contract §8.13).

use std::io::{self, BufRead as _, BufReader};
use std::time::Duration;

use serde_json::Value;
use ureq::BodyReader;
use uuid::Uuid;

use crate::client::Client;
use crate::client::request::{ApiRequest, ClientError};

/// The time without a byte after which a stream counts as lost: two keep-alive intervals of the server and a little.
const STREAM_TIMEOUT: Duration = Duration::from_secs(40);

/// The pause before the first new connection until the server names its own, and the bounds of the pauses: a server
/// that is back is noticed within the longest, unless it asks for a longer one.
const RETRY: Duration = Duration::from_secs(2);
const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(30);
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// A stream of events without an end.
pub struct EventStream<'a> {
    client: &'a Client,
    request: ApiRequest,
    /// On the monotonic clock of the client.
    deadline: Option<Duration>,
    /// `None` while there is no connection.
    reader: Option<BufReader<BodyReader<'static>>>,
    position: Option<String>,
    retry: Duration,
    /// Since the last `hello`.
    failures: u32,
    retry_after: Option<Duration>,
    is_lost: bool,
}

/// An item of a stream.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamItem {
    /// A connection stands: the first, or one after a loss.
    Hello { hello: Value, is_again: bool },
    /// An event. After a `reset` some are missing: what they would show must be read from lists.
    Event(StreamEvent),
    /// The connection is lost, for this reason. It is made again.
    Lost(String),
}

/// An event of the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamEvent {
    pub id: String,
    pub event: String,
    /// A JSON object.
    pub data: String,
}

/// The request of a stream. `types` are types of events or their first words, separated by commas.
pub fn request(types: Option<&str>, cue_id: Option<&str>) -> ApiRequest {
    let request = ApiRequest::get("/v1/events").header("accept", "text/event-stream");
    let request = ApiRequest { read_timeout: Some(STREAM_TIMEOUT), ..request };
    request.maybe_query("types", types).maybe_query("cue_id", cue_id)
}

impl<'a> EventStream<'a> {
    /// Opens the stream of `request`. From here on no event is lost: those that come before the first call of
    /// [`EventStream::next_item`] wait. After `deadline`, on the clock of the client, there are no more items.
    pub fn open(
        client: &'a Client,
        request: ApiRequest,
        deadline: Option<Duration>,
    ) -> Result<Self, ClientError> {
        let mut stream = Self::closed(client, request, deadline);
        let mut attempt = 1;
        while let Err(error) = stream.connect() {
            // Other errors are returned at once, for a person who waits.
            let is_rate_limited = error.status() == Some(429) && error.code() != "too_many_streams";
            let pause = error.pause_before_retry(attempt).filter(|_| is_rate_limited);
            client.pause(pause.ok_or(error)?);
            attempt += 1;
        }
        Ok(stream)
    }

    fn closed(client: &'a Client, request: ApiRequest, deadline: Option<Duration>) -> Self {
        Self {
            client,
            request,
            deadline,
            reader: None,
            position: None,
            retry: RETRY,
            failures: 0,
            retry_after: None,
            is_lost: false,
        }
    }

    /// Waits for the next item; `None` after the deadline.
    /// Errors: if the server refuses the stream for good, such as after its key was revoked.
    pub fn next_item(&mut self) -> Result<Option<StreamItem>, ClientError> {
        loop {
            if self.reader.is_none() && !self.reconnect()? {
                return Ok(None);
            }
            let reason = match self.next_event() {
                Ok(Some(event)) => return Ok(Some(self.item(event))),
                Ok(None) if self.reader.is_none() => continue,
                Ok(None) => "the server has ended it".to_owned(),
                Err(error) => error.to_string(),
            };
            self.reader = None;
            if self.left().is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            if !std::mem::replace(&mut self.is_lost, true) {
                return Ok(Some(StreamItem::Lost(reason)));
            }
            self.failures += 1;
        }
    }

    fn connect(&mut self) -> Result<(), ClientError> {
        let mut request = self.request.clone();
        if let Some(position) = &self.position {
            request = request.header("last-event-id", position.as_str());
        }
        request.timeout = self.left();
        let response = self.client.open_stream(&request)?;
        let content_type =
            response.headers().get("content-type").and_then(|value| value.to_str().ok());
        if !content_type.is_some_and(|value| value.starts_with("text/event-stream")) {
            return Err(ClientError::NotCued {
                url: self.client.connection().url.clone(),
                status: 200,
            });
        }
        self.reader = Some(BufReader::new(response.into_body().into_reader()));
        Ok(())
    }

    /// Pauses and tries to connect; false after the deadline. Without a connection it is tried again.
    fn reconnect(&mut self) -> Result<bool, ClientError> {
        let pause =
            pause(self.retry, self.failures).max(self.retry_after.take().unwrap_or_default());
        let left = self.left();
        self.client.pause(left.map_or(pause, |left| left.min(pause)));
        if left.is_some_and(|left| left <= pause) {
            return Ok(false);
        }
        if let Err(error) = self.connect() {
            let is_refused = matches!(error, ClientError::Refused(_));
            // The same request would be refused for ever.
            if is_refused
                && matches!(error.status(), Some(400..=407 | 409..=424 | 426..=428 | 430..=499))
            {
                return Err(error);
            }
            self.retry_after = error.retry_after().map(|pause| pause.min(MAX_RETRY_AFTER));
            self.failures += 1;
        }
        Ok(self.left().is_none_or(|left| !left.is_zero()))
    }

    /// Reads the next event; `None` at the end of the stream. One that is cut off does not count.
    fn next_event(&mut self) -> io::Result<Option<StreamEvent>> {
        let Some(reader) = &mut self.reader else { return Ok(None) };
        let mut next = StreamEvent::default();
        loop {
            let mut bytes = Vec::new();
            reader.read_until(b'\n', &mut bytes)?;
            if bytes.pop() != Some(b'\n') {
                return Ok(None);
            }
            let line = String::from_utf8_lossy(&bytes);
            let line = line.trim_end_matches('\r');
            if line.is_empty() {
                // A position counts also without an event.
                if !next.id.is_empty() {
                    self.position = Some(std::mem::take(&mut next.id));
                }
                if !next.event.is_empty() {
                    next.id = self.position.clone().unwrap_or_default();
                    return Ok(Some(next));
                }
            }
            // A comment has an empty name.
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match name {
                "id" => next.id = value.to_owned(),
                "event" => next.event = value.to_owned(),
                "data" => next.data.push_str(value),
                "retry" => {
                    let millis = value.parse().map(Duration::from_millis).unwrap_or(RETRY);
                    self.retry = millis.clamp(MIN_PAUSE, MAX_PAUSE);
                }
                _ => {}
            }
        }
    }

    fn item(&mut self, event: StreamEvent) -> StreamItem {
        if event.event != "hello" {
            return StreamItem::Event(event);
        }
        self.failures = 0;
        let is_again = std::mem::take(&mut self.is_lost);
        StreamItem::Hello { hello: serde_json::from_str(&event.data).unwrap_or_default(), is_again }
    }

    /// The time until the deadline.
    fn left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_sub(self.client.clock().monotonic()))
    }
}

/// The pause before a new connection. Half of it is by chance, so that the clients of a server that was restarted come
/// one after the other.
fn pause(retry: Duration, failures: u32) -> Duration {
    let full = retry.saturating_mul(2_u32.saturating_pow(failures.min(16))).min(MAX_PAUSE);
    full.mul_f64(0.5 + f64::from(Uuid::new_v4().as_bytes()[0]) / 510.0)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;
    use std::thread;

    use crate::client::{Connection, TlsOptions};

    use super::*;

    const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n\
                         retry: 100\n\nid: a-1\nevent: hello\ndata: {\"resumed\":false}\n\n";

    /// A client of a server that greets each connection, and then closes it or falls silent.
    fn client(connections: Vec<bool>) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            for is_silent in connections {
                let mut stream = BufReader::new(listener.accept().unwrap().0);
                drop(stream.get_mut().write_all(HELLO.as_bytes()));
                let mut head = String::new();
                while is_silent && stream.read_line(&mut head).is_ok_and(|count| count > 0) {}
            }
        });
        Client::new(Connection { url, key: None, tls: TlsOptions::default() }).unwrap()
    }

    #[test]
    fn a_silent_server_loses_the_stream() {
        let client = client(vec![true, false]);
        let read_timeout = Some(Duration::from_millis(300));
        let request = ApiRequest { read_timeout, ..request(None, None) };
        let mut stream = EventStream::closed(&client, request, None);
        let mut next = || stream.next_item().unwrap().unwrap();
        assert!(matches!(next(), StreamItem::Hello { is_again: false, .. }));
        assert!(matches!(next(), StreamItem::Lost(text) if text.contains("per read")));
        assert!(matches!(next(), StreamItem::Hello { is_again: true, .. }));
    }

    #[test]
    fn pauses_double_up_to_half_a_minute_and_nothing_comes_after_the_deadline() {
        for (failures, seconds) in [(0, 2.0), (1, 4.0), (3, 16.0), (4, 30.0), (99, 30.0)] {
            let pause = pause(Duration::from_secs(2), failures).as_secs_f64();
            assert!(pause >= seconds / 2.0 && pause <= seconds, "{pause}");
        }
        for is_silent in [true, false] {
            let client = client(vec![is_silent]);
            let deadline = client.clock().monotonic() + Duration::from_secs(1);
            let mut stream =
                EventStream::open(&client, request(None, None), Some(deadline)).unwrap();
            while stream.next_item().unwrap().is_some() {}
        }
    }
}
