//! Outcomes with evidence over HTTP (contract §5.5 to §5.7): modes, verdicts, later evidence.
//!
//! Bodies are those of the published clients: `report_outcome`, `mark_verified` and `mark_verification_pending` of the
//! Python SDK (the last two send `{}` for any arguments), the worker daemon, and `report-outcome` of the command line.

use cued::domain::execution::outcome::VerificationMode;

use crate::support::*;

/// An execution with or without an outcome.
struct Run<'a> {
    user: &'a User,
    id: String,
}

impl<'a> Run<'a> {
    /// An execution of a new worker cue with this mode.
    fn new(api: &'a Api, user: &'a User, mode: VerificationMode) -> Self {
        let cue = api.fixture.worker_cue(user.key, |new| new.verification = mode);
        Self { user, id: api.fixture.run(&cue, json!({})).to_string() }
    }

    /// The same with this outcome.
    fn reported(api: &'a Api, user: &'a User, mode: VerificationMode, report: &Value) -> Self {
        let run = Self::new(api, user, mode);
        run.ask("POST", "/outcome", report);
        run
    }

    fn path(&self, what: &str) -> String {
        format!("/v1/executions/{}{what}", self.id)
    }

    fn try_to(&self, method: &str, what: &str, body: &Value) -> Response {
        self.user.call(method, &self.path(what), &[], body.to_string().as_bytes()).unwrap()
    }

    /// The body of a response that must be a success.
    #[track_caller]
    fn ask(&self, method: &str, what: &str, body: &Value) -> Value {
        let response = self.try_to(method, what, body);
        assert_eq!(response.status, 200, "{response:?}");
        response.json()
    }

    fn bring(&self, evidence: &Value) -> Value {
        self.ask("PATCH", "/evidence", evidence)
    }

    #[track_caller]
    fn is_refused(&self, method: &str, what: &str) {
        let response = self.try_to(method, what, &json!({}));
        assert_eq!((response.status, response.code()), (409, "invalid_state".to_owned()), "{what}");
    }

    fn shown(&self) -> Value {
        self.user.get(&self.path("")).json()
    }

    fn state(&self) -> Value {
        self.shown()["outcome_state"].clone()
    }
}

/// The body that the SDK sends for a success with every argument.
fn full_report() -> Value {
    json!({
        "success": true, "result": "charged", "metadata": {"cents": 4_200}, "external_id": "charge:ch_1",
        "result_url": "https://example.com/charges/ch_1", "result_type": "charge", "summary": "Charged customer 42",
        "artifacts": ["invoice.pdf", {"name": "log", "url": "https://example.com/log"}],
    })
}

#[test]
fn mode_and_evidence_determine_the_first_outcome_state() {
    let (api, ada) = Api::with_user("ada");
    let success = json!({"success": true});
    // The command line sends at most these three, the worker daemon also `result_ref`.
    let by_hand = json!({"success": true, "external_id": "4711", "summary": "by hand"});
    let by_daemon = json!({
        "success": true, "result": "completed", "result_ref": "batch:7", "result_url": "https://example.com/7",
        "metadata": {"_cueapi_worker": {"outcome_file_dropped_fields": ["x"]}},
    });
    let failure = json!({"success": false, "error": "card declined", "external_id": "ch_2", "artifacts": ["log"]});
    let (verified, missing) = ("verified_success", "verification_failed");
    for (mode, expected) in [
        (VerificationMode::None, ["reported_success"; 4]),
        (VerificationMode::RequireExternalId, [missing, verified, verified, missing]),
        (VerificationMode::RequireResultUrl, [missing, verified, missing, verified]),
        (VerificationMode::RequireArtifacts, [missing, verified, missing, missing]),
        (VerificationMode::Manual, ["verification_pending"; 4]),
    ] {
        let reports = [&success, &full_report(), &by_hand, &by_daemon, &failure];
        for (report, expected) in
            reports.into_iter().zip(expected.into_iter().chain(["reported_failure"]))
        {
            let run = Run::new(&api, &ada, mode);
            let response = run.ask("POST", "/outcome", report);
            assert_eq!(response["outcome_state"], expected, "{mode:?}: {report}");
            assert_eq!(response["outcome_recorded"], true);
            let shown = run.shown();
            assert_eq!(shown["outcome_state"], expected);
            // The verification of a success is separate from the end of the execution.
            assert_eq!(
                shown["status"],
                if report["success"] == true { "success" } else { "failed" }
            );
            assert_eq!(shown.get("verdict"), None);
        }
    }
    let run = Run::reported(&api, &ada, VerificationMode::None, &full_report());
    let mut evidence = full_report();
    for field in ["success", "result", "metadata"] {
        evidence.as_object_mut().unwrap().remove(field);
    }
    assert_eq!(run.shown()["evidence"], evidence);
}

