//! `cued channel`: add, list, show, set, test and rm, with secrets that stand on no command line.

use std::io::Write as _;

use crate::cli::client::sign_in::at_terminal;
use crate::cli::client::start;
use crate::support::*;

const GUIDE: &str = include_str!("../../../../src/docs/notifications.md");

const BOT_TOKEN: &str = "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw";
const NTFY_TOKEN: &str = "tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2";
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
    let channels = user.read("/v1/channels?limit=100");
    let mut types: Vec<&str> =
        channels.list("channels").iter().map(|channel| channel.text("type")).collect();
    types.sort_unstable();
    types.dedup();
    assert_eq!(types.len(), cued::domain::channel::ChannelType::ALL.len(), "{types:?}");
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
