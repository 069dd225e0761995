//! Schedules in words, and the time zone of the person.

use crate::cli::client::{start, stored};
use crate::support::*;

/// The lines of standard error and the new cue, of a worker.
fn added(user: &Client, home: &ClientHome, flags: &str) -> (String, Value) {
    let run = home.run(&[&["cue", "add", "--name", "w", "--worker"][..], &words(flags)].concat());
    assert_eq!(run.code, 0, "{run:?}");
    let value = |name: &str| {
        let line = run.stdout.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        line.trim().to_owned()
    };
    (value("schedule"), stored(user, &value("id")))
}

#[test]
fn the_zone_is_that_of_the_machine_unless_it_is_named() {
    let (server, user, _home) = start();
    let in_zone = |zone: &str| ClientHome::signed_in(&server, &user).env("TZ", zone);
    let bad = in_zone("Nowhere/Bad").run(&["cue", "list"]);
    let warning = "TZ is \"Nowhere/Bad\", which is no time zone: UTC is used\n";
    assert!(bad.code == 0 && bad.stderr.starts_with(warning), "{bad:?}");
    assert_eq!(
        in_zone("Nowhere/Bad").run(&["cue", "list", "--tz", "Berlin"]).stderr.matches("TZ").count(),
        0
    );
    let (note, cue) = added(&user, &in_zone("Europe/Berlin"), "--cron 'daily 9:00'");
    assert_eq!(note, "Every day at 09:00, Europe/Berlin: 0 9 * * *");
    assert_eq!(cue["schedule"]["timezone"], "Europe/Berlin");
    let (_, cue) = added(&user, &in_zone("Europe/Berlin"), "--cron 'daily 9:00' --tz tokyo");
    assert_eq!(cue["schedule"]["timezone"], "Asia/Tokyo");
    let (_, cue) = added(&user, &in_zone("Europe/Berlin"), "--cron 'daily 9:00' --utc");
    assert_eq!(cue["schedule"]["timezone"], "UTC");
    let (note, _) = added(&user, &in_zone("XYZ-3"), "--cron 'daily 9:00'");
    assert!(note.contains(", UTC: "), "a machine whose rules have no name: {note}");
    let shown = in_zone("America/New_York").ok(&[
        "preview",
        "0 9 * * *",
        "-n",
        "1",
        "--from",
        "2030-01-02",
    ]);
    assert!(shown.starts_with("Every day at 09:00, America/New_York"), "{shown}");
    assert!(shown.contains("\nWed 2030-01-02 09:00  -05:00\n"), "{shown}");
}

#[test]
fn times_of_a_cue_are_in_the_zone_of_the_person_in_every_answer() {
    let (server, user, _home) = start();
    let home = ClientHome::signed_in(&server, &user).env("TZ", "Europe/Berlin");
    let next = "2030-01-02 01:00:00+01:00";
    let added = home.ok(&words("cue add --name t --cron '0 9 * * *' --tz Tokyo --url http://x/"));
    assert!(added.contains(&format!("next run  {next}\n")), "{added}");
    for line in
        ["cue set t --cron '0 9 * * *' --tz Tokyo", "cue set t --cron '0 9 * * *'", "cue show t"]
    {
        let shown = home.ok(&words(line));
        assert!(shown.contains(next), "{line}: {shown}");
    }
    home.ok(&words("cue pause t"));
    assert!(home.ok(&words("cue resume t")).contains(next), "resume");
    let named = home.ok(&words("cue show t --tz Tokyo"));
    assert!(
        named.contains("2030-01-02 09:00:00+09:00"),
        "--tz of other commands is that of the output: {named}"
    );
}

#[test]
fn a_list_shows_the_zone_of_a_schedule_unless_it_is_that_of_the_reader() {
    let (server, user, home) = start();
    for zone in ["UTC", "Europe/Berlin"] {
        added(&user, &home, &format!("--cron '0 9 * * *' --tz {zone}"));
    }
    let shown = |zone: &str| {
        let home = ClientHome::signed_in(&server, &user).env("TZ", zone);
        let list = home.ok(&["cue", "list"]);
        list.lines()
            .skip(1)
            .map(|row| row.split('\t').nth(3).unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(shown("UTC"), ["0 9 * * * Europe/Berlin", "0 9 * * *"]);
    assert_eq!(shown("Europe/Berlin"), ["0 9 * * *", "0 9 * * * UTC"]);
}
