//! The ends of a session: sign-out, revocation, expiry, too many of them; and what a session writes.

use cued::clock::Clock;
use cued::engine::scheduler::reaper;
use cued::store::maintenance::clock_accept;

use crate::cli::administration::ok;
use crate::http::sessions::{Browser, cookie_of, sign_in, token_of};
use crate::support::*;

const DAY: i64 = 86_400;

fn browser(api: &Api, user: &User) -> Browser {
    let client = Client::new(api.addr());
    let signed_in = sign_in(&client, &json!({"api_key": user.key()}));
    Browser::new(&client, &signed_in)
}

#[test]
fn a_cookie_is_of_no_use_after_the_sign_out() {
    let (api, ada) = Api::with_user("ada");
    let (browser, other) = (browser(&api, &ada), browser(&api, &ada));
    let answer = browser.call("DELETE", "/v1/auth/session", "");
    assert_eq!(answer.status, 204);
    let cleared = answer.header("set-cookie").unwrap();
    assert!(cleared.contains("=; Path=/; Max-Age=0; "), "{cleared}");
    assert!(!browser.is_signed_in() && other.is_signed_in());
    ada.delete("/v1/auth/session").expect_error(404, "session_not_found");
}

#[test]
fn a_user_ends_single_sessions_and_all_others() {
    let api = Api::start();
    let (ada, bob) = (api.user("ada"), api.user("bob"));
    let browsers = [0; 4].map(|_| browser(&api, &ada));
    let stranger = browser(&api, &bob);
    let listed = browsers[0].get("/v1/auth/sessions").expect(200);
    let sessions = listed["sessions"].as_array().unwrap();
    let current: Vec<bool> = sessions.iter().map(|session| session["current"] == true).collect();
    assert_eq!(current, [true, false, false, false]);
    assert_has(&sessions[0], json!({"via": "key", "address": "127.0.0.1"}));
    let path = format!("/v1/auth/sessions/{}", id(&sessions[3]));
    stranger.call("DELETE", &path, "").expect_error(404, "session_not_found");
    assert_eq!(browsers[0].call("DELETE", &path, "").status, 204);
    browsers[0].call("DELETE", &path, "").expect_error(404, "session_not_found");
    assert!(!browsers[3].is_signed_in());
    let ended = browsers[1].call("DELETE", "/v1/auth/sessions", "").expect(200);
    assert_eq!(ended, json!({"ended": 2}));
    let signed_in = [0, 1, 2, 3].map(|index: usize| browsers[index].is_signed_in());
    assert_eq!((signed_in, stranger.is_signed_in()), ([false, true, false, false], true));
    assert_eq!(ada.delete("/v1/auth/sessions").expect(200), json!({"ended": 1}));
    assert!(!browsers[1].is_signed_in());
}

#[test]
fn a_session_ends_with_its_key() {
    let (api, ada) = Api::with_user("ada");
    let key = ada.post("/v1/auth/keys", &json!({"name": "second"})).expect(201);
    let second = ada.with_key(key["api_key"].as_str().unwrap());
    let client = Client::new(api.addr());
    let by_second = || Browser::new(&client, &sign_in(&client, &json!({"api_key": second.key()})));
    let (revoked, kept) = (by_second(), browser(&api, &ada));
    assert_eq!(kept.call("DELETE", &format!("/v1/auth/keys/{}", id(&key)), "").status, 204);
    assert!(!revoked.is_signed_in() && kept.is_signed_in());
    let refused = kept.call("POST", "/v1/auth/key/regenerate", "");
    refused.expect_error(409, "invalid_state");
    ada.post("/v1/auth/key/regenerate", &json!({})).expect(200);
    assert!(!kept.is_signed_in(), "the key is another one");
}

