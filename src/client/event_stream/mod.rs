//! The live events of a server, for as long as they are wanted (contract §8.13). A lost connection is made again, and goes
//! on after the last event.

mod back_off;
pub mod blocks;

use std::time::Duration;

use serde_json::Value;
use ureq::BodyReader;

use crate::client::Client;
use crate::client::error::ClientError;
use crate::client::event_stream::back_off::{
    MAX_PAUSE, is_final, is_rate_limited, jitter, pause, retry_after,
};
use crate::client::event_stream::blocks::{Block, Blocks};
use crate::client::request::ApiRequest;
use crate::client::retry::{Failure, pause_before_retry};

/// The time without a byte after which a stream counts as lost: two beats of the server and a little.
const SILENCE: Duration = Duration::from_secs(40);

/// The pause before the first new connection, until the server names its own, and the bounds of that.
const RETRY: Duration = Duration::from_secs(2);
const MIN_RETRY: Duration = Duration::from_millis(100);

/// A stream of events without an end.
pub struct EventStream<'a> {
    client: &'a Client,
    request: ApiRequest,
    silence: Duration,
    /// On the monotonic clock of the client.
    deadline: Option<Duration>,
    /// `None` while there is no connection.
    blocks: Option<Blocks<BodyReader<'static>>>,
    position: Option<String>,
    retry: Duration,
    /// Since the last `hello`.
    failures: u32,
    retry_after: Option<Duration>,
    lost_at: Option<Duration>,
}

/// An item of a stream.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamItem {
    /// A connection stands. `lost_for` is how long there was none; `None` for the first.
    Hello {
        hello: Value,
        lost_for: Option<Duration>,
    },
    Event(StreamEvent),
    /// Events were missed, for this reason: what they would tell must be read from lists.
    Reset(String),
    /// The connection is lost, for this reason. It is made again.
    Lost(String),
}

/// An event of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEvent {
    pub id: String,
    pub event: String,
    /// A JSON object.
    pub data: String,
}

/// The request of a stream. `types` are types of events or their first words, separated by commas.
#[must_use]
pub fn request(types: Option<&str>, cue_id: Option<&str>) -> ApiRequest {
    let request = ApiRequest::get("/v1/events").header("accept", "text/event-stream");
    request.maybe_query("types", types).maybe_query("cue_id", cue_id)
}

impl<'a> EventStream<'a> {
    /// Opens the stream of `request`. From here on no event is lost: those that come before the first call of
    /// [`EventStream::next_item`] wait. After `deadline`, on the clock of the client, there are no more items.
    ///
    /// # Errors
    /// If the server refuses the stream, or cannot be reached.
    pub fn open(
        client: &'a Client,
        request: ApiRequest,
        deadline: Option<Duration>,
    ) -> Result<Self, ClientError> {
        let mut stream = Self {
            client,
            request,
            silence: SILENCE,
            deadline,
            blocks: None,
            position: None,
            retry: RETRY,
            failures: 0,
            retry_after: None,
            lost_at: None,
        };
        let mut attempt = 1;
        loop {
            let Err(error) = stream.connect() else { return Ok(stream) };
            // Every other failure is told at once: somebody may wait for it.
            let failure = Failure::of(&error).filter(|_| is_rate_limited(&error));
            match failure.and_then(|failure| pause_before_retry(attempt, failure)) {
                Some(pause) => client.pause(pause),
                None => return Err(error),
            }
            attempt += 1;
        }
    }

