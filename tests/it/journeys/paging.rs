//! Lists of executions, page by page.

use crate::journeys::{cron, id, read_cue, worker};
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
        let claim = user.post("/v1/executions/claim", &json!({"worker_id": "w"})).expect(200);
        let outcome = format!("/v1/executions/{}/outcome", claim.text("execution_id"));
        user.post(&outcome, &json!({"success": success})).expect(200);
    }
    (server, user, cue)
}

#[test]
fn the_executions_inside_a_cue_are_paged() {
    let (_server, user, cue) = five();
    let all = read_cue(&user, &cue);
    let page = user.read(&format!("/v1/cues/{}?execution_limit=2&execution_offset=3", id(&cue)));
    assert_eq!(ids(&page), ids(&all)[3..]);
    assert_has(&page, json!({"execution_total": 5, "execution_limit": 2, "execution_offset": 3}));
    let behind = user.read(&format!("/v1/cues/{}?execution_offset=5", id(&cue)));
    assert_eq!((ids(&behind), &behind["execution_total"]), (vec![], &json!(5)));
}

#[test]
fn a_cue_with_a_long_history_is_shown_like_any_other() {
    let (server, user, cue) = five();
    let before = read_cue(&user, &cue);
    server.sqlite().execute("UPDATE cues SET run_count = 1000000", []).unwrap();
    let after = read_cue(&user, &cue);
    assert_has(&after, json!({"executions": before["executions"], "run_count": 1_000_000}));
    user.get("/v1/cues/cue_000000000000").expect(404);
}

#[test]
fn lists_have_has_more() {
    let (_server, user, _) = five();
    let all = user.read("/v1/executions");
    assert_eq!((ids(&all).len(), &all["has_more"]), (5, &json!(false)));
    let first = user.read("/v1/executions?limit=2");
    assert_eq!((ids(&first), &first["has_more"]), (ids(&all)[..2].to_vec(), &json!(true)));
    let last = user.read("/v1/executions?limit=2&offset=3");
    assert_eq!((ids(&last), &last["has_more"]), (ids(&all)[3..].to_vec(), &json!(false)));
}

#[test]
fn executions_can_be_filtered_by_worker_and_several_statuses() {
    let (_server, user, cue) = five();
    let total = |filter: &str| user.read(&format!("/v1/executions?{filter}"))["total"].clone();
    assert_eq!(total("worker_id=w"), 2);
    assert_eq!(total("worker_id=other"), 0);
    assert_eq!(total("status__in=success,failed"), 2);
    assert_eq!(total("status__in=pending,failed"), 4);
    assert_eq!(total("status=pending"), 3);
    assert_eq!(total("worker_id=w&status=failed"), 1);
    assert_eq!(total(&format!("cue_id={}&status=success", id(&cue))), 1);
    assert_eq!(total("triggered_by=schedule"), 5);
    assert_eq!(total("cue_id=cue_unknown00000"), 0);
}

#[test]
fn a_page_of_very_large_outcomes_is_shorter_and_has_more() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&worker(cron("0 * * * *")));
    let large = "x".repeat(65_536);
    for _ in 0..30 {
        let run = user.post(&format!("/v1/cues/{}/fire", id(&cue)), &json!({})).expect(200);
        let outcome = format!("/v1/executions/{}/outcome", run.text("execution_id"));
        let report = json!({
            "success": true, "result": large, "error": large, "external_id": large, "summary": large, "result_ref": large,
        });
        user.post(&outcome, &report).expect(200);
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
