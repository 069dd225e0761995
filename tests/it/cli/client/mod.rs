//! Commands of a client: account, alerts, health, workers.

mod apply;
mod apply_faults;
mod apply_partly;
mod apply_sources;
mod channel;
mod completion;
mod cue;
mod cue_edit;
mod cue_fields;
mod failures;
mod mcp;
mod mcp_calls;
mod output;
mod plain_words;
mod private_ca;
mod run;
mod sign_in;
mod sink;
mod test_call;
mod width;
mod work;

use crate::cli::administration::ok;
use crate::http::sessions::{Browser, sign_in};
use crate::support::*;

const START: &str = "2030-01-01T00:00:00Z";

/// A server with a test clock, an account, and its home.
struct Desk {
    server: Server,
    user: Client,
    home: ClientHome,
}

impl Desk {
    fn new() -> Self {
        Self::at(Server::with_test_clock(START))
    }

    /// A server that deletes no runs.
    fn without_retention() -> Self {
        let flags = ["--test-clock", START, "--retain", "off"];
        Self::at(Server::start(&[DEV_UNLIMITED, &flags].concat()))
    }

    fn at(server: Server) -> Self {
        let user = server.user();
        let home = ClientHome::signed_in(&server, &user);
        Self { server, user, home }
    }

    /// A worker cue that runs by request.
    fn worker_cue(&self, name: &str) -> String {
        id(&self.user.create(&worker_cue(name, "0 0 1 7 *"))).to_owned()
    }

    /// A cue that is sent to `url` by request, with attempts an hour apart.
    fn webhook_cue(&self, name: &str, url: &str) -> String {
        let more = json!({"payload": {"volume": 1}, "retry": {"max_attempts": 3, "backoff_minutes": [60]}});
        id(&self.user.create(&with(webhook_cue(name, "0 0 1 7 *", url), more))).to_owned()
    }

    /// The id of a new run.
    fn fire(&self, cue: &str) -> String {
        self.user.fire(&json!({ "id": cue }))
    }

    /// A run of a worker cue that has failed.
    fn failed_run(&self, cue: &str) -> String {
        let run = self.fire(cue);
        self.user.report(&run, &json!({"success": false, "error": "exit code 3"}));
        run
    }
}

/// A server with a test clock, a user of it, and a home that is signed in.
fn start() -> (Server, Client, ClientHome) {
    let Desk { server, user, home } = Desk::new();
    (server, user, home)
}

/// Adds a worker cue by the command; returns its id.
fn add(home: &ClientHome, name: &str) -> String {
    let id = home.ok(&["cue", "add", "--name", name, "--cron", "0 9 * * *", "--worker", "-q"]);
    id.trim().to_owned()
}

/// A cue as the server has it.
fn stored(user: &Client, id: &str) -> Value {
    user.read(&format!("/v1/cues/{id}"))
}

#[test]
fn usage_shows_each_amount_with_its_limit() {
    let server = Server::start(&["--dev"]);
    let user = server.client().register("ann@example.com");
    let home = ClientHome::signed_in(&server, &user);
    let shown = home.ok(&["account", "usage"]);
    assert_contains(&shown, &["plan         free\n", "active cues  0 of 10\n"]);
    assert_eq!(home.json(&["account", "usage"])["plan"], user.read("/v1/usage")["plan"]);
}

#[test]
fn sessions_are_listed_and_ended() {
    let (server, user, home) = start();
    let browsers = [0; 3].map(|_| {
        let signed_in = sign_in(&server.client(), &json!({"api_key": user.key()}));
        Browser::new(&server.client(), &signed_in)
    });
    let listed = home.json(&["account", "sessions"]);
    let ids: Vec<&str> = listed.list("sessions").iter().map(id).collect();
    let table = home.ok(&["account", "sessions", "list"]);
    assert_contains(&table, &[ids[0], "127.0.0.1", "BY"]);
    assert_eq!(
        home.ok(&["account", "sessions", "rm", ids[0]]),
        format!("Session {} is ended.\n", ids[0])
    );
    assert!(!browsers[0].is_signed_in() && browsers[1].is_signed_in());
    assert_eq!(
        home.ok(&["account", "sessions", "rm", "--others", "-y"]),
        "2 sessions are ended.\n"
    );
    assert!(!browsers[1].is_signed_in() && !browsers[2].is_signed_in());
}

#[test]
fn open_prints_a_link_that_signs_in_once() {
    let (server, _user, home) = start();
    let printed = home.ok(&["open", "--no-browser"]);
    let token = |url: &str| url.trim().rsplit_once("/enter/").expect(url).1.to_owned();
    assert!(printed.starts_with(&format!("{}/#/enter/", server.url())), "{printed}");
    sign_in(&server.client(), &json!({"link_token": token(&printed)})).expect(201);
    sign_in(&server.client(), &json!({"link_token": token(&printed)}))
        .expect_error(401, "invalid_api_key");
    let screen = home.ok(&["open", "#/cues/cue_1"]);
    assert!(screen.ends_with("/cues/cue_1\n"), "{screen}");
    let link = home.json(&["open"]);
    sign_in(&server.client(), &json!({"link_token": token(link.text("url"))})).expect(201);
}

