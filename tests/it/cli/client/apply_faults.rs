//! Files that `cued apply` and `cued diff` refuse: each fault has its place, and says what to do.

use cued::domain::cue::slug::{NAMESPACE_RULE, SLUG_RULE};

use crate::cli::client::start;
use crate::support::*;

/// A home without a server, so that a fault comes before any request.
fn home_with(text: &str) -> ClientHome {
    let home = ClientHome::without_server();
    std::fs::write(home.folder().join("cues.yaml"), text).unwrap();
    home
}

/// One test for each file with one fault. The message is that of standard error without `cued: cues.yaml:`.
macro_rules! bad_files {
    ($($name:ident: $text:expr => $fault:expr;)*) => {
        $(
            #[test]
            fn $name() {
                let home = home_with($text);
                let expected = format!("cued: cues.yaml:{} (nothing was sent)\n", $fault);
                for command in ["apply", "diff"] {
                    assert_eq!(home.fails(&[command, "-f", "cues.yaml"], 2), expected);
                }
            }
        )*
    };
}

bad_files! {
    an_empty_file: "" => "1:1: it is empty";
    a_list_in_place_of_a_file: "- a" => "1:1: a file has a key `cues:` with a cue below each slug";
    a_brace_that_is_not_closed: "cues: {a: {url: x}\n" => "1:7: a brace or bracket is not closed";
    a_key_twice: "cues:\n  a: {}\n  a: {}\n" => "3:3: the key \"a\" is repeated";
    an_alias: "cues:\n  a: &x {}\n  b: *x\n" => "2:6: anchors and aliases are not read; repeat the value";
    a_tag: "cues: !map {}" => "1:7: YAML tags (!x) are not read; write the value in quotes if it is text";
    two_documents: "cues: {}\n---\ncues: {}\n" => "2:1: a second document begins here; only one is read";
    a_number_in_another_form: "cues:\n  a: {schedule: '@daily', url: 'http://a', timeout: 0x10}"
        => "2:53: 0x10 is no number of JSON; write it as JSON does, or in quotes if it is text";
    an_unknown_section: "cuse: {}" => "1:1: there is no section \"cuse\"; did you mean \"cues\"?";
    cues_as_a_list: "cues:\n  - a" => "2:3: cues is an object with a key for each of them";
    a_namespace_in_capitals: "namespace: Home" => format!("1:12: namespace: {NAMESPACE_RULE}");
    defaults_as_text: "defaults: x"
        => "1:11: the defaults are an object of fields, such as `timezone: Europe/Berlin`";
    a_default_that_no_cue_has: "defaults: {time_zone: Berlin}"
        => "1:12: there is no field \"time_zone\"; did you mean \"timezone\" or \"timeout\"?";
    a_slug_with_a_blank: "cues:\n  my cue: {}" => format!("2:3: \"my cue\" is no slug: {SLUG_RULE}");
    a_slash_in_a_namespace: "namespace: home\ncues:\n  a/b: {}"
        => format!("3:3: \"a/b\" is no slug: {NAME_RULE}");
    two_slashes: "cues:\n  a/b/c: {}" => format!("2:3: \"a/b/c\" is no slug: {SLUG_RULE}");
    a_cue_as_text: "cues:\n  a: http://a"
        => "2:6: a is an object of fields, such as `schedule: \"0 3 * * *\"`";
    a_cue_without_a_schedule: "cues:\n  a: {url: 'http://a'}"
        => "2:3: a has no schedule; add one, such as `schedule: \"0 3 * * *\"`";
    a_schedule_with_a_zone_only: "cues:\n  a: {url: 'http://a', timezone: UTC}"
        => "2:3: a has no schedule; add one, such as `schedule: \"0 3 * * *\"`";
    a_cue_without_a_target: "cues:\n  a: {schedule: '@daily'}"
        => "2:3: a has no target; add `url: …`, or `worker: true`";
    a_mistyped_part_of_a_schedule: "cues:\n  a: {schedule: {corn: '0 3 * * *'}, url: 'http://a'}"
        => "2:18: there is no field \"schedule.corn\"; did you mean \"schedule.cron\"?";
    a_url_beside_a_worker: "cues:\n  a: {schedule: '@daily', url: 'http://a', worker: true}"
        => "2:27: a cue calls a URL or waits for a worker; remove url or worker";
    a_mistyped_field: "cues:\n  a:\n    scedule: '@daily'\n    url: http://a"
        => "3:5: there is no field \"scedule\"; did you mean \"schedule\"?";
    an_unknown_field: "cues:\n  a: {schedule: '@daily', url: 'http://a', xyz: 1}"
        => "2:44: there is no field \"xyz\"; `cued apply --help` lists the fields";
    a_slug_as_a_field: "cues:\n  a: {schedule: '@daily', url: 'http://a', slug: b}"
        => "2:44: there is no field \"slug\"; the slug is the key of the cue and the namespace of its file";
    a_cron_as_a_field: "cues:\n  a: {cron: '@daily', url: 'http://a'}"
        => "2:7: there is no field \"cron\"; write `schedule: …`, or `schedule: {cron: …}`";
    a_mistyped_part: "cues:\n  a:\n    schedule: {cron: '@daily', timezon: UTC}\n    url: http://a"
        => "3:32: there is no field \"schedule.timezon\"; did you mean \"schedule.timezone\" or \"callback.timeout_seconds\"?";
    an_unknown_part: "cues:\n  a: {schedule: '@daily', url: 'http://a', verification: {mode: none, x: 1}}"
        => "2:71: there is no field \"verification.x\"; verification has mode";
    a_mistyped_part_of_a_flow:
        "cues:\n  a: {schedule: '@daily', callback: {url: 'http://a', flow: {paralelism: 1, per_minute: 1}}}"
        => "2:62: there is no field \"callback.flow.paralelism\"; did you mean \"callback.flow.parallelism\"?";
    a_short_form_beside_its_field:
        "cues:\n  a:\n    schedule: '@daily'\n    url: http://a\n    callback: {url: 'http://b'}"
        => "5:16: callback.url is set twice, also in line 4; remove one of the two";
    a_zone_beside_its_field:
        "cues:\n  a:\n    timezone: UTC\n    url: http://a\n    schedule: {cron: '@daily', timezone: UTC}"
        => "5:32: schedule.timezone is set twice, also in line 3; remove one of the two";
    paused_beside_status: "cues:\n  a: {schedule: '@daily', url: 'http://a', status: active, paused: true}"
        => "2:60: status is set twice, also in line 2; remove one of the two";
    a_task_beside_that_of_the_payload:
        "cues:\n  a: {schedule: '@daily', worker: true, payload: {task: t}, task: u}"
        => "2:61: payload.task is set twice, also in line 2; remove one of the two";
    a_retry_as_a_number: "cues:\n  a: {schedule: '@daily', url: 'http://a', retry: 3}"
        => "2:51: retry: must be an object";
    a_failure_as_a_text: "cues:\n  a: {schedule: '@daily', url: 'http://a', on_failure: email}"
        => "2:56: on_failure: must be an object";
    a_schedule_as_a_number: "cues:\n  a: {schedule: 5, url: 'http://a'}"
        => "2:17: schedule: must be an object";
    headers_as_a_list: "cues:\n  a: {schedule: '@daily', url: 'http://a', headers: [a]}"
        => "2:53: headers: must be a JSON object";
    headers_of_a_callback_as_a_text: "cues:\n  a: {schedule: '@daily', callback: {url: 'http://a', headers: a}}"
        => "2:64: callback.headers: must be a JSON object";
    a_payload_as_a_list: "cues:\n  a: {schedule: '@daily', url: 'http://a', payload: [1]}"
        => "2:53: payload: must be a JSON object";
    a_time_out_above_its_maximum: "cues:\n  a: {schedule: '@daily', url: 'http://a', timeout: 1h}"
        => "2:53: timeout: must be at most 5m";
    a_time_out_of_nothing: "cues:\n  a: {schedule: '@daily', url: 'http://a', timeout: 0}"
        => "2:53: timeout: must be at least 1s";
    a_cron_without_quotes: "cues:\n  a:\n    url: http://a\n    schedule: */5 * * * *"
        => "4:15: put the value in quotes, as in \"*/5 * * * *\"";
    a_date_in_another_order: "cues:\n  a: {schedule: 31.12.2030 09:00, url: 'http://a'}"
        => "2:17: `31.12.2030` is not understood here: expected a schedule; examples are `every 5m`, \
            `every weekday at 9`, `mon,wed 18:30` and `2030-01-31T09:00:00`";
    a_switch_as_text: "cues:\n  a: {schedule: '@daily', worker: 'yes'}" => "2:35: worker is true or false";
    a_time_out_in_words: "cues:\n  a: {schedule: '@daily', url: 'http://a', timeout: soon}"
        => "2:53: timeout: \"soon\" is no duration; examples are 90s, 10m, 2h and 1d";
    a_mistyped_word_of_a_schedule: "cues:\n  a: {schedule: every wekday at 9, url: 'http://a'}"
        => "2:17: `wekday` is not understood here: expected a time such as 5m, or a day such as weekday or \
            monday; examples are `every 5m`, `every weekday at 9`, `mon,wed 18:30` and `2030-01-31T09:00:00`";
    a_field_of_a_cron_out_of_range: "cues:\n  a:\n    schedule: '61 * * * *'\n    url: http://a"
        => "3:15: minute: 61 is out of range 0-59";
    a_day_that_moves: "cues:\n  a: {schedule: 'tomorrow 9:00', url: 'http://a'}"
        => "2:17: \"tomorrow 9:00\" means another time with every apply; write an instant such as \
            2030-01-31T09:00:00";
    a_variable_that_is_not_set: "cues:\n  a: {schedule: '@daily', url: 'http://a/${NOWHERE}'}"
        => "2:32: the variable NOWHERE is not set in the environment; set it, or write $${ for ${ itself";
    a_variable_without_its_end: "cues:\n  a: {schedule: '@daily', url: 'http://a/${NOWHERE'}"
        => "2:32: ${ begins the name of a variable, as in ${NAS_TOKEN}; write $${ for ${ itself";
    a_channel_without_a_type: "channels:\n  phone: {url: 'http://a'}"
        => "2:3: the channel phone has no type; it is one of email, webhook, ntfy, slack, discord, mattermost, \
            teams, telegram, gotify, pushover";
    a_channel_of_a_mistyped_type: "channels:\n  phone: {type: ntfi}"
        => "2:17: there is no type \"ntfi\" of channels; did you mean \"ntfy\"?";
    a_secret_in_the_file: "channels:\n  chat: {type: slack, url: 'https://hooks.slack.com/services/a/b/c'}"
        => "2:28: url is a secret; write \"${CHAT_URL}\", and set that variable";
    a_channel_without_its_setting: "channels:\n  phone: {type: ntfy}"
        => "2:3: url: is missing";
    a_setting_of_another_type: "channels:\n  phone: {type: webhook, url: 'http://a', topic: b}"
        => "2:43: a channel of type webhook has no field \"topic\"; it has url, type, events, tags, quiet, \
            repeat, remind_after_seconds";
    an_event_of_channels_that_is_none:
        "channels:\n  phone: {type: webhook, url: 'http://a', events: [execution.failed, run.failed]}"
        => EVENT_FAULT;
    a_priority_out_of_range: "channels:\n  phone: {type: ntfy, url: 'https://ntfy.sh/a', priority: 9}"
        => "2:59: priority: must be at most 5";
    a_channel_with_a_url_without_a_scheme: "channels:\n  phone: {type: webhook, url: 'ntfy.sh/a'}"
        => "2:31: url: must be absolute and begin with http:// or https://";
    a_default_of_a_variable: "cues:\n  a: {schedule: '@daily', url: 'http://a/${NOWHERE:-b}'}"
        => "2:32: a variable has no default here; write ${NOWHERE}, and set NOWHERE";
    a_channel_with_a_second_name: "channels:\n  phone: {type: webhook, url: 'http://a', name: b}"
        => "2:43: the name of a channel is its key; remove this field";
}

