//! Live events in memory: those of the last moments, and the streams that read them (contract §8.13).
//!
//! A commit puts its events into one ring that all streams share; a stream is a position in it. So a slow stream costs
//! nothing, and the writer thread waits for no reader. Only users with a stream, and those who had one a minute ago,
//! have their events recorded.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::domain::notification::event::{
    Event, EventFilter, EventSink, EventType, MAX_SINGLE_PER_COMMIT, PendingEvent, burst_data,
};
use crate::domain::row_keys::UserKey;
use crate::domain::text::{hex, word_enum};
use crate::error::Result;
use crate::metrics::{Counter, Stopwatch};
use crate::system::locks::Mutex;
use crate::system::random;

/// Streams of one user: two devices with a page and a terminal each.
pub const MAX_STREAMS_PER_USER: usize = 5;

/// Events in the ring: at the usual few a second, a client may be away for many minutes.
const MAX_EVENTS: usize = 4_096;

/// Bytes of events in the ring. An event has about 500, and a long error message makes it 2,000.
const MAX_BYTES: usize = 4 << 20;

/// Bytes of an event beside its data.
const EVENT_COST: usize = 160;

/// Events and bytes of them that a stream takes at a time. They bound its memory.
const MAX_TAKEN: usize = 32;
const MAX_TAKEN_BYTES: usize = 4 << 10;

/// Time for which events of a user are recorded after the end of the last stream: a client that lost its connection
/// resumes without a gap.
const KEPT_AFTER_LAST: Duration = Duration::from_secs(60);

pub struct Events {
    boot: String,
    is_watched: AtomicBool,
    state: Mutex<State>,
    /// The number of the last event. Its change wakes the streams.
    last: watch::Sender<u64>,
    clock: Stopwatch,
    max_streams: usize,
    recorded: Counter,
}

#[derive(Default)]
struct State {
    /// The newest events of all followed users, oldest first, with their numbers, which grow, and the user; `None` is
    /// an event of the server, which all users get.
    ring: VecDeque<(u64, Option<UserKey>, EventBody)>,
    bytes: usize,
    /// The number of the last event, and of the last one that was dropped.
    last: u64,
    dropped: u64,
    users: BTreeMap<UserKey, Subscriber>,
    /// The user and the address of each stream, by its number; the newest is the last.
    streams: BTreeMap<u64, (UserKey, IpAddr)>,
    last_stream: u64,
}

enum EventBody {
    Single(Event),
    /// Events of one commit that were too many to be kept one by one.
    Burst(BTreeMap<EventType, u64>),
}

struct Subscriber {
    streams: usize,
    /// The number of the last event before the recording began.
    since: u64,
    /// The end of the last stream.
    left_at: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEvent {
    pub id: String,
    pub event_type: EventType,
    /// A JSON object in one line.
    pub data: String,
}

/// A position in the event ring of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventId {
    boot: String,
    number: u64,
}

impl EventId {
    /// Reads an id as a stream sends it, such as `5f3a9c-1842`.
    pub fn parse(text: &str) -> Option<Self> {
        let (boot, number) = text.split_once('-')?;
        let is_boot =
            boot.len() == 6 && boot.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_id = is_boot && number.bytes().all(|byte| byte.is_ascii_digit());
        is_id.then_some(())?;
        Some(Self { boot: boot.to_owned(), number: number.parse().ok()? })
    }
}

