//! `cued alert`.

use serde_json::{Value, json};

use super::Desk;
use crate::support::receiver::{Reaction, Receiver};

#[test]
fn alerts_are_listed_newest_first_and_filtered() {
    let desk = Desk::new();
    let (first, second) = (desk.worker_cue("first"), desk.worker_cue("second"));
    for cue in [&first, &second] {
        for _ in 0..3 {
            desk.failed_run(cue);
        }
        desk.user.advance("PT2H");
    }
    let shown = desk.home.ok(&["alert", "list"]);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 3, "{shown}");
    assert!(lines[0].starts_with("TIME         TYPE"), "{shown}");
    assert!(
        lines[1].starts_with("01-01 02:00  consecutive_failures  ") && lines[1].contains("second"),
        "{shown}"
    );
    assert!(lines[2].contains("first"), "{shown}");
    let of = |flags: &[&str]| {
        let list = desk.home.json(&[&["alert", "list"], flags].concat());
        list["alerts"].as_array().unwrap().len()
    };
    assert_eq!((of(&["--cue", "first"]), of(&["--cue", &second])), (1, 1));
    assert_eq!((of(&["--since", "3h"]), of(&["--since", "2030-01-01"])), (1, 2));
    assert_eq!((of(&["--type", "claim_lost"]), of(&["--limit", "1"])), (0, 1));
    assert!(desk.home.ok(&["alert", "list", "-o", "wide"]).contains(&first));
    let json = desk.user.get("/v1/alerts?limit=20").text();
    assert_eq!(desk.home.ok(&["alert", "list", "--json"]).trim_end(), json.trim_end());
    assert_eq!(desk.home.json_error(&["alert", "list", "--type", "nonsense"], 5)["code"], "validation_error");
    assert_eq!(desk.home.json_error(&["alert", "list", "--cue", "nonsense"], 3)["code"], "not_found");
    let usage = desk.home.fails(&["alert", "list", "--since", "yesterday"], 2);
    assert!(usage.contains("90s, 10m, 2h"), "{usage}");
}

#[test]
fn a_test_alert_tells_its_result() {
    let (desk, notified) = (Desk::new(), Receiver::start());
    let refused = desk.home.fails(&["alert", "test"], 5);
    assert!(refused.contains("PATCH /v1/auth/me"), "{refused}");
    desk.user.patch("/v1/auth/me", &json!({"alert_webhook_url": notified.url()})).expect(200);
    assert_eq!(desk.home.ok(&["alert", "test"]), "Delivered: the webhook returned 200 in 0 ms.\n");
    assert_eq!(desk.home.json(&["alert", "test"])["status"], "delivered");
    assert_eq!(notified.count(), 2);
    notified.react(Reaction::Status(500));
    let failed = desk.home.run(&["alert", "test", "--utc"]);
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(
        failed.stdout.starts_with("Failed after 0 ms: the callback returned 500. It is sent again at "),
        "{failed:?}"
    );
    assert!(failed.stderr.contains("not delivered"), "{failed:?}");
    let failed = desk.home.run(&["alert", "test", "--json"]);
    let printed: Value = serde_json::from_str(&failed.stdout).unwrap();
    assert_eq!((failed.code, &printed["http_status"]), (1, &json!(500)), "{failed:?}");
}