#[test]
fn the_verification_mode_is_set_at_creation_and_can_be_changed() {
    let (_api, ada) = Api::with_user("ada");
    let cue = json!({
        "name": "charge", "transport": "worker", "schedule": {"type": "recurring", "cron": "0 * * * *"},
        "verification": {"mode": "require_external_id"},
    });
    let created = ada.post("/v1/cues", &cue).json();
    assert_eq!(created["verification"], json!({"mode": "require_external_id"}));
    let path = cue_path(&created);
    let reported = |report: Value| {
        let fired = ada.post(&format!("{path}/fire"), &json!({})).json();
        let id = fired.text("execution_id").to_owned();
        let run = Run { user: &ada, id };
        run.ask("POST", "/outcome", &report)["outcome_state"].clone()
    };
    assert_eq!(reported(json!({"success": true})), "verification_failed");
    for (mode, state) in [("manual", "verification_pending"), ("none", "reported_success")] {
        let patched = ada.patch(&path, &json!({"verification": {"mode": mode}})).json();
        assert_eq!(patched["verification"], json!({ "mode": mode }));
        assert_eq!(reported(json!({"success": true})), state);
    }
    // Other changes keep the mode.
    ada.patch(&path, &json!({"verification": {"mode": "manual"}}));
    let patched = ada.patch(&path, &json!({"name": "charge again", "verification": null})).json();
    assert_eq!(patched["verification"], json!({"mode": "manual"}));
    assert_eq!(ada.get(&path).json()["verification"], json!({"mode": "manual"}));
}

#[test]
fn a_verdict_is_final_and_shown_with_its_reason() {
    let (api, ada) = Api::with_user("ada");
    let report = json!({"success": true});
    let run = Run::reported(&api, &ada, VerificationMode::Manual, &report);
    api.fixture.advance(60);
    // As the SDK sends it.
    let verdict = json!({"valid": true, "reason": null, "verified_at": "2026-01-01T10:01:00Z"});
    assert_eq!(
        run.ask("POST", "/verify", &json!({})),
        json!({"execution_id": run.id, "outcome_state": "verified_success", "valid": true, "verdict": verdict})
    );
    let shown = run.shown();
    assert_has(&shown, json!({"outcome_state": "verified_success", "verdict": verdict}));
    assert_eq!(shown["outcome"]["recorded_at"], BEGIN, "the report is unchanged");
    assert_eq!(shown["updated_at"], "2026-01-01T10:01:00Z");
    run.is_refused("POST", "/verify");

    let run = Run::reported(&api, &ada, VerificationMode::Manual, &report);
    let verdict = json!({"valid": false, "reason": "the invoice number is wrong", "verified_at": "2026-01-01T10:01:00Z"});
    let no = json!({"valid": false, "reason": "the invoice number is wrong"});
    assert_eq!(
        run.ask("POST", "/verify", &no),
        json!({"execution_id": run.id, "outcome_state": "verification_failed", "valid": false, "verdict": verdict})
    );
    assert_eq!((&run.shown()["verdict"], &run.shown()["status"]), (&verdict, &json!("success")));
    run.is_refused("POST", "/verify");
    assert_eq!(run.shown()["verdict"], verdict, "a rejected verdict changes nothing");
}

