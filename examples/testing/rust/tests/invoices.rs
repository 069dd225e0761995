mod common {
    pub mod cued;
}

use std::sync::Arc;
use std::time::Duration;

use common::cued::{Answer, Cued, Match, Receiver};
use invoices::Invoices;
use serde_json::json;

fn start<'a>(cued: &'a Cued) -> (Receiver<'a>, Arc<Invoices>) {
    let receiver = cued.receiver();
    let app = Arc::new(Invoices {
        cued_url: cued.url(),
        key: cued.key(),
        own_url: receiver.url.clone(),
        ..Invoices::default()
    });
    receiver.always({
        let app = Arc::clone(&app);
        move |delivery| {
            app.handle(&delivery.body);
            Answer::status(200)
        }
    });
    app.install().unwrap();
    (receiver, app)
}

#[test]
fn invoices_are_sent_at_midnight_in_berlin() {
    let cued = Cued::at("2030-01-31T12:00:00Z");
    let (receiver, app) = start(&cued);
    cued.advance_to("2030-01-31T22:59:59Z");
    receiver.expect_deliveries(0, Match::all());
    cued.advance("PT1S");
    let delivery = receiver.wait_for_delivery(1, Match::all().path("/invoices"));
    assert_eq!(delivery.body, json!({"send": "invoices"}));
    assert_eq!(*app.sent.lock().unwrap(), ["invoices"]);
}

#[test]
fn a_call_that_fails_is_repeated() {
    let cued = Cued::new();
    let (receiver, app) = start(&cued);
    receiver.answer([Answer::status(503), Answer::hang_up()]);
    cued.until_next();
    receiver.expect_deliveries(1, Match::all().cue("invoices"));
    assert!(app.sent.lock().unwrap().is_empty());
    cued.advance("PT10M");
    let delivered = receiver.expect_deliveries(3, Match::all().cue("invoices"));
    let seconds: Vec<u64> = delivered.iter().filter_map(|delivery| delivery.timestamp).collect();
    assert_eq!(seconds[2] - seconds[0], 360);
    assert_eq!(*app.sent.lock().unwrap(), ["invoices"]);
    assert_eq!(cued.runs("invoices")[0]["status"], "success");
}

#[test]
fn an_answer_that_is_too_late_is_a_failure() {
    let cued = Cued::new();
    let receiver = cued.receiver();
    receiver.answer([Answer::delayed(Duration::from_secs(3))]);
    cued.create(json!({
        "name": "slow",
        "schedule": {"type": "recurring", "cron": "@daily"},
        "callback": {"url": receiver.url, "timeout_seconds": 1},
    }));
    cued.fire("slow");
    let run = &cued.runs("slow")[0];
    assert_eq!((&run["status"], &run["cause"]), (&json!("retrying"), &json!("timeout")));
}

#[test]
fn a_worker_makes_the_report() {
    let cued = Cued::new();
    let (_receiver, app) = start(&cued);
    app.work().unwrap();
    assert!(app.reports.lock().unwrap().is_empty());
    cued.until_next();
    app.work().unwrap();
    assert_eq!(*app.reports.lock().unwrap(), ["report"]);
    assert_eq!(cued.runs("report")[0]["status"], "success");
}
