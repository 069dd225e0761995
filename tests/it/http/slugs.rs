//! Slugs of cues, and `PUT` by slug (contract §4.17).

use crate::http::cues::{START, worker_cue};
use crate::support::*;

fn with_slug(name: &str, slug: &str) -> Value {
    let mut cue = worker_cue(name);
    cue["slug"] = slug.into();
    cue
}

fn hook(cron: &str) -> Value {
    json!({"name": "backup", "schedule": {"type": "recurring", "cron": cron},
           "callback": {"url": "http://127.0.0.1:9/backup"}})
}

fn slugs(user: &Client, query: &str) -> Vec<String> {
    let list = user.get(&format!("/v1/cues?sort=created&{query}")).expect(200);
    let cues = list.list("cues");
    assert_eq!(list["total"], json!(cues.len()), "{query}");
    cues.iter().map(|cue| cue["slug"].as_str().unwrap_or("-").to_owned()).collect()
}

fn action(response: &Response) -> Value {
    let cue = response.json();
    json!([cue["action"], cue["changed"]])
}

#[test]
fn a_slug_is_unique_in_its_account_until_it_is_free_again() {
    let (server, user) = Server::with_clock_and_user(START);
    let first = user.create(&with_slug("a", "home/a"));
    assert_eq!(first["slug"], "home/a");
    let refused = user.post("/v1/cues", &with_slug("b", "home/a")).expect_error(409, "slug_taken");
    assert!(refused.to_string().contains(id(&first)), "{refused}");
    let other = user.create(&worker_cue("b"));
    assert_eq!(other["slug"], Value::Null);
    let path = cue_path(&other);
    user.patch(&path, &json!({"slug": "home/a"})).expect_error(409, "slug_taken");
    // A slug is taken in its own account only.
    assert_eq!(server.user().create(&with_slug("c", "home/a"))["slug"], "home/a");
    let own = cue_path(&first);
    // A cue may keep its slug.
    assert_eq!(user.patch(&own, &json!({"slug": "home/a"})).expect(200)["slug"], "home/a");
    assert_eq!(user.patch(&own, &json!({"slug": null})).expect(200)["slug"], Value::Null);
    assert_eq!(user.patch(&path, &json!({"slug": "home/a"})).expect(200)["slug"], "home/a");
    assert_eq!(user.delete(&path).status, 204);
    user.create(&with_slug("d", "home/a"));
}

#[test]
fn cues_are_listed_by_slug_and_by_namespace() {
    let (_server, user) = Server::with_clock_and_user(START);
    for slug in ["home", "home/a", "home/b.c", "home-2/a", "hom/a"] {
        user.create(&with_slug("a", slug));
    }
    user.create(&worker_cue("none"));
    assert_eq!(slugs(&user, "namespace=home"), ["home/a", "home/b.c"]);
    assert_eq!(slugs(&user, "slug=home%2Fa"), ["home/a"]);
    assert_eq!(slugs(&user, "slug=home"), ["home"]);
    assert_eq!(slugs(&user, "slug=other"), Vec::<String>::new());
    assert_eq!(slugs(&user, "q=E-2"), ["home-2/a"]);
    assert_eq!(slugs(&user, "namespace=home&sort=name&status=active"), ["home/a", "home/b.c"]);
    let page = user.get("/v1/cues?namespace=home&limit=1").expect(200);
    let next = page.text("next_cursor");
    assert_eq!(
        slugs_of(&user.get(&format!("/v1/cues?namespace=home&limit=1&cursor={next}")).expect(200)),
        ["home/a"]
    );
    user.get(&format!("/v1/cues?namespace=hom&limit=1&cursor={next}")).expect(422);
    for bad in ["slug=A", "namespace=a%2Fb", "slug=a&namespace=b", "namespace="] {
        user.get(&format!("/v1/cues?{bad}")).expect(422);
    }
    let paused = json!({"action": "pause", "filter": {"namespace": "home"}, "expected": 2});
    assert_eq!(user.post("/v1/cues/bulk", &paused).expect(200)["done"], 2);
    assert_eq!(slugs(&user, "status=paused"), ["home/a", "home/b.c"]);
}

