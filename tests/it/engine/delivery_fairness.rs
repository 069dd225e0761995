//! Fair shares: the order of claims, hanging receivers, start and stop of the threads.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use cued::clock::Clock;
use cued::engine::delivery::delivery_service::DeliveryService;
use cued::engine::delivery::dispatcher::Dispatcher;
use cued::engine::webhook_client::delivery_error::DeliveryError;
use cued::engine::webhook_client::{WebhookClient, WebhookRequest, WebhookResponse};
use cued::store::executions::delivery_queue;

use crate::support::delivery_fixture::{DeliveryFixture, RecordingClient, response};

/// A webhook client whose deliveries to hosts named `hang…` block until it is opened.
#[derive(Default)]
struct HangingClient {
    open: Mutex<bool>,
    opened: Condvar,
    sent: Mutex<HashMap<String, usize>>,
}

impl HangingClient {
    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    fn sent(&self, url: &str) -> usize {
        self.sent.lock().unwrap().get(url).copied().unwrap_or(0)
    }
}

impl WebhookClient for HangingClient {
    fn send(&self, request: &WebhookRequest) -> Result<WebhookResponse, DeliveryError> {
        *self.sent.lock().unwrap().entry(request.url.clone()).or_default() += 1;
        if request.url.contains("//hang") {
            drop(self.opened.wait_while(self.open.lock().unwrap(), |open| !*open).unwrap());
        }
        response(200)
    }
}

/// Waits for `condition` in real time.
#[track_caller]
fn until(fixture: &DeliveryFixture, condition: impl Fn() -> bool) {
    let real = Clock::system();
    while !condition() {
        assert!(real.monotonic() < Duration::from_secs(20), "the condition never held");
        let seen = fixture.app.notifiers.progress.generation();
        if !condition() {
            let soon = real.now() + jiff::SignedDuration::from_millis(50);
            real.wait(&fixture.app.notifiers.progress, seen, Some(soon));
        }
    }
}

#[test]
fn destinations_alternate_and_each_sends_its_oldest_first() {
    let fixture = DeliveryFixture::new(64);
    let cues = ["a", "b", "c"].map(|host| fixture.webhook_cue(&format!("https://{host}.example/")));
    fixture.sql("UPDATE cues SET destination_hash = key * 10");
    for cue in [cues[0], cues[0], cues[0], cues[1], cues[2], cues[2]] {
        fixture.due(cue);
    }
    let claimed = fixture.claim_deliveries(&mut Dispatcher::new(64));
    let order: Vec<_> =
        claimed.iter().map(|delivery| (delivery.attempt_ref.destination, delivery.attempt_ref.key)).collect();
    assert_eq!(order, [(10, 1), (20, 4), (30, 5), (10, 2), (30, 6), (10, 3)]);
}

#[test]
fn a_destination_at_its_limit_does_not_stop_the_others() {
    let fixture = DeliveryFixture::new(64);
    let cues = ["a", "b"].map(|host| fixture.webhook_cue(&format!("https://{host}.example/")));
    fixture.sql("UPDATE cues SET destination_hash = key * 10");
    for cue in cues {
        fixture.due_times(cue, 3);
    }
    let now = fixture.app.clock.now();
    let claimed = fixture.write(move |tx| {
        delivery_queue::claim_batch(tx, now, 64, &mut 0, |destination| destination == 20).unwrap()
    });
    let order: Vec<_> =
        claimed.iter().map(|delivery| (delivery.attempt_ref.destination, delivery.attempt_ref.key)).collect();
    assert_eq!(order, [(20, 4), (20, 5), (20, 6)]);
}

#[test]
fn the_next_pass_continues_after_the_last_destination() {
    let fixture = DeliveryFixture::new(1);
    let cues = ["a", "b"].map(|host| fixture.webhook_cue(&format!("https://{host}.example/")));
    fixture.sql("UPDATE cues SET destination_hash = key * 10");
    for cue in [cues[0], cues[0], cues[1]] {
        fixture.due(cue);
    }
    let webhook_client = RecordingClient::default();
    assert_eq!(fixture.deliver(&webhook_client), 3);
    let urls: Vec<_> = webhook_client.requests().into_iter().map(|request| request.url).collect();
    assert_eq!(urls, ["https://a.example/", "https://b.example/", "https://a.example/"]);
}

#[test]
fn a_hanging_receiver_does_not_delay_another() {
    let fixture = DeliveryFixture::new(16);
    let (hanging, quick) =
        (fixture.webhook_cue("https://hang.example/"), fixture.webhook_cue("https://quick.example/"));
    fixture.due_times(hanging, 100);
    let webhook_client = Arc::new(HangingClient::default());
    let delivery =
        DeliveryService::start(&fixture.app, Arc::clone(&webhook_client) as Arc<dyn WebhookClient>).unwrap();
    until(&fixture, || webhook_client.sent("https://hang.example/") > 0);

    fixture.due_times(quick, 200);
    // The other destination still hangs: it completes nothing.
    until(&fixture, || {
        webhook_client.sent("https://quick.example/") == 200 && fixture.app.engine_stats.delivered() == 200
    });
    assert!(
        webhook_client.sent("https://hang.example/") <= 8,
        "{}",
        webhook_client.sent("https://hang.example/")
    );
    webhook_client.open();
    until(&fixture, || fixture.app.engine_stats.delivered() == 300);
    delivery.stop();
}

#[test]
fn many_hanging_receivers_leave_a_thread_for_another() {
    let fixture = DeliveryFixture::new(16);
    for host in 0..8 {
        let cue = fixture.webhook_cue(&format!("https://hang{host}.example/"));
        fixture.due_times(cue, 20);
    }
    let webhook_client = Arc::new(HangingClient::default());
    let delivery =
        DeliveryService::start(&fixture.app, Arc::clone(&webhook_client) as Arc<dyn WebhookClient>).unwrap();
    until(&fixture, || (0..8).all(|host| webhook_client.sent(&format!("https://hang{host}.example/")) > 0));
    let cue = fixture.webhook_cue("https://quick.example/");
    fixture.due(cue);
    // The other destinations still hang: they complete nothing.
    until(&fixture, || fixture.app.engine_stats.delivered() == 1);
    webhook_client.open();
    delivery.stop();
}

#[test]
fn a_stop_claims_nothing_more_and_records_running_deliveries() {
    let fixture = DeliveryFixture::new(16);
    let cue = fixture.webhook_cue("https://hang.example/");
    let (first, second) = (fixture.due(cue), fixture.due(cue));
    let webhook_client = Arc::new(HangingClient::default());
    let delivery =
        DeliveryService::start(&fixture.app, Arc::clone(&webhook_client) as Arc<dyn WebhookClient>).unwrap();
    until(&fixture, || webhook_client.sent("https://hang.example/") == 1);
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| delivery.stop());
        webhook_client.open();
        stopping.join().unwrap();
    });
    assert_eq!(fixture.state(first), ("success".to_owned(), 1));
    // The execution was claimed before the stop, or it waits for the next start; it is never left in between.
    let state = fixture.state(second);
    assert!(state == ("pending".to_owned(), 0) || state == ("success".to_owned(), 1), "{state:?}");
    let fixture = fixture.restart();
    assert_eq!(fixture.state(first).0, "success");
}
