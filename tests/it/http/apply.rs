//! `POST /v1/apply` (contract §4.18): what changes, what is refused, and that it is all or nothing.

use std::sync::mpsc;

use crate::http::cues::START;
use crate::support::*;

pub const PATH: &str = "/v1/apply";

pub fn daily(name: &str) -> Value {
    worker_cue(name, "@daily")
}

/// Cues of the names, each with this cron expression.
pub fn cues_at(names: &[&str], cron: &str) -> Value {
    names.iter().map(|name| ((*name).to_owned(), worker_cue(name, cron))).collect()
}

pub fn numbered(numbers: std::ops::Range<usize>) -> Value {
    numbers.map(|it| (format!("c{it:04}"), daily("c"))).collect()
}

/// The request, which must be done: its changes as `kind key action`.
#[track_caller]
pub fn applied(user: &Client, body: &Value) -> Vec<String> {
    let answer = user.post(PATH, body).expect(200);
    assert_eq!(answer["errors"], json!([]));
    actions(&answer)
}

pub fn actions(answer: &Value) -> Vec<String> {
    let words = |change: &Value| ["kind", "key", "action"].map(|name| change.text(name).to_owned());
    answer.list("changes").iter().map(|change| words(change).join(" ")).collect()
}

/// The request, which must be refused: places and codes of its errors.
#[track_caller]
pub fn errors(user: &Client, body: &Value) -> Vec<(String, String)> {
    let answer = user.post(PATH, body).expect_error(422, "validation_error");
    assert_eq!(answer["changes"], json!([]));
    let (detail, errors) = (answer.list("detail"), answer.list("errors"));
    assert_eq!(detail.len(), errors.len().min(100));
    assert!(detail.iter().zip(errors).all(|(one, other)| one["loc"] == other["loc"]));
    let place = |error: &Value| {
        let part = |part: &Value| part.as_str().map_or_else(|| part.to_string(), str::to_owned);
        error.list("loc").iter().map(part).collect::<Vec<_>>().join(".")
    };
    errors.iter().map(|error| (place(error), error.text("code").to_owned())).collect()
}

pub fn owned(errors: &[(&str, &str)]) -> Vec<(String, String)> {
    errors.iter().map(|(place, code)| ((*place).to_owned(), (*code).to_owned())).collect()
}

/// Slugs and cron expressions of all cues.
pub fn stored(user: &Client) -> Vec<(String, String)> {
    let listed = user.read("/v1/cues?limit=100");
    let cue = |cue: &Value| {
        let slug = cue["slug"].as_str().unwrap_or_default().to_owned();
        (slug, cue["schedule"]["cron"].as_str().unwrap_or_default().to_owned())
    };
    let mut cues: Vec<_> = listed.list("cues").iter().map(cue).collect();
    cues.sort();
    cues
}

#[test]
fn cues_and_channels_are_created_changed_left_and_deleted_in_one_request() {
    let (_server, user) = Server::with_clock_and_user(START);
    let channel = json!({"type": "webhook", "url": "http://127.0.0.1:9/a"});
    let mut body = json!({
        "namespace": "n", "cues": cues_at(&["a", "b", "old"], "@daily"), "channels": {"hook": channel},
    });
    let created = ["channel hook create", "cue a create", "cue b create", "cue old create"];
    assert_eq!(applied(&user, &body), created);
    let slugs: Vec<String> = stored(&user).into_iter().map(|(slug, _)| slug).collect();
    assert_eq!(slugs, ["n/a", "n/b", "n/old"]);
    let of_others = json!({"namespace": "n-2", "cues": {"x": daily("x")}});
    applied(&user, &of_others);
    applied(&user, &json!({"cues": {"n": daily("n")}}));
    body["prune"] = true.into();
    body["cues"] = json!({"a": worker_cue("a", "0 4 * * *"), "b": daily("b")});
    body["channels"]["hook"]["tags"] = json!(["nas"]);
    let answer = user.post(PATH, &body).expect(200);
    assert_eq!(
        actions(&answer),
        ["channel hook change", "cue a change", "cue b unchanged", "cue old delete"]
    );
    let fields = |index: usize| answer["changes"][index]["fields"].clone();
    assert_eq!(fields(0), json!([{"field": "tags", "old": [], "new": ["nas"]}]));
    assert_eq!(fields(1), json!([{"field": "schedule.cron", "old": "@daily", "new": "0 4 * * *"}]));
    assert_has(
        &answer["changes"][1],
        json!({"next_run_before": "2026-01-06T00:00:00+00:00", "next_run": "2026-01-06T04:00:00+00:00"}),
    );
    let expected = [("n", "@daily"), ("n-2/x", "@daily"), ("n/a", "0 4 * * *"), ("n/b", "@daily")];
    assert_eq!(stored(&user), owned(&expected));
    let again = ["channel hook unchanged", "cue a unchanged", "cue b unchanged"];
    assert_eq!(applied(&user, &body), again);
    assert_eq!(applied(&user, &json!({})), Vec::<String>::new());
}

