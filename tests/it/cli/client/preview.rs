//! `cued preview` and `cued cue next`.

use serde_json::json;

use crate::support::client_command::ClientHome;
use crate::support::server::Server;

fn start() -> (Server, ClientHome) {
    let server = Server::with_test_clock("2030-01-01T00:00:00Z");
    let home = ClientHome::signed_in(&server, &server.user());
    (server, home)
}

#[test]
fn the_runs_of_a_schedule_are_shown_in_its_local_time() {
    let (_server, home) = start();
    let expected = "At 02:30, every day, Europe/Berlin (31 runs in 31 days)\n\n\
                    RUN                   OFFSET  NOTE\n\
                    Sat 2030-03-30 02:30  +01:00\n\
                    Sun 2030-03-31 03:00  +02:00  gap: 02:30 does not exist, runs at 03:00\n\
                    Mon 2030-04-01 02:30  +02:00\n\n\
                    The clocks change at 2030-03-31 03:00:00+02:00, from +01:00 to +02:00.\n";
    let arguments = ["preview", "30 2 * * *", "--tz", "Europe/Berlin", "--from", "2030-03-30", "-n", "3"];
    assert_eq!(home.ok(&arguments), expected);
    let json = home.json(&arguments);
    assert_eq!(json["occurrences"][0]["at"], "2030-03-30T01:30:00Z");
    let ids = home.ok(&[&arguments[..], &["-q"]].concat());
    assert_eq!(ids, "2030-03-30T01:30:00Z\n2030-03-31T01:00:00Z\n2030-04-01T00:30:00Z\n");
    assert!(home.ok(&[&arguments[..], &["-o", "yaml"]].concat()).contains("description: \"At 02:30"));
}

#[test]
fn the_zone_is_utc_without_a_flag_and_a_single_instant_can_be_shown() {
    let (_server, home) = start();
    assert!(home.ok(&["preview", "0 9 * * 1-5", "-n", "1"]).contains("\nTue 2030-01-01 09:00  +00:00\n"));
    let once = home.ok(&["preview", "--at", "2030-07-01T09:00:05", "--tz", "Europe/Berlin"]);
    assert!(once.contains("\nMon 2030-07-01 09:00:05  +02:00\n"), "{once}");
}

#[test]
fn a_wrong_expression_has_a_mark_below_the_fault() {
    let (_server, home) = start();
    let error = home.fails(&["preview", "0 9 * * xyz"], 5);
    assert!(error.ends_with("\n  0 9 * * xyz\n          ^^^\n"), "{error}");
    assert_eq!(home.json_error(&["preview", "0 9 * * xyz"], 5)["span"], json!([8, 11]));
}

#[test]
fn wrong_use_and_failures_have_their_exit_codes() {
    let (server, home) = start();
    home.fails(&["preview"], 2);
    home.fails(&["preview", "* * * * *", "--at", "2031-01-01T00:00"], 2);
    home.fails(&["preview", "* * * * *", "-n", "0"], 2);
    assert!(home.fails(&["preview", "* * * * *", "--from", "soon"], 2).contains("2030-03-30T09:00"));
    assert!(home.fails(&["preview", "* * * * *", "--tz", "Mars/Olympus"], 2).contains("Mars/Olympus"));
    assert_eq!(ClientHome::without_server().json_error(&["preview", "* * * * *"], 1)["code"], "unreachable");
    let unknown = ClientHome::new().env("CUED_URL", server.url()).env("CUED_API_KEY", "cue_sk_unknown");
    assert_eq!(unknown.json_error(&["preview", "* * * * *"], 4)["code"], "invalid_api_key");
}

#[test]
fn the_next_runs_of_a_cue_are_shown_beside_your_time() {
    let (_server, home) = start();
    home.ok(&["cue", "add", "--name", "n", "--cron", "0 9 * * *", "--tz", "Europe/Berlin", "--worker"]);
    let shown = home.ok(&["cue", "next", "n", "-n", "2", "--tz", "America/New_York"]);
    let expected = "At 09:00, every day, Europe/Berlin (31 runs in 31 days)\n\n\
                    RUN                   OFFSET  YOUR TIME                  NOTE\n\
                    Tue 2030-01-01 09:00  +01:00  2030-01-01 03:00:00-05:00\n\
                    Wed 2030-01-02 09:00  +01:00  2030-01-02 03:00:00-05:00\n";
    assert_eq!(shown, expected);
    assert!(!home.ok(&["cue", "next", "n"]).contains("YOUR TIME"));
    assert_eq!(home.json(&["cue", "next", "n", "-n", "1"])["upcoming"], json!(["2030-01-01T08:00:00Z"]));
}

#[test]
fn the_flags_of_a_preview_are_not_among_those_of_all_commands() {
    let help = ClientHome::new().ok(&["preview", "--help"]);
    let (own, common) = help.split_once("Server and output:").unwrap();
    assert!(
        own.contains("--from")
            && own.contains("<CRON>") | own.contains("[CRON]")
            && !common.contains("--from")
    );
    assert!(common.contains("Time zone of the schedule"), "{help}");
}
