//! The limits of a cue on the command line: overlap, maximum age, deadline of an outcome, flows.

use crate::cli::client::Desk;
use crate::support::*;

#[test]
fn a_delivered_run_shows_whether_its_result_is_due_missing_or_known() {
    let (desk, receiver) = (Desk::new(), Receiver::start());
    let cue = desk.webhook_cue("hook", &receiver.url());
    desk.user
        .patch(&format!("/v1/cues/{cue}"), &json!({"outcome_deadline_seconds": 3_600}))
        .expect(200);
    let run = desk.fire(&cue);
    desk.user.settle();
    let shown = desk.home.ok(&["run", "show", &run]);
    assert_contains(
        &shown,
        &["why            delivered; no result yet, due at 2030-01-01 01:00:00+00:00\n"],
    );
    assert_contains(&desk.home.ok(&["run", "list"]), &["success\t200, no result yet"]);
    desk.user.advance("PT1H");
    assert_contains(
        &desk.home.ok(&["run", "show", &run]),
        &[
            "why            it was delivered, but nobody reported its result in time\n",
            "outcome        no result in time\n",
        ],
    );
    assert_contains(
        &desk.home.ok(&["run", "list", "--outcome", "missing"]),
        &["success\t200, no result in time"],
    );
    assert_contains(
        &desk.home.ok(&["alert", "list", "--type", "outcome_missing"]),
        &["outcome missing", "hook"],
    );
    desk.user.report(&run, &json!({"success": true}));
    assert_contains(&desk.home.ok(&["run", "list"]), &["success\t200"]);
    assert!(!desk.home.ok(&["run", "show", &run]).contains("why  "));
}
