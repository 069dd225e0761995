//! The events in memory: order, resumption, bursts, and what is never shown.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::thread;

use cued::domain::api_error::ErrorCode;
use cued::domain::notification::event::{Emitted, Event, EventFilter, EventSink, EventType, burst_data};
use cued::error::Error;
use cued::events::{EventId, EventStream, Events, ResetReason, StreamEvent, StreamStart, TooManyStreams};
use serde_json::json;

use crate::support::fixture::Fixture;

const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const ADA: i64 = 1;
const EVE: i64 = 2;

fn events() -> Arc<Events> {
    Arc::new(Events::new(64).unwrap())
}

fn event(user_key: i64, number: usize) -> Emitted {
    Emitted::Event(Event::new(EventType::CueUpdated, user_key, None, &json!({"n": number})))
}

/// Publishes one commit for each number, of events that all users get.
fn publish(events: &Events, numbers: impl IntoIterator<Item = usize>) {
    for number in numbers {
        let event = Event { user_key: None, ..single(number) };
        events.publish(vec![Emitted::Event(event)]);
    }
}

fn single(number: usize) -> Event {
    match event(ADA, number) {
        Emitted::Event(event) => event,
        Emitted::Counted { .. } => unreachable!(),
    }
}

/// All that waits in a stream, as the texts of its data.
fn drain(stream: &mut EventStream) -> Vec<String> {
    let mut texts = Vec::new();
    loop {
        let taken = stream.take(&EventFilter::default()).unwrap();
        if taken.is_empty() {
            return texts;
        }
        texts.extend(taken.into_iter().map(|event| event.data));
    }
}

fn numbers(range: impl IntoIterator<Item = usize>) -> Vec<String> {
    range.into_iter().map(|number| json!({ "n": number }).to_string()).collect()
}

#[test]
fn nothing_is_recorded_before_the_first_stream() {
    let events = events();
    assert!(!events.is_watched());
    events.publish(vec![event(ADA, 1)]);
    let (mut stream, start) = events.subscribe(ADA, HOME, None).unwrap();
    assert_eq!((start, drain(&mut stream)), (StreamStart::Now, Vec::new()));
    assert!(events.is_watched() && events.is_watched_by(ADA) && !events.is_watched_by(EVE));
}

