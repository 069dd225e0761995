//! `cued channel`: add, list, show, set, test and rm, with secrets that stand on no command line.

use std::io::Write as _;

use crate::cli::client::sign_in::at_terminal;
use crate::cli::client::start;
use crate::support::*;

const GUIDE: &str = include_str!("../../../../src/docs/channels.md");

const BOT_TOKEN: &str = "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw";
const NTFY_TOKEN: &str = "tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2";
const APPLICATION: &str = "azGDORePK8gMaC0QOYAMyEEuzJnyUi";
const USER: &str = "uQiRzpo4DXghDmr9QzzfQu27cmVRsG";
const PUSHOVER: &str = "azGDORePK8gMaC0QOYAMyEEuzJnyUi\nuQiRzpo4DXghDmr9QzzfQu27cmVRsG";

/// The lines of standard input for a command of the guide.
fn secrets(line: &str) -> String {
    let all = [
        ("add slack", "https://hooks.slack.com/services/T0/B0/x7QzMc21"),
        ("add discord", "https://discord.com/api/webhooks/123456/abcdef-7QzMc21"),
        ("add mattermost", "https://chat.example.com/hooks/x7qzmc21"),
        (
            "add teams",
            "https://prod-00.westeurope.logic.azure.com/workflows/0a1b/triggers/manual?sig=x7QzMc21",
        ),
        ("add telegram", BOT_TOKEN),
        ("add gotify", "AWSF2n2Tb.4hNq7"),
        ("add pushover", PUSHOVER),
        ("add ntfy", NTFY_TOKEN),
    ];
    let found = all.iter().find(|(command, _)| line.contains(command));
    found.map(|(_, secrets)| format!("{secrets}\n")).unwrap_or_default()
}

/// The object of a channel by its id or name.
fn shown(home: &ClientHome, channel: &str) -> Value {
    home.json(&["channel", "show", channel])
}

#[test]
fn the_commands_of_the_guide_work_for_every_service() {
    let server = Server::with_test_clock("2030-01-01T00:00:00Z");
    let user = server.client().register("ann@example.com");
    let home = ClientHome::signed_in(&server, &user);
    let mut sink = Sink::start(&home, &[]);
    let commands =
        GUIDE.lines().filter_map(|line| line.strip_prefix("cued channel ")).map(str::to_owned);
    // The services of the table have one command: `cued channel add SERVICE --url -`.
    let services = GUIDE
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .filter_map(|it| {
            cued::domain::channel::ChannelType::parse(it.0)
                .map(|service| format!("add {} --url -", service.as_str()))
        });
    // A test of a topic at ntfy.sh would leave this machine.
    for line in commands.chain(services).filter(|line| !line.contains("my-secret-topic")) {
        let line = format!("channel {}", line.replace("127.0.0.1:9000", &sink.addr.to_string()));
        let run = home.run_with_stdin(&words(&line), &secrets(&line));
        assert_eq!(run.code, 0, "{line}: {run:?}");
    }
    let line = sink.line();
    assert!(line.contains("  POST /backups  "), "{line}");
    let channels = user.get("/v1/channels?limit=100").expect(200)["channels"].clone();
    let mut types: Vec<&str> = channels
        .as_array()
        .unwrap()
        .iter()
        .map(|channel| channel["type"].as_str().unwrap())
        .collect();
    types.sort_unstable();
    types.dedup();
    assert_eq!(types.len(), cued::domain::channel::ChannelType::ALL.len(), "{types:?}");
}

