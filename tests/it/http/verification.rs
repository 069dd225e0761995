//! The instants of verdicts and evidence (contract §5.6, §5.7). The states of outcomes are promised in `tests/conformance`.

use crate::support::*;

#[test]
fn a_verdict_and_later_evidence_have_their_time_and_leave_that_of_the_report() {
    let (_server, user) = Server::with_clock_and_user(BEGIN);
    let later = "2026-01-01T10:01:00Z";
    let executions = ["verify", "evidence"].map(|action| {
        let mode = json!({"verification": {"mode": "require_artifacts"}});
        let cue = user.create(&with(worker_cue("charge", YEARLY), mode));
        (action, format!("/v1/executions/{}", user.fire(&cue)))
    });
    for (_, execution) in &executions {
        user.post(&format!("{execution}/outcome"), &json!({"success": true})).expect(200);
        user.post(&format!("{execution}/verification-pending"), &json!({})).expect(200);
    }
    user.advance("PT1M");
    for (action, execution) in &executions {
        let path = format!("{execution}/{action}");
        let verdict = match *action {
            "verify" => user.post(&path, &json!({})).expect(200)["verdict"]["verified_at"].clone(),
            _ => user.patch(&path, &json!({"artifacts": ["a.csv"]})).expect(200)["verdict"].clone(),
        };
        assert_eq!(verdict, if *action == "verify" { json!(later) } else { Value::Null });
        let shown = user.read(execution);
        assert_has(&shown, json!({"outcome_state": "verified_success", "updated_at": later}));
        assert_eq!(shown["outcome"]["recorded_at"], BEGIN, "{action}");
    }
}
