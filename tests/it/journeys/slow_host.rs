//! One slow host does not delay the others.

use std::thread;

use serde_json::json;

use crate::support::client::Client;
use crate::support::receiver::{Reaction, Receiver};
use crate::support::server::Server;

fn create(user: &Client, count: usize, receiver: &Receiver) {
    let schedule = json!({"type": "once", "at": "2026-01-05T01:00:00Z"});
    for number in 0..count {
        let cue =
            json!({"name": format!("{number}"), "schedule": schedule, "callback": {"url": receiver.url()}});
        user.create(&cue);
    }
}

#[test]
fn five_hundred_deliveries_to_a_hanging_host_delay_no_other_host() {
    let server = Server::with_test_clock("2026-01-05T00:00:00Z");
    let (hanging, other) = (Receiver::start(), Receiver::start());
    hanging.react(Reaction::Hang);
    let user = server.user();
    create(&user, 500, &hanging); // all of them are due before the first of the others
    create(&user, 100, &other);
    let moving = user.clone();
    let moved = thread::spawn(move || moving.advance("PT1H"));
    hanging.wait_hanging(1);
    other.wait_for(100);
    assert_eq!(
        hanging.hanging(),
        hanging.count(),
        "the first one still hangs when all the others have arrived"
    );
    assert!(hanging.count() < 500);
    hanging.release();
    let moved = moved.join().unwrap();
    assert_eq!((&moved["fired"], &moved["delivered"]), (&json!(600), &json!(600)));
    assert_eq!((hanging.count(), other.count()), (500, 100));
    assert_eq!([hanging.overlaps(), other.overlaps()].concat(), Vec::<String>::new());
}
