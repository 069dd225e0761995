//! `/v1/events`: what changes in an account, as server-sent events (contract §8.13).

use std::sync::Arc;

use hyper::body::Bytes;
use hyper::header::{CACHE_CONTROL, HeaderName, HeaderValue};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;

use crate::app::App;
use crate::domain::account::rate_limit::rate_limit_address;
use crate::domain::account::user::Credential;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::notification::event::{Event, EventFilter, EventType, ServerChange};
use crate::domain::time::instant;
use crate::error::{Error, Result};
use crate::events::{
    EventId, EventStream, MAX_STREAMS_PER_USER, ResetReason, StreamStart, TooManyStreams,
};
use crate::http::assets;
use crate::http::message::{BodyStream, Request, Response};
use crate::http::middleware::session::is_valid;
use crate::service::cues::not_found;
use crate::store::cues;
use crate::store::db::meta;
use tokio::time::timeout_at;

const LAST_EVENT_ID: &str = "Last-Event-ID";
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The time in milliseconds after which a browser connects again.
const RETRY: u32 = 2_000;

/// Seconds for `Retry-After`: after a connection is lost without a close, the stream keeps its place for one or two
/// keep-alive intervals.
const RETRY_AFTER: u32 = 10;

/// Memory that a stream reserves beside that of its connection: its state, and two parts that wait to be written.
const STREAM_COST: usize = 8 << 10;

/// `GET /v1/events?types&cue_id&tag&last_event_id`.
pub async fn stream(request: Request) -> Result<Response> {
    let caller = request.caller()?;
    if request.app.config.http.max_streams == 0 {
        let message =
            "Event streams are turned off on this server (--max-streams 0); read the lists instead";
        return Err(Error::refused(ErrorCode::NotFound, message));
    }
    let (filter, after) = (filter(&request)?, last_event_id(&request)?);
    if let Some(id) = request.query().raw("cue_id").map(str::to_owned) {
        let found = request.read_own(move |read, user_key| cues::find_key(read, user_key, &id));
        found.await?.ok_or_else(not_found)?;
    }
    request.reserve_response(STREAM_COST)?;
    let place = request.begin_waiting()?;
    let held = request.app.store.read_inline(meta::is_held).await?;
    let address = rate_limit_address(request.client_ip);
    let begun = request.app.events.subscribe(caller.user_key, address, after.as_ref());
    let (events, start) = begun.map_err(too_many)?;
    // A client that reads a list after `hello` finds each change in the list or in the stream: writes that began before
    // the user's events were recorded have no event, and this empty write waits for them. If it fails, they have ended too,
    // so that the stream can begin.
    drop(request.app.store.write_for(caller.user_key, |_| Ok(())).await);
    let greeting = greeting(&request, &events, start, held);
    let beat_interval = request.app.config.http.beat_interval;
    let live = LiveStream {
        app: request.app,
        sent: events.id(),
        events,
        filter,
        credential: caller.credential,
        stopping: request.stopping,
        next_beat: Instant::now() + beat_interval,
        greeting: Some(greeting),
        is_over: false,
        _place: place,
    };
    Ok(Response::stream("text/event-stream", next(live))
        .with(CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform"))
        .with(X_ACCEL_BUFFERING, HeaderValue::from_static("no")))
}

fn filter(request: &Request) -> Result<EventFilter> {
    let query = request.query();
    let cue_id = query.cue_id();
    let filter = EventFilter::new(query.raw("types"), cue_id).map_err(|word| {
        let mut known: Vec<&str> = EventType::WORDS.to_vec();
        for group in EventType::ALL.map(EventType::group) {
            if !known.contains(&group) {
                known.push(group);
            }
        }
        let reason = format!("{word:?} is no type of event; known are {}", known.join(", "));
        query.reject("types", &reason);
    });
    let tags = query.tags();
    query.finish()?;
    Ok(filter.unwrap_or_default().with_tags(tags))
}

/// The id after which the stream begins. The header counts before the query: a browser that connects again repeats the
/// query of the first time.
fn last_event_id(request: &Request) -> Result<Option<EventId>> {
    let header = request.headers.get(LAST_EVENT_ID).map(|value| value.to_str().unwrap_or("?"));
    let of_header = read_event_id(["header", LAST_EVENT_ID], header)?;
    let of_query = read_event_id(["query", "last_event_id"], request.query().raw("last_event_id"))?;
    Ok(of_header.or(of_query))
}

/// An id from `loc`; `None` if it is absent or empty.
fn read_event_id(loc: [&'static str; 2], text: Option<&str>) -> Result<Option<EventId>> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let id = EventId::parse(text).ok_or_else(|| {
        let reason = "must be the text after `id: ` in a stream, such as 5f3a9c-1842; leave it out to begin with new \
                      events";
        // Not repeated in full: it can be very long.
        Refusal::invalid_value(loc, reason, text.chars().take(64).collect::<String>())
    })?;
    Ok(Some(id))
}