#[test]
fn a_channel_is_added_listed_shown_tested_and_deleted() {
    let ((_server, user, home), phone) = (start(), Receiver::start());
    let url = phone.url_of("/backups");
    let added =
        home.run(&["channel", "add", "ntfy", "--url", &url, "--priority", "4", "--tag", "nas"]);
    assert_eq!(added.code, 0, "{added:?}");
    let channel = user.get("/v1/channels").expect(200)["channels"][1].clone();
    let id = id(&channel);
    assert_eq!(added.stdout, format!("id    {id}\ntype  ntfy\nname  ntfy backups\n"));
    assert_eq!(added.stderr, format!("Send a test: cued channel test {id}\n"));
    assert_has(&channel, json!({"url": url, "priority": 4, "tags": ["nas"], "token": null}));

    let listed = home.ok(&["channel", "list"]);
    let lines: Vec<&str> = listed.lines().collect();
    let first = "ID\tTYPE\tNAME\tSTATUS\tEVENTS OR ERROR";
    assert_eq!(lines[0], first, "{listed}");
    assert_eq!(lines[1], "email\temail\tFailure mails\tno mail server\tfailed");
    let row = format!("{id}\tntfy\tntfy backups\tactive\tfailed, recovered, alerts");
    assert_eq!(lines[2], row);
    assert_eq!(home.ok(&["channel", "list", "-q"]), format!("email\n{id}\n"));
    let json = user.get("/v1/channels").text();
    assert_eq!(home.ok(&["channel", "list", "--json"]).trim_end(), json.trim_end());
    assert_contains(&home.ok(&["channel", "list", "-o", "wide"]), &["QUIET HOURS", "\tnas\t"]);

    let text = home.ok(&["channel", "show", "ntfy backups"]);
    let settings = format!(
        "id        {id}\ntype      ntfy\nname      ntfy backups\nurl       {url}\npriority  4\n\
         events    failed, recovered, alerts\ntags      nas\n\
         repeat    first failure, reminder after 24 h\nstatus    active\n\
         failures  0 in a row\nwaiting   0\n"
    );
    assert!(text.starts_with(&settings), "{text}");
    assert_contains(
        &home.ok(&["channel", "show", "email"]),
        &["built in  by --on-failure of each cue\n"],
    );

    let said = r#"{"id":"x","event":"message"}"#;
    phone.react(Reaction::Full(200, Vec::new(), said.to_owned()));
    assert_eq!(
        home.ok(&["channel", "test", id]),
        format!("Delivered: the service answered 200 in 0 ms.\n{said}\n")
    );
    assert_eq!(home.ok(&["channel", "rm", "ntfy backups"]), format!("deleted channel {id}\n"));
    assert_eq!(home.json_error(&["channel", "show", id], 3)["code"], "channel_not_found");
    assert_eq!(home.json_error(&["channel", "rm", "email"], 5)["code"], "invalid_state");
}

#[test]
fn a_test_prints_the_answer_and_fails_unless_it_is_delivered() {
    let ((_server, _user, home), hook) = (start(), Receiver::start());
    home.ok(&["channel", "add", "webhook", "--url", &hook.url(), "--name", "hook"]);
    let answer = |status: u16, body: &str| {
        let headers = vec![("Content-Type", "text/plain".to_owned())];
        hook.react(Reaction::Full(status, headers, body.to_owned()));
    };
    answer(200, "thanks\nfor it");
    let text = home.ok(&["channel", "test", "hook"]);
    assert_eq!(text, "Delivered: the service answered 200 in 0 ms.\nthanks for it\n");
    assert_eq!(home.json(&["channel", "test", "hook"])["response"], "thanks for it");
    answer(403, "no such topic");
    let failed = home.run(&["channel", "test", "hook"]);
    assert_eq!(failed.code, 1, "{failed:?}");
    assert_contains(&failed.stdout, &["Failed after 0 ms: ", "403", "\nno such topic\n"]);
    assert_contains(&failed.stderr, &["not delivered"]);
    let listed = home.ok(&["channel", "list"]);
    assert!(
        listed.lines().any(|line| line.contains("\thook\t") && line.contains("403")),
        "{listed}"
    );
    assert_contains(
        &home.ok(&["channel", "show", "hook"]),
        &["failures     1 in a row\n", "\nlast error   "],
    );
    let failed = home.run(&["channel", "test", "hook", "--json"]);
    let printed: Value = serde_json::from_str(&failed.stdout).unwrap();
    assert_eq!((failed.code, &printed["http_status"]), (1, &json!(403)), "{failed:?}");
    let id = shown(&home, "hook")["id"].as_str().unwrap().to_owned();
    let failed = home.run(&["channel", "test", "hook", "-q"]);
    assert_eq!((failed.code, failed.stdout), (1, format!("{id}\n")), "that of the channel");
}

#[test]
fn a_server_without_mail_says_that_nobody_gets_one() {
    let (_server, user, home) = start();
    let add = "cue add --cron @daily --url http://127.0.0.1:9/";
    let note = "Nobody is told when it fails: `cued channel add`\n";
    let added =
        |name: &str, more: &str| home.run(&words(&format!("{add} --name {name} {more}"))).stderr;
    assert!(added("a", "").ends_with(note));
    assert!(!added("b", "--on-failure none").contains(note));
    assert!(!added("c", "--json").contains(note));
    assert_contains(
        &home.ok(&["cue", "show", "a"]),
        &["on failure    email (this server sends none)\n"],
    );
    assert_contains(&home.ok(&["channel", "list"]), &["no mail server"]);
    assert_contains(&home.ok(&["channel", "show", "email"]), &["no mail server"]);
    let test = home.run(&["channel", "test", "email"]);
    assert_contains(
        &test.stdout,
        &["Failed after ", ": this server sends no mail (--smtp-url): the message went to its log"],
    );
    assert_eq!((test.code, test.stderr.as_str()), (1, "cued: the test message is not delivered\n"));
    user.post("/v1/channels", &json!({"type": "ntfy", "url": "http://127.0.0.1:9/t"})).expect(201);
    assert!(!added("d", "").contains(note));
}

