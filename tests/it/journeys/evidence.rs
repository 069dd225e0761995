//! Evidence: the report of a receiver, a verdict, and both after a restart.

use serde_json::{Value, json};

use super::{at, id, look, webhook};
use crate::support::receiver::Receiver;
use crate::support::server::Server;

const START: &str = "2026-01-05T00:00:00Z";
const LATER: &str = "2026-01-05T02:00:00Z";

#[test]
fn a_delivered_execution_is_verified_by_the_evidence_of_its_receiver() {
    let (mut server, receiver) = (Server::with_test_clock(START), Receiver::start());
    let user = server.user();
    let mut cue = webhook(&receiver, at("2026-01-05T01:00:00Z"));
    cue["verification"] = json!({"mode": "require_result_url"});
    let cue = user.create(&cue);
    user.advance("PT1H");
    // The receiver identifies the execution by the header of its delivery.
    let run = format!("/v1/executions/{}", receiver.deliveries()[0].execution_id);
    let state = |it: &Value| it["outcome_state"].as_str().map(str::to_owned);
    assert_eq!(state(&user.get(&run).expect(200)), None, "delivered, and nothing said yet");
    let report = json!({"success": true, "result": "posted"});
    let response = user.post(&format!("{run}/outcome"), &report).expect(200);
    assert_eq!(state(&response).as_deref(), Some("verification_failed"));
    let waiting = user.get("/v1/executions?outcome_state=verification_failed").expect(200);
    assert_eq!((&waiting["total"], &waiting["executions"][0]["status"]), (&json!(1), &json!("success")));

    let evidence = json!({"result_url": "https://example.com/posts/7", "result_type": "post"});
    let response = user.patch(&format!("{run}/evidence"), &evidence).expect(200);
    assert_eq!(state(&response).as_deref(), Some("verified_success"));
    user.post(&format!("{run}/verification-pending"), &json!({})).expect(200);
    let no = json!({"valid": false, "reason": "the post is empty"});
    user.post(&format!("{run}/verify"), &no).expect(200);

    assert_eq!(server.stop(), Some(0));
    server.restart_at(LATER);
    let user = user.at(server.addr());
    let shown = look(&user, &cue);
    assert_eq!(shown["status"], "completed", "the run was delivered, whatever is thought of its outcome");
    let execution = &shown["executions"][0];
    assert_eq!(state(execution).as_deref(), Some("verification_failed"));
    assert_eq!(execution["evidence"], evidence);
    let verdict =
        json!({"valid": false, "reason": "the post is empty", "verified_at": "2026-01-05T01:00:00Z"});
    assert_eq!((&execution["verdict"], &execution["id"]), (&verdict, &user.get(&run).expect(200)["id"]));
    user.delete(&format!("/v1/cues/{}", id(&cue)));
    user.post(&format!("{run}/verify"), &json!({})).expect_error(404, "execution_not_found");
    for (method, what) in [("POST", "verify"), ("POST", "verification-pending"), ("PATCH", "evidence")] {
        let response = server.client().call(method, &format!("{run}/{what}"), &[], b"{}").unwrap();
        response.expect_error(401, "invalid_api_key");
    }
}