word_enum! {
    /// Why a client must reload.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ResetReason {
        /// The id belongs to an earlier start of the program.
        Restart = "restart",
        /// Events after the id are no longer kept, or were not recorded.
        Gap = "gap",
        /// The stream was too slow.
        Lagged = "lagged",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamStart {
    Now,
    Resumed,
    /// At the newest event, because the id is of no use.
    Reset(ResetReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooManyStreams {
    OfUser,
    OfServer(usize),
}

impl Events {
    /// No event is recorded before the first stream begins. At most `max_streams` are open at a time.
    /// Errors: the operating system returns no random bytes.
    pub fn new(max_streams: usize) -> Result<Self> {
        Ok(Self {
            boot: hex::encode(&random::bytes::<3>()?),
            is_watched: AtomicBool::new(false),
            state: Mutex::default(),
            last: watch::Sender::new(0),
            clock: Stopwatch::start(),
            max_streams,
            recorded: Counter::default(),
        })
    }

    pub fn streams(&self) -> usize {
        self.state.lock().streams.len()
    }

    pub fn recorded(&self) -> u64 {
        self.recorded.get()
    }

    /// Begins a stream of a user at `address`, after `after` if that is possible. Where the server has the most
    /// streams, one that gives way ends.
    /// Errors: the user has the most streams already, or the server has and none gives way.
    pub fn subscribe(
        self: &Arc<Self>,
        user_key: UserKey,
        address: IpAddr,
        after: Option<&EventId>,
    ) -> std::result::Result<(EventStream, StreamStart), TooManyStreams> {
        let now = self.clock.elapsed();
        let mut state = self.state.lock();
        state.drop_inactive(now);
        if state.users.get(&user_key).is_some_and(|user| user.streams >= MAX_STREAMS_PER_USER) {
            return Err(TooManyStreams::OfUser);
        }
        if state.streams.len() >= self.max_streams {
            let ends = state.stream_to_end(user_key, address);
            state.end(ends.ok_or(TooManyStreams::OfServer(self.max_streams))?, now);
            // Wakes it.
            self.last.send_replace(state.last);
        }
        state.last_stream += 1;
        let number = state.last_stream;
        state.streams.insert(number, (user_key, address));
        if !state.users.contains_key(&user_key) {
            // A number of its own: an id of an earlier recording must not seem to be one of this.
            state.last += 1;
        }
        let (present, dropped) = (state.last, state.dropped);
        let new = Subscriber { streams: 0, since: present, left_at: now };
        let user = state.users.entry(user_key).or_insert(new);
        user.streams += 1;
        let since = user.since;
        let (position, start) = match after {
            None => (present, StreamStart::Now),
            Some(id) if id.boot != self.boot => (present, StreamStart::Reset(ResetReason::Restart)),
            Some(id) if (since.max(dropped)..=present).contains(&id.number) => {
                (id.number, StreamStart::Resumed)
            }
            Some(_) => (present, StreamStart::Reset(ResetReason::Gap)),
        };
        self.is_watched.store(true, Ordering::SeqCst);
        let changed = self.last.subscribe();
        Ok((EventStream { events: Arc::clone(self), number, user_key, position, changed }, start))
    }

    /// Ends all streams and forgets all events.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        state.streams.clear();
        state.users.clear();
        state.drop_inactive(self.clock.elapsed());
        // Wakes the streams, which then end.
        self.last.send_replace(state.last);
    }

    pub fn publish_server(&self, event: Event) {
        if self.is_watched() {
            self.publish(vec![PendingEvent::Event(event)]);
        }
    }
}

impl EventSink for Events {
    fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    fn is_watched_by(&self, user_key: UserKey) -> bool {
        let now = self.clock.elapsed();
        let mut state = self.state.lock();
        if state.drop_inactive(now) {
            self.is_watched.store(false, Ordering::SeqCst);
        }
        state.users.contains_key(&user_key)
    }

    fn publish(&self, events: Vec<PendingEvent>) {
        let mut state = self.state.lock();
        let before = state.last;
        state.record(events);
        let last = state.last;
        drop(state);
        if last > before {
            self.recorded.add(last - before);
            self.last.send_replace(last);
        }
    }
}

impl State {
    /// Records the events of one commit: of each user a few single ones, and the number of the others.
    fn record(&mut self, events: Vec<PendingEvent>) {
        let mut of_commit = BTreeMap::<UserKey, (u32, BTreeMap<EventType, u64>)>::new();
        for emitted in events {
            let (user_key, event_type, event) = match emitted {
                PendingEvent::Counted { user_key, event_type } => {
                    (Some(user_key), event_type, None)
                }
                PendingEvent::Event(event) => (event.user_key, event.event_type, Some(event)),
            };
            let Some(user_key) = user_key else {
                event.into_iter().for_each(|event| self.push(None, EventBody::Single(event)));
                continue;
            };
            if !self.users.contains_key(&user_key) {
                continue;
            }
            let (singles, counts) = of_commit.entry(user_key).or_default();
            *singles += 1;
            match event.filter(|_| *singles <= MAX_SINGLE_PER_COMMIT) {
                Some(event) => self.push(Some(user_key), EventBody::Single(event)),
                None => *counts.entry(event_type).or_default() += 1,
            }
        }
        for (user_key, (_, counts)) in of_commit {
            if !counts.is_empty() {
                self.push(Some(user_key), EventBody::Burst(counts));
            }
        }
    }

    fn push(&mut self, user_key: Option<UserKey>, body: EventBody) {
        self.last += 1;
        self.bytes += body.bytes();
        self.ring.push_back((self.last, user_key, body));
        while self.ring.len() > MAX_EVENTS || self.bytes > MAX_BYTES {
            let Some((number, _, oldest)) = self.ring.pop_front() else { break };
            self.bytes -= oldest.bytes();
            self.dropped = number;
        }
    }

    /// Drops users without a recent stream. Returns true if none is left.
    fn drop_inactive(&mut self, now: Duration) -> bool {
        self.users.retain(|_, user| user.streams > 0 || now < user.left_at + KEPT_AFTER_LAST);
        if self.users.is_empty() {
            (self.ring, self.bytes, self.dropped) = (VecDeque::new(), 0, self.last);
        }
        self.users.is_empty()
    }

    /// Removes a stream, unless it has given way before.
    fn end(&mut self, number: u64, now: Duration) {
        let ended = self.streams.remove(&number);
        if let Some(user) = ended.and_then(|(user_key, _)| self.users.get_mut(&user_key)) {
            user.streams = user.streams.saturating_sub(1);
            user.left_at = now;
        }
    }

    /// The stream that gives way to one of `user_key` at `address`: the newest of the user, or else of the address,
    /// that has most. Only to a user or an address without a stream, and only one of several.
    fn stream_to_end(&self, user_key: UserKey, address: IpAddr) -> Option<u64> {
        let count_user = |user| self.streams.values().filter(|stream| stream.0 == user).count();
        let count_address =
            |address| self.streams.values().filter(|stream| stream.1 == address).count();
        let (is_new_user, is_new_address) =
            (count_user(user_key) == 0, count_address(address) == 0);
        let ranks = self
            .streams
            .iter()
            .map(|(number, it)| (count_user(it.0), count_address(it.1), *number));
        let may_end = |(of_user, of_address, _): &(usize, usize, u64)| {
            (is_new_user && *of_user > 1) || (is_new_address && *of_address > 1)
        };
        ranks.filter(may_end).max().map(|(.., number)| number)
    }
}

impl EventBody {
    /// The type and the data of what `filter` admits. A burst may have events of any cue.
    fn admitted(&self, filter: &EventFilter) -> Option<(EventType, String)> {
        match self {
            Self::Single(event) => {
                filter.admits(event).then(|| (event.event_type, event.data.clone().into_string()))
            }
            Self::Burst(counts) => {
                let all = filter.has_type(EventType::Burst);
                let mut counts = counts.clone();
                counts.retain(|event_type, _| all || filter.has_type(*event_type));
                (!counts.is_empty()).then(|| (EventType::Burst, burst_data(0, &counts)))
            }
        }
    }

    fn bytes(&self) -> usize {
        EVENT_COST
            + match self {
                Self::Single(event) => {
                    event.data.len()
                        + event.cue_id.as_ref().map_or(0, String::len)
                        + event.tags.bytes()
                }
                Self::Burst(counts) => counts.len() * 2 * size_of::<u64>(),
            }
    }
}

/// The place of one stream in the events. Dropping it makes room for another.
pub struct EventStream {
    events: Arc<Events>,
    number: u64,
    user_key: UserKey,
    position: u64,
    changed: watch::Receiver<u64>,
}

impl EventStream {
    pub fn id(&self) -> String {
        format!("{}-{}", self.events.boot, self.position)
    }

    /// Returns whether the stream has given way to another.
    pub fn has_ended(&self) -> bool {
        !self.events.state.lock().streams.contains_key(&self.number)
    }

    /// The next events of the user that `filter` admits, a few at a time; empty at the end of the ring. A stream that
    /// is too slow is moved to the newest event.
    /// Errors: events after its position are no longer in the ring.
    pub fn take(
        &mut self,
        filter: &EventFilter,
    ) -> std::result::Result<Vec<StreamEvent>, ResetReason> {
        // Before the look, so that an event in between wakes the stream.
        self.changed.borrow_and_update();
        let state = self.events.state.lock();
        if self.position < state.dropped {
            self.position = state.last;
            return Err(ResetReason::Lagged);
        }
        let (mut taken, mut bytes) = (Vec::new(), 0);
        let from = state.ring.partition_point(|(number, ..)| *number <= self.position);
        for (number, user_key, body) in state.ring.range(from..) {
            let is_own = user_key.is_none_or(|user_key| user_key == self.user_key);
            if is_own && let Some((event_type, data)) = body.admitted(filter) {
                if taken.len() == MAX_TAKEN || bytes > MAX_TAKEN_BYTES {
                    return Ok(taken);
                }
                bytes += data.len() + EVENT_COST;
                let id = format!("{}-{number}", self.events.boot);
                taken.push(StreamEvent { id, event_type, data });
            }
            self.position = *number;
        }
        Ok(taken)
    }

    pub fn changes(&mut self) -> &mut watch::Receiver<u64> {
        &mut self.changed
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        let now = self.events.clock.elapsed();
        self.events.state.lock().end(self.number, now);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use serde_json::json;

    use super::*;

    const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const ADA: UserKey = UserKey::new(1);
    const EVE: UserKey = UserKey::new(2);

    fn events() -> Arc<Events> {
        Arc::new(Events::new(64).unwrap())
    }

    fn single(number: usize) -> Event {
        Event::new(EventType::CueUpdated, ADA, None, &json!({"n": number}))
    }

    /// Publishes one commit for each number, of events that all users get.
    fn publish(events: &Events, numbers: impl IntoIterator<Item = usize>) {
        for number in numbers {
            let event = Event { user_key: None, ..single(number) };
            events.publish(vec![PendingEvent::Event(event)]);
        }
    }

    /// A commit with so many events of the user, and one that is only counted.
    fn commit(count: usize) -> Vec<PendingEvent> {
        let mut commit: Vec<_> = (0..count).map(|it| PendingEvent::Event(single(it))).collect();
        commit.push(PendingEvent::Counted { user_key: ADA, event_type: EventType::CuePaused });
        commit
    }

    /// All that waits in a stream, as the texts of its data.
    fn drain(stream: &mut EventStream) -> Vec<String> {
        let takes = std::iter::repeat_with(|| stream.take(&EventFilter::default()).unwrap());
        takes.take_while(|taken| !taken.is_empty()).flatten().map(|event| event.data).collect()
    }

    fn numbers(range: impl IntoIterator<Item = usize>) -> Vec<String> {
        range.into_iter().map(|number| json!({ "n": number }).to_string()).collect()
    }

    #[test]
    fn nothing_is_recorded_before_the_first_stream() {
        let events = events();
        assert!(!events.is_watched());
        events.publish(vec![PendingEvent::Event(single(1))]);
        let (mut stream, start) = events.subscribe(ADA, HOME, None).unwrap();
        assert_eq!((start, drain(&mut stream)), (StreamStart::Now, Vec::new()));
        assert!(events.is_watched() && events.is_watched_by(ADA) && !events.is_watched_by(EVE));
    }

    #[test]
    fn a_stream_resumes_after_any_event_without_loss_or_repetition() {
        let events = events();
        let (mut first, _) = events.subscribe(ADA, HOME, None).unwrap();
        let begin = EventId::parse(&first.id()).unwrap();
        publish(&events, 1..=4_096);
        let mut seen = 0;
        // Begins again after each part, as a client that loses its connection.
        loop {
            let taken = first.take(&EventFilter::default()).unwrap();
            let Some(last) = taken.last() else { break };
            seen += taken.len();
            let id = EventId::parse(&last.id).unwrap();
            let (next, start) = events.subscribe(ADA, HOME, Some(&id)).unwrap();
            assert_eq!(start, StreamStart::Resumed);
            first = next;
        }
        assert_eq!(seen, 4_096);
        let (mut again, start) = events.subscribe(ADA, HOME, Some(&begin)).unwrap();
        assert_eq!((start, drain(&mut again)), (StreamStart::Resumed, numbers(1..=4_096)));
        // One more, and the first is gone.
        publish(&events, [4_097]);
        let (mut late, start) = events.subscribe(ADA, HOME, Some(&begin)).unwrap();
        assert_eq!((start, drain(&mut late)), (StreamStart::Reset(ResetReason::Gap), Vec::new()));
        publish(&events, 4_098..=5_000);
        assert_eq!(drain(&mut late), numbers(4_098..=5_000));
    }

    #[test]
    fn an_id_of_another_start_or_of_the_future_resets_the_stream() {
        let events = events();
        let start =
            |id: &str| events.subscribe(ADA, HOME, Some(&EventId::parse(id).unwrap())).unwrap().1;
        let (here, _) = events.subscribe(ADA, HOME, None).unwrap();
        let boot = here.id()[..6].to_owned();
        let other = if boot == "000000" { "111111" } else { "000000" };
        assert_eq!(start(&format!("{other}-1")), StreamStart::Reset(ResetReason::Restart));
        assert_eq!(start(&format!("{boot}-99")), StreamStart::Reset(ResetReason::Gap));
        // Event 0 is older than the recording.
        assert_eq!(start(&format!("{boot}-0")), StreamStart::Reset(ResetReason::Gap));
        for garbage in
            " | x | 5f3a9c | 5f3a9c- | 5f3a9c-x | 5F3A9C-1 | 5f3a9c-+1 | 5f3a9-1 | 5f3a9c-99999999999999999999"
                .split(" | ")
        {
            assert_eq!(EventId::parse(garbage), None, "{garbage:?}");
        }
    }

    #[test]
    fn a_stream_that_is_too_slow_is_moved_to_the_present() {
        let events = events();
        let (mut stream, _) = events.subscribe(ADA, HOME, None).unwrap();
        publish(&events, 0..5_000);
        assert_eq!(stream.take(&EventFilter::default()).map(|_| ()), Err(ResetReason::Lagged));
        publish(&events, [7]);
        assert_eq!(drain(&mut stream), numbers([7]));
    }

    #[test]
    fn more_than_32_events_in_a_commit_end_in_a_burst() {
        let events = events();
        let (mut stream, _) = events.subscribe(ADA, HOME, None).unwrap();
        events.publish(commit(40));
        let counts = BTreeMap::from([(EventType::CueUpdated, 8_u64), (EventType::CuePaused, 1)]);
        let mut expected = numbers(0..32);
        expected.push(burst_data(0, &counts));
        assert_eq!(drain(&mut stream), expected);
        events.publish(vec![PendingEvent::Event(single(41))]);
        assert_eq!(drain(&mut stream), numbers([41]), "a burst ends with its commit");
    }

    #[test]
    fn a_filter_selects_the_part_of_a_burst() {
        let events = events();
        let (mut stream, _) = events.subscribe(ADA, HOME, None).unwrap();
        events.publish(commit(33));
        let filter = EventFilter::new(Some("cue.paused"), None).unwrap();
        let taken = stream.take(&filter).unwrap();
        let data = burst_data(0, &BTreeMap::from([(EventType::CuePaused, 1)]));
        let [StreamEvent { event_type: EventType::Burst, data: found, .. }] = &taken[..] else {
            panic!("{taken:?}")
        };
        assert_eq!(*found, data);
    }
}