#[test]
fn every_undecided_report_accepts_a_verdict() {
    let (api, ada) = Api::with_user("ada");
    for (success, mode) in [
        (true, VerificationMode::None),
        (false, VerificationMode::None),
        (true, VerificationMode::Manual),
        (false, VerificationMode::Manual),
    ] {
        for (valid, state) in [(true, "verified_success"), (false, "verification_failed")] {
            let run = Run::reported(&api, &ada, mode, &json!({ "success": success }));
            let response = run.ask("POST", "/verify", &json!({ "valid": valid }));
            assert_eq!(response["outcome_state"], state, "{mode:?}, success {success}");
            assert_eq!(run.shown()["outcome"]["success"], success);
        }
    }
    // A missing body approves like an empty one.
    let run = Run::reported(&api, &ada, VerificationMode::Manual, &json!({"success": true}));
    let response = ada.call("POST", &run.path("/verify"), &[], b"").unwrap();
    assert_eq!((response.status, run.state()), (200, json!("verified_success")));
}

#[test]
fn a_decided_outcome_can_be_reopened_for_verification() {
    let (api, ada) = Api::with_user("ada");
    let runs = [
        Run::reported(&api, &ada, VerificationMode::RequireExternalId, &full_report()),
        Run::reported(&api, &ada, VerificationMode::RequireExternalId, &json!({"success": true})),
        Run::reported(&api, &ada, VerificationMode::None, &json!({"success": true})),
        Run::reported(&api, &ada, VerificationMode::None, &json!({"success": false})),
        Run::reported(&api, &ada, VerificationMode::Manual, &json!({"success": true})),
    ];
    for run in runs {
        // As the SDK sends it, and repeated: the outcome is already pending.
        for _ in 0..2 {
            assert_eq!(
                run.ask("POST", "/verification-pending", &json!({})),
                json!({"execution_id": run.id, "outcome_state": "verification_pending"})
            );
        }
        run.ask("POST", "/verify", &json!({"valid": false, "reason": "no"}));
        run.ask("POST", "/verification-pending", &json!({}));
        let shown = run.shown();
        assert_eq!(shown["outcome_state"], "verification_pending");
        assert_eq!(shown.get("verdict"), None);
        assert_eq!(run.ask("POST", "/verify", &json!({}))["outcome_state"], "verified_success");
    }
}

#[test]
fn later_evidence_verifies_a_success() {
    let (api, ada) = Api::with_user("ada");
    let run = Run::reported(
        &api,
        &ada,
        VerificationMode::RequireArtifacts,
        &json!({"success": true, "summary": "done"}),
    );
    assert_eq!(run.state(), "verification_failed");
    let response = run.bring(&json!({"external_id": "7", "result_url": "https://example.com/7"}));
    assert_eq!(
        response,
        json!({
            "execution_id": run.id, "outcome_state": "verification_failed", "evidence_updated": true,
            "evidence": {"summary": "done", "external_id": "7", "result_url": "https://example.com/7"},
        })
    );
    api.fixture.advance(60);
    let response =
        run.bring(&json!({"artifacts": ["a.csv"], "summary": "all done", "external_id": null}));
    let evidence = json!({
        "summary": "all done", "external_id": "7", "result_url": "https://example.com/7", "artifacts": ["a.csv"],
    });
    assert_has(&response, json!({"outcome_state": "verified_success", "evidence": evidence}));
    let shown = run.shown();
    assert_has(&shown, json!({"outcome_state": "verified_success", "evidence": evidence}));
    assert_eq!(shown["updated_at"], "2026-01-01T10:01:00Z");
    assert_eq!(shown.get("verdict"), None);
    assert_eq!(run.bring(&json!({}))["evidence_updated"], false);
    assert_eq!(run.state(), "verified_success");

    // A worker that announces later evidence.
    let run =
        Run::reported(&api, &ada, VerificationMode::RequireExternalId, &json!({"success": true}));
    run.ask("POST", "/verification-pending", &json!({}));
    assert_eq!(run.bring(&json!({"summary": "soon"}))["outcome_state"], "verification_pending");
    assert_eq!(run.bring(&json!({"external_id": "7"}))["outcome_state"], "verified_success");
}