#[test]
fn a_link_ends_with_the_session_that_made_it() {
    let (api, ada) = Api::with_user("ada");
    let client = Client::new(api.addr());
    let (maker, other) = (browser(&api, &ada), browser(&api, &ada));
    let id = |browser: &Browser| browser.get("/v1/auth/me").expect(200)["auth"]["id"].clone();
    let by_link = || {
        let link = maker.call("POST", "/v1/auth/session-link", "").expect(201);
        token_of(link["url"].as_str().unwrap())
    };
    sign_in(&client, &by_link()).expect(201);
    let links = [by_link(), by_link()];
    assert_eq!(other.call("DELETE", "/v1/auth/session", "").status, 204);
    sign_in(&client, &links[0]).expect(201);
    assert_eq!(maker.call("DELETE", "/v1/auth/session", "").status, 204);
    sign_in(&client, &links[1]).expect_error(401, "invalid_api_key");
    let enders: [&dyn Fn(&Browser); 3] = [
        &|maker| {
            let path = format!("/v1/auth/sessions/{}", id(maker).as_str().unwrap());
            assert_eq!(ada.delete(&path).status, 204);
        },
        &|_| drop(ada.delete("/v1/auth/sessions").expect(200)),
        &|_| drop(ada.post("/v1/auth/key/regenerate", &json!({})).expect(200)),
    ];
    for end in enders {
        let maker = browser(&api, &ada);
        let link = maker.call("POST", "/v1/auth/session-link", "").expect(201);
        end(&maker);
        sign_in(&client, &token_of(link["url"].as_str().unwrap()))
            .expect_error(401, "invalid_api_key");
    }
}

/// Returns whether a stream ends before it has shown many signs of life.
fn ends(stream: &mut EventReader) -> bool {
    (0..200).any(|_| stream.next_block().unwrap().is_none())
}

#[test]
fn a_stream_ends_within_a_beat_of_the_end_of_its_session() {
    let api = Api::configured(|config| {
        config.http.beat_interval = Duration::from_millis(20);
    });
    let ada = api.user("ada");
    let open = |browser: &Browser| EventReader::with_cookie(api.addr(), &browser.cookie);
    let (first, second) = (browser(&api, &ada), browser(&api, &ada));
    let mut streams = [open(&first), open(&second)];
    for stream in &mut streams {
        assert_eq!(stream.next().0, "hello");
    }
    assert_eq!(first.call("DELETE", "/v1/auth/session", "").status, 204);
    assert!(ends(&mut streams[0]));
    ada.post("/v1/auth/key/regenerate", &json!({})).expect(200);
    assert!(ends(&mut streams[1]));
}

#[test]
fn a_stream_ends_when_its_session_expires() {
    let api = Api::configured(|config| {
        config.http.beat_interval = Duration::from_millis(20);
    });
    let browser = browser(&api, &api.user("ada"));
    let mut stream = EventReader::with_cookie(api.addr(), &browser.cookie);
    assert_eq!(stream.next().0, "hello");
    api.fixture.advance(30 * DAY - 1);
    assert!(stream.next_block().unwrap().is_some());
    api.fixture.advance(1);
    assert!(ends(&mut stream));
    assert!(!browser.is_signed_in());
}

#[test]
fn a_session_is_moved_on_once_a_day_and_ends_after_30_days_or_90() {
    let (api, ada) = Api::with_user("ada");
    let (idle, used) = (browser(&api, &ada), browser(&api, &ada));
    let end = |api: &Api| api.fixture.now() + jiff::SignedDuration::from_hours(30 * 24);
    assert_eq!(used.get("/v1/auth/me").header("set-cookie"), None);
    api.fixture.advance(DAY - 1);
    assert_eq!(used.get("/v1/auth/me").header("set-cookie"), None);
    api.fixture.advance(1);
    let moved = used.get("/v1/auth/me");
    assert!(moved.header("set-cookie").unwrap().contains("Max-Age=2592000"));
    assert_eq!(cookie_of(&moved), used.cookie, "the same token");
    assert_eq!(used.get("/v1/auth/me").header("set-cookie"), None);
    let listed = used.get("/v1/auth/sessions").expect(200);
    assert_eq!(listed["sessions"][1]["expires_at"], end(&api).to_string());
    api.fixture.advance(29 * DAY - 1);
    assert!(used.is_signed_in());
    api.fixture.advance(1);
    assert!(!idle.is_signed_in(), "not seen for 30 days");
    for _ in 0..2 {
        api.fixture.advance(29 * DAY);
        assert!(used.is_signed_in());
    }
    api.fixture.advance(2 * DAY - 1);
    assert!(used.is_signed_in());
    api.fixture.advance(1);
    assert!(!used.is_signed_in(), "90 days");
}

