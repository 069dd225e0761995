//! `cued channel …`: the channels, which send failures, recoveries and alerts.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction};
use serde_json::{Value, json};

use crate::cli::client::command::{
    Call, Columns, Entry, Form, Lines, Part, View, Work, channel, entry, flag, number, own, place,
    server_flag, switch, tag_flag, words,
};
use crate::cli::client::commands::sign_in::ask_hidden;
use crate::cli::client::context::{Context, can_ask};
use crate::cli::client::cues::label_of;
use crate::cli::client::refusals::SET_ALERT_WEBHOOK;
use crate::cli::client::words::{event_in_words, event_of_words};
use crate::cli::error::{CliError, failed, usage};
use crate::cli::input;
use crate::cli::output::table::{
    Cell, ColumnRule, Style, duration, parse_seconds, status, text_of,
};
use crate::cli::output::{Format, print_line};
use crate::cli::printable::printable;
use crate::client::request::{ApiRequest, ApiResponse, segment};
use crate::domain::channel::{
    BUILT_IN_ALERT_WEBHOOK, BUILT_IN_EMAIL, ChannelType, Repeat, is_event, parse_minute,
};

const COLUMNS: Columns = &[
    ("ID", Form::Text("id"), ColumnRule::Always),
    ("TYPE", Form::Text("type"), ColumnRule::Always),
    ("NAME", Form::Text("name"), ColumnRule::Shortened),
    ("STATUS", Form::Cell(state), ColumnRule::Always),
    ("EVENTS OR ERROR", Form::Cell(|_, channel| events_or_error(channel)), ColumnRule::Shortened),
    ("TAGS", Form::List("tags"), ColumnRule::Wide),
    ("QUIET HOURS", Form::Cell(|_, channel| quiet_hours(channel).into()), ColumnRule::Wide),
    ("WAITING", Form::Text("waiting"), ColumnRule::Wide),
    ("LAST SENT", Form::Time("last_sent_at"), ColumnRule::Wide),
];

const LINES: Lines = &[
    ("id", Form::Text("id")),
    ("type", Form::Text("type")),
    ("name", Form::Text("name")),
    ("built in", Form::Cell(|_, channel| origin(channel).into())),
    ("to", Form::Text("to")),
    ("url", Form::Text("url")),
    ("bot token", Form::Text("bot_token")),
    ("chat id", Form::Text("chat_id")),
    ("token", Form::Text("token")),
    ("user", Form::Text("user")),
    ("priority", Form::Text("priority")),
    ("api url", Form::Text("api_url")),
    ("events", Form::Cell(|_, channel| events(channel).into())),
    ("tags", Form::List("tags")),
    ("quiet hours", Form::Cell(|_, channel| quiet_hours(channel).into())),
    ("repeat", Form::Cell(|_, channel| repeat(channel).into())),
    ("status", Form::Cell(state)),
    ("failures", Form::Template("{failures} in a row")),
    ("waiting", Form::Text("waiting")),
    ("last sent", Form::Time("last_sent_at")),
    ("last failed", Form::Time("last_failed_at")),
    ("last error", Form::Cell(|_, channel| Cell::new(text_of(channel, "last_error"), Style::Bad))),
    ("created", Form::Time("created_at")),
    ("updated", Form::Time("updated_at")),
];

const SHORT_FLAGS: &str = "name to url token event tag quiet-hours no-tags";

const ADD: &str = "\
Add a channel\n\nIt gets a message when a run fails for good, when its cue recovers, and for each alert, or \
                   for the events of --event. A burst of them is counted in one message. `cued channel test` sends a \
                   test message.

Settings of the types:
  email                               [--to ADDRESS], the confirmed address of the account
  webhook                             --url URL
  ntfy                                --url URL with the topic [--token T] [--priority N]
  slack, discord, mattermost, teams   --url URL of an incoming webhook
  telegram                            --bot-token T --chat-id ID [--api-url URL]
  gotify                              --url URL --token T
  pushover                            --token T --user KEY [--api-url URL]";

const SET: &str = "Change a channel\n\nWhat is not named stays; --event and --tag replace those of the channel. New settings \
                   reset the count of its failures. The type cannot be changed.";

const TEST: &str = "Send a test message and print the response of the service\n\nIt is sent at once, whatever the quiet hours, \
                    and not repeated. Exits with 1 if it is not delivered. A success ends the state `failing`.";

