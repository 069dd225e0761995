//! Fair shares: the order of claims, hanging receivers, start and stop of the threads.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use cued::clock::Clock;
use cued::engine::delivery::delivery_service::DeliveryService;
use cued::engine::delivery::dispatcher::{Dispatcher, DispatcherMode};
use cued::engine::webhook_client::delivery_error::DeliveryError;
use cued::engine::webhook_client::{WebhookClient, WebhookRequest, WebhookResponse};
use cued::store::executions::delivery_queue;
use cued::store::fair_queue::{Grant, Rotation};

use crate::support::delivery_fixture::{DeliveryFixture, GrantBy, RecordingClient, response};

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
        let mut limits = GrantBy(|destination| match destination {
            20 => Grant::Granted,
            _ => Grant::DestinationBusy,
        });
        delivery_queue::claim_batch(tx, now, 64, &mut Rotation::default(), &mut limits).unwrap()
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
    let fixture = DeliveryFixture::new(64);
    for host in 0..7 {
        let cue = fixture.webhook_cue(&format!("https://hang{host}.example/"));
        fixture.due_times(cue, 20);
    }
    let webhook_client = Arc::new(HangingClient::default());
    let delivery =
        DeliveryService::start(&fixture.app, Arc::clone(&webhook_client) as Arc<dyn WebhookClient>).unwrap();
    until(&fixture, || (0..7).all(|host| webhook_client.sent(&format!("https://hang{host}.example/")) > 0));
    let cue = fixture.webhook_cue("https://quick.example/");
    fixture.due(cue);
    // The other destinations still hang: they complete nothing.
    until(&fixture, || fixture.app.engine_stats.delivered() == 1);
    webhook_client.open();
    delivery.stop();
}

/// A victim whose delivery is due while `accounts` others have `hosts` hosts each that do not answer.
fn deliver_beside(accounts: i64, hosts: usize) {
    let fixture = DeliveryFixture::new(64);
    for user in 2..2 + accounts {
        for host in 0..hosts {
            let cue = fixture.webhook_cue_of(user, &format!("https://hang{user}-{host}.example/"));
            fixture.due_times(cue, 2);
        }
    }
    let webhook_client = Arc::new(HangingClient::default());
    let delivery =
        DeliveryService::start(&fixture.app, Arc::clone(&webhook_client) as Arc<dyn WebhookClient>).unwrap();
    let claimed = || webhook_client.sent.lock().unwrap().len();
    until(&fixture, || claimed() >= usize::try_from(accounts).unwrap());
    let cue = fixture.webhook_cue("https://quick.example/");
    for delivered in 1..=20 {
        fixture.due(cue);
        // The other accounts' hosts still hang: they complete nothing.
        until(&fixture, || fixture.app.engine_stats.delivered() == delivered);
    }
    webhook_client.open();
    delivery.stop();
}

#[test]
fn seven_accounts_whose_ten_hosts_hang_delay_no_other_account() {
    deliver_beside(7, 10);
}

#[test]
fn four_accounts_whose_hundred_hosts_hang_delay_no_other_account() {
    deliver_beside(4, 100);
}

#[test]
fn accounts_take_turns_however_many_executions_and_hosts_one_has() {
    let fixture = DeliveryFixture::new(8);
    for host in 0..20 {
        let cue = fixture.webhook_cue_of(2, &format!("https://{host}.example/"));
        fixture.due_times(cue, 50);
    }
    let victim = fixture.webhook_cue_of(3, "https://victim.example/");
    fixture.due_times(victim, 5);
    let webhook_client = RecordingClient::default();
    let mut dispatcher = Dispatcher::new(8);
    let mut finished = Vec::new();
    let of_victim = || {
        let requests = webhook_client.requests();
        let last = requests.iter().rposition(|request| request.url.contains("victim"));
        (requests.iter().filter(|request| request.url.contains("victim")).count(), last)
    };
    while of_victim().0 < 5 {
        let claimed = dispatcher.run_once(&fixture.app, finished, DispatcherMode::Running).unwrap();
        finished = claimed.iter().map(|claimed| fixture.attempt(&webhook_client, claimed)).collect();
    }
    assert!(of_victim().1.unwrap() < 25, "{:?}", of_victim());
}

#[test]
fn runs_that_fall_due_now_are_sent_before_those_of_an_outage() {
    let fixture = DeliveryFixture::new(8);
    let cues: Vec<_> = (0..30).map(|host| fixture.webhook_cue(&format!("https://{host}.example/"))).collect();
    fixture.sql(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 700)
         INSERT INTO executions (id, cue_key, user_key, transport, status, queue_name, destination_hash, scheduled_for,
             triggered_by, attempts, created_at, updated_at, is_catch_up)
         SELECT randomblob(16), key, user_key, 'webhook', 'pending', 'send', destination_hash, 0, 'schedule', 0, 0, 0, 1
         FROM cues, n",
    );
    let webhook_client = RecordingClient::default();
    let mut dispatcher = Dispatcher::new(8);
    let claimed = fixture.claim_deliveries(&mut dispatcher);
    let mut finished: Vec<_> =
        claimed.iter().map(|claimed| fixture.attempt(&webhook_client, claimed)).collect();
    // One at the host of a backlog, one at a new host.
    let now = [fixture.due(cues[29]), fixture.due(fixture.webhook_cue("https://new.example/"))];
    let sent = webhook_client.requests().len();
    while now.iter().any(|id| fixture.state(*id).0 != "success") {
        let claimed = dispatcher.run_once(&fixture.app, finished, DispatcherMode::Running).unwrap();
        finished = claimed.iter().map(|claimed| fixture.attempt(&webhook_client, claimed)).collect();
        assert!(webhook_client.requests().len() < sent + 20, "they wait behind the backlog");
    }
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