#[test]
fn a_name_that_is_kept_is_not_deleted() {
    let (_server, user) = Server::with_clock_and_user(START);
    applied(&user, &json!({"namespace": "n", "cues": cues_at(&["a", "b", "c"], "@daily")}));
    let body = json!({"namespace": "n", "cues": {"a": daily("a")}, "prune": true, "keep": ["b"]});
    assert_eq!(applied(&user, &body), ["cue a unchanged", "cue c delete"]);
    let body = json!({"namespace": "n", "keep": ["b"]});
    assert_eq!(errors(&user, &body), owned(&[("body.keep", "value_error")]));
    let body = json!({"namespace": "n", "prune": true, "keep": ["n/b", "b", "C "]});
    let wrong = [("body.keep.0", "value_error"), ("body.keep.2", "value_error")];
    assert_eq!(errors(&user, &body), owned(&wrong));
    user.post(PATH, &body).refuses(422, "validation_error", "without the namespace");
    assert_eq!(user.total("/v1/cues"), 2);
}

#[test]
fn all_errors_are_found_at_once_and_nothing_is_done() {
    let (_server, user) = Server::with_clock_and_user(START);
    let mut past = daily("past");
    past["schedule"] = json!({"type": "once", "at": "2020-01-01T00:00:00Z"});
    let mut body = json!({
        "namespace": "n",
        "cues": {
            "good": daily("good"),
            "no slug": daily("x"),
            "a": with(daily("a"), json!({"retry": {"max_attempts": 99}, "tags": ["B b"], "slug": "n/a"})),
            "b": worker_cue("b", "61 * * * *"),
            "c": webhook_cue("c", "@daily", "ftp://c"),
            "d": 5,
        },
        "channels": {"chat": {"type": "slack", "name": "chat"}, "": {"type": "email"}},
        "purne": true,
    });
    let expected = [
        ("body.channels.", "value_error"),
        ("body.channels.chat.name", "extra_forbidden"),
        ("body.channels.chat.url", "missing"),
        ("body.cues.a.retry.max_attempts", "less_than_equal"),
        ("body.cues.a.slug", "extra_forbidden"),
        ("body.cues.a.tags.0", "value_error"),
        ("body.cues.b.schedule.cron", "invalid_schedule"),
        ("body.cues.c.callback.url", "invalid_callback_url"),
        ("body.cues.d", "model_attributes_type"),
        ("body.cues.no slug", "value_error"),
        ("body.purne", "extra_forbidden"),
    ];
    let mut found = errors(&user, &body);
    found.sort();
    assert_eq!(found, owned(&expected));
    // Those with a code of their own, and what only the stored state says of the others.
    let mut cue = webhook_cue("c", "61 * * * *", "ftp://c");
    cue["on_failure"] = json!({"webhook": "nope"});
    cue["payload"] = json!({"a": "x".repeat(1 << 20)});
    let at_once = json!({"cues": {"a": cue, "past": past}});
    let expected = [
        ("body.cues.a.schedule.cron", "invalid_schedule"),
        ("body.cues.a.callback.url", "invalid_callback_url"),
        ("body.cues.a.on_failure.webhook", "invalid_callback_url"),
        ("body.cues.a.payload", "invalid_payload_size"),
        ("body.cues.past.schedule.at", "invalid_schedule"),
    ];
    assert_eq!(errors(&user, &at_once), owned(&expected));
    user.create(&with(daily("hand"), json!({"slug": "n/hand"})));
    applied(
        &user,
        &json!({"namespace": "n", "cues": {"calls": webhook_cue("c", "@daily", "http://127.0.0.1:9/")}}),
    );
    applied(
        &user,
        &json!({"channels": {"chat": {"type": "webhook", "url": "http://127.0.0.1:9/"}}}),
    );
    let before = stored(&user);
    body = json!({
        "namespace": "n", "prune": true,
        "cues": {"good": daily("good"), "hand": daily("other"), "calls": daily("calls"), "past": past},
        "channels": {"chat": {"type": "ntfy", "url": "https://ntfy.sh/a"}, "new": {"type": "webhook", "url": "http://127.0.0.1:9/"}},
    });
    let expected = [
        ("body.channels.chat.type", "value_error"),
        ("body.cues.calls.transport", "value_error"),
        ("body.cues.hand", "slug_taken"),
        ("body.cues.past.schedule.at", "invalid_schedule"),
    ];
    assert_eq!(errors(&user, &body), owned(&expected));
    assert_eq!(stored(&user), before);
    assert_eq!(user.total("/v1/channels"), 2, "the built-in one, and that of before");
}

