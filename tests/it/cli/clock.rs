//! `cued clock accept`, beside a server and without one.

use serde_json::json;

use crate::cli::administration::{fails, ok};
use crate::journeys::monitoring::metrics::scrape;
use crate::support::client_command::ClientHome;
use crate::support::server::{DEV_UNLIMITED, Server, until};

#[test]
fn a_server_whose_file_has_seen_the_future_is_degraded_until_its_clock_is_accepted() {
    let mut ahead = Server::with_test_clock("2060-01-01T00:00:00Z");
    let user = ahead.user();
    let minutely =
        json!({"name": "n", "transport": "worker", "schedule": {"type": "recurring", "cron": "* * * * *"}});
    let cue = user.create(&minutely)["id"].as_str().unwrap().to_owned();
    user.advance("PT2M");
    ahead.stop();
    let server =
        Server::start_on(&ahead.db(), &[DEV_UNLIMITED, &["--metrics-listen", "127.0.0.1:0"]].concat());
    let user = user.at(server.addr());
    let home = ClientHome::new().env("CUED_URL", server.url());
    let run = home.run(&["health"]);
    assert!(run.code == 1 && run.stdout.contains("poller        clock_behind\n"), "{run:?}");
    assert!(run.stdout.contains("behind until  2060-01-01"), "{run:?}");
    assert!(
        run.stderr.contains("2060-01-01T00:02:00Z") && run.stderr.contains("`cued clock accept`"),
        "{run:?}"
    );
    let listen = server.addr().to_string();
    let run = home.run(&["health", "--local", "--listen", &listen]);
    assert!(run.code == 1 && run.stderr.contains("`cued clock accept`"), "{run:?}");
    assert!(scrape(&server).value("cued_clock_behind_seconds", &[]) > 1e8);

    let said = ok(&server.db(), &["clock", "accept"]);
    assert!(said.contains("from 2060-01-01T00:02:00Z to ") && said.contains("1 cue recomputed"), "{said}");
    until("the server goes on", || (user.get("/health").expect(200)["status"] == "healthy").then_some(()));
    assert_eq!(home.ok(&["health", "--local", "--listen", &listen]), "healthy\n");
    assert!(scrape(&server).value("cued_clock_behind_seconds", &[]) == 0.0);
    let next = user.get(&format!("/v1/cues/{cue}")).expect(200)["next_run"].as_str().unwrap().to_owned();
    assert!(next.starts_with("20") && !next.starts_with("2060"), "{next}");
    let said = ok(&server.db(), &["clock", "accept"]);
    assert!(said.contains("nothing to set back"), "{said}");
    let missing = fails(&server.db().with_file_name("no-such.db"), &["clock", "accept"], 1);
    assert!(missing.contains("does not exist"), "{missing}");
}
