//! What an operator manages over HTTP; for everybody else there are no such paths.

mod backups;

use cued::http::router::Access;
use cued::http::routes::ROUTES;
use cued::store::db::meta;

use crate::cli::administration::ok;
use crate::http::sessions::{Browser, send, sign_in, token_of};
use crate::support::*;

/// A server with two users, the first of which is its operator.
fn with_two_users(flags: &[&str]) -> (Server, Client, Client) {
    let server = Server::start(flags);
    let operator = server.client().register("ann@example.com");
    let other = server.client().register("bob@example.com");
    (server, operator, other)
}

fn id_of(user: &Client) -> String {
    user.me().text("id").to_owned()
}

fn user_path(user: &Client) -> String {
    format!("/v1/admin/users/{}", id_of(user))
}

#[test]
fn for_everybody_but_operators_there_are_no_such_paths() {
    let (server, operator, other) = with_two_users(DEV_UNLIMITED);
    let signed_in = sign_in(&server.client(), &json!({"api_key": other.key()}));
    let browser = Browser::new(&server.client(), &signed_in);
    let unknown = other.get("/v1/no-such-path").expect_error(404, "not_found");
    let mut paths = 0;
    for route in ROUTES.iter().filter(|route| route.access == Access::Operator) {
        paths += 1;
        let path = route.path.replace(['{', '}'], "");
        for method in [route.method.as_str(), "PUT"] {
            let body: &[u8] = if method == "GET" { b"" } else { b"{}" };
            let answers = [
                other.call(method, &path, &[], body).unwrap(),
                browser.call(method, &path, std::str::from_utf8(body).unwrap()),
                server.client().with_key("cue_sk_0").call(method, &path, &[], body).unwrap(),
                send(&server.client(), method, &path, &[], ""),
            ];
            for answer in answers {
                assert_eq!(answer.expect(404), unknown, "{method} {path}");
                assert_eq!(answer.header("allow"), None);
                assert_eq!(answer.header("www-authenticate"), None);
            }
        }
    }
    assert!(paths >= 15, "{paths}");
    let refused = operator.call("PUT", "/v1/admin/settings", &[], b"{}").unwrap();
    refused.expect_error(405, "method_not_allowed");
    assert_eq!(refused.header("allow"), Some("GET, HEAD, PATCH"));
}

#[test]
fn a_page_of_another_site_changes_nothing_by_the_session_of_an_operator() {
    let (server, operator, _) = with_two_users(DEV_UNLIMITED);
    let signed_in = sign_in(&server.client(), &json!({"api_key": operator.key()}));
    assert_eq!(signed_in.expect(201)["user"]["is_operator"], true);
    let browser = Browser::new(&server.client(), &signed_in);
    assert_eq!(browser.read("/v1/admin/users")["total"], 2);
    let body = r#"{"email": "eve@example.com"}"#;
    let foreign = [("Sec-Fetch-Site", "cross-site")];
    browser
        .call_with("POST", "/v1/admin/users", &foreign, body)
        .expect_error(403, "cross_site_request");
    browser.call("POST", "/v1/admin/users", body).expect(201);
}

#[test]
fn the_first_user_is_the_operator_and_can_appoint_others() {
    let (_server, operator, other) = with_two_users(DEV_UNLIMITED);
    let is_operator = |user: &Client| user.me()["is_operator"].clone();
    assert_eq!([is_operator(&operator), is_operator(&other)], [true, false]);
    let appointed = operator.patch(&user_path(&other), &json!({"is_operator": true})).expect(200);
    assert_eq!(appointed["is_operator"], true);
    assert_eq!(other.read("/v1/admin/users")["total"], 2);
    other.patch(&user_path(&operator), &json!({"is_operator": false})).expect(200);
    operator.get("/v1/admin/users").expect_error(404, "not_found");
}

