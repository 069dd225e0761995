//! `GET /v1/usage`, field by field.

use serde_json::{Value, json};

use super::{Plans, id, limited, worker};
use crate::support::client::Client;

fn usage(user: &Client) -> Value {
    user.get("/v1/usage").expect(200)
}

#[test]
fn usage_of_a_free_account_has_all_fields_and_limits() {
    let server = limited();
    let user = server.user();
    user.create(&worker("0 * * * *"));
    assert_eq!(
        usage(&user),
        json!({
            "plan": {"name": "free", "interval": null},
            "cues": {"active": 1, "limit": 10, "remaining": 9, "total": 1, "total_limit": 100},
            "executions": {"used": 0, "limit": 300, "remaining": 300},
            "storage": {"used_bytes": 0, "limit_bytes": 64 << 20},
            "rate_limit": {"limit": 60, "current_usage": 2},
            "outcomes": {"reported": 0, "succeeded": 0, "failed": 0},
            "billing_period": {"start": "2026-01-01T00:00:00Z", "end": "2026-02-01T00:00:00Z"},
        })
    );
}

#[test]
fn usage_of_the_month_outlives_deleted_cues() {
    let server = Plans::small().server();
    let user = server.user();
    let cue = user.create(&worker("0 * * * *"));
    user.advance("PT3H");
    let executions = user.executions_of(id(&cue));
    for (execution, success) in executions.iter().zip([true, false, true]) {
        let path = format!("/v1/executions/{}/outcome", id(execution));
        user.post(&path, &json!({"success": success})).expect(200);
        user.post(&path, &json!({"success": success})).expect_error(409, "outcome_already_reported");
    }
    let figures = |user: &Client| {
        let usage = usage(user);
        (usage["executions"].clone(), usage["outcomes"].clone(), usage["cues"]["active"].clone())
    };
    let executions = json!({"used": 3, "limit": 5, "remaining": 2});
    let outcomes = json!({"reported": 3, "succeeded": 2, "failed": 1});
    assert_eq!(figures(&user), (executions.clone(), outcomes.clone(), json!(1)));
    assert_eq!(user.delete(&format!("/v1/cues/{}", id(&cue))).status, 204);
    assert_eq!(figures(&user), (executions, outcomes, json!(0)));
    user.advance_to("2026-02-01T00:00:00Z");
    let none = json!({"reported": 0, "succeeded": 0, "failed": 0});
    assert_eq!(figures(&user), (json!({"used": 0, "limit": 5, "remaining": 5}), none, json!(0)));
    assert_eq!(
        usage(&user)["billing_period"],
        json!({"start": "2026-02-01T00:00:00Z", "end": "2026-03-01T00:00:00Z"})
    );
}

#[test]
fn usage_shows_zero_remaining_above_the_quota_and_the_billing_interval() {
    let server = Plans::small().server();
    let user = server.user();
    user.create(&worker("0 * * * *"));
    user.advance("PT7H");
    server.sqlite().execute("UPDATE users SET plan_interval = 'annual'", []).unwrap();
    let usage = usage(&user);
    assert_eq!(usage["executions"], json!({"used": 7, "limit": 5, "remaining": 0}));
    assert_eq!(usage["plan"], json!({"name": "free", "interval": "annual"}));
}

#[test]
fn health_counts_claimable_and_retrying_executions() {
    let server = Plans::small().server();
    let user = server.user();
    user.create(&worker("0 * * * *"));
    user.create(&json!({"name": "hook", "schedule": {"type": "recurring", "cron": "0 * * * *"},
                        "callback": {"url": "http://127.0.0.1:9/"}, "retry": {"backoff_minutes": [600]}}));
    let queue = |pending_worker_claims: i64, pending_retries: i64, oldest: Option<i64>| {
        json!({"pending_outbox": 0, "stale_executions": 0, "pending_retries": pending_retries,
               "pending_worker_claims": pending_worker_claims,
               "oldest_pending_claim_seconds": oldest})
    };
    user.advance("PT1H");
    assert_eq!(user.get("/health").expect(200)["queue"], queue(1, 1, Some(1_800)));
    user.post("/v1/executions/claim", &json!({})).expect(200);
    assert_eq!(user.get("/health").expect(200)["queue"], queue(0, 1, None));
    // The claim has expired and the next run has fired.
    user.advance("PT1H");
    assert_eq!(user.get("/health").expect(200)["queue"], queue(2, 2, Some(2_700)));
}