pub fn entries() -> Vec<Entry> {
    vec![
        entry(
            "list",
            "List channels with their state, built-in ones first",
            [],
            Work::Request("GET /v1/channels", View::List("id", "channels", COLUMNS)),
        ),
        entry(
            "show",
            "Show a channel with its settings and its state\n\nOf a secret the last four characters are shown.",
            [channel()],
            Work::Request("GET /v1/channels/{channel}", View::Details("id", LINES)),
        ),
        entry("add", ADD, add_arguments(), Work::Code(add)).short(SHORT_FLAGS),
        entry("set", SET, set_arguments(), Work::Code(set)).short(SHORT_FLAGS),
        entry(
            "test",
            TEST,
            [channel()],
            Work::Request("POST /v1/channels/{channel}/test", View::Code(print_test)),
        ),
        entry(
            "rm",
            "Delete a channel and its waiting messages",
            [channel()],
            Work::Request(
                "DELETE /v1/channels/{channel}",
                View::Sentence("id", "deleted channel {channel}"),
            ),
        ),
    ]
}

fn add_arguments() -> Vec<(Arg, Part)> {
    let channel_type = place("type", "TYPE", "Service that gets the messages");
    let channel_type = channel_type.value_parser(PossibleValuesParser::new(ChannelType::WORDS));
    [channel_type].into_iter().chain(flags()).map(own).collect()
}

fn set_arguments() -> Vec<(Arg, Part)> {
    let quiet =
        switch("no-quiet-hours", "No quiet hours").conflicts_with_all(["quiet-hours", "tz"]);
    let removals = [
        quiet,
        switch("no-tags", "Events of all cues").conflicts_with("tag"),
        switch("no-token", "No token (ntfy)").conflicts_with("token"),
        switch("no-priority", "The usual priority (ntfy)").conflicts_with("priority"),
        switch("no-api-url", "The usual API (telegram, pushover)").conflicts_with("api-url"),
    ];
    [channel()].into_iter().chain(flags().into_iter().chain(removals).map(own)).collect()
}

/// What `--no-NAME` removes, and the value of the field then.
const REMOVALS: [(&str, &str); 5] = [
    ("no-quiet-hours", "quiet"),
    ("no-tags", "tags"),
    ("no-token", "token"),
    ("no-priority", "priority"),
    ("no-api-url", "api_url"),
];

/// The flags that set the fields of a channel.
fn flags() -> [Arg; 16] {
    let url = "URL of the service, with the topic for ntfy; - and @FILE keep it out of the list of processes";
    let token = "Access token; - and @FILE as for --url";
    let api_url = "API of an own server in place of the public one (telegram, pushover)";
    let event = "Event to send, more than once for several: failed, recovered, paused, alerts, or alert. with a type \
         [default: failed, recovered and alerts]";
    let quiet = "Hours without messages; what happens in them follows in one at their end";
    let repeat = "Of failures of a cue in a row: the first, or every one [default: first]";
    let remind_after =
        "Time to a reminder while a failure lasts, 15m to 7d, or 0 for none [default: 1d]";
    let zone = "Time zone of the quiet hours, such as Europe/Berlin or Berlin [default: UTC]";
    [
        flag(
            "name",
            "NAME",
            "Name of the channel [default: the type, and the topic, host or chat]",
        ),
        flag("to", "ADDRESS", "Address for mails, the confirmed one of the account (email)"),
        flag("url", "URL|@FILE|-", url),
        server_flag(),
        flag("token", "TOKEN|@FILE|-", token),
        number("priority", 5, "Priority, 1 to 5 (ntfy) [default: by the event]"),
        flag("bot-token", "TOKEN|@FILE|-", "Token of the bot (telegram); - and @FILE as for --url"),
        flag("chat-id", "ID", "Chat of the bot: a number or @NAME (telegram)")
            .allow_negative_numbers(true),
        flag(
            "user",
            "KEY|@FILE|-",
            "Key of the user or group (pushover); - and @FILE as for --url",
        ),
        flag("api-url", "URL", api_url),
        flag("event", "EVENT", event).action(ArgAction::Append).value_parser(parse_event),
        tag_flag("Only events of cues with this tag; more than once for cues with one of them"),
        flag("quiet-hours", "FROM-TO", quiet).value_parser(parse_quiet_hours),
        words("repeat", "WHICH", &Repeat::WORDS, repeat),
        flag("remind-after", "SPAN", remind_after).value_parser(parse_seconds),
        // The zone of other commands is that of printed times.
        flag("tz", "ZONE", zone).long("timezone").visible_alias("tz"),
    ]
}

/// The flags whose value may be a secret. If several are `-`, they take lines of standard input in this order.
const SECRETS: [(&str, &str); 4] =
    [("url", "url"), ("token", "token"), ("bot-token", "bot_token"), ("user", "user")];

const TEXTS: [(&str, &str); 4] =
    [("name", "name"), ("to", "to"), ("chat-id", "chat_id"), ("api-url", "api_url")];