#[test]
fn an_enabled_operator_always_remains() {
    let (server, operator, other) = with_two_users(DEV_UNLIMITED);
    for change in [json!({"is_operator": false}), json!({"is_disabled": true, "plan": "pro"})] {
        operator.patch(&user_path(&operator), &change).refuses(
            409,
            "invalid_state",
            "another user",
        );
    }
    let me = operator.me();
    assert_eq!(me["is_operator"], true, "nothing was changed");
    assert_eq!(me["plan"], "free", "nothing was changed");
    operator
        .patch(&user_path(&other), &json!({"is_operator": true, "is_disabled": true}))
        .expect(200);
    operator
        .patch(&user_path(&operator), &json!({"is_operator": false}))
        .expect_error(409, "invalid_state");
    ok(&server.db(), &["user", "disable", "ann@example.com"]);
    operator.get("/v1/auth/me").expect_error(401, "invalid_api_key");
}

#[test]
fn users_are_listed_searched_and_added() {
    let (_server, operator, other) = with_two_users(DEV_UNLIMITED);
    let cue = other.create(&worker_cue("c", YEARLY));
    other.fire(&cue);
    let all = operator.read("/v1/admin/users");
    assert_has(&all, json!({"total": 2, "limit": 50, "offset": 0, "has_more": false}));
    assert_has(
        &all["users"][0],
        json!({"email": "ann@example.com", "is_operator": true, "active_cues": 0}),
    );
    assert_has(
        &all["users"][1],
        json!({"id": id_of(&other), "email": "bob@example.com", "plan": "free", "is_operator": false,
               "is_disabled": false, "active_cues": 1, "executions_this_month": 1}),
    );
    let found = operator.read("/v1/admin/users?q=BOB@&limit=1");
    assert_eq!(found["total"], 1);
    assert_eq!(found["users"][0]["email"], "bob@example.com");
    assert_eq!(operator.read("/v1/admin/users?q=%25")["users"], json!([]));
    let second = operator.read("/v1/admin/users?limit=1&offset=1");
    assert_eq!((&second["total"], &second["users"][0]["id"]), (&json!(2), &json!(id_of(&other))));

    let added =
        operator.post("/v1/admin/users", &json!({"email": " Eve@example.com", "plan": "pro"}));
    let added = added.expect(201);
    assert_has(&added, json!({"email": "eve@example.com", "plan": "pro", "is_confirmed": true}));
    let eve = operator.with_key(added.text("api_key"));
    assert_eq!(eve.me()["id"], added["id"]);
    let add = |body: Value| operator.post("/v1/admin/users", &body);
    add(json!({"email": "eve@example.com"})).expect_error(409, "duplicate_email");
    add(json!({"email": "dan@example.com", "plan": "gold"})).expect_error(400, "invalid_plan");
    for wrong in [
        json!({}),
        json!({"email": "dan"}),
        json!({"email": "dan@example.com", "is_operator": true}),
    ] {
        add(wrong).expect_error(422, "validation_error");
    }
    for wrong in ["limit=0", "limit=101", "offset=-1"] {
        operator.get(&format!("/v1/admin/users?{wrong}")).expect_error(422, "validation_error");
    }
}

#[test]
fn a_user_is_disabled_enabled_and_gets_another_plan() {
    let (_server, operator, other) = with_two_users(&["--dev"]);
    for number in 0..11 {
        let cue = worker_cue(&format!("c{number}"), YEARLY);
        if number == 10 {
            other.post("/v1/cues", &cue).expect_error(403, "cue_limit_exceeded");
            let change = json!({"plan": "pro", "is_disabled": null});
            assert_eq!(operator.patch(&user_path(&other), &change).expect(200)["plan"], "pro");
        }
        if number != 10 || other.post("/v1/cues", &cue).status != 201 {
            other.create(&cue);
        }
    }
    let path = user_path(&other);
    let lower = operator.patch(&path, &json!({"plan": "free"})).expect(200);
    assert_eq!(lower["plan"], "free", "the newest is paused");
    assert_eq!(lower["active_cues"], 10, "the newest is paused");
    let disabled = operator.patch(&path, &json!({"is_disabled": true})).expect(200);
    assert_eq!((&disabled["is_disabled"], &disabled["active_cues"]), (&json!(true), &json!(0)));
    other.get("/v1/auth/me").expect_error(401, "invalid_api_key");
    operator.post(&format!("{path}/link"), &json!({})).expect_error(409, "invalid_state");
    assert_eq!(
        operator.patch(&path, &json!({"is_disabled": false})).expect(200)["is_disabled"],
        false
    );
    other.me();
    operator.patch(&path, &json!({"plan": "gold"})).expect_error(400, "invalid_plan");
    operator.patch(&path, &json!({"email": "x@example.com"})).expect_error(422, "validation_error");
    operator.patch(&path, &json!({"is_disabled": "yes"})).expect_error(422, "validation_error");
    operator.patch("/v1/admin/users/nobody", &json!({})).expect_error(404, "user_not_found");
}

