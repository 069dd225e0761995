//! Missing, unknown, ill-typed and out-of-range fields.

use serde_json::{Value, json};

use crate::http::bad_input::{Case, check, server};

#[test]
fn every_field_of_a_new_cue_is_validated() {
    check(
        &server().user(),
        [
            Case::cue_without("name").invalid("missing", "body.name"),
            Case::cue("name", json!("")).invalid("string_too_short", "body.name"),
            Case::cue("name", json!("x".repeat(255))).accepted(201),
            Case::cue("name", json!("\u{1f600}".repeat(255)))
                .named("255 characters of four bytes")
                .accepted(201),
            Case::cue("name", json!("x".repeat(256))).invalid("string_too_long", "body.name"),
            Case::cue("name", json!(5)).invalid("string_type", "body.name"),
            Case::cue("name", Value::Null).invalid("string_type", "body.name"),
            Case::cue("name", json!(["x"])).invalid("string_type", "body.name"),
            Case::cue("transport", json!("pigeon")).invalid("literal_error", "body.transport"),
            Case::cue("transport", json!(1)).invalid("literal_error", "body.transport"),
            Case::cue("description", json!(5)).invalid("string_type", "body.description"),
            Case::cue("description", Value::Null).accepted(201),
            Case::cue("retry", json!(3)).invalid("model_attributes_type", "body.retry"),
            Case::cue("retry.max_attempts", json!(0))
                .invalid("greater_than_equal", "body.retry.max_attempts"),
            Case::cue("retry.max_attempts", json!(-1))
                .invalid("greater_than_equal", "body.retry.max_attempts"),
            Case::cue("retry.max_attempts", json!(11)).invalid("less_than_equal", "body.retry.max_attempts"),
            Case::cue("retry.max_attempts", json!("3")).invalid("int_type", "body.retry.max_attempts"),
            Case::cue("retry.max_attempts", json!(10)).accepted(201),
            Case::cue("retry.backoff_minutes", json!(5)).invalid("list_type", "body.retry.backoff_minutes"),
            Case::cue("retry.backoff_minutes", json!([1, "x"]))
                .invalid("float_type", "body.retry.backoff_minutes.1"),
            Case::cue("retry.backoff_minutes", json!([-1])).expect_error(422, "validation_error"),
            Case::cue("retry.backoff_minutes", json!([0.5, 1])).accepted(201),
            Case::cue("on_failure", json!("mail")).invalid("model_attributes_type", "body.on_failure"),
            Case::cue("on_failure.email", json!("yes")).invalid("bool_type", "body.on_failure.email"),
            Case::cue("on_failure.pause", json!(1)).invalid("bool_type", "body.on_failure.pause"),
            Case::cue("on_failure.webhook", json!(1)).invalid("string_type", "body.on_failure.webhook"),
            Case::cue("verification", json!("manual")).invalid("model_attributes_type", "body.verification"),
            Case::cue("verification.mode", json!("psychic"))
                .invalid("literal_error", "body.verification.mode"),
            Case::cue("verification", json!({})).invalid("missing", "body.verification.mode"),
            Case::cue("verification", Value::Null).accepted(201),
            Case::cue("verification.mode", json!("manual")).accepted(201),
        ],
    );
}

#[test]
fn a_422_lists_every_problem() {
    let cue = json!({
        "schedule": {"type": "hourly"}, "callback": {"url": "https://hooks.example.com/cue"},
        "transport": "pigeon", "retry": {"max_attempts": 99}, "payload": [],
    });
    let body = server().user().post("/v1/cues", &cue).expect_error(422, "validation_error");
    let detail = body["detail"].as_array().unwrap();
    let mut places: Vec<String> = detail.iter().map(|problem| problem["loc"].to_string()).collect();
    places.sort();
    assert_eq!(
        places,
        [
            r#"["body","name"]"#,
            r#"["body","payload"]"#,
            r#"["body","retry","max_attempts"]"#,
            r#"["body","schedule","type"]"#,
            r#"["body","transport"]"#,
        ]
    );
}