fn slugs_of(list: &Value) -> Vec<&str> {
    list.list("cues").iter().map(|cue| cue.text("slug")).collect()
}

#[test]
fn paths_take_a_slug_in_place_of_the_id() {
    let (server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&with_slug("a", "home/a"));
    let path = "/v1/cues/slug:home%2Fa";
    assert_eq!(user.get(path).expect(200)["id"], cue["id"]);
    assert_eq!(user.patch(path, &json!({"name": "b"})).expect(200)["name"], "b");
    assert_eq!(user.post(&format!("{path}/fire"), &json!({})).expect(200)["cue_id"], cue["id"]);
    user.get(&format!("{path}/upcoming")).expect(200);
    user.get(&format!("{path}/missed")).expect(200);
    for unknown in ["slug:home%2Fb", "slug:", "slug:A"] {
        user.get(&format!("/v1/cues/{unknown}")).expect_error(404, "cue_not_found");
    }
    server.user().get(path).expect_error(404, "cue_not_found");
    assert_eq!(user.delete(path).status, 204);
    user.get(path).expect(404);
}

#[test]
fn a_put_creates_then_changes_what_differs_and_then_nothing() {
    let (_server, user) = Server::with_clock_and_user(START);
    let path = "/v1/cues/by-slug/home/backup";
    let created = user.put(path, &hook("0 3 * * *"));
    assert_eq!((created.status, action(&created)), (201, json!(["created", []])));
    let cue = created.json();
    assert_eq!((&cue["slug"], &cue["next_run_before"]), (&json!("home/backup"), &Value::Null));

    let mut wanted = hook("0 4 * * *");
    wanted["payload"] = json!({"volume": 1});
    wanted["callback"]["headers"] = json!({"X-A": "1"});
    let changed = user.put(path, &wanted);
    let fields = json!(["updated", ["schedule.cron", "callback.headers", "payload"]]);
    assert_eq!((changed.status, action(&changed)), (200, fields));
    let changed = changed.json();
    assert_eq!((&changed["id"], &changed["payload"]), (&cue["id"], &wanted["payload"]));
    assert_eq!(changed["next_run_before"], cue["next_run"]);
    assert_eq!(changed["next_run"], "2026-01-06T04:00:00+00:00");

    user.settle();
    let again = user.put(path, &wanted);
    assert_eq!(action(&again), json!(["unchanged", []]));
    assert_eq!(again.json()["updated_at"], changed["updated_at"]);
    // What is left out has its default again.
    assert_eq!(
        action(&user.put(path, &hook("0 4 * * *"))),
        json!(["updated", ["callback.headers", "payload"]])
    );
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 1);
}

#[test]
fn a_dry_run_writes_nothing() {
    let (_server, user) = Server::with_clock_and_user(START);
    let path = "/v1/cues/by-slug/backup?dry_run=true";
    let new = user.put(path, &hook("@daily"));
    assert_eq!((new.status, action(&new)), (200, json!(["created", []])));
    assert_eq!(new.json()["id"], "cue_000000000000");
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 0);
    let cue = user.put("/v1/cues/by-slug/backup", &hook("@daily")).expect(201);
    assert_eq!(action(&user.put(path, &hook("@hourly"))), json!(["updated", ["schedule.cron"]]));
    let stored = user.get("/v1/cues/slug:backup").expect(200);
    assert_has(&stored, json!({"schedule": cue["schedule"], "updated_at": cue["updated_at"]}));
}