fn add(call: &Call<'_>) -> Result<(), CliError> {
    let mut body = fields(call)?;
    body["type"] = call.text("type").into();
    if body["type"] == "email" && body["to"].is_null() {
        // No other address is taken.
        body["to"] = call.context.fetch(&ApiRequest::get("/v1/auth/me"))?.value()?["email"].take();
    }
    if let Some(quiet) = quiet(call, &Value::Null)? {
        body["quiet"] = quiet;
    }
    let output = &call.context.output;
    let answer = call.context.send(&ApiRequest::post("/v1/channels").json(body))?;
    output.object(&answer, "id", |channel| {
        vec![
            ("id", text_of(channel, "id").into()),
            ("type", text_of(channel, "type").into()),
            ("name", text_of(channel, "name").into()),
        ]
    })?;
    if output.format.is_for_programs() {
        return Ok(());
    }
    let id = printable(&text_of(&answer.value()?, "id"));
    output.note(&format!("Send a test: cued channel test {id}"))
}

fn set(call: &Call<'_>) -> Result<(), CliError> {
    let context = call.context;
    let path = format!("/v1/channels/{}", segment(call.place("channel")));
    let mut patch = fields(call)?;
    for (_, field) in REMOVALS.into_iter().filter(|(flag, _)| call.is_set(flag)) {
        patch[field] = if field == "tags" { json!([]) } else { Value::Null };
    }
    // The API replaces the quiet hours as a whole.
    if call.is_given("quiet-hours") != call.is_given("tz") {
        let stored = context.fetch(&ApiRequest::get(&path))?.value()?;
        patch["quiet"] = quiet(call, &stored["quiet"])?.unwrap_or_default();
    } else if let Some(quiet) = quiet(call, &Value::Null)? {
        patch["quiet"] = quiet;
    }
    let names: Vec<String> =
        patch.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    if names.is_empty() {
        return Err(usage("nothing to change; `cued channel set --help` lists the flags"));
    }
    let answer = context.send(&ApiRequest::patch(path).json(patch))?;
    context.output.done(&answer, "id", |channel| {
        format!("changed {}: {}", label_of(channel), names.join(", "))
    })
}

/// The fields that the flags set, without the quiet hours.
fn fields(call: &Call<'_>) -> Result<Value, CliError> {
    let mut fields = json!({});
    for (flag, field) in SECRETS {
        if let Some(value) = call.text(flag) {
            fields[field] = secret(flag, value)?.into();
        }
    }
    for (flag, field) in TEXTS {
        if let Some(value) = call.text(flag) {
            fields[field] = value.into();
        }
    }
    if let Some(priority) = call.get::<u32>("priority") {
        fields["priority"] = (*priority).into();
    }
    if let Some(repeat) = call.text("repeat") {
        fields["repeat"] = repeat.into();
    }
    if let Some(seconds) = call.get::<u32>("remind-after") {
        fields["remind_after_seconds"] = (*seconds).into();
    }
    for (flag, field) in [("event", "events"), ("tag", "tags")] {
        let words = call.texts(flag);
        if !words.is_empty() {
            fields[field] = json!(words);
        }
    }
    Ok(fields)
}

/// The value of a flag, from a file or a line of standard input if it names one; at a terminal it is asked for.
fn secret(flag: &str, value: &str) -> Result<String, CliError> {
    let flag = format!("--{flag}");
    let read = match value {
        "-" if can_ask() => ask_hidden(&format!("{flag}: "))?,
        "-" => input::line(&flag)?,
        value => input::text(&flag, value)?,
    };
    Ok(read.trim().to_owned())
}

/// An event of the API, by the words of a person.
fn parse_event(words: &str) -> Result<String, String> {
    let event = event_of_words(words);
    if is_event(event) {
        return Ok(event.to_owned());
    }
    Err("use failed, recovered, paused, alerts, or alert. with the type of an alert".to_owned())
}

type QuietHours = (String, String);

fn parse_quiet_hours(text: &str) -> Result<QuietHours, String> {
    let hours = text.split_once('-').map(|(from, to)| (from.trim(), to.trim()));
    let hours =
        hours.filter(|(from, to)| [from, to].into_iter().all(|time| parse_minute(time).is_some()));
    let (from, to) = hours.ok_or("an example is 22:00-07:00")?;
    Ok((from.to_owned(), to.to_owned()))
}