#[test]
fn evidence_alone_causes_no_failure_and_no_verdict() {
    let (api, ada) = Api::with_user("ada");
    let (mode, bare, id) = (
        VerificationMode::RequireExternalId,
        json!({"success": true}),
        json!({"external_id": "7"}),
    );
    let failed = Run::reported(&api, &ada, mode, &json!({"success": false}));
    assert_eq!(failed.bring(&id)["outcome_state"], "reported_failure");
    let reopened = Run::reported(&api, &ada, mode, &json!({"success": false}));
    reopened.ask("POST", "/verification-pending", &json!({}));
    assert_eq!(reopened.bring(&id)["outcome_state"], "verification_pending");

    let manual = Run::reported(&api, &ada, VerificationMode::Manual, &bare);
    assert_eq!(manual.bring(&full_evidence())["outcome_state"], "verification_pending");
    let unasked = Run::reported(&api, &ada, VerificationMode::None, &bare);
    assert_eq!(unasked.bring(&full_evidence())["outcome_state"], "reported_success");

    let rejected = Run::reported(&api, &ada, mode, &bare);
    rejected.ask("POST", "/verification-pending", &json!({}));
    rejected.ask("POST", "/verify", &json!({"valid": false, "reason": "nobody was charged"}));
    assert_eq!(rejected.bring(&id)["outcome_state"], "verification_failed");
    assert_eq!(rejected.shown()["verdict"]["reason"], "nobody was charged");
    // The evidence was complete before the reopening: more of it decides nothing.
    let doubted = Run::reported(&api, &ada, mode, &full_report());
    doubted.ask("POST", "/verification-pending", &json!({}));
    assert_eq!(doubted.bring(&id)["outcome_state"], "verification_pending");
}

#[test]
fn a_changed_mode_applies_to_later_evidence() {
    let (api, ada) = Api::with_user("ada");
    let cue = api
        .fixture
        .worker_cue(ada.key, |new| new.verification = VerificationMode::RequireExternalId);
    let run = Run { user: &ada, id: api.fixture.run(&cue, json!({})).to_string() };
    run.ask("POST", "/outcome", &json!({"success": true}));
    let path = format!("/v1/cues/{}", cue.id);
    ada.patch(&path, &json!({"verification": {"mode": "require_result_url"}}));
    assert_eq!(run.state(), "verification_failed", "a reported outcome does not change by itself");
    assert_eq!(run.bring(&json!({"external_id": "7"}))["outcome_state"], "verification_failed");
    let url = json!({"result_url": "https://example.com/7"});
    assert_eq!(run.bring(&url)["outcome_state"], "verified_success");
}

#[test]
fn executions_can_be_filtered_by_outcome_state() {
    let api = Api::start();
    let (ada, eve) = (api.user("ada"), api.user("eve"));
    let yes = json!({"success": true});
    let runs = [
        ("reported_success", Run::reported(&api, &ada, VerificationMode::None, &yes)),
        (
            "reported_failure",
            Run::reported(&api, &ada, VerificationMode::None, &json!({"success": false})),
        ),
        (
            "verified_success",
            Run::reported(&api, &ada, VerificationMode::RequireResultUrl, &full_report()),
        ),
        ("verification_pending", Run::reported(&api, &ada, VerificationMode::Manual, &yes)),
        (
            "verification_failed",
            Run::reported(&api, &ada, VerificationMode::RequireResultUrl, &yes),
        ),
    ];
    Run::new(&api, &ada, VerificationMode::Manual);
    Run::reported(&api, &eve, VerificationMode::Manual, &yes);
    for (state, run) in &runs {
        let list =
            ada.get(&format!("/v1/executions?outcome_state={state}&limit=20&offset=0")).json();
        assert_eq!(list["total"], 1, "{state}");
        assert_eq!(list["executions"][0]["id"], json!(run.id), "{state}");
    }
    runs[4].1.bring(&full_evidence());
    let list = ada.get("/v1/executions?outcome_state=verified_success").json();
    assert_eq!(list["total"], 2);
}