const EVENT_FAULT: &str = "2:70: events.1: should be execution.failed, cue.recovered, cue.paused, alert.* or \
    alert. with the type of an alert";

const NAME_RULE: &str = "in a namespace it should have 1 to 63 of a-z, 0-9, '.', '_' and '-', and begin with a letter or a digit";

/// The reader of the server finds these faults: the place is that of the text that the file has.
#[test]
fn a_refusal_of_the_server_has_the_place_of_the_field() {
    let (_server, user, home) = start();
    let cue = "{schedule: '@daily', url: 'http://a'";
    for (text, fault) in [
        (format!("cues:\n  a: {cue}, name: 5}}"), "2:50: name: must be a valid string"),
        (format!("cues:\n  a: {cue}, timeout: 1.5}}"), "2:53: timeout: must be a valid integer"),
        (format!("cues:\n  a: {cue}, tags: [a, B b]}}"), "2:54: tags.1: "),
        (
            format!("cues:\n  a: {cue}, headers: {{X-A: 5}}}}"),
            "2:59: headers.X-A: must be a valid string",
        ),
        (format!("cues:\n  a: {cue}, overlap: never}}"), "2:53: overlap: must be "),
        (
            format!("defaults:\n  timezone: Europe/Berln\ncues:\n  a: {cue}}}"),
            "2:13: timezone: `Europe/Berln` is not a time zone",
        ),
        ("cues:\n  a:\n    schedule: '@daily'\n    url: ftp://a".to_owned(), "4:10: url: must "),
        (
            "cues:\n  a:\n    schedule: {cron: '61 * * * *'}\n    url: http://a".to_owned(),
            "3:22: minute: 61 is out of range",
        ),
        (
            "cues:\n  a:\n    schedule: {at: '2020-01-01T00:00:00Z'}\n    url: http://a".to_owned(),
            "3:20: schedule.at: 2020-01-01T00:00:00Z is not in the future; use a later instant, or remove the cue: its time \
             has passed",
        ),
    ] {
        std::fs::write(home.folder().join("cues.yaml"), &text).unwrap();
        for command in ["diff", "apply"] {
            let refusal = home.run(&[command, "-f", "cues.yaml"]);
            let expected = format!("cued: cues.yaml:{fault}");
            assert!(refusal.stderr.starts_with(&expected), "{text}: {refusal:?}");
            // An instant has passed by the clock of the server.
            assert_eq!(refusal.code, if fault.contains("future") { 5 } else { 2 }, "{text}");
        }
    }
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 0);
}