#[test]
fn a_422_lists_at_most_a_hundred_problems() {
    let server = server();
    let user = server.user();
    let created = user.create(&super::good_cue());
    let unknown: Value = (0..150).map(|number| (format!("field_{number}"), json!(1))).collect();
    let path = format!("/v1/cues/{}", created["id"].as_str().unwrap());
    let body = user.patch(&path, &unknown).expect_error(422, "validation_error");
    assert_eq!(body["detail"].as_array().unwrap().len(), 100);
}

#[test]
fn unknown_fields_warn_on_create_and_are_refused_on_patch() {
    let server = server();
    let user = server.user();
    let created = user.create(&super::changed(super::good_cue(), "colour", Some(json!("red"))));
    assert!(created["warning"].as_str().unwrap().contains("colour"), "{created}");
    let path = format!("/v1/cues/{}", created["id"].as_str().unwrap());
    let body =
        user.patch(&path, &json!({"colour": "red", "name": "new"})).expect_error(422, "validation_error");
    let expected = json!([{
        "type": "extra_forbidden", "loc": ["body", "colour"], "msg": "Extra inputs are not permitted", "input": "colour",
    }]);
    assert_eq!(body["detail"], expected);
    let patch = |value: Value| Case::new("PATCH", &path, &value).named(&value.to_string());
    check(
        &user,
        [
            patch(json!({"id": "cue_000000000000"})).invalid("extra_forbidden", "body.id"),
            patch(json!({"next_run": "2099-01-01T00:00:00Z"})).invalid("extra_forbidden", "body.next_run"),
            patch(json!({"transport": "worker"})).invalid("extra_forbidden", "body.transport"),
            patch(json!({"run_count": 0})).invalid("extra_forbidden", "body.run_count"),
            patch(json!({"a": 1, "b": 2})).invalid("extra_forbidden", "body.b"),
            patch(json!({"schedule": {"interval": 5}})).invalid("extra_forbidden", "body.schedule.interval"),
            patch(json!({"callback": {"uri": "x"}})).invalid("extra_forbidden", "body.callback.uri"),
            patch(json!({"retry": {"times": 5}})).invalid("extra_forbidden", "body.retry.times"),
            patch(json!({"on_failure": {"sms": true}})).invalid("extra_forbidden", "body.on_failure.sms"),
            patch(json!({"verification": {"mode": "none", "x": 1}}))
                .invalid("extra_forbidden", "body.verification.x"),
            patch(json!({"verification": {"mode": "psychic"}}))
                .invalid("literal_error", "body.verification.mode"),
            patch(json!({"verification": {}})).invalid("missing", "body.verification.mode"),
            patch(json!({"schedule": {"cron": "0 9 * * *", "at": "2099-01-01T00:00:00Z"}}))
                .expect_error(400, "invalid_schedule"),
            patch(json!({"status": "completed"})).invalid("literal_error", "body.status"),
            patch(json!({"status": "failed"})).invalid("literal_error", "body.status"),
            patch(json!({"status": 1})).invalid("literal_error", "body.status"),
            patch(json!({"name": ""})).invalid("string_too_short", "body.name"),
            patch(json!({"name": "x".repeat(256)}))
                .named("long name")
                .invalid("string_too_long", "body.name"),
            patch(json!({"payload": []})).invalid("dict_type", "body.payload"),
            patch(json!({"schedule": {"cron": "61 * * * *"}})).expect_error(400, "invalid_schedule"),
            patch(json!({"schedule": {"timezone": "Mars/Olympus"}})).expect_error(400, "invalid_timezone"),
            patch(json!({"schedule": {"type": "hourly"}})).invalid("literal_error", "body.schedule.type"),
            patch(json!({"schedule": {"type": "once", "at": "2020-01-01T00:00:00Z"}}))
                .expect_error(400, "invalid_schedule"),
            patch(json!({"callback": {"url": "http://10.0.0.1/"}})).expect_error(400, "invalid_callback_url"),
            patch(json!({"callback": {"headers": {"Host": "x"}}})).expect_error(400, "invalid_callback"),
            patch(json!({"retry": {"max_attempts": 11}}))
                .invalid("less_than_equal", "body.retry.max_attempts"),
            patch(json!([])).invalid("model_attributes_type", "body"),
            Case::raw("PATCH", &path, "{").expect_error(400, "invalid_json"),
        ],
    );
    let unchanged = user.get(&path).expect(200);
    assert_eq!((&unchanged["name"], &unchanged["updated_at"]), (&json!("nightly"), &created["updated_at"]));
}