#[test]
fn a_stream_has_the_events_of_its_user_only() {
    let events = events();
    let (mut ada, _) = events.subscribe(ADA, HOME, None).unwrap();
    let (mut eve, _) = events.subscribe(EVE, HOME, None).unwrap();
    events.publish(vec![event(ADA, 1), event(EVE, 2), event(ADA, 3), event(3, 4)]);
    assert_eq!(drain(&mut ada), numbers([1, 3]));
    assert_eq!(drain(&mut eve), numbers([2]));
    // The position of another user is a number like any other.
    let id = EventId::parse(&ada.id()).unwrap();
    let (mut resumed, start) = events.subscribe(EVE, HOME, Some(&id)).unwrap();
    assert_eq!((start, drain(&mut resumed)), (StreamStart::Resumed, Vec::new()));
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
    let start = |id: &str| events.subscribe(ADA, HOME, Some(&EventId::parse(id).unwrap())).unwrap().1;
    let (here, _) = events.subscribe(ADA, HOME, None).unwrap();
    let boot = here.id()[..6].to_owned();
    let other = if boot == "000000" { "111111" } else { "000000" };
    assert_eq!(start(&format!("{other}-1")), StreamStart::Reset(ResetReason::Restart));
    assert_eq!(start(&format!("{boot}-99")), StreamStart::Reset(ResetReason::Gap));
    assert_eq!(start(&format!("{boot}-0")), StreamStart::Reset(ResetReason::Gap), "before the recording");
    for garbage in [
        "",
        "x",
        "5f3a9c",
        "5f3a9c-",
        "5f3a9c-x",
        "5F3A9C-1",
        "5f3a9c-+1",
        "5f3a9-1",
        "5f3a9c-99999999999999999999",
    ] {
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
    let mut commit: Vec<_> = (0..40).map(|number| event(ADA, number)).collect();
    commit.push(Emitted::Counted { user_key: ADA, event_type: EventType::CuePaused });
    events.publish(commit);
    let counts = BTreeMap::from([(EventType::CueUpdated, 8_u64), (EventType::CuePaused, 1)]);
    let mut expected = numbers(0..32);
    expected.push(burst_data(0, &counts));
    assert_eq!(drain(&mut stream), expected);
    events.publish(vec![event(ADA, 41)]);
    assert_eq!(drain(&mut stream), numbers([41]), "a burst ends with its commit");
}

#[test]
fn a_filter_selects_the_part_of_a_burst() {
    let events = events();
    let (mut stream, _) = events.subscribe(ADA, HOME, None).unwrap();
    let mut commit: Vec<_> = (0..33).map(|number| event(ADA, number)).collect();
    commit.push(Emitted::Counted { user_key: ADA, event_type: EventType::CuePaused });
    events.publish(commit);
    let filter = EventFilter::new(Some("cue.paused"), None).unwrap();
    let taken = stream.take(&filter).unwrap();
    let data = burst_data(0, &BTreeMap::from([(EventType::CuePaused, 1)]));
    let [StreamEvent { event_type: EventType::Burst, data: found, .. }] = &taken[..] else {
        panic!("{taken:?}")
    };
    assert_eq!(*found, data);
}

#[test]
fn a_user_has_five_streams_and_a_server_its_limit() {
    let events = Arc::new(Events::new(7).unwrap());
    let mut open: Vec<_> = (0..5).map(|_| events.subscribe(ADA, HOME, None).unwrap().0).collect();
    assert_eq!(events.subscribe(ADA, HOME, None).err(), Some(TooManyStreams::OfUser));
    let others: Vec<_> = (0..2).map(|_| events.subscribe(EVE, HOME, None).unwrap().0).collect();
    assert_eq!(events.subscribe(EVE, HOME, None).err(), Some(TooManyStreams::OfServer(7)));
    drop(others);
    open.pop();
    assert!(events.subscribe(ADA, HOME, None).is_ok());
    assert_eq!(events.streams(), 4);
}

#[test]
fn a_write_that_is_rolled_back_emits_nothing() {
    let fixture = Fixture::new();
    let (mut stream, _) = fixture.app.events.subscribe(ADA, HOME, None).unwrap();
    let emit = |tx: &cued::store::WriteTx<'_>, number| {
        tx.emit(ADA, EventType::CueUpdated, || Ok(Some(single(number))));
    };
    // All in one batch or not: each write is rolled back alone.
    let writes: Vec<_> = (0..20)
        .map(|number| {
            fixture.app.store.write(move |tx| {
                emit(tx, number);
                if number % 2 == 0 { Ok(()) } else { Err(Error::refused(ErrorCode::CueNotFound, "no")) }
            })
        })
        .collect();
    for write in writes {
        drop(write.wait());
    }
    assert_eq!(drain(&mut stream), numbers((0..20).step_by(2)));
    let fails = fixture.refuse_commits();
    let refused = fixture.app.store.write(move |tx| {
        emit(tx, 99);
        tx.execute("INSERT INTO meta (name, value) VALUES ('x', 1)", [])?;
        Ok(())
    });
    refused.wait().unwrap_err();
    fails.store(false, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(drain(&mut stream), Vec::<String>::new(), "the commit has failed");
}

#[test]
fn an_event_that_cannot_be_built_does_not_fail_its_write() {
    let fixture = Fixture::new();
    let (mut stream, _) = fixture.app.events.subscribe(ADA, HOME, None).unwrap();
    fixture.write(|tx| tx.emit(ADA, EventType::CueUpdated, || Err(Error::fault("no"))));
    assert_eq!(drain(&mut stream), Vec::<String>::new());
}

#[test]
fn nothing_is_built_for_a_user_whom_nobody_follows() {
    let fixture = Fixture::new();
    let _stream = fixture.app.events.subscribe(EVE, HOME, None).unwrap();
    fixture.write(|tx| tx.emit(ADA, EventType::CueUpdated, || panic!("built for nobody")));
}

#[test]
fn events_come_in_the_order_of_the_commits_of_concurrent_writers() {
    let fixture = Fixture::new();
    let (mut stream, _) = fixture.app.events.subscribe(ADA, HOME, None).unwrap();
    let app = Arc::clone(&fixture.app);
    fixture.sql("CREATE TABLE numbers (n INTEGER PRIMARY KEY AUTOINCREMENT)");
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let app = Arc::clone(&app);
            thread::spawn(move || {
                for _ in 0..30 {
                    let write = app.store.write(|tx| {
                        tx.execute("INSERT INTO numbers DEFAULT VALUES", [])?;
                        let number = usize::try_from(tx.last_insert_rowid()).unwrap();
                        tx.emit(ADA, EventType::CueUpdated, || Ok(Some(single(number))));
                        Ok(())
                    });
                    write.wait().unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    fixture.sql("DROP TABLE numbers");
    assert_eq!(drain(&mut stream), numbers(1..=120));
}