#[test]
fn a_cue_of_others_is_adopted_only_on_request() {
    let (_server, user) = Server::with_clock_and_user(START);
    user.create(&with(daily("hand"), json!({"slug": "n/hand"})));
    let mut body = json!({"namespace": "n", "cues": {"hand": daily("new")}});
    assert_eq!(errors(&user, &body), owned(&[("body.cues.hand", "slug_taken")]));
    body["adopt"] = true.into();
    assert_eq!(applied(&user, &body), ["cue hand change"]);
    body["adopt"] = false.into();
    body["cues"]["hand"] = daily("newer");
    assert_eq!(applied(&user, &body), ["cue hand change"]);
}

#[test]
fn limits_are_judged_on_the_state_after_the_request() {
    let server = Server::start(&["--test-clock", START]);
    let user = server.user();
    let twelve = json!({"namespace": "n", "cues": numbered(0..12)});
    let full =
        [("body.cues.c0010", "cue_limit_exceeded"), ("body.cues.c0011", "cue_limit_exceeded")];
    assert_eq!(errors(&user, &twelve), owned(&full));
    assert!(stored(&user).is_empty());
    applied(&user, &json!({"namespace": "n", "cues": numbered(0..10)}));
    // What is deleted makes room for what is created.
    let others = json!({"namespace": "n", "cues": numbered(10..20), "prune": true});
    let done = applied(&user, &others);
    assert_eq!(done.iter().filter(|line| line.ends_with(" create")).count(), 10);
    assert_eq!(done.iter().filter(|line| line.ends_with(" delete")).count(), 10);
    // So does what is paused, although its slug comes later.
    let mut cues = numbered(0..10);
    for (name, cue) in numbered(10..20).as_object().unwrap() {
        cues[name] = with(cue.clone(), json!({"status": "paused"}));
    }
    let done = applied(&user, &json!({"namespace": "n", "cues": cues}));
    assert_eq!(done.len(), 20);
    server.assert_counters();
}

#[test]
fn prune_needs_a_namespace_and_has_a_bound() {
    let (_server, user) = Server::with_clock_and_user(START);
    let refused = [("body.prune", "value_error")];
    for namespace in [json!(null), json!("")] {
        let body = json!({"namespace": namespace, "cues": {"a": daily("a")}, "prune": true});
        assert_eq!(errors(&user, &body), owned(&refused));
    }
    applied(&user, &json!({"namespace": "n", "cues": numbered(0..500)}));
    applied(&user, &json!({"namespace": "n", "cues": numbered(500..501)}));
    let all = json!({"namespace": "n", "prune": true});
    assert_eq!(errors(&user, &all), owned(&refused));
    assert_eq!(user.total("/v1/cues"), 501);
    let but_one = json!({"namespace": "n", "prune": true, "keep": ["c0007"]});
    assert_eq!(applied(&user, &but_one).len(), 500);
    assert_eq!(user.total("/v1/cues"), 1);
}

#[test]
fn a_request_has_500_cues_and_2_mb_at_most() {
    let (_server, user) = Server::with_clock_and_user(START);
    let body = json!({"cues": numbered(0..501)});
    assert_eq!(errors(&user, &body), owned(&[("body.cues", "too_long")]));
    user.post(PATH, &body).refuses(422, "validation_error", "in several requests");
    let large =
        json!({"cues": {"a": with(daily("a"), json!({"description": "x".repeat(2 << 20)}))}});
    user.post(PATH, &large).refuses(413, "payload_too_large", "in several requests");
    assert_eq!(user.total("/v1/cues"), 0);
}