#[test]
fn ignored_fields_of_a_create_are_named_at_every_level() {
    let server = server();
    let user = server.user();
    for (field, value, named) in [
        ("schedule.interval", json!(5), "schedule.interval"),
        ("schedule.at", json!("2099-01-01T00:00:00Z"), "schedule.at"),
        ("callback.uri", json!("x"), "callback.uri"),
        ("retry.times", json!(5), "retry.times"),
        ("on_failure.sms", json!(true), "on_failure.sms"),
        ("verification", json!({"mode": "none", "x": 1}), "verification.x"),
    ] {
        let created = user.create(&super::changed(super::good_cue(), field, Some(value)));
        assert!(created["warning"].as_str().is_some_and(|warning| warning.contains(named)), "{created}");
    }
    assert_eq!(user.create(&super::good_cue())["warning"], Value::Null);
}

#[test]
fn an_error_names_its_field() {
    let server = server();
    let user = server.user();
    let cue = super::changed(super::good_cue(), "on_failure.webhook", Some(json!("nowhere")));
    let refused = user.post("/v1/cues", &cue).expect_error(400, "invalid_callback_url");
    let message = |refused: &Value| refused["error"]["message"].as_str().unwrap().to_owned();
    assert!(message(&refused).starts_with("on_failure.webhook "), "{refused}");
    let url = json!("https://user:secret@example.com/");
    let cue = super::changed(super::good_cue(), "on_failure.webhook", Some(url.clone()));
    let me = user.patch("/v1/auth/me", &json!({ "alert_webhook_url": url }));
    for refused in [user.post("/v1/cues", &cue), me] {
        let refused = refused.expect_error(400, "invalid_callback_url");
        let text = message(&refused);
        assert!(text.contains("is signed") && !text.contains("callback."), "no headers go with it: {text}");
    }
    let fire = format!("/v1/cues/{}/fire", user.create(&super::good_cue())["id"].as_str().unwrap());
    let refused = user.post(&fire, &json!({"send_at": "noon"})).expect_error(400, "invalid_schedule");
    assert!(message(&refused).starts_with("send_at: "), "{refused}");
}