#[test]
fn a_link_of_an_operator_signs_the_user_in() {
    let (server, operator, other) = with_two_users(DEV_UNLIMITED);
    let link = operator.post(&format!("{}/link", user_path(&other)), &json!({})).expect(201);
    let url = link.text("url");
    assert!(url.starts_with(&server.url()) && link["expires_at"].is_string(), "{link}");
    let signed_in = sign_in(&server.client(), &token_of(url)).expect(201);
    assert_eq!(signed_in["user"]["email"], "bob@example.com");
    assert_eq!(signed_in["user"]["is_operator"], false);
    operator.post("/v1/admin/users/nobody/link", &json!({})).expect_error(404, "user_not_found");
}

#[test]
fn registration_is_switched_at_once_and_stays_after_a_restart() {
    let mut server = Server::start(&["--limits", "off"]);
    let operator = server.client().register("ann@example.com");
    let shown = |client: &Client| client.read("/v1/info")["registration"].clone();
    let register =
        |client: &Client, email: &str| client.post("/v1/auth/register", &json!({"email": email}));
    let settings = operator.read("/v1/admin/settings");
    assert_eq!(
        settings,
        json!({"registration": "first-user", "is_registration_fixed": false, "backup_dir": null})
    );
    register(&server.client(), "bob@example.com").expect_error(403, "registration_disabled");
    let set = |operator: &Client, to: &str| {
        operator.patch("/v1/admin/settings", &json!({"registration": to})).expect(200)["registration"].clone()
    };
    assert_eq!(set(&operator, "open"), "open");
    register(&server.client(), "bob@example.com").expect(201);
    assert_eq!(shown(&server.client()), "open");
    assert_eq!(server.stop(), Some(0));
    let operator = operator.at(server.restart());
    register(&server.client(), "eve@example.com").expect(201);
    assert_eq!(set(&operator, "closed"), "closed");
    register(&server.client(), "dan@example.com").expect_error(403, "registration_disabled");
    assert_eq!(shown(&server.client()), "closed");
    let wrong = json!({"registration": "first_user"});
    operator.patch("/v1/admin/settings", &wrong).expect_error(422, "validation_error");
}

#[test]
fn a_switch_of_registration_is_in_force_for_device_logins() {
    let server = Server::start(&["--limits", "off"]);
    let operator = server.client().register("ann@example.com");
    let mails = |email: &str| {
        let started = server.client().post("/v1/auth/device-code", &json!({})).expect(201);
        let body = json!({"device_code": started["device_code"], "email": email});
        server.client().post("/v1/auth/device-code/submit-email", &body).expect(200);
        server.log().matches("/v1/auth/verify").count()
    };
    assert_eq!(mails("bob@example.com"), 0);
    operator.patch("/v1/admin/settings", &json!({"registration": "open"})).expect(200);
    mails("bob@example.com");
    until("the link is logged", || server.log().contains("bob@example.com").then_some(()));
}

#[test]
fn registration_that_a_flag_fixes_names_the_flag() {
    for (flags, expected) in
        [(&["--registration", "open"][..], "--registration"), (&["--dev"], "--dev")]
    {
        let server = Server::start(flags);
        let operator = server.client().register("ann@example.com");
        assert_eq!(operator.read("/v1/admin/settings")["is_registration_fixed"], true);
        let refused = operator.patch("/v1/admin/settings", &json!({"registration": "closed"}));
        refused.refuses(409, "invalid_state", expected);
        server.client().register("bob@example.com");
    }
}

