//! Who waits for whom: the order of taking, receivers that hang, and the threads' start and stop.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use cued::clock::Clock;
use cued::engine::delivery::delivery_service::DeliveryService;
use cued::engine::delivery::dispatcher::Dispatcher;
use cued::engine::webhook_client::delivery_error::DeliveryError;
use cued::engine::webhook_client::{WebhookClient, WebhookRequest, WebhookResponse};
use cued::store::executions::delivery_queue;

use crate::support::delivery_fixture::{Recorder, World, answer};

/// A courier whose deliveries to hosts named `hang…` take until it lets them go.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    sent: Mutex<HashMap<String, usize>>,
}

impl Gate {
    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    fn sent(&self, url: &str) -> usize {
        self.sent.lock().unwrap().get(url).copied().unwrap_or(0)
    }
}

impl WebhookClient for Gate {
    fn send(&self, parcel: &WebhookRequest) -> Result<WebhookResponse, DeliveryError> {
        *self.sent.lock().unwrap().entry(parcel.url.clone()).or_default() += 1;
        if parcel.url.contains("//hang") {
            drop(self.opened.wait_while(self.open.lock().unwrap(), |open| !*open).unwrap());
        }
        answer(200)
    }
}

/// Waits for `condition` on real time; how long it took.
fn until(world: &World, condition: impl Fn() -> bool) -> Duration {
    let real = Clock::system();
    while !condition() {
        assert!(real.monotonic() < Duration::from_secs(20), "it never came");
        let seen = world.app.notifiers.progress.generation();
        if !condition() {
            let soon = real.now() + jiff::SignedDuration::from_millis(50);
            real.wait(&world.app.notifiers.progress, seen, Some(soon));
        }
    }
    real.monotonic()
}

#[test]
fn destinations_alternate_and_each_sends_its_oldest_first() {
    let world = World::new(64);
    let cues = ["a", "b", "c"].map(|host| world.cue(&format!("https://{host}.example/")));
    world.sql("UPDATE cues SET lane = key * 10");
    for cue in [cues[0], cues[0], cues[0], cues[1], cues[2], cues[2]] {
        world.run(cue);
    }
    let taken = world.take(&mut Dispatcher::new(64));
    let order: Vec<_> = taken.iter().map(|taken| (taken.ticket.lane, taken.ticket.key)).collect();
    assert_eq!(order, [(10, 1), (20, 4), (30, 5), (10, 2), (30, 6), (10, 3)]);
}

#[test]
fn a_destination_at_its_limit_does_not_stop_the_others() {
    let world = World::new(64);
    let cues = ["a", "b"].map(|host| world.cue(&format!("https://{host}.example/")));
    world.sql("UPDATE cues SET lane = key * 10");
    for cue in cues {
        world.runs(cue, 3);
    }
    let now = world.app.clock.now();
    let taken =
        world.write(move |tx| delivery_queue::claim_batch(tx, now, 64, &mut 0, |lane| lane == 20).unwrap());
    let order: Vec<_> = taken.iter().map(|taken| (taken.ticket.lane, taken.ticket.key)).collect();
    assert_eq!(order, [(20, 4), (20, 5), (20, 6)]);
}

#[test]
fn the_next_pass_continues_after_the_last_destination() {
    let world = World::new(1);
    let cues = ["a", "b"].map(|host| world.cue(&format!("https://{host}.example/")));
    world.sql("UPDATE cues SET lane = key * 10");
    for cue in [cues[0], cues[0], cues[1]] {
        world.run(cue);
    }
    let webhook_client = Recorder::default();
    assert_eq!(world.deliver(&webhook_client), 3);
    let urls: Vec<_> = webhook_client.parcels().into_iter().map(|parcel| parcel.url).collect();
    assert_eq!(urls, ["https://a.example/", "https://b.example/", "https://a.example/"]);
}

#[test]
fn a_hanging_receiver_does_not_delay_another() {
    let world = World::new(16);
    let (hanging, quick) = (world.cue("https://hang.example/"), world.cue("https://quick.example/"));
    world.runs(hanging, 100);
    let webhook_client = Arc::new(Gate::default());
    let delivery =
        DeliveryService::start(&world.app, Arc::clone(&webhook_client) as Arc<dyn WebhookClient>).unwrap();
    until(&world, || webhook_client.sent("https://hang.example/") > 0);

    world.runs(quick, 200);
    let took = until(&world, || {
        webhook_client.sent("https://quick.example/") == 200 && world.app.engine_stats.delivered() == 200
    });
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(
        webhook_client.sent("https://hang.example/") <= 8,
        "{}",
        webhook_client.sent("https://hang.example/")
    );
    webhook_client.open();
    until(&world, || world.app.engine_stats.delivered() == 300);
    delivery.stop();
}

#[test]
fn many_hanging_receivers_leave_a_thread_for_another() {
    let world = World::new(16);
    for host in 0..8 {
        let cue = world.cue(&format!("https://hang{host}.example/"));
        world.runs(cue, 20);
    }
    let webhook_client = Arc::new(Gate::default());
    let delivery =
        DeliveryService::start(&world.app, Arc::clone(&webhook_client) as Arc<dyn WebhookClient>).unwrap();
    until(&world, || (0..8).all(|host| webhook_client.sent(&format!("https://hang{host}.example/")) > 0));
    let cue = world.cue("https://quick.example/");
    world.run(cue);
    let took = until(&world, || world.app.engine_stats.delivered() == 1);
    assert!(took < Duration::from_secs(2), "{took:?}");
    webhook_client.open();
    delivery.stop();
}

#[test]
fn a_stop_claims_nothing_more_and_records_running_deliveries() {
    let world = World::new(16);
    let cue = world.cue("https://hang.example/");
    let (first, second) = (world.run(cue), world.run(cue));
    let webhook_client = Arc::new(Gate::default());
    let delivery =
        DeliveryService::start(&world.app, Arc::clone(&webhook_client) as Arc<dyn WebhookClient>).unwrap();
    until(&world, || webhook_client.sent("https://hang.example/") == 1);
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| delivery.stop());
        webhook_client.open();
        stopping.join().unwrap();
    });
    assert_eq!(world.state(first), ("success".to_owned(), 1));
    // It was taken up before the stop was seen, or it waits for the next start; never is it left in between.
    let state = world.state(second);
    assert!(state == ("pending".to_owned(), 0) || state == ("success".to_owned(), 1), "{state:?}");
    let world = world.restart();
    assert_eq!(world.state(first).0, "success");
}