#[test]
fn query_parameters_are_validated() {
    let server = server();
    let user = server.user();
    let cue = user.create(&super::good_cue());
    let upcoming = format!("/v1/cues/{}/upcoming", cue["id"].as_str().unwrap());
    let one = format!("/v1/cues/{}", cue["id"].as_str().unwrap());
    let get = |path: &str, query: &str| Case::get(&format!("{path}?{query}"));
    let mut rows = Vec::new();
    for path in ["/v1/cues", "/v1/executions"] {
        rows.extend([
            get(path, "limit=0").invalid("greater_than_equal", "query.limit"),
            get(path, "limit=-1").invalid("greater_than_equal", "query.limit"),
            get(path, "limit=101").invalid("less_than_equal", "query.limit"),
            get(path, "limit=99999999999999999999").invalid("less_than_equal", "query.limit"),
            get(path, "limit=ten").invalid("int_parsing", "query.limit"),
            get(path, "limit=").invalid("int_parsing", "query.limit"),
            get(path, "limit=1.5").invalid("int_parsing", "query.limit"),
            get(path, "offset=-1").invalid("greater_than_equal", "query.offset"),
            get(path, "offset=x").invalid("int_parsing", "query.offset"),
            get(path, "status=gone").invalid("literal_error", "query.status"),
            get(path, "limit=100&offset=9223372036854775807").accepted(200),
        ]);
    }
    rows.extend([
        get("/v1/cues", "q=").invalid("string_too_short", "query.q"),
        get("/v1/cues", &format!("q={}", "ä".repeat(101))).invalid("string_too_long", "query.q"),
        get("/v1/cues", &format!("q={}", "x".repeat(100))).accepted(200),
        get("/v1/cues", "transport=pigeon").invalid("literal_error", "query.transport"),
        get("/v1/cues", "failing=maybe").invalid("bool_parsing", "query.failing"),
        get("/v1/cues", "sort=-id").invalid("literal_error", "query.sort"),
        get("/v1/cues", "runs=61").invalid("less_than_equal", "query.runs"),
        get("/v1/cues", "runs=-1").invalid("greater_than_equal", "query.runs"),
        get("/v1/cues", "runs=all").invalid("int_parsing", "query.runs"),
        get("/v1/cues", "cursor=x").invalid("value_error", "query.cursor"),
        get(&one, "payload=xml").invalid("literal_error", "query.payload"),
        get("/v1/executions", "status=success&status__in=pending").invalid("value_error", "query.status"),
        get("/v1/executions", "status__in=pending,gone").invalid("literal_error", "query.status__in"),
        get("/v1/executions", "triggered_by=moon").invalid("literal_error", "query.triggered_by"),
        get("/v1/executions", "outcome_state=success").invalid("literal_error", "query.outcome_state"),
        get("/v1/executions", "outcome_state=verified_success").accepted(200),
        get("/v1/executions/claimable", "limit=101").invalid("less_than_equal", "query.limit"),
        get("/v1/executions/claimable", "limit=0").invalid("greater_than_equal", "query.limit"),
        get("/v1/executions/claimable", "wait=31").invalid("less_than_equal", "query.wait"),
        get("/v1/executions/claimable", "wait=-1").invalid("greater_than_equal", "query.wait"),
        get("/v1/executions/claimable", "wait=long").invalid("int_parsing", "query.wait"),
        get("/v1/executions/claimable", "wait=0&limit=1&task=none").accepted(200),
        get(&upcoming, "limit=0").invalid("greater_than_equal", "query.limit"),
        get(&upcoming, "limit=x").invalid("int_parsing", "query.limit"),
        get(&one, "execution_limit=101").invalid("less_than_equal", "query.execution_limit"),
        get(&one, "execution_limit=0").invalid("greater_than_equal", "query.execution_limit"),
        get(&one, "execution_offset=-1").invalid("greater_than_equal", "query.execution_offset"),
    ]);
    check(&user, rows);
}