fn too_many(reason: TooManyStreams) -> Error {
    let message = match reason {
        TooManyStreams::OfUser => format!(
            "The account has {MAX_STREAMS_PER_USER} event streams open, the most at a time; end one of them, or share it"
        ),
        TooManyStreams::OfServer(limit) => {
            format!(
                "The server has {limit} event streams open, the most at a time; try again in {RETRY_AFTER} s"
            )
        }
    };
    Refusal::new(ErrorCode::TooManyStreams, message).retry_after(RETRY_AFTER).into()
}

fn greeting(request: &Request, events: &EventStream, start: StreamStart, held: bool) -> String {
    let hello = json!({
        "time": instant(request.now),
        "build": assets::BUILD,
        "version": env!("CARGO_PKG_VERSION"),
        "test_clock": request.app.clock.is_test(),
        "held": held,
        "resumed": start == StreamStart::Resumed,
    });
    let mut text = format!("retry: {RETRY}\n\n");
    append(&mut text, &events.id(), "hello", &hello.to_string());
    if let StreamStart::Reset(reason) = start {
        append_reset(&mut text, &events.id(), reason);
    }
    text
}

struct LiveStream {
    app: Arc<App>,
    events: EventStream,
    filter: EventFilter,
    /// The key or session of its request, which may be revoked while the stream runs.
    credential: Credential,
    stopping: watch::Receiver<bool>,
    next_beat: Instant,
    greeting: Option<String>,
    /// The id that the client has.
    sent: String,
    is_over: bool,
    _place: Option<OwnedSemaphorePermit>,
}

impl LiveStream {
    /// The next text; `None` at the end.
    async fn next_text(&mut self) -> Option<String> {
        if let Some(greeting) = self.greeting.take() {
            return Some(greeting);
        }
        loop {
            if self.is_over || self.events.has_ended() {
                return None;
            }
            // Before the events: also a stream that always has some ends when its key is revoked.
            if self.next_beat <= Instant::now() {
                return self.keepalive().await;
            }
            if let Some(text) = self.next_events() {
                // Nothing is sent after a revocation, also before the next keep-alive (contract §8.13).
                return self.may_go_on().await.then_some(text);
            }
            let is_stopping = tokio::select! {
                _ = timeout_at(self.next_beat, self.events.changes().changed()) => false,
                // An error means that the server has ended.
                _ = self.stopping.wait_for(|stopping| *stopping) => true,
            };
            if is_stopping {
                return self.next_events().or_else(|| Some(self.closing_event()));
            }
        }
    }

    /// The events that wait, a few KB of them.
    fn next_events(&mut self) -> Option<String> {
        let mut text = String::new();
        match self.events.take(&self.filter) {
            Ok(taken) => {
                for event in taken {
                    append(&mut text, &event.id, event.event_type.as_str(), &event.data);
                    self.sent = event.id;
                }
            }
            Err(reason) => {
                self.sent = self.events.id();
                append_reset(&mut text, &self.sent, reason);
            }
        }
        (!text.is_empty()).then_some(text)
    }

    /// A comment that keeps the connection open; `None` if the key or session is no longer valid. If events of others
    /// or filtered ones have passed, the client gets the new position, so that it can resume after it.
    async fn keepalive(&mut self) -> Option<String> {
        if !self.may_go_on().await {
            return None;
        }
        self.next_beat = Instant::now() + self.app.config.http.beat_interval;
        let id = self.events.id();
        if id == self.sent {
            return Some(": beat\n\n".to_owned());
        }
        let text = format!(": beat\nid: {id}\n\n");
        self.sent = id;
        Some(text)
    }

    /// Returns whether the key or session is still valid. One that cannot be checked is: the next text checks again.
    async fn may_go_on(&self) -> bool {
        let valid = is_valid(&self.app, &self.credential, self.app.clock.now()).await;
        valid.unwrap_or_else(|error| {
            tracing::warn!(%error, "the key or session of an event stream cannot be checked");
            true
        })
    }

    fn closing_event(&mut self) -> String {
        self.is_over = true;
        let mut text = String::new();
        let event = Event::server(ServerChange::Stopping, self.app.clock.now());
        append(&mut text, &self.sent, event.event_type.as_str(), &event.data);
        text
    }
}

/// The body from the next text of `live` on.
fn next(mut live: LiveStream) -> BodyStream {
    BodyStream::new(async move {
        let text = live.next_text().await?;
        Some((Bytes::from(text), next(live)))
    })
}

fn append_reset(text: &mut String, id: &str, reason: ResetReason) {
    append(text, id, "reset", &json!({"reason": reason.as_str()}).to_string());
}

/// Adds an event. `data` is one line.
fn append(text: &mut String, id: &str, event: &str, data: &str) {
    for part in ["id: ", id, "\nevent: ", event, "\ndata: ", data, "\n\n"] {
        text.push_str(part);
    }
}
