//! Lateness of deliveries: without load, and next to a host that hangs.

use std::thread;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::support::client::Client;
use crate::support::receiver::{Delivery, Reaction, Receiver};
use crate::support::server::{DEV_UNLIMITED, Server};
use crate::{median, milliseconds, quantile, row};

/// The next whole second that is at least `lead` away.
pub fn whole_second_in(lead: i64) -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second() + lead + 1).unwrap()
}

/// Creates `count` `once` cues, due at the instants of `due`, with eight clients.
pub fn create(user: &Client, count: usize, url: &str, due: impl Fn(usize) -> Timestamp + Sync) {
    thread::scope(|scope| {
        for part in 0..8 {
            let (client, due) = (user.clone(), &due);
            scope.spawn(move || {
                for number in (part..count).step_by(8) {
                    let schedule = json!({"type": "once", "at": due(number).to_string()});
                    let payload = json!({"task": "report", "number": number, "region": "eu-west", "dry_run": false});
                    let callback = json!({ "url": url });
                    client.create(&json!({"name": "bench", "schedule": schedule, "callback": callback, "payload": payload}));
                }
            });
        }
    });
}

pub fn lateness(delivery: &Delivery) -> Duration {
    let due: Timestamp = delivery.header("x-cueapi-scheduled-for").unwrap().parse().unwrap();
    let late = delivery.received_at.duration_since(due);
    assert!(late >= SignedDuration::ZERO, "{due} was delivered early, at {}", delivery.received_at);
    late.unsigned_abs()
}

/// 300 cues over a minute, five due at each whole second.
pub fn trickle() {
    let (server, receiver) = (Server::start(DEV_UNLIMITED), Receiver::start());
    let user = server.user();
    let first = whole_second_in(2);
    create(&user, 300, &receiver.url(), |number| {
        first + SignedDuration::from_secs(i64::try_from(number / 5).unwrap())
    });
    receiver.wait_longer_for(300, Duration::from_secs(120));
    let late: Vec<Duration> = receiver.deliveries().iter().map(lateness).collect();
    row("trickle: 300 deliveries over a minute, lateness, median", milliseconds(median(&late)));
    row("trickle: the same, 99th percentile", milliseconds(quantile(&late, 0.99)));
    row("trickle: the same, worst", milliseconds(quantile(&late, 1.0)));
}

/// 500 cues of a host that hangs and 100 of another host, all due at one instant.
pub fn hang() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    let (hanging, other) = (Receiver::start(), Receiver::start());
    hanging.react(Reaction::Hang);
    let due = whole_second_in(3);
    create(&user, 500, &hanging.url(), |_| due);
    create(&user, 100, &other.url(), |_| due);
    assert!(Timestamp::now() < due, "creating took longer than planned");
    other.wait_longer_for(100, Duration::from_secs(120));
    let late: Vec<Duration> = other.deliveries().iter().map(lateness).collect();
    let held = hanging.hanging();
    row("hang: 100 deliveries beside 500 to a host that hangs, worst", milliseconds(quantile(&late, 1.0)));
    row("hang: connections that the host held meanwhile", held);
    hanging.release();
}
