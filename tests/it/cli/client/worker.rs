//! `cued worker`.

use serde_json::json;

use super::Desk;

#[test]
fn workers_are_listed_with_their_last_heartbeat_and_removed() {
    let desk = Desk::new();
    assert_eq!(desk.home.ok(&["worker", "list"]), "WORKER  STATUS  HEARTBEAT  TASKS\n");
    let beat = |worker: &str, handlers: &[&str]| {
        let body = json!({"worker_id": worker, "handlers": handlers});
        desk.user.post("/v1/worker/heartbeat", &body).expect(200);
    };
    beat("old/er", &[]);
    desk.user.advance("PT4M");
    beat("pi-1", &["report", "resize"]);
    desk.user.advance("PT12S");
    let shown = desk.home.ok(&["worker", "list"]);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "WORKER  STATUS  HEARTBEAT   TASKS");
    assert_eq!(lines[1], "pi-1    active  12.0 s ago  report, resize");
    assert_eq!(lines[2], "old/er  stale   4 min ago");
    assert!(desk.home.ok(&["worker", "list", "-o", "wide"]).contains("2030-01-01 00:04:00+00:00"));
    let json = desk.user.get("/v1/workers").text();
    assert_eq!(desk.home.ok(&["worker", "list", "--json"]).trim_end(), json.trim_end());
    assert_eq!(desk.home.ok(&["worker", "list", "-q"]), "pi-1\nold/er\n");
    assert_eq!(desk.home.ok(&["worker", "rm", "old/er"]), "removed worker old/er\n");
    assert_eq!(desk.home.ok(&["worker", "list", "-q"]), "pi-1\n");
    let missing = desk.home.json_error(&["worker", "rm", "old/er"], 3);
    assert_eq!(missing["code"], "worker_not_found");
    assert_eq!(desk.home.ok(&["worker", "rm", "pi-1", "--json"]), "", "a removal has no answer");
}
