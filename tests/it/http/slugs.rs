//! `PUT` by slug (contract §4.17) where accounts, plans and the time matter. The rest is promised in `tests/conformance`.

use crate::http::cues::START;
use crate::support::*;

#[test]
fn a_slug_belongs_to_its_account() {
    let (server, user) = Server::with_clock_and_user(START);
    let other = server.user();
    let cue = with(worker_cue("a", YEARLY), json!({"slug": "home/a"}));
    let [own, foreign] = [&user, &other].map(|user| user.create(&cue));
    for (user, cue) in [(&user, &own), (&other, &foreign)] {
        assert_eq!(user.read("/v1/cues/slug:home%2Fa")["id"], cue["id"]);
    }
    user.delete("/v1/cues/slug:home%2Fa").expect(204);
    user.get("/v1/cues/slug:home%2Fa").expect_error(404, "cue_not_found");
    assert_eq!(other.cue(&foreign)["slug"], "home/a");
}

#[test]
fn a_put_starts_a_cue_that_has_run_again_only_with_a_new_instant() {
    let (_server, user) = Server::with_clock_and_user(START);
    let put = |cue: &Value| user.put("/v1/cues/by-slug/once", cue).expect(200);
    let mut once = webhook_cue("backup", YEARLY, "http://127.0.0.1:9/backup");
    once["retry"] = json!({"max_attempts": 1});
    once["schedule"] = json!({"type": "once", "at": "2026-01-05T10:00:00Z"});
    user.put("/v1/cues/by-slug/once", &once).expect(201);
    user.advance("PT72H");
    assert_eq!(user.read("/v1/cues/slug:once")["status"], "failed");
    let unchanged = json!({"action": "unchanged", "changed": []});
    for status in [json!(null), json!("active"), json!("paused")] {
        once["status"] = status;
        assert_has(&put(&once), unchanged.clone());
    }
    // A new default of the file is no new instant.
    once["schedule"]["timezone"] = "Europe/Berlin".into();
    once["schedule"]["catch_up"] = "all".into();
    assert_has(&put(&once), unchanged.clone());
    once["schedule"]["at"] = "2027-01-05T10:00:00Z".into();
    let fields = ["schedule.at", "schedule.timezone", "schedule.catch_up", "status"];
    assert_has(&put(&once), json!({"status": "paused", "changed": fields}));
    assert_has(&put(&once), unchanged);
}

#[test]
fn the_limits_of_the_plan_hold_for_a_put() {
    let server = Server::start(&["--test-clock", START]);
    let user = server.user();
    let cue = |status: &str| with(worker_cue("a", YEARLY), json!({"status": status}));
    for number in 0..10 {
        user.put(&format!("/v1/cues/by-slug/c{number}"), &cue("active")).expect(201);
    }
    let more = |status: &str| user.put("/v1/cues/by-slug/more", &cue(status));
    more("active").expect_error(403, "cue_limit_exceeded");
    more("paused").expect(201);
    more("active").expect_error(403, "cue_limit_exceeded");
}