#[test]
fn worker_requests_are_validated() {
    let server = server();
    let user = server.user();
    let work =
        json!({"name": "w", "transport": "worker", "schedule": {"type": "recurring", "cron": "0 9 * * *"}});
    let cue = user.create(&work);
    let fired = user.post(&format!("/v1/cues/{}/fire", cue["id"].as_str().unwrap()), &json!({})).expect(200);
    let execution = format!("/v1/executions/{}", fired["execution_id"].as_str().unwrap());
    let outcome = |value: Value| Case::post(&format!("{execution}/outcome"), &value);
    let claim = |value: Value| Case::post(&format!("{execution}/claim"), &value);
    let heartbeat = |value: Value| Case::post("/v1/worker/heartbeat", &value);
    let key = |value: Value| Case::post("/v1/auth/keys", &value);
    // `{"m":"…"}` adds eight bytes to the text.
    let metadata = |bytes: usize| json!({"success": true, "metadata": {"m": "x".repeat(bytes - 8)}});
    let fire = |value: Value| Case::post(&format!("/v1/cues/{}/fire", cue["id"].as_str().unwrap()), &value);
    check(
        &user,
        [
            outcome(json!({})).invalid("missing", "body.success"),
            outcome(json!({"success": "yes"})).invalid("bool_type", "body.success"),
            outcome(json!({"success": 1})).invalid("bool_type", "body.success"),
            outcome(json!({"success": null})).invalid("bool_type", "body.success"),
            outcome(json!({"success": true, "result": 5})).invalid("string_type", "body.result"),
            outcome(json!({"success": true, "error": {}})).invalid("string_type", "body.error"),
            outcome(json!({"success": true, "metadata": []})).invalid("dict_type", "body.metadata"),
            outcome(json!({"success": true, "artifacts": "x"})).invalid("list_type", "body.artifacts"),
            outcome(metadata(10_241))
                .named("metadata of 10,241 bytes")
                .expect_error(400, "metadata_too_large"),
            outcome(json!({"success": true, "result": "x".repeat(65_537)}))
                .named("long result")
                .invalid("string_too_long", "body.result"),
            outcome(json!({"success": false, "error": "x".repeat(65_537)}))
                .named("long error")
                .invalid("string_too_long", "body.error"),
            outcome(json!({"success": true, "error": "ä".repeat(40_000)}))
                .named("error within the limit in characters, above it in bytes")
                .invalid("value_error", "body.error"),
            outcome(json!({"success": true, "artifacts": ["x".repeat(65_536)]}))
                .named("large artifact")
                .invalid("value_error", "body.artifacts"),
            Case::raw("POST", &format!("{execution}/outcome"), "").expect_error(400, "invalid_json"),
            outcome(metadata(10_240)).named("metadata of 10,240 bytes").accepted(200),
            outcome(json!({"success": true})).expect_error(409, "outcome_already_reported"),
            claim(json!({"worker_id": 5})).invalid("string_type", "body.worker_id"),
            claim(json!({"worker_id": ""})).invalid("string_too_short", "body.worker_id"),
            claim(json!({})).expect_error(409, "already_claimed"),
            Case::post("/v1/executions/claim", &json!({"task": 5})).invalid("string_type", "body.task"),
            Case::post("/v1/executions/claim", &json!({})).expect_error(409, "claim_failed"),
            heartbeat(json!({"handlers": []})).invalid("missing", "body.worker_id"),
            heartbeat(json!({"worker_id": 5, "handlers": []})).invalid("string_type", "body.worker_id"),
            heartbeat(json!({"worker_id": "x".repeat(256), "handlers": []}))
                .named("long worker id")
                .invalid("string_too_long", "body.worker_id"),
            heartbeat(json!({"worker_id": "w"})).invalid("missing", "body.handlers"),
            heartbeat(json!({"worker_id": "w", "handlers": vec!["a"; 101]}))
                .named("many handlers")
                .invalid("too_long", "body.handlers"),
            heartbeat(json!({"worker_id": "w", "handlers": "x"})).invalid("list_type", "body.handlers"),
            heartbeat(json!({"worker_id": "w", "handlers": ["a", 5]}))
                .invalid("string_type", "body.handlers.1"),
            heartbeat(json!({"worker_id": "w", "handlers": []})).accepted(200),
            fire(json!({"payload_override": []})).invalid("dict_type", "body.payload_override"),
            fire(json!({"merge_strategy": "mix"})).invalid("literal_error", "body.merge_strategy"),
            fire(json!({"send_at": 5})).invalid("string_type", "body.send_at"),
            fire(json!({"sendat": "2027-01-01T00:00:00Z"})).invalid("extra_forbidden", "body.sendat"),
            key(json!({})).invalid("missing", "body.name"),
            key(json!({"name": ["a"]})).invalid("string_type", "body.name"),
            key(json!({"name": ""})).invalid("string_too_short", "body.name"),
            key(json!({"name": "é".repeat(256)})).named("long name").invalid("string_too_long", "body.name"),
            key(json!({"name": "é".repeat(255)})).named("longest name").accepted(201),
        ],
    );
}

