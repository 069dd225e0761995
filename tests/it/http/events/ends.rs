//! The beginning and the end of streams: nothing is lost at the first, and nothing delays the second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use cued::clock::Clock;
use cued::domain::notification::event::{Emitted, Event, EventSink, EventType};
use serde_json::json;

use crate::support::api::Api;
use crate::support::event_stream::EventReader;
use crate::support::fixture::{BEGIN, Fixture};

fn event(user_key: i64) -> Emitted {
    let data = json!({"cue_id": "c", "cue_name": "c", "status": "active", "next_run": null, "at": BEGIN});
    Emitted::Event(Event::new(EventType::CueUpdated, user_key, None, &data))
}

#[test]
fn a_stream_begins_after_the_writes_that_began_before_it() {
    let api = Api::start();
    let ada = api.user("ada");
    let is_committed = Arc::new(AtomicBool::new(false));
    let ((began, has_begun), (release, released)) = (mpsc::channel(), mpsc::channel::<()>());
    let committed = Arc::clone(&is_committed);
    let write = api.fixture.app.store.write_for(ada.key, move |tx| {
        began.send(()).unwrap();
        // Ends when the client has the greeting, or after a while if the greeting waits for it.
        let _ = released.recv_timeout(Duration::from_millis(300));
        tx.on_commit(move || committed.store(true, Ordering::SeqCst));
        Ok(())
    });
    has_begun.recv().unwrap();
    let mut stream = EventReader::open(api.addr(), &ada, "");
    assert_eq!(stream.next().0, "hello");
    let was_committed = is_committed.load(Ordering::SeqCst);
    let _ = release.send(());
    write.wait().unwrap();
    assert!(was_committed, "a list read now lacks the write, and the stream has no event of it");
}

#[test]
fn a_stream_checks_its_key_also_while_events_wait() {
    const BACKLOG: usize = 4_000;
    let clock = Clock::test(Some(BEGIN.parse().unwrap()));
    let api = Api::from_fixture(Fixture::with_config(clock, |config| {
        config.http.beat_interval = Duration::from_millis(1);
    }));
    let ada = api.user("ada");
    let mut first = EventReader::open(api.addr(), &ada, "?types=cue");
    let id = first.next_event().unwrap().id.unwrap();
    drop(first);
    let Emitted::Event(event) = event(ada.key) else { unreachable!() };
    // For all: of the events of a user only 32 of a commit are single ones.
    let event = Emitted::Event(Event { user_key: None, ..event });
    for _ in 0..BACKLOG / 32 {
        api.fixture.app.events.publish(vec![event.clone(); 32]);
    }
    let mut stream = EventReader::resume(api.addr(), &ada, "?types=cue", Some(&id));
    assert_eq!(stream.next().1["resumed"], true);
    // A beat begins with the check.
    let waiting = (0..BACKLOG).map(|_| stream.next_block().unwrap().unwrap());
    let is_beat = waiting.map(|block| block.comment.as_deref() == Some("beat"));
    assert!(is_beat.skip_while(|is_beat| !is_beat).any(|is_beat| !is_beat), "events follow a beat");
}

#[test]
fn a_stop_hands_out_the_events_that_wait() {
    let mut api = Api::start();
    let ada = api.user("ada");
    let mut stream = EventReader::open(api.addr(), &ada, "");
    assert_eq!(stream.next().0, "hello");
    for _ in 0..250 {
        api.fixture.app.events.publish(vec![event(ada.key)]);
    }
    api.stop();
    let events = stream.until(|event, _| event == "server.state");
    assert_eq!(events.iter().filter(|(event, _)| event == "cue.updated").count(), 250);
    api.wait_until_stopped();
}