#[test]
fn a_dry_run_answers_what_the_request_does_and_changes_nothing() {
    let (server, user) = Server::with_clock_and_user(START);
    applied(&user, &json!({"namespace": "n", "cues": cues_at(&["a", "b", "old"], "@daily")}));
    let hook = json!({"type": "webhook", "url": "http://127.0.0.1:9/"});
    let mut body = json!({
        "namespace": "n", "prune": true, "channels": {"hook": hook}, "dry_run": true,
        "cues": {"a": with(worker_cue("a", "0 4 * * *"), json!({"payload": {"x": 1}})), "b": daily("b"), "c": daily("c")},
    });
    let rows = || {
        let tables = ["cues", "channels", "payloads", "deleted_cues", "idempotency_keys"];
        tables.map(|table| server.count(&format!("SELECT count(*) FROM {table}")))
    };
    let (before, rows_before) = (stored(&user), rows());
    let mut dry = user.keyed(PATH, "k", &body).expect(200);
    assert_eq!((stored(&user), rows()), (before, rows_before));
    body["dry_run"] = false.into();
    let mut real = user.keyed(PATH, "k", &body).expect(200);
    for (dry, real) in dry["changes"]
        .as_array_mut()
        .unwrap()
        .iter_mut()
        .zip(real["changes"].as_array_mut().unwrap())
    {
        if real["action"] == "create" {
            assert_eq!(dry["id"], json!(null));
            dry["id"] = real["id"].take();
            real["id"] = dry["id"].clone();
        }
    }
    assert_eq!(dry, real);
    body["cues"]["d"] = worker_cue("d", "61 * * * *");
    let refused = errors(&user, &body);
    body["dry_run"] = true.into();
    assert_eq!(errors(&user, &body), refused);
    server.assert_counters();
}

#[test]
fn a_repeated_request_has_the_first_answer_and_another_one_is_a_conflict() {
    let (_server, user) = Server::with_clock_and_user(START);
    let body = json!({"cues": {"a": daily("a")}});
    let first = user.keyed(PATH, "k", &body).expect(200);
    assert_eq!(actions(&first), ["cue a create"]);
    user.delete("/v1/cues/slug:a").expect(204);
    assert_eq!(user.keyed(PATH, "k", &body).expect(200), first);
    assert_eq!(user.total("/v1/cues"), 0, "it does nothing again");
    user.keyed(PATH, "k", &json!({"cues": {"b": daily("b")}}))
        .expect_error(409, "idempotency_conflict");
    // A refused request is not stored.
    let wrong = json!({"cues": {"a": worker_cue("a", "61 * * * *")}});
    user.keyed(PATH, "other", &wrong).expect_error(422, "validation_error");
    assert_eq!(actions(&user.keyed(PATH, "other", &body).expect(200)), ["cue a create"]);
    let long = "k".repeat(256);
    let answer = user.keyed(PATH, &long, &body).expect_error(422, "validation_error");
    assert_eq!(answer["errors"][0]["loc"], json!(["header", "Idempotency-Key"]));
}

#[test]
fn a_due_run_is_fired_before_its_cue_changes() {
    // No engine fires it.
    let (api, user) = Api::with_user("ann");
    applied(&user, &json!({"cues": {"a": hourly_cue("a"), "b": hourly_cue("b")}}));
    let runs =
        || ["a", "b"].map(|it| user.read(&format!("/v1/cues/slug:{it}"))["run_count"].clone());
    api.fixture.advance(2 * 3_600);
    let mut body = json!({
        "cues": {"a": worker_cue("a", YEARLY), "b": hourly_cue("b")}, "dry_run": true,
    });
    assert_eq!(applied(&user, &body), ["cue a change", "cue b unchanged"]);
    assert_eq!((runs(), user.total("/v1/executions")), ([json!(0), json!(0)], json!(0)));
    body["dry_run"] = false.into();
    applied(&user, &body);
    assert_eq!((runs(), user.total("/v1/executions")), ([json!(2), json!(0)], json!(2)));
}

