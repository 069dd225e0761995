//! Five thousand cues due at one instant, next to the same pool without scheduler and store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cued::domain::webhook::address_policy::{AddressPolicy, AllowRule};
use cued::domain::webhook::callback::Method;
use cued::engine::webhook_client::{
    ClientOptions, HttpWebhookClient, MAX_KEPT_BODY, WebhookClient, WebhookRequest,
};

use crate::lateness::{create, lateness, whole_second_in};
use crate::support::receiver::{Delivery, Receiver};
use crate::support::server::{DEV_UNLIMITED, Server};
use crate::{median, milliseconds, quantile, row};

const HERD: usize = 5_000;
const THREADS: usize = 64;
const ROUNDS: usize = 3;

pub fn herd() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    let (mut rates, mut baseline_rates, mut worst) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let receiver = Receiver::start();
        let due = whole_second_in(5);
        create(&user, HERD, &receiver.url(), |_| due);
        receiver.wait_longer_for(HERD, Duration::from_secs(180));
        let deliveries = receiver.deliveries();
        once_each(&deliveries);
        assert_eq!(receiver.overlaps(), Vec::<String>::new());
        let took = deliveries.iter().map(lateness).max().unwrap();
        worst.push(took);
        rates.push(per_second(took));
        baseline_rates.push(per_second(baseline(&deliveries[0])));
    }
    let (rate, baseline_rate) = (median(&rates), median(&baseline_rates));
    row(
        "herd: 5,000 cues due at one instant, the last one arrives after",
        milliseconds(quantile(&worst, 0.5)),
    );
    row("herd: deliveries per second", format!("{rate:.0}"));
    row("herd: the same pool without scheduler and store, per second", format!("{baseline_rate:.0}"));
    row("herd: ratio", format!("{:.2}", rate / baseline_rate));
}

fn once_each(deliveries: &[Delivery]) {
    let mut ids: Vec<&str> = deliveries.iter().map(|it| it.execution_id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), deliveries.len()), (HERD, HERD), "each arrives, and once");
}

#[allow(clippy::cast_precision_loss)]
fn per_second(took: Duration) -> f64 {
    HERD as f64 / took.as_secs_f64()
}

/// The same number of requests like `delivery` from the same number of threads, with the webhook client only.
fn baseline(delivery: &Delivery) -> Duration {
    let receiver = Receiver::start();
    let began = Instant::now();
    let options =
        ClientOptions { policy: AddressPolicy::new(&[AllowRule::Loopback]), ..ClientOptions::default() };
    let webhook_client = HttpWebhookClient::new(&options, Arc::new(move || began.elapsed())).unwrap();
    let requests: Vec<WebhookRequest> =
        (0..HERD).map(|number| request(delivery, &receiver, number)).collect();
    let next = AtomicUsize::new(0);
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    assert_eq!(webhook_client.send(request).unwrap().http_status, 200);
                }
            });
        }
    });
    let took = began.elapsed();
    assert_eq!(receiver.count(), HERD);
    took
}

/// The same request for another execution: the receiver checks repeated executions more closely.
fn request(delivery: &Delivery, receiver: &Receiver, number: usize) -> WebhookRequest {
    let framing = ["host", "content-length", "accept"];
    let own = |(name, value): &(String, String)| {
        let name = name.to_lowercase();
        let value = if name == "x-cueapi-execution-id" { number.to_string() } else { value.clone() };
        (!framing.contains(&name.as_str())).then_some((name, value))
    };
    WebhookRequest {
        method: Method::Post,
        url: receiver.url(),
        headers: delivery.headers.iter().filter_map(own).collect(),
        body: Some(delivery.body.clone()),
        max_response: MAX_KEPT_BODY,
    }
}
