//! Lists of executions, page by page.

use crate::journeys::{cron, id, worker};
use crate::support::*;

const START: &str = "2026-01-05T00:00:00Z";

fn ids(page: &Value) -> Vec<&str> {
    page.list("executions").iter().map(id).collect()
}

/// A cue with five executions: a success and a failure of the worker `w`, and three pending ones.
fn five() -> (Server, Client, Value) {
    let (server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&worker(cron("0 * * * *")));
    user.advance("PT5H");
    for success in [true, false] {
        user.report(&user.claim("w"), &json!({"success": success}));
    }
    (server, user, cue)
}

#[test]
fn a_cue_with_a_long_history_is_shown_like_any_other() {
    let (server, user, cue) = five();
    let before = user.cue(&cue);
    server.sqlite().execute("UPDATE cues SET run_count = 1000000", []).unwrap();
    let after = user.cue(&cue);
    assert_has(&after, json!({"executions": before["executions"], "run_count": 1_000_000}));
    user.get("/v1/cues/cue_000000000000").expect(404);
}

#[test]
fn executions_can_be_filtered_by_worker_and_several_statuses() {
    let (_server, user, cue) = five();
    let rows = "worker_id=w 2 worker_id=other 0 status__in=success,failed 2 status__in=pending,failed 4 status=pending 3 \
                worker_id=w&status=failed 1 cue_id=CUE&status=success 1 triggered_by=schedule 5 cue_id=cue_unknown00000 0";
    for row in words(rows).chunks(2) {
        let filter = row[0].replace("CUE", id(&cue));
        assert_eq!(user.total(&format!("/v1/executions?{filter}")).to_string(), row[1], "{filter}");
    }
}

#[test]
fn a_page_of_very_large_outcomes_is_shorter_and_has_more() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&worker(cron("0 * * * *")));
    let large = "x".repeat(65_536);
    for _ in 0..30 {
        let report = json!({
            "success": true, "result": large, "error": large, "external_id": large, "summary": large, "result_ref": large,
        });
        user.report(&user.fire(&cue), &report);
    }
    let page = user.read("/v1/executions?limit=100");
    let shown = ids(&page).len();
    assert!((10..13).contains(&shown), "{shown}");
    assert_eq!((&page["total"], &page["has_more"]), (&json!(30), &json!(true)));
    let shown_of_cue = user.read(&format!("/v1/cues/{}?execution_limit=100", id(&cue)));
    assert_eq!(
        (ids(&shown_of_cue).len(), &shown_of_cue["execution_has_more"]),
        (shown, &json!(true))
    );
    let rest = user.read(&format!("/v1/executions?limit=100&offset={}", 30 - shown));
    assert_eq!((ids(&rest).len(), &rest["has_more"]), (shown, &json!(false)));
}
