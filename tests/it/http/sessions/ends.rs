//! The ends of a session: sign-out, revocation, expiry, too many of them; and what a session writes.

use cued::clock::Clock;
use cued::engine::scheduler::reaper;
use cued::store::maintenance::clock_accept;

use crate::http::sessions::{
    Browser, ME, SESSION, SESSIONS, cookie_of, key_of, link_of, sign_in, token_of,
};
use crate::support::*;

const DAY: i64 = 86_400;

#[test]
fn a_cookie_is_of_no_use_after_the_sign_out() {
    let (_api, ada) = Api::with_user("ada");
    let (browser, other) = (Browser::of(&ada), Browser::of(&ada));
    let answer = browser.sign_out();
    assert_contains(answer.header("set-cookie").unwrap(), &["=; Path=/; Max-Age=0; "]);
    assert!(!browser.is_signed_in() && other.is_signed_in());
    ada.delete(SESSION).expect_error(404, "session_not_found");
}

#[test]
fn a_user_ends_single_sessions_and_all_others() {
    let api = Api::start();
    let (ada, bob) = (api.user("ada"), api.user("bob"));
    let browsers = [0; 4].map(|_| Browser::of(&ada));
    let stranger = Browser::of(&bob);
    let listed = browsers[0].read(SESSIONS);
    assert_eq!(json!(listed.column("sessions", "current")), json!([true, false, false, false]));
    assert_has(&listed["sessions"][0], json!({"via": "key", "address": "127.0.0.1"}));
    let path = format!("{SESSIONS}/{}", id(&listed["sessions"][3]));
    stranger.call("DELETE", &path, "").expect_error(404, "session_not_found");
    assert_eq!(browsers[0].call("DELETE", &path, "").status, 204);
    browsers[0].call("DELETE", &path, "").expect_error(404, "session_not_found");
    assert!(!browsers[3].is_signed_in());
    let ended = browsers[1].call("DELETE", SESSIONS, "").expect(200);
    assert_eq!(ended, json!({"ended": 2}));
    let signed_in = browsers.each_ref().map(Browser::is_signed_in);
    assert_eq!((signed_in, stranger.is_signed_in()), ([false, true, false, false], true));
    assert_eq!(ada.delete(SESSIONS).expect(200), json!({"ended": 1}));
    assert!(!browsers[1].is_signed_in());
}

#[test]
fn a_session_ends_with_its_key() {
    let (_api, ada) = Api::with_user("ada");
    let key = ada.post("/v1/auth/keys", &json!({"name": "second"})).expect(201);
    let second = ada.with_key(key.text("api_key"));
    let (revoked, kept) = (Browser::of(&second), Browser::of(&ada));
    assert_eq!(kept.call("DELETE", &format!("/v1/auth/keys/{}", id(&key)), "").status, 204);
    assert!(!revoked.is_signed_in() && kept.is_signed_in());
    let refused = kept.call("POST", "/v1/auth/key/regenerate", "");
    refused.expect_error(409, "invalid_state");
    ada.post("/v1/auth/key/regenerate", &json!({})).expect(200);
    assert!(!kept.is_signed_in(), "the key is another one");
}

#[test]
fn a_link_ends_with_the_session_that_made_it() {
    let (_api, ada) = Api::with_user("ada");
    let (maker, other, client) = (Browser::of(&ada), Browser::of(&ada), ada.anonymous());
    let by_link = |maker: &Browser| {
        let link = maker.call("POST", "/v1/auth/session-link", "").expect(201);
        token_of(link.text("url"))
    };
    sign_in(&client, &by_link(&maker)).expect(201);
    let links = [by_link(&maker), by_link(&maker)];
    other.sign_out();
    sign_in(&client, &links[0]).expect(201);
    maker.sign_out();
    sign_in(&client, &links[1]).expect_error(401, "invalid_api_key");
    let enders: [&dyn Fn(&Browser); 3] = [
        &|maker| {
            let path = format!("{SESSIONS}/{}", maker.me()["auth"].text("id"));
            ada.delete(&path).expect(204);
        },
        &|_| drop(ada.delete(SESSIONS).expect(200)),
        &|_| drop(ada.post("/v1/auth/key/regenerate", &json!({})).expect(200)),
    ];
    for end in enders {
        let maker = Browser::of(&ada);
        let link = by_link(&maker);
        end(&maker);
        sign_in(&client, &link).expect_error(401, "invalid_api_key");
    }
}

/// A server whose streams beat often, the browser of a user, and its stream.
fn following() -> (Api, User, Browser, EventReader) {
    let api = Api::configured(|config| config.http.beat_interval = Duration::from_millis(20));
    let ada = api.user("ada");
    let browser = Browser::of(&ada);
    let stream = follow(&api, &browser);
    (api, ada, browser, stream)
}

fn follow(api: &Api, browser: &Browser) -> EventReader {
    let mut stream = EventReader::with_cookie(api.addr(), &browser.cookie);
    assert_eq!(stream.next().0, "hello");
    stream
}