#[test]
fn the_lateness_of_a_server_is_in_units_of_people() {
    let server = Receiver::start();
    let health =
        json!({"status": "healthy", "lateness": {"p50_ms": 210_000.0, "p99_ms": 7_213_963.4}});
    server.react(Reaction::Full(200, Vec::new(), health.to_string()));
    let home = ClientHome::without_server().env("CUED_URL", server.url());
    assert_contains(&home.ok(&["health"]), &["4 min (median), 2 h (99 %)\n"]);
}

#[test]
fn a_healthy_server_is_shown_without_a_key_and_without_a_home() {
    let server = Server::start(DEV_UNLIMITED);
    let home = ClientHome::new().env("CUED_URL", server.url());
    let shown = home.ok(&["health"]);
    assert_contains(&shown, &["status      healthy\n", "database    ok\n", "to deliver  0\n"]);
    assert_eq!(home.json(&["health"])["services"]["poller"], "ok");
    let homeless = home.command(&["health"]).env_remove("HOME").output().unwrap();
    assert_eq!(homeless.status.code(), Some(0), "{homeless:?}");
}

#[test]
fn a_server_that_is_not_healthy_or_not_there_exits_with_1() {
    let mut server = Server::start(DEV_UNLIMITED);
    let folder = tempfile::TempDir::new().unwrap();
    let (copy, restored) = (folder.path().join("copy"), folder.path().join("cued.db"));
    ok(&server.db(), &["backup", copy.to_str().unwrap()]);
    ok(&restored, &["restore", copy.to_str().unwrap()]);
    let held = Server::start_on(&restored, DEV_UNLIMITED);
    let home = ClientHome::new().env("CUED_URL", held.url());
    let run = home.run(&["health"]);
    assert!(run.code == 1 && run.stdout.contains("scheduler   held\n"), "{run:?}");
    assert!(
        run.stderr.contains("the server is not healthy: held: a restored copy fires no cue"),
        "{run:?}"
    );
    let listen = held.addr().to_string();
    assert_eq!(home.fails(&["health", "--local", "--listen", &listen], 1), run.stderr);
    let run = home.run(&["health", "--json"]);
    let [shown, error]: [Value; 2] =
        [&run.stdout, &run.stderr].map(|text| serde_json::from_str(text).unwrap());
    assert_eq!((run.code, &error["error"]["code"]), (1, &json!("failed")));
    assert!(shown["held_since"].is_string());
    let home = ClientHome::new().env("CUED_URL", server.url());
    server.stop();
    assert_eq!(home.json_error(&["health"], 1)["code"], json!("unreachable"));
    assert_eq!(home.json_error(&["info"], 1)["code"], json!("unreachable"));
}

#[test]
fn a_local_check_finds_the_server_by_its_own_settings_and_prints_one_word() {
    let server = Server::start(DEV_UNLIMITED);
    let port = server.addr().port();
    // It must use none of these.
    let home = ClientHome::new()
        .env("CUED_URL", "http://127.0.0.1:1")
        .env("CUED_PROFILE", "none")
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .env("ALL_PROXY", "http://127.0.0.1:1");
    for address in ["127.0.0.1", "localhost", "0.0.0.0", "[::]"] {
        let listen = format!("{address}:{port}");
        assert_eq!(home.ok(&["health", "--local", "--listen", &listen]), "healthy\n");
    }
    let home = home.env("CUED_LISTEN", format!("0.0.0.0:{port}"));
    assert_eq!(home.ok(&["health", "--local"]), "healthy\n");
    assert_eq!(home.json(&["health", "--local"])["status"], json!("healthy"));
    let homeless = home.command(&["health", "--local"]).env_remove("HOME").output().unwrap();
    assert_eq!(homeless.status.code(), Some(0), "{homeless:?}");
}

#[test]
fn a_local_check_that_fails_exits_with_1_and_one_sentence() {
    let mut server = Server::start(DEV_UNLIMITED);
    let listen = server.addr().to_string();
    let home = ClientHome::new().env("CUED_LISTEN", &listen);
    signal("-STOP", server.pid());
    let hung = home.fails(&["health", "--local"], 1);
    signal("-CONT", server.pid());
    assert!(hung.contains("did not answer in time") && hung.lines().count() == 1, "{hung}");
    server.stop();
    let gone = home.fails(&["health", "--local"], 1);
    assert!(gone.contains(&format!("no server answers at http://{listen}")), "{gone}");
    assert!(gone.contains("CUED_LISTEN") && gone.lines().count() == 1, "{gone}");
    assert_eq!(home.json_error(&["health", "--local"], 1)["code"], json!("failed"));
}