#[test]
fn a_put_leaves_the_status_that_it_does_not_name() {
    let (_server, user) = Server::with_clock_and_user(START);
    let path = "/v1/cues/by-slug/backup";
    user.put(path, &hook("@daily")).expect(201);
    user.patch("/v1/cues/slug:backup", &json!({"status": "paused"})).expect(200);
    let paused = user.put(path, &hook("@hourly")).expect(200);
    assert_eq!((&paused["status"], &paused["next_run"]), (&json!("paused"), &Value::Null));
    let mut active = hook("@hourly");
    active["status"] = "active".into();
    assert_eq!(user.put(path, &active).expect(200)["changed"], json!(["status"]));
    let mut new = worker_cue("later");
    new["status"] = "paused".into();
    let new = user.put("/v1/cues/by-slug/later", &new).expect(201);
    assert_eq!((&new["status"], &new["next_run"]), (&json!("paused"), &Value::Null));

    // One that has run stays, whatever its status is said to be.
    let mut once = hook("@daily");
    once["retry"] = json!({"max_attempts": 1});
    once["schedule"] = json!({"type": "once", "at": "2026-01-05T10:00:00Z"});
    user.put("/v1/cues/by-slug/once", &once).expect(201);
    user.advance("PT72H");
    assert_eq!(user.get("/v1/cues/slug:once").expect(200)["status"], "failed");
    for status in [json!(null), json!("active"), json!("paused")] {
        once["status"] = status;
        assert_eq!(action(&user.put("/v1/cues/by-slug/once", &once)), json!(["unchanged", []]));
    }
    // A new default of the file does not start it again, a new instant does.
    once["schedule"]["timezone"] = "Europe/Berlin".into();
    once["schedule"]["catch_up"] = "all".into();
    assert_eq!(action(&user.put("/v1/cues/by-slug/once", &once)), json!(["unchanged", []]));
    once["schedule"]["at"] = "2027-01-05T10:00:00Z".into();
    let restarted = user.put("/v1/cues/by-slug/once", &once).expect(200);
    let fields = json!(["schedule.at", "schedule.timezone", "schedule.catch_up", "status"]);
    assert_eq!((&restarted["status"], &restarted["changed"]), (&json!("paused"), &fields));
    assert_eq!(action(&user.put("/v1/cues/by-slug/once", &once)), json!(["unchanged", []]));
}

#[test]
fn the_same_headers_in_another_order_and_case_are_no_change() {
    let (_server, user) = Server::with_clock_and_user(START);
    let path = "/v1/cues/by-slug/backup";
    let mut cue = hook("@daily");
    for (headers, expected) in [
        (json!({"X-B": "2", "X-A": "1"}), "created"),
        (json!({"x-a": "1", "X-B": "2"}), "unchanged"),
        (json!({"x-a": "1", "X-B": "3"}), "updated"),
    ] {
        cue["callback"]["headers"] = headers;
        assert_eq!(action(&user.put(path, &cue))[0], expected);
    }
    let mut cue = hook("@daily");
    cue["retry"] = json!({"backoff_seconds": [10]});
    let both = json!(["retry.backoff_minutes", "retry.backoff_seconds"]);
    assert_eq!(
        user.put("/v1/cues/by-slug/other", &hook("@daily")).expect(201)["action"],
        "created"
    );
    assert_eq!(action(&user.put("/v1/cues/by-slug/other", &cue))[1], both);
    assert_eq!(action(&user.put("/v1/cues/by-slug/other", &hook("@daily")))[1], both);
}

#[test]
fn the_limits_of_the_plan_hold_for_a_put() {
    let server = Server::start(&["--test-clock", START]);
    let user = server.user();
    for number in 0..10 {
        user.put(&format!("/v1/cues/by-slug/c{number}"), &worker_cue("a")).expect(201);
    }
    user.put("/v1/cues/by-slug/more", &worker_cue("a")).expect_error(403, "cue_limit_exceeded");
    let mut paused = worker_cue("a");
    paused["status"] = "paused".into();
    user.put("/v1/cues/by-slug/more", &paused).expect(201);
    paused["status"] = "active".into();
    user.put("/v1/cues/by-slug/more", &paused).expect_error(403, "cue_limit_exceeded");
}