#[test]
fn a_secret_is_read_from_standard_input_or_a_file_and_not_shown() {
    let (_server, _user, home) = start();
    fs::write(home.folder().join("token.txt"), format!("{BOT_TOKEN}\n")).unwrap();
    home.ok(&words(
        "channel add telegram --name chat --bot-token @token.txt --chat-id -1001234567890",
    ));
    let telegram = shown(&home, "chat");
    assert_has(&telegram, json!({"bot_token": "…Dsaw", "chat_id": "-1001234567890"}));
    let pushover = ["channel", "add", "pushover", "--name", "p", "--user", "-", "--token", "-"];
    let run = home.run_with_stdin(&pushover, &format!("{APPLICATION}\r\n{USER}"));
    assert_eq!(run.code, 0, "{run:?}");
    assert_has(&shown(&home, "p"), json!({"token": "…nyUi", "user": "…VRsG"}));
    let run = home.run_with_stdin(&words("channel set p --user -"), &format!("{APPLICATION}\n"));
    assert_eq!(run.code, 0, "{run:?}");
    assert_has(&shown(&home, "p"), json!({"token": "…nyUi", "user": "…nyUi"}));
    for text in [home.ok(&["channel", "list", "-o", "wide"]), home.ok(&["channel", "show", "chat"])]
    {
        assert!(!text.contains("AAHdq") && !text.contains("azGDO"), "{text}");
    }
    let none = home.fails(&words("channel add slack --url -"), 2);
    assert_contains(&none, &["--url -: standard input has no line for it"]);
    assert_contains(&home.fails(&words("channel add slack --url @none.txt"), 2), &["none.txt"]);
}

#[test]
fn a_terminal_is_asked_for_a_secret_and_does_not_show_it() {
    let (_server, user, home) = start();
    let arguments = "channel add ntfy --url http://127.0.0.1:9/t --token -";
    let Some((mut command, mut keyboard)) = at_terminal(&home, arguments) else { return };
    command.until("--token: ");
    keyboard.write_all(format!("{NTFY_TOKEN}\n").as_bytes()).unwrap();
    assert_eq!(command.code(), 0, "{}", command.output());
    assert!(!command.output().contains(NTFY_TOKEN), "{}", command.output());
    let channels = user.get("/v1/channels").expect(200)["channels"].clone();
    assert_eq!(channels[1]["token"], "…NIz2");
}

#[test]
fn fields_are_changed_and_removed_one_by_one() {
    let (_server, _user, home) = start();
    let set = |flags: &str| home.ok(&words(&format!("channel set n {flags}")));
    let field = |name: &str| shown(&home, "n")[name].clone();
    home.ok(&words(
        "channel add ntfy --name n --url http://127.0.0.1:9/t --token tk_0123456789 --priority 2 --tag a --tag b \
         --event failed --event alert.claim_lost --quiet-hours 22:00-07:00",
    ));
    assert_eq!(field("events"), json!(["execution.failed", "alert.claim_lost"]));
    assert_eq!(field("quiet"), json!({"from": "22:00", "to": "07:00", "timezone": "UTC"}));
    let id = shown(&home, "n")["id"].as_str().unwrap().to_owned();
    assert_eq!(set("--timezone berlin"), format!("changed n ({id}): quiet\n"));
    set("--quiet-hours 23:30-06:00");
    assert_eq!(
        field("quiet"),
        json!({"from": "23:30", "to": "06:00", "timezone": "Europe/Berlin"})
    );
    assert_contains(
        &home.ok(&["channel", "show", "n"]),
        &["quiet hours  23:30-06:00 Europe/Berlin\n"],
    );
    set("--quiet-hours 12:00-13:00 --tz Europe/Paris --tag c --event cue.paused");
    assert_eq!(field("quiet"), json!({"from": "12:00", "to": "13:00", "timezone": "Europe/Paris"}));
    assert_eq!((field("tags"), field("events")), (json!(["c"]), json!(["cue.paused"])));
    // The other fields stay.
    assert_eq!((field("token"), field("priority")), (json!("…6789"), json!(2)));
    set("--no-quiet-hours --no-tags --no-token --no-priority --name n2 --url http://127.0.0.1:9/u");
    let channel = shown(&home, "n2");
    let expected = json!({"quiet": null, "tags": [], "token": null, "priority": null, "url": "http://127.0.0.1:9/u"});
    assert_has(&channel, expected);
    home.ok(&words(
        "channel add telegram --name t --bot-token 1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA --chat-id @backups \
         --api-url http://127.0.0.1:9",
    ));
    assert_has(&shown(&home, "t"), json!({"chat_id": "@backups", "api_url": "http://127.0.0.1:9"}));
    home.ok(&words("channel set t --no-api-url"));
    assert_eq!(shown(&home, "t")["api_url"], Value::Null);
}