#[test]
fn a_fault_does_not_print_the_value_of_a_variable() {
    let (_server, _user, home) = start();
    let home = home.env("TOKEN", "t0k3n");
    for (file, code) in [
        ("cues:\n  a: {schedule: '${TOKEN}', worker: true}", 2),
        ("cues:\n  a: {schedule: '@daily', url: 'http://a', timeout: '${TOKEN}'}", 2),
        ("channels:\n  a: {type: '${TOKEN}'}", 2),
        ("channels:\n  a: {type: ntfy, url: 'https://ntfy.sh/a', events: ['${TOKEN}']}", 2),
        ("cues:\n  a: {schedule: '@daily', timezone: '${TOKEN}', worker: true}", 2),
        ("cues:\n  a: {schedule: '@daily', url: 'http://a', method: '${TOKEN}'}", 2),
        ("cues:\n  a: {schedule: {at: '${TOKEN}'}, url: 'http://a'}", 2),
        ("cues:\n  a: {schedule: '@daily', url: 'ftp://${TOKEN}@a'}", 2),
    ] {
        std::fs::write(home.folder().join("cues.yaml"), file).unwrap();
        let refusal = home.fails(&["diff", "-f", "cues.yaml"], code);
        assert!(!refusal.to_lowercase().contains("t0k3n"), "{file}: {refusal}");
    }
}