#[test]
fn the_21st_session_ends_the_oldest() {
    let (api, ada) = Api::with_user("ada");
    let browsers: Vec<Browser> = (0..21).map(|_| browser(&api, &ada)).collect();
    let signed_in: Vec<bool> = browsers.iter().map(Browser::is_signed_in).collect();
    assert_eq!(signed_in, [&[false][..], &[true; 20]].concat());
}

#[test]
fn a_disabled_user_has_no_sessions_until_enabled_again() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let browser =
        Browser::new(&server.client(), &sign_in(&server.client(), &json!({"api_key": user.key()})));
    let email = user.get("/v1/auth/me").expect(200)["email"].as_str().unwrap().to_owned();
    ok(&server.db(), &["user", "disable", &email]);
    assert!(!browser.is_signed_in());
    sign_in(&server.client(), &json!({"api_key": user.key()})).expect_error(401, "invalid_api_key");
    ok(&server.db(), &["user", "enable", &email]);
    assert!(browser.is_signed_in());
}

#[test]
fn an_idle_page_writes_nothing() {
    let (api, ada) = Api::with_user("ada");
    let browser = browser(&api, &ada);
    let log = api.fixture.app.config.db.with_extension("db-wal");
    let written = || fs::read(&log).unwrap();
    assert!(browser.is_signed_in());
    let before = written();
    for _ in 0..100 {
        assert!(browser.is_signed_in());
        api.fixture.advance(60);
    }
    assert!(!before.is_empty() && written() == before);
}

#[test]
fn a_session_that_began_while_the_clock_was_ahead_is_cut_when_the_clock_is_accepted() {
    let api =
        Api::from_fixture(Fixture::with_config(Clock::manual(BEGIN.parse().unwrap()), |_| {}));
    let ada = api.user("ada");
    let begin = api.fixture.now();
    api.fixture.app.clock.set(begin + SignedDuration::from_hours(24 * 365 * 20));
    api.fixture.app.clock.accept();
    let browser = browser(&api, &ada);
    let link = ada.post("/v1/auth/session-link", &json!({})).expect(201);
    api.fixture.app.clock.set(begin);
    let other = self::browser(&api, &ada);
    clock_accept::accept(&api.fixture.app.store, begin).unwrap();
    assert!(browser.is_signed_in() && other.is_signed_in());
    let link = token_of(link["url"].as_str().unwrap());
    sign_in(&Client::new(api.addr()), &link).expect_error(401, "invalid_api_key");
    api.fixture
        .app
        .clock
        .set(begin + SignedDuration::from_hours(24 * 30) + SignedDuration::from_secs(1));
    assert!(!browser.is_signed_in() && !other.is_signed_in());
}

#[test]
fn expired_sessions_and_links_are_deleted() {
    let (api, ada) = Api::with_user("ada");
    browser(&api, &ada);
    ada.post("/v1/auth/session-link", &json!({})).expect(201);
    let rows = || {
        let count = "SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM links)";
        let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
        api.fixture.write(move |tx| tx.query_row(count, [], read).unwrap())
    };
    let clean_up =
        || reaper::SESSIONS.delete_if_due(&api.fixture.app.store, api.fixture.now()).unwrap();
    assert!(!clean_up());
    api.fixture.advance(299);
    assert!(!clean_up());
    api.fixture.advance(1);
    assert!(clean_up() && !clean_up());
    assert_eq!(rows(), (1, 0));
    let next = reaper::next_expiry(&api.fixture.app.store, api.fixture.now()).unwrap().unwrap();
    api.fixture.advance(next.duration_since(api.fixture.now()).as_secs());
    assert!(clean_up() && !clean_up());
    assert_eq!(rows(), (0, 0));
}