#[test]
fn requests_for_a_plan_are_approved_and_declined() {
    let (server, operator, other) = with_two_users(&["--dev"]);
    let request = |plan: &str| {
        let offer = json!({"plan": plan, "interval": "monthly"});
        let url = other.post("/v1/billing/checkout", &offer).expect(200)["checkout_url"].clone();
        let token = url.as_str().unwrap().split_once("?token=").unwrap().1.to_owned();
        let form = [("Content-Type", "application/x-www-form-urlencoded")];
        let body = format!("token={token}");
        let confirmed =
            server.client().call("POST", "/billing/checkout", &form, body.as_bytes()).unwrap();
        assert!(confirmed.status < 400, "{}", confirmed.text());
        let listed = operator.read("/v1/admin/billing");
        assert_eq!(listed.list("requests").len(), 1);
        assert_has(
            &listed["requests"][0],
            json!({"user_id": id_of(&other), "email": "bob@example.com", "current_plan": "free", "plan": plan,
                   "interval": "monthly", "status": "requested", "decided_at": null}),
        );
        format!("/v1/admin/billing/{}", listed["requests"][0].text("id"))
    };
    let declined = request("scale");
    let answer = operator.post(&format!("{declined}/decline"), &json!({})).expect(200);
    assert_has(&answer, json!({"status": "declined", "current_plan": "free"}));
    assert!(answer["decided_at"].is_string());
    operator.post(&format!("{declined}/approve"), &json!({})).expect_error(409, "invalid_state");
    let approved = request("pro");
    let answer = operator.post(&format!("{approved}/approve"), &json!({})).expect(200);
    assert_has(&answer, json!({"status": "approved", "current_plan": "pro"}));
    assert_eq!(other.me()["plan"], "pro");
    assert_eq!(operator.read("/v1/admin/billing")["requests"], json!([]));
    operator
        .post("/v1/admin/billing/none/decline", &json!({}))
        .expect_error(404, "plan_request_not_found");
}

#[test]
fn a_held_copy_that_is_promoted_over_http_fires_at_once() {
    let receiver = Receiver::start();
    let mut server = Server::start(&["--dev", "--limits", "off"]);
    let operator = server.user();
    operator.post("/v1/admin/promote", &json!({})).expect_error(409, "invalid_state");
    let cue = operator.create(&webhook_cue("c", YEARLY, &receiver.url()));
    server.stop();
    let held = server.db().with_file_name("held.db");
    ok(&server.db(), &["backup", held.to_str().unwrap()]);
    let copy = Server::start_on(&held, DEV_UNLIMITED);
    let operator = operator.at(copy.addr());
    operator.fire(&cue);
    assert_eq!(receiver.count(), 0);
    let log = operator.read("/v1/admin/log");
    let entry = &log["entries"][0];
    assert_eq!(entry["level"], "warn");
    assert!(entry.text("message").contains("on hold"), "{entry}");
    assert!(entry.text("target").starts_with("cued::"), "{entry}");
    assert!(entry["fields"].text("path").ends_with("held.db"), "{entry}");
    let promoted = operator.post("/v1/admin/promote", &json!({})).expect(200);
    assert_eq!(promoted["overdue"], json!({"cues": 0, "executions": 1}));
    assert!(promoted["held_since"].is_string());
    until_true("the waiting run is sent", || receiver.count() == 1);
    operator.post("/v1/admin/promote", &json!({})).expect_error(409, "invalid_state");
    for wrong in ["limit=0", "limit=501"] {
        operator.get(&format!("/v1/admin/log?{wrong}")).expect_error(422, "validation_error");
    }
}

#[test]
fn a_promotion_wakes_the_engine() {
    let api = Api::start();
    let operator = api.user("ann");
    let now = api.fixture.now();
    api.fixture.sql("UPDATE users SET is_operator = 1");
    assert!(api.fixture.write(move |tx| meta::begin_hold(tx, now).unwrap()));
    let notifiers = &api.fixture.app.notifiers;
    let seen =
        || [&notifiers.schedule, &notifiers.send, &notifiers.claim].map(|it| it.generation());
    let before = seen();
    let promoted = operator.post("/v1/admin/promote", &json!({})).expect(200);
    assert_eq!(promoted["held_since"], "2026-01-01T10:00:00Z");
    assert!(seen().iter().zip(before).all(|(after, before)| *after > before));
}
