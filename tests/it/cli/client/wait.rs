//! `cued run wait`: the end of a run.

use serde_json::{Value, json};

use crate::cli::client::tail::{cue, fire};
use crate::support::client_command::ClientHome;
use crate::support::live_command::LiveCommand;
use crate::support::receiver::{Reaction, Receiver};
use crate::support::server::{DEV_UNLIMITED, Server};

const START: &str = "2030-01-01T00:00:00Z";

#[test]
fn an_ended_run_is_shown_and_its_result_is_the_exit_code() {
    let (server, receiver) = (Server::with_test_clock(START), Receiver::start());
    let user = server.user();
    let home = ClientHome::signed_in(&server, &user);
    let cue = cue(&user, "report", &receiver, 2);
    let good = fire(&user, &cue);
    user.settle();
    let shown = home.ok(&["run", "wait", &good]);
    assert!(shown.contains("cue          report\nstatus       success\nattempts     1 of 2\n"), "{shown}");
    assert_eq!(home.json(&["run", "wait", &good])["id"], json!(good));
    assert_eq!(
        home.ok(&["run", "wait", &good[..23], "-q"]),
        format!("{good}\n"),
        "by the beginning of its id"
    );
    receiver.react(Reaction::Status(500));
    let cancelled = fire(&user, &cue);
    user.settle();
    user.post(&format!("/v1/executions/{cancelled}/cancel"), &json!({})).expect(200);
    let failed = fire(&user, &cue);
    user.advance("PT1M");
    for (run, reason) in [(&failed, "failed: the callback returned 500"), (&cancelled, "was cancelled")] {
        let ended = home.run(&["run", "wait", run, "--json"]);
        assert_eq!(ended.code, 8, "{ended:?}");
        assert_eq!(serde_json::from_str::<Value>(&ended.stdout).unwrap()["status"], "failed");
        let error: Value = serde_json::from_str(&ended.stderr).unwrap();
        assert!(error["error"]["message"].as_str().unwrap().ends_with(reason), "{error}");
    }
}

#[test]
fn the_end_of_a_run_ends_the_wait_also_over_a_restart() {
    let (mut server, receiver) = (Server::start(DEV_UNLIMITED), Receiver::with(Reaction::Hang));
    let user = server.user();
    let home = ClientHome::signed_in(&server, &user);
    let cue = cue(&user, "report", &receiver, 1);
    let run = fire(&user, &cue);
    receiver.wait_hanging(1);
    let mut wait = LiveCommand::following(&home, &["run", "wait", &run, "-q"]);
    receiver.release();
    assert_eq!(wait.end(), (Some(0), vec![run]), "{}", wait.stderr);
    receiver.react(Reaction::Hang);
    let run = fire(&user, &cue);
    receiver.wait_hanging(1);
    let mut wait = LiveCommand::following(&home, &["run", "wait", &run, "-q"]);
    server.kill();
    receiver.release();
    server.restart_in_place();
    assert_eq!(wait.end(), (Some(0), vec![run]), "{}", wait.stderr);
}

#[test]
fn a_fire_waits_for_the_end_of_its_run() {
    let (server, receiver) = (Server::start(DEV_UNLIMITED), Receiver::start());
    let user = server.user();
    let home = ClientHome::signed_in(&server, &user);
    cue(&user, "report", &receiver, 1);
    let run = home.json(&["cue", "fire", "report", "--wait"]);
    assert_eq!((&run["status"], &run["cue_name"]), (&json!("success"), &json!("report")));
    receiver.react(Reaction::Status(500));
    let failed = home.run(&["cue", "fire", "report", "--wait"]);
    assert_eq!(failed.code, 8, "{failed:?}");
    assert!(failed.stderr.contains("failed: the callback returned 500"), "{failed:?}");
    receiver.react(Reaction::Hang);
    let late = home.fails(&["cue", "fire", "report", "--wait", "--timeout", "1s"], 1);
    assert!(late.contains("has not ended; it goes on"), "{late}");
    receiver.release();
}

#[test]
fn a_deleted_cue_ends_the_wait() {
    let (server, receiver) = (Server::start(DEV_UNLIMITED), Receiver::with(Reaction::Status(500)));
    let user = server.user();
    let cue = cue(&user, "report", &receiver, 2);
    let run = fire(&user, &cue);
    let mut wait = LiveCommand::following(&ClientHome::signed_in(&server, &user), &["run", "wait", &run]);
    user.delete(&format!("/v1/cues/{cue}")).expect(204);
    assert_eq!(wait.end(), (Some(3), vec![]), "{}", wait.stderr);
}

#[test]
fn a_wait_ends_with_its_time_with_and_without_a_stream() {
    for flags in [&["--max-streams", "64"], &["--max-streams", "0"]] {
        let server = Server::start(&[DEV_UNLIMITED, flags].concat());
        let (user, receiver) = (server.user(), Receiver::with(Reaction::Status(500)));
        let home = ClientHome::signed_in(&server, &user);
        let run = fire(&user, &cue(&user, "report", &receiver, 2));
        let error = home.fails(&["run", "wait", &run, "--timeout", "1s"], 1);
        assert!(error.contains(&format!("the run {run} has not ended; it goes on")), "{error}");
        assert_eq!(error.contains("is read every 5 s instead"), flags[1] == "0", "{error}");
    }
}

#[test]
fn failures_of_the_request_have_their_exit_codes() {
    let server = Server::start(DEV_UNLIMITED);
    let home = ClientHome::signed_in(&server, &server.user());
    let unknown = "01a2049d-6e1e-77ee-98b4-630124e2a4bd";
    assert_eq!(home.json_error(&["run", "wait", unknown], 3)["code"], "execution_not_found");
    assert_eq!(home.json_error(&["run", "wait", "01a2049d"], 3)["code"], "not_found");
    assert_eq!(ClientHome::without_server().json_error(&["run", "wait", unknown], 1)["code"], "unreachable");
    let wrong = ClientHome::new().env("CUED_URL", server.url()).env("CUED_API_KEY", "cue_sk_unknown");
    assert_eq!(wrong.json_error(&["run", "wait", unknown], 4)["code"], "invalid_api_key");
    home.fails(&["run", "wait", unknown, "--timeout", "never"], 2);
    assert!(home.ok(&["run", "wait", unknown, "--curl"]).contains(unknown));
}