/// The quiet hours by the flags, the other parts as `stored`. `None` without a flag.
fn quiet(call: &Call<'_>, stored: &Value) -> Result<Option<Value>, CliError> {
    // `--utc` is for printed times.
    let zone = call.text("tz").and(call.context.zone.as_ref());
    let hours = call.get::<QuietHours>("quiet-hours");
    if hours.is_none() && zone.is_none() {
        return Ok(None);
    }
    let mut quiet = if stored.is_object() { stored.clone() } else { json!({}) };
    if let Some((from, to)) = hours {
        quiet["from"] = from.as_str().into();
        quiet["to"] = to.as_str().into();
    }
    if let Some(zone) = zone {
        quiet["timezone"] = zone.name().into();
    }
    if quiet["from"].is_null() {
        return Err(usage("--timezone is that of the quiet hours: add --quiet-hours"));
    }
    Ok(Some(quiet))
}

/// Which failures in a row it tells, and when it reminds of them.
fn repeat(channel: &Value) -> String {
    let seconds = channel["remind_after_seconds"].as_i64().unwrap_or_default();
    let reminder = match seconds {
        0 => String::new(),
        _ => format!(", reminder after {}", duration(seconds * 1_000)),
    };
    format!("{} failure{reminder}", text_of(channel, "repeat"))
}

/// The status; of a channel whose mails only go to the log of the server, that.
fn state(context: &Context, channel: &Value) -> Cell {
    match text_of(channel, "status").as_str() {
        "active" if channel["type"] == "email" && context.sends_no_mail() => {
            Cell::new("no mail server", Style::Warning)
        }
        word => status(word),
    }
}

/// The events, or why the service did not take the last message.
fn events_or_error(channel: &Value) -> Cell {
    match text_of(channel, "last_error") {
        error if error.is_empty() || channel["failures"] == 0 => events(channel).into(),
        error => Cell::new(error, Style::Bad),
    }
}

fn events(channel: &Value) -> String {
    let events = channel["events"].as_array().into_iter().flatten().filter_map(Value::as_str);
    events.map(event_in_words).collect::<Vec<_>>().join(", ")
}

fn quiet_hours(channel: &Value) -> String {
    match &channel["quiet"] {
        Value::Null => String::new(),
        quiet => {
            format!(
                "{}-{} {}",
                text_of(quiet, "from"),
                text_of(quiet, "to"),
                text_of(quiet, "timezone")
            )
        }
    }
}

/// Where a channel is set that has no fields of its own.
fn origin(channel: &Value) -> String {
    match channel["id"].as_str() {
        _ if channel["built_in"] != true => String::new(),
        Some(BUILT_IN_EMAIL) => "by --on-failure of each cue".to_owned(),
        Some(BUILT_IN_ALERT_WEBHOOK) => format!("set {SET_ALERT_WEBHOOK}"),
        _ => "yes".to_owned(),
    }
}

fn print_test(call: &Call<'_>, answer: &ApiResponse) -> Result<(), CliError> {
    if call.context.output.format == Format::Id {
        // The id of the answer is that of a message, which no command takes.
        print_line(&printable(call.place("channel")))?;
        return delivered(answer);
    }
    call.context.output.done(answer, "id", |result| {
        let time = result["duration_ms"].as_i64().map(duration).unwrap_or_default();
        let result_line = match (result["status"].as_str(), &result["http_status"]) {
            (Some("delivered"), Value::Null) => format!("Delivered in {time}."),
            (Some("delivered"), status) => {
                format!("Delivered: the service answered {status} in {time}.")
            }
            (Some("failed"), _) => {
                format!("Failed after {time}: {}", printable(&text_of(result, "error_message")))
            }
            _ => "The service has not answered within 15 s.".to_owned(),
        };
        match printable(&text_of(result, "response")) {
            response if response.is_empty() => result_line,
            response => format!("{result_line}\n{response}"),
        }
    })?;
    delivered(answer)
}

fn delivered(answer: &ApiResponse) -> Result<(), CliError> {
    if answer.value()?["status"] == "delivered" {
        return Ok(());
    }
    Err(failed("the test message is not delivered"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_hours_are_two_times_of_day() {
        let hours = |from: &str, to: &str| Ok((from.to_owned(), to.to_owned()));
        assert_eq!(parse_quiet_hours("22:00-07:00"), hours("22:00", "07:00"));
        assert_eq!(parse_quiet_hours("22:00 - 07:30"), hours("22:00", "07:30"));
        for bad in ["", "22:00", "22-7", "22:00-24:00", "22:00-07:00-08:00", "10pm-7am"] {
            assert!(parse_quiet_hours(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_channel_that_failed_shows_why_in_place_of_its_events() {
        let channel = json!({"events": ["cue.recovered", "alert.*"], "failures": 0, "last_error": "Slack answered 500"});
        assert_eq!(events_or_error(&channel).text, "recovered, alerts");
        let channel = json!({"events": [], "failures": 1, "last_error": "Slack answered 500"});
        assert_eq!(events_or_error(&channel), Cell::new("Slack answered 500", Style::Bad));
    }
}