#[test]
fn several_faults_are_printed_together_in_the_order_of_the_files() {
    let home = ClientHome::without_server();
    std::fs::write(home.folder().join("b.yaml"), "cues:\n  x: {url: 'http://a'}\n  a: {}\n")
        .unwrap();
    let good = "namespace: home\ncues:\n  a: {schedule: '@daily', worker: true}\n";
    std::fs::write(home.folder().join("a.yaml"), format!("{good}x: 1\n")).unwrap();
    std::fs::write(home.folder().join("c.yaml"), good).unwrap();
    let text = home.fails(&["apply", "-f", "b.yaml", "-f", "a.yaml", "-f", "c.yaml"], 2);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "cued: 5 faults in the files; nothing was sent", "{text}");
    for (line, begin) in lines[1..].iter().zip([
        "b.yaml:2:3: x has no schedule",
        "b.yaml:3:3: a has no schedule",
        "b.yaml:3:3: a has no target",
        "a.yaml:4:1: there is no section \"x\"",
        "c.yaml:3:3: the cue home/a is also at a.yaml:3:3; remove one of the two",
    ]) {
        assert!(line.starts_with(begin), "{line}");
    }
    let error = home.json_error(&["apply", "-f", "b.yaml"], 2);
    assert!(error["message"].as_str().unwrap().contains("b.yaml:2:3: x has"), "{error}");
}

#[test]
fn a_fault_of_many_cues_by_the_defaults_counts_once() {
    let (_server, _user, home) = start();
    let cues: String = (0..5).map(|number| format!("  a{number}: {{url: 'http://a'}}\n")).collect();
    let file = format!("defaults: {{timezone: Nowhere/City, schedule: '@daily'}}\ncues:\n{cues}");
    let run = home.run_with_stdin(&["diff", "-f", "-"], &file);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
    assert!(
        run.stderr.starts_with("cued: stdin:1:22: timezone: `Nowhere/City` is not a time zone"),
        "{run:?}"
    );
    assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
}

#[test]
fn a_file_that_is_not_there_or_named_twice_is_refused() {
    let home = ClientHome::without_server();
    assert!(home.fails(&["apply", "-f", "no.yaml"], 2).contains("cannot read no.yaml"));
    assert!(
        home.fails(&["apply", "-f", "-", "-f", "-"], 2).contains("standard input can be read once")
    );
    assert!(home.fails(&["diff"], 2).contains("--file"));
    let text = home.fails(&["apply", "cues.yaml"], 2);
    assert!(text.contains("a file is a flag: -f cues.yaml"), "{text}");
    std::fs::write(home.folder().join("latin.yaml"), b"cues:\n  # \xc3\xa4 \xe4\n").unwrap();
    let text = home.fails(&["apply", "-f", "latin.yaml"], 2);
    assert!(
        text.contains(
            "latin.yaml is no text in UTF-8 (line 2, character 7 is in another encoding)"
        ),
        "{text}"
    );
}