#[test]
fn outcome_fields_are_validated() {
    let server = server();
    let user = server.user();
    let cue = user.create(&super::good_cue());
    let fired = user.post(&format!("/v1/cues/{}/fire", cue["id"].as_str().unwrap()), &json!({})).expect(200);
    let execution = format!("/v1/executions/{}", fired["execution_id"].as_str().unwrap());
    let outcome = |value: Value| Case::post(&format!("{execution}/outcome"), &value);
    let verify = |value: Value| Case::post(&format!("{execution}/verify"), &value);
    let pending = |value: Value| Case::post(&format!("{execution}/verification-pending"), &value);
    let evidence = |value: Value| Case::new("PATCH", &format!("{execution}/evidence"), &value);
    let long = "x".repeat(65_537);
    let several = json!({"external_id": 7, "result_url": " ", "artifacts": {}, "metadata": {}});
    check(
        &user,
        [
            outcome(json!({"success": true, "external_id": 7})).invalid("string_type", "body.external_id"),
            outcome(json!({"success": true, "summary": long}))
                .named("long summary")
                .invalid("string_too_long", "body.summary"),
            outcome(json!({"success": true, "artifacts": vec![0; 101]}))
                .named("many artifacts")
                .invalid("too_long", "body.artifacts"),
            // A blank value is no evidence, but it must not cost the only report.
            outcome(json!({"success": true, "external_id": "", "artifacts": []})).accepted(200),
            verify(json!({"valid": "yes"})).invalid("bool_type", "body.valid"),
            verify(json!({"valid": 0})).invalid("bool_type", "body.valid"),
            verify(json!({"valid": true, "reason": ["x"]})).invalid("string_type", "body.reason"),
            verify(json!({"reason": long})).named("long reason").invalid("string_too_long", "body.reason"),
            verify(json!({"reason": "ä".repeat(40_000)}))
                .named("long reason in bytes")
                .invalid("value_error", "body.reason"),
            verify(json!({"vaild": false})).invalid("extra_forbidden", "body.vaild"),
            verify(json!([])).invalid("model_attributes_type", "body"),
            pending(json!({"reason": "x"})).invalid("extra_forbidden", "body.reason"),
            Case::raw("POST", &format!("{execution}/verify"), "{").expect_error(400, "invalid_json"),
            Case::raw("POST", &format!("{execution}/verification-pending"), "{")
                .expect_error(400, "invalid_json"),
            Case::raw("PATCH", &format!("{execution}/evidence"), "").expect_error(400, "invalid_json"),
            evidence(several.clone()).invalid("string_type", "body.external_id"),
            evidence(several.clone()).invalid("value_error", "body.result_url"),
            evidence(several.clone()).invalid("list_type", "body.artifacts"),
            evidence(several).invalid("extra_forbidden", "body.metadata"),
            evidence(json!({"external_id": ""})).invalid("value_error", "body.external_id"),
            evidence(json!({"artifacts": []})).invalid("value_error", "body.artifacts"),
            evidence(json!({"success": true})).invalid("extra_forbidden", "body.success"),
            evidence(json!({"result_ref": long}))
                .named("long ref")
                .invalid("string_too_long", "body.result_ref"),
            evidence(json!({"artifacts": vec![0; 101]}))
                .named("many more artifacts")
                .invalid("too_long", "body.artifacts"),
            evidence(json!({"artifacts": ["x".repeat(65_536)]}))
                .named("large artifacts")
                .invalid("value_error", "body.artifacts"),
            evidence(json!({"artifacts": vec![0; 100]})).named("a hundred artifacts").accepted(200),
            evidence(json!({"summary": "x".repeat(65_536)})).named("longest summary").accepted(200),
            evidence(json!({"summary": null})).accepted(200),
            evidence(json!({})).accepted(200),
            Case::raw("POST", &format!("{execution}/verification-pending"), "").accepted(200),
            pending(json!(null)).accepted(200),
            verify(json!({"valid": true, "reason": "x".repeat(65_536)}))
                .named("longest reason")
                .accepted(200),
        ],
    );
    let shown = user.get(&execution).expect(200);
    assert_eq!(shown["evidence"]["summary"].as_str().unwrap().len(), 65_536, "null changed nothing");
}

#[test]
fn registration_requires_a_new_valid_address() {
    let server = server();
    let anyone = server.client();
    anyone.register("known@example.com");
    let register = |value: Value| Case::post("/v1/auth/register", &value);
    check(
        &anyone,
        [
            register(json!({})).invalid("missing", "body.email"),
            register(json!({"email": 5})).invalid("string_type", "body.email"),
            register(json!({"email": null})).invalid("string_type", "body.email"),
            register(json!({"email": ""})).invalid("value_error", "body.email"),
            register(json!({"email": "no-address"})).invalid("value_error", "body.email"),
            register(json!({"email": "a@b.com\r\nBcc: c@d.com"})).invalid("value_error", "body.email"),
            register(json!({"email": "known@example.com"})).expect_error(409, "duplicate_email"),
            register(json!({"email": " KNOWN@example.COM "})).expect_error(409, "duplicate_email"),
            register(json!({"email": "new@example.com"})).accepted(201),
        ],
    );
}