fn full_evidence() -> Value {
    json!({
        "external_id": "7", "result_url": "https://example.com/7", "result_ref": "7", "result_type": "report",
        "summary": "done", "artifacts": ["a"],
    })
}

#[test]
fn a_result_url_that_is_no_web_address_is_refused_in_every_mode() {
    let (api, user) = Api::with_user("ada");
    for mode in
        [VerificationMode::None, VerificationMode::RequireResultUrl, VerificationMode::Manual]
    {
        let run = Run::new(&api, &user, mode);
        let long = format!("https://example.com/{}", "x".repeat(2_029));
        for bad in
            ["done", "javascript:alert(1)", "ftp://example.com/7", "/reports/7", "https://", &long]
        {
            let body = json!({"success": true, "result_url": bad});
            let detail =
                run.try_to("POST", "/outcome", &body).expect_error(422, "validation_error");
            assert_eq!(detail["detail"][0]["loc"], json!(["body", "result_url"]), "{bad}");
        }
        run.ask(
            "POST",
            "/outcome",
            &json!({"success": true, "result_url": " https://example.com/7 "}),
        );
        run.try_to("PATCH", "/evidence", &json!({"result_url": "done"}))
            .expect_error(422, "validation_error");
        assert_eq!(run.shown()["evidence"]["result_url"], "https://example.com/7");
    }
}

#[test]
fn a_url_of_evidence_is_stored_as_it_is_checked() {
    let (api, user) = Api::with_user("ada");
    let run = Run::new(&api, &user, VerificationMode::None);
    let padded = format!("https://example.com/7{}", "\n".repeat(2_048));
    let artifacts = json!(["a", {"name": "log", "url": "\t https://example.com/\u{fc} \n", "size": 7}, {"url": " "}]);
    let expected = json!({
        "result_url": "https://example.com/7",
        "artifacts": ["a", {"name": "log", "url": "https://example.com/\u{fc}", "size": 7}, {"url": ""}],
    });
    for (method, path, rest) in
        [("POST", "/outcome", json!({"success": true})), ("PATCH", "/evidence", json!({}))]
    {
        let with = |name: &str, value: Value| {
            let mut body = rest.clone();
            body[name] = value;
            body
        };
        for bad in [with("result_url", json!(padded)), with("artifacts", json!([{"url": padded}]))]
        {
            run.try_to(method, path, &bad).expect_error(422, "validation_error");
        }
        let mut body = with("result_url", json!("\nhttps://example.com/7\r"));
        body["artifacts"] = artifacts.clone();
        run.ask(method, path, &body);
        assert_eq!(run.shown()["evidence"], expected, "{method}");
    }
}

#[test]
fn a_nul_in_a_report_costs_no_report() {
    let (api, user) = Api::with_user("ann");
    let texts = json!({"result": "a\0b", "error": "\0", "external_id": "i\0", "result_ref": "r\0", "result_type": "\0t",
                       "summary": "s\0\u{1}\u{1b}"});
    let replaced: Value =
        serde_json::from_str(&texts.to_string().replace("\\u0000", "\u{fffd}")).unwrap();
    let mut report = texts.clone();
    report["success"] = json!(false);
    let run = Run::reported(&api, &user, VerificationMode::None, &report);
    let shown = run.shown();
    for (name, text) in replaced.as_object().unwrap() {
        let part = if ["result", "error"].contains(&name.as_str()) {
            &shown["outcome"]
        } else {
            &shown["evidence"]
        };
        assert_eq!(&part[name], text, "{name}");
    }
    assert_eq!(shown["error_message"], "\u{fffd}");
    run.bring(&json!({"summary": "\0 later"}));
    assert_eq!(run.shown()["evidence"]["summary"], "\u{fffd} later");
    let long = json!({"success": true, "result": "\0".repeat(65_536)});
    let run = Run::reported(&api, &user, VerificationMode::None, &long);
    assert_eq!(run.shown()["outcome"]["result"], "\u{fffd}".repeat(65_536));
}