    /// Waits for the next item; `None` after the deadline.
    ///
    /// # Errors
    /// If the server refuses the stream for good, such as after its key was revoked.
    pub fn next_item(&mut self) -> Result<Option<StreamItem>, ClientError> {
        loop {
            let Some(blocks) = &mut self.blocks else {
                if self.reconnect()? {
                    continue;
                }
                return Ok(None);
            };
            let reason = match blocks.next_block() {
                Ok(Some(block)) => match self.item(block) {
                    Some(item) => return Ok(Some(item)),
                    None => continue,
                },
                Ok(None) => "the server has ended it".to_owned(),
                Err(error) => error.to_string(),
            };
            self.blocks = None;
            if self.left().is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            if self.lost_at.is_none() {
                self.lost_at = Some(self.client.clock().monotonic());
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
        let response = self.client.open_stream(&request, self.silence)?;
        let content_type = response.headers().get("content-type").and_then(|value| value.to_str().ok());
        if !content_type.is_some_and(|value| value.starts_with("text/event-stream")) {
            return Err(ClientError::NotCued { url: self.client.connection().url.clone(), status: 200 });
        }
        self.blocks = Some(Blocks::new(response.into_body().into_reader()));
        Ok(())
    }

    /// Pauses and tries to connect again; false after the deadline.
    fn reconnect(&mut self) -> Result<bool, ClientError> {
        let pause =
            self.retry_after.take().unwrap_or_default().max(pause(self.retry, self.failures, jitter()));
        let left = self.left();
        self.client.pause(left.map_or(pause, |left| left.min(pause)));
        if left.is_some_and(|left| left <= pause) {
            return Ok(false);
        }
        match self.connect() {
            Ok(()) => Ok(true),
            Err(error) if is_final(&error) => Err(error),
            Err(error) => {
                self.failures += 1;
                self.retry_after = retry_after(&error);
                Ok(self.left().is_none_or(|left| !left.is_zero()))
            }
        }
    }

    fn item(&mut self, block: Block) -> Option<StreamItem> {
        if let Some(retry) = block.retry {
            self.retry = Duration::from_millis(retry).clamp(MIN_RETRY, MAX_PAUSE);
        }
        if block.id.is_some() {
            self.position = block.id;
        }
        let (event, data) = (block.event?, block.data.unwrap_or_default());
        let value = || serde_json::from_str::<Value>(&data).unwrap_or_default();
        match event.as_str() {
            "hello" => {
                self.failures = 0;
                let now = self.client.clock().monotonic();
                let lost_for = self.lost_at.take().map(|lost_at| now.saturating_sub(lost_at));
                Some(StreamItem::Hello { hello: value(), lost_for })
            }
            "reset" => {
                Some(StreamItem::Reset(value()["reason"].as_str().unwrap_or("unknown reason").to_owned()))
            }
            _ => {
                let id = self.position.clone().unwrap_or_default();
                Some(StreamItem::Event(StreamEvent { id, event, data }))
            }
        }
    }

    /// The time until the deadline.
    fn left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_sub(self.client.clock().monotonic()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;

    use super::*;
    use crate::client::Connection;
    use crate::client::tls::TlsOptions;

    const OPEN: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
    const HELLO: &str = "retry: 100\n\nid: a-1\nevent: hello\ndata: {\"resumed\":false}\n\n";

    type Script = Box<dyn Fn(&mut TcpStream) + Send>;

    /// A server that answers each connection by its script and closes it. Returns its client, and the `Last-Event-ID` of
    /// each request.
    fn server(scripts: Vec<Script>) -> (Client, Receiver<Option<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, requests) = channel();
        thread::spawn(move || {
            for script in scripts {
                let (mut stream, _) = listener.accept().unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let position = head.iter().find_map(|line| line.strip_prefix("last-event-id: "));
                drop(sender.send(position.map(str::to_owned)));
                script(&mut stream);
            }
        });
        let connection = Connection { url, key: None, tls: TlsOptions::default() };
        (Client::new(connection).unwrap(), requests)
    }

    fn says(text: String) -> Script {
        Box::new(move |stream| stream.write_all(text.as_bytes()).unwrap())
    }

    fn refuses(status: u16, code: &str, more: &str) -> Script {
        let body = format!(r#"{{"error":{{"code":"{code}","message":"m","status":{status}}}}}"#);
        says(format!("HTTP/1.1 {status} X\r\n{more}Content-Length: {}\r\n\r\n{body}", body.len()))
    }

    fn open(client: &Client) -> EventStream<'_> {
        EventStream::open(client, request(None, None), None).unwrap()
    }

    fn next(stream: &mut EventStream<'_>) -> StreamItem {
        stream.next_item().unwrap().unwrap()
    }

    fn is_hello(item: &StreamItem, after_loss: bool) -> bool {
        matches!(item, StreamItem::Hello { lost_for, .. } if lost_for.is_some() == after_loss)
    }

    #[test]
    fn a_lost_stream_goes_on_after_the_last_position() {
        let first =
            format!("{OPEN}{HELLO}id: a-5\nevent: e\ndata: {{}}\n\n: beat\nid: a-9\n\nid: a-10\nevent: cut");
        let second = format!("{OPEN}{HELLO}id: b-1\nevent: reset\ndata: {{\"reason\":\"restart\"}}\n\n");
        let (client, requests) = server(vec![
            says(first),
            refuses(503, "unavailable", ""),
            says(String::new()),
            refuses(429, "too_many_streams", "Retry-After: 0\r\n"),
            says("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n".to_owned()),
            says(second),
        ]);
        let mut stream = open(&client);
        assert!(is_hello(&next(&mut stream), false));
        let event = StreamEvent { id: "a-5".to_owned(), event: "e".to_owned(), data: "{}".to_owned() };
        assert_eq!(next(&mut stream), StreamItem::Event(event));
        assert!(matches!(next(&mut stream), StreamItem::Lost(_)));
        assert!(is_hello(&next(&mut stream), true));
        assert_eq!(next(&mut stream), StreamItem::Reset("restart".to_owned()));
        let positions: Vec<Option<String>> = requests.iter().collect();
        assert_eq!(positions[0], None);
        assert!(positions[1..].iter().all(|position| position.as_deref() == Some("a-9")), "{positions:?}");
    }

    #[test]
    fn a_refusal_ends_a_stream_that_was_lost() {
        let revoked = refuses(401, "invalid_api_key", "");
        let (client, _requests) = server(vec![says(format!("{OPEN}{HELLO}")), revoked]);
        let mut stream = open(&client);
        assert!(is_hello(&next(&mut stream), false));
        assert!(matches!(next(&mut stream), StreamItem::Lost(_)));
        assert_eq!(stream.next_item().unwrap_err().exit_code(), 4);
    }

    #[test]
    fn the_first_connection_is_tried_once() {
        let (client, requests) = server(vec![refuses(503, "unavailable", "")]);
        assert!(EventStream::open(&client, request(None, None), None).is_err());
        let (other, _) = server(vec![says("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned())]);
        let error = EventStream::open(&other, request(None, None), None).map(|_| ()).unwrap_err();
        assert!(matches!(error, ClientError::NotCued { status: 200, .. }), "{error}");
        assert_eq!(requests.iter().count(), 1);
    }

    #[test]
    fn beats_keep_a_stream_and_silence_ends_it() {
        const BEATS: usize = 20;
        let beats: Script = Box::new(|stream| {
            stream.write_all(format!("{OPEN}{HELLO}").as_bytes()).unwrap();
            for _ in 0..BEATS {
                thread::park_timeout(Duration::from_millis(100));
                stream.write_all(b": beat\n\n").unwrap();
            }
            stream.write_all(b"id: a-2\nevent: e\ndata: {}\n\n").unwrap();
            // Silent until the client has left.
            drop(BufReader::new(stream).read_line(&mut String::new()));
        });
        let (client, _requests) = server(vec![beats, says(format!("{OPEN}{HELLO}"))]);
        let mut stream = EventStream { silence: Duration::from_secs(1), ..open_later(&client) };
        assert!(matches!(next(&mut stream), StreamItem::Hello { .. }));
        assert!(
            matches!(next(&mut stream), StreamItem::Event(_)),
            "twice the silence has passed, with beats"
        );
        let StreamItem::Lost(reason) = next(&mut stream) else { panic!("silence") };
        assert!(reason.contains("per read"), "{reason}");
        assert!(is_hello(&next(&mut stream), true));
    }

    /// A stream that connects at its first use.
    fn open_later(client: &Client) -> EventStream<'_> {
        EventStream {
            client,
            request: request(None, None),
            silence: SILENCE,
            deadline: None,
            blocks: None,
            position: None,
            retry: MIN_RETRY,
            failures: 0,
            retry_after: None,
            lost_at: None,
        }
    }

    #[test]
    fn nothing_comes_after_the_deadline() {
        let silent: Script = Box::new(|stream| {
            stream.write_all(format!("{OPEN}{HELLO}").as_bytes()).unwrap();
            drop(BufReader::new(stream).read_line(&mut String::new()));
        });
        let (client, _requests) = server(vec![silent]);
        let deadline = client.clock().monotonic() + Duration::from_millis(200);
        let mut stream = EventStream::open(&client, request(None, None), Some(deadline)).unwrap();
        assert!(is_hello(&next(&mut stream), false));
        assert_eq!(stream.next_item().unwrap(), None);
        let (client, _requests) = server(vec![says(format!("{OPEN}{HELLO}"))]);
        let deadline = client.clock().monotonic() + Duration::from_millis(300);
        let mut stream = EventStream::open(&client, request(None, None), Some(deadline)).unwrap();
        while stream.next_item().unwrap().is_some() {}
    }
}