/// What must not be shown is in no answer, neither as it was nor as it becomes.
#[test]
fn secrets_are_masked_in_changes_and_errors() {
    let (server, user) = Server::with_clock_and_user(START);
    let body = |secret: &str| {
        let url = format!("http://127.0.0.1:9/{secret}?k={secret}");
        let mut cue = webhook_cue("a", YEARLY, &url);
        cue["callback"]["headers"] = json!({"Authorization": secret, "X-Same": "s3cr3t"});
        cue["callback"]["flow"] = json!({"key": secret, "parallelism": 1});
        cue["description"] = secret.into();
        cue["on_failure"] = json!({"webhook": url});
        cue["payload"] = json!({"volume": secret.len(), "token": secret, "deep": [secret]});
        let channels = json!({
            "bot": {"type": "telegram", "bot_token": format!("123456789:{secret}-{secret}-{secret}"), "chat_id": secret.len()},
            "chat": {"type": "slack", "url": format!("https://hooks.slack.com/services/{secret}")},
            "phone": {"type": "ntfy", "url": format!("https://ntfy.sh/{secret}"), "token": format!("tk_{secret}")},
        });
        json!({"cues": {"a": cue}, "channels": channels})
    };
    applied(&user, &body("s3cr3t-of-before"));
    let answer = user.keyed(PATH, "k", &body("s3cr3t-now")).expect(200);
    assert!(!answer.to_string().contains("s3cr3t"), "{answer:#}");
    let change = |field: &str, value: &str| json!({"field": field, "old": value, "new": value});
    let (url, hidden) = ("http://127.0.0.1:9/***", "***");
    let expected = json!([
        change("description", hidden),
        change("callback.url", url),
        change("callback.headers.Authorization", hidden),
        change("callback.flow", hidden),
        change("on_failure.webhook", url),
        change("payload.deep", hidden),
        change("payload.token", hidden),
        change("payload.volume", hidden),
    ]);
    assert_eq!(answer["changes"][3]["fields"], expected);
    let bot = [change("bot_token", hidden), change("chat_id", hidden)];
    assert_eq!(answer["changes"][0]["fields"], json!(bot));
    let chat = [change("url", "https://hooks.slack.com/***")];
    assert_eq!(answer["changes"][1]["fields"], json!(chat));
    let phone = [change("token", hidden), change("url", "https://ntfy.sh/***")];
    assert_eq!(answer["changes"][2]["fields"], json!(phone));
    let kept = "SELECT count(*) FROM idempotency_keys";
    assert_eq!(server.count(kept), 1);
    assert_eq!(server.count(&format!("{kept} WHERE response_body LIKE '%s3cr3t%'")), 0);
    // What is removed, and what is none.
    let mut plain = webhook_cue("a", YEARLY, "http://127.0.0.1:9/s3cr3t-now?k=s3cr3t-now");
    plain["payload"] = json!({"volume": null});
    let answer = user.post(PATH, &json!({"cues": {"a": plain}})).expect(200);
    let removed = |field: &str, old: &str| json!({"field": field, "old": old, "new": null});
    let expected = json!([
        removed("description", hidden),
        removed("callback.headers.Authorization", hidden),
        removed("callback.headers.X-Same", hidden),
        removed("callback.flow", hidden),
        removed("on_failure.webhook", url),
        removed("payload.deep", hidden),
        removed("payload.token", hidden),
        change("payload.volume", hidden),
    ]);
    assert_eq!(answer["changes"][0]["fields"], expected);
    // Errors do not repeat values.
    let mut wrong = body("s3cr3t");
    wrong["cues"]["a"]["callback"]["headers"] = json!({"Authorization": ["s3cr3t"]});
    wrong["cues"]["a"]["payload"] = "s3cr3t".into();
    wrong["cues"]["a"]["description"] = json!(["s3cr3t"]);
    wrong["channels"]["phone"]["url"] = "ftp://s3cr3t".into();
    wrong["channels"]["chat"]["url"] = json!(["s3cr3t"]);
    let answer = user.post(PATH, &wrong).expect_error(422, "validation_error");
    assert!(answer["errors"].as_array().unwrap().len() >= 5, "{answer:#}");
    assert!(!answer.to_string().contains("s3cr3t"), "{answer:#}");
    // The masked form would replace the secret.
    let masked = user.read("/v1/channels")["channels"][2]["url"].clone();
    let body = json!({"channels": {"chat": {"type": "slack", "url": masked}}});
    assert_eq!(errors(&user, &body), owned(&[("body.channels.chat.url", "value_error")]));
}

