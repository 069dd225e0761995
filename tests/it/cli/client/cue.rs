//! `cued cue`: create, list, show and change.

use crate::cli::client::start;
use crate::support::*;

#[test]
fn all_cues_are_listed_over_pages() {
    let (_server, user, home) = start();
    for number in 0..105 {
        user.create(&hourly_cue(&format!("n{number}")));
    }
    assert_eq!(home.ok(&["cue", "list", "--all", "-q"]).lines().count(), 105);
    assert_eq!(home.json(&["cue", "list", "--all"]).list("cues").len(), 105);
    // The exact name is on a later page of the search for it.
    assert!(home.ok(&["cue", "show", "n0"]).contains("name          n0\n"));
}

#[test]
fn missed_runs_are_listed_by_gaps() {
    let (mut server, _user, _home) = start();
    let user = server.user();
    let cue = json!({"name": "m", "schedule": {"type": "recurring", "cron": "0 * * * *", "catch_up": "none"}, "transport": "worker"});
    user.create(&cue);
    server.stop();
    let user = user.at(server.restart_at("2030-01-01T05:30:00Z"));
    user.settle();
    let home = ClientHome::signed_in(&server, &user);
    let expected = "FIRST\tLAST\tCOUNT\tREASON\n\
                    2030-01-01 01:00:00+00:00\t2030-01-01 05:00:00+00:00\t5\tdowntime\n";
    assert_eq!(home.ok(&["cue", "missed", "m"]), expected);
    assert_eq!(home.json(&["cue", "missed", "m"])["missed"][0]["count"], 5);
}