/// Returns whether a stream ends before it has shown many signs of life.
fn ends(stream: &mut EventReader) -> bool {
    (0..200).any(|_| stream.next_block().unwrap().is_none())
}

#[test]
fn a_stream_ends_within_a_beat_of_the_end_of_its_session() {
    let (api, ada, first, mut stream) = following();
    let mut other = follow(&api, &Browser::of(&ada));
    first.sign_out();
    assert!(ends(&mut stream));
    ada.post("/v1/auth/key/regenerate", &json!({})).expect(200);
    assert!(ends(&mut other));
}

#[test]
fn a_stream_ends_when_its_session_expires() {
    let (api, _ada, browser, mut stream) = following();
    api.fixture.advance(30 * DAY - 1);
    assert!(stream.next_block().unwrap().is_some());
    api.fixture.advance(1);
    assert!(ends(&mut stream));
    assert!(!browser.is_signed_in());
}

#[test]
fn a_session_is_moved_on_once_a_day_and_ends_after_30_days_or_90() {
    let (api, ada) = Api::with_user("ada");
    let (idle, used) = (Browser::of(&ada), Browser::of(&ada));
    let assert_not_moved = || assert_eq!(used.get(ME).header("set-cookie"), None);
    assert_not_moved();
    api.fixture.advance(DAY - 1);
    assert_not_moved();
    api.fixture.advance(1);
    let moved = used.get(ME);
    assert_contains(moved.header("set-cookie").unwrap(), &["Max-Age=2592000"]);
    assert_eq!(cookie_of(&moved), used.cookie, "the same token");
    assert_not_moved();
    let end = api.fixture.now() + SignedDuration::from_hours(30 * 24);
    let listed = used.read(SESSIONS);
    assert_eq!(listed["sessions"][1]["expires_at"], end.to_string());
    for (seconds, is_signed_in) in [
        (29 * DAY - 1, true),
        (1, true),
        (29 * DAY, true),
        (29 * DAY, true),
        (2 * DAY - 1, true),
        (1, false),
    ] {
        api.fixture.advance(seconds);
        assert_eq!(used.is_signed_in(), is_signed_in, "after {seconds} s: 90 days");
        assert!(seconds != 1 || !idle.is_signed_in(), "not seen for 30 days");
    }
}

#[test]
fn the_21st_session_ends_the_oldest() {
    let (_api, ada) = Api::with_user("ada");
    let browsers: Vec<Browser> = (0..21).map(|_| Browser::of(&ada)).collect();
    let signed_in: Vec<bool> = browsers.iter().map(Browser::is_signed_in).collect();
    assert_eq!(signed_in, [&[false][..], &[true; 20]].concat());
}

#[test]
fn a_disabled_user_has_no_sessions_until_enabled_again() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let (browser, email) = (Browser::of(&user), user.email());
    server.administer(&["disable", &email]);
    assert!(!browser.is_signed_in());
    sign_in(&server.client(), &key_of(&user)).expect_error(401, "invalid_api_key");
    server.administer(&["enable", &email]);
    assert!(browser.is_signed_in());
}

#[test]
fn an_idle_page_writes_nothing() {
    let (api, ada) = Api::with_user("ada");
    let browser = Browser::of(&ada);
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
    let (app, begin) = (&api.fixture.app, api.fixture.now());
    app.clock.set(begin + SignedDuration::from_hours(24 * 365 * 20));
    app.clock.accept();
    let (browser, link) = (Browser::of(&ada), link_of(&ada));
    app.clock.set(begin);
    let other = Browser::of(&ada);
    clock_accept::accept(&app.store, begin).unwrap();
    assert!(browser.is_signed_in() && other.is_signed_in());
    sign_in(&ada.anonymous(), &link).expect_error(401, "invalid_api_key");
    app.clock.set(begin + SignedDuration::from_secs(30 * DAY + 1));
    assert!(!browser.is_signed_in() && !other.is_signed_in());
}

#[test]
fn expired_sessions_and_links_are_deleted() {
    let (api, ada) = Api::with_user("ada");
    Browser::of(&ada);
    link_of(&ada);
    let rows = || {
        let count = "SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM links)";
        let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
        api.fixture.write(move |tx| tx.query_row(count, [], read).unwrap())
    };
    let store = &api.fixture.app.store;
    let clean_up = || reaper::SESSIONS.delete_if_due(store, api.fixture.now()).unwrap();
    assert!(!clean_up());
    api.fixture.advance(299);
    assert!(!clean_up());
    api.fixture.advance(1);
    assert!(clean_up() && !clean_up());
    assert_eq!(rows(), (1, 0));
    let next = reaper::next_expiry(store, api.fixture.now()).unwrap().unwrap();
    api.fixture.advance(next.duration_since(api.fixture.now()).as_secs());
    assert!(clean_up() && !clean_up());
    assert_eq!(rows(), (0, 0));
}