#[test]
fn a_payload_is_compared_and_stored() {
    let (server, user) = Server::with_clock_and_user(START);
    let body =
        |payload: Value| json!({"cues": {"a": with(daily("a"), json!({"payload": payload}))}});
    applied(&user, &body(json!({"b": 1, "a": "ä"})));
    assert_eq!(applied(&user, &body(json!({"a": "ä", "b": 1}))), ["cue a unchanged"]);
    assert_eq!(applied(&user, &body(json!({"task": "t"}))), ["cue a change"]);
    assert_eq!(user.read("/v1/cues/slug:a")["payload"], json!({"task": "t"}));
    let answer = user.post(PATH, &body(json!(null))).expect(200);
    let fields = json!([{"field": "payload", "old": "***", "new": null}]);
    assert_eq!(answer["changes"][0]["fields"], fields);
    assert_eq!(server.count("SELECT count(*) FROM payloads"), 0);
}

#[test]
fn of_two_applies_at_once_one_comes_after_the_other_as_a_whole() {
    let (server, user) = Server::with_clock_and_user(START);
    let states = ["0 1 * * *", "0 2 * * *"].map(|cron| {
        let names: Vec<String> = (0..30).map(|it| format!("{}{it}", &cron[2..3])).collect();
        let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
        names.push("both");
        json!({"namespace": "n", "prune": true, "cues": cues_at(&names, cron)})
    });
    for _ in 0..10 {
        thread::scope(|scope| {
            for state in &states {
                let user = user.clone();
                scope.spawn(move || applied(&user, state));
            }
        });
        let crons: BTreeSet<String> = stored(&user).into_iter().map(|(_, cron)| cron).collect();
        assert_eq!((crons.len(), stored(&user).len()), (1, 31), "{crons:?}");
    }
    server.assert_counters();
}

#[test]
fn a_failed_commit_does_nothing_and_the_request_can_be_repeated() {
    let (api, user) = Api::with_user("ann");
    let body = |cron: &str| json!({"namespace": "n", "prune": true, "cues": cues_at(&["a", cron.split(' ').next().unwrap()], cron)});
    applied(&user, &body("1 * * * *"));
    let before = stored(&user);
    let commits = AtomicUsize::new(0);
    // The commit that installs the hook is the first to call it.
    let refuses = move || commits.fetch_add(1, Ordering::SeqCst) == 1;
    api.fixture.app.store.write(move |tx| Ok(tx.commit_hook(Some(refuses))?)).wait().unwrap();
    let send = || user.keyed(PATH, "k", &body("2 * * * *"));
    send().expect_error(503, "storage_unavailable");
    assert_eq!(stored(&user), before);
    assert_eq!(actions(&send().expect(200)), ["cue 2 create", "cue a change", "cue 1 delete"]);
    assert_eq!(send().expect(200)["errors"], json!([]));
    assert_eq!(stored(&user), owned(&[("n/2", "2 * * * *"), ("n/a", "2 * * * *")]));
}

/// The state is that of the last request that was acknowledged, or of the one after it.
#[test]
fn a_kill_leaves_an_apply_done_or_not_done() {
    let (mut server, mut user) = Server::with_clock_and_user(START);
    let cron = |number: usize| format!("{} {} * * *", number % 60, number / 60 % 24);
    let body = move |number: usize| {
        let names: Vec<String> = (0..40).map(|it| format!("c{it}")).collect();
        let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
        let own = format!("only{number}");
        names.push(&own);
        json!({"namespace": "n", "prune": true, "cues": cues_at(&names, &cron(number))})
    };
    applied(&user, &body(0));
    let mut number = 0;
    for round in 0..if is_full_run() { 40 } else { 8 } {
        let of_thread = user.clone();
        let (done, acknowledged) = mpsc::channel();
        let sender = thread::spawn(move || {
            let mut next = number + 1;
            while of_thread.try_post(PATH, &body(next)).is_ok_and(|it| it.status == 200) {
                done.send(next).unwrap();
                next += 1;
            }
        });
        // One is acknowledged; then at another point of a later one each time.
        number = acknowledged.recv().unwrap();
        thread::sleep(Duration::from_millis(1 + 9 * round));
        server.kill();
        sender.join().unwrap();
        number = acknowledged.iter().last().unwrap_or(number);
        user = user.at(server.restart());
        let cues = stored(&user);
        let crons: BTreeSet<String> = cues.iter().map(|(_, cron)| cron.clone()).collect();
        let is_next = crons == BTreeSet::from([cron(number + 1)]);
        assert!(is_next || crons == BTreeSet::from([cron(number)]), "{number}: {crons:?}");
        number += usize::from(is_next);
        assert_eq!(cues.len(), 41);
        assert!(cues.iter().any(|(slug, _)| *slug == format!("n/only{number}")), "{number}");
        server.assert_counters();
    }
}
