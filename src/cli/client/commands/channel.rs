//! `cued channel …`: the channels, which send failures, recoveries and alerts.

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Arg, ArgAction};
use serde_json::{Value, json};

use crate::cli::client::arguments::label_of;
use crate::cli::client::command::{
    Call, Entry, Part, View, channel, flag, own, place, row, seconds, server_flag, switch,
    tag_flag, words,
};
use crate::cli::client::context::Context;
use crate::cli::client::forms::{Columns, Form, Lines, details};
use crate::cli::client::refusals::{SET_ALERT_WEBHOOK, texts};
use crate::cli::client::words::{event_in_words, event_of_words};
use crate::cli::error::{CliError, failed, usage};
use crate::cli::output::table::{Cell, ColumnRule, Style, duration, status, text_of};
use crate::cli::output::{Format, print_line, print_note};
use crate::client::request::{ApiRequest, ApiResponse, segment};
use crate::domain::channel::services::{SETTING_FLAGS, Setting, SettingFlag, SettingKind, service};
use crate::domain::channel::{
    BUILT_IN_ALERT_WEBHOOK, BUILT_IN_EMAIL, ChannelType, Repeat, is_event, parse_minute,
};

const QUIET_HOURS: Form = Form::Template("{quiet.from}-{quiet.to} {quiet.timezone}");

const COLUMNS: Columns = &[
    ("ID", Form::Text("id"), ColumnRule::Always),
    ("TYPE", Form::Text("type"), ColumnRule::Always),
    ("NAME", Form::Text("name"), ColumnRule::Shortened),
    ("STATUS", Form::Cell(state), ColumnRule::Always),
    ("EVENTS OR ERROR", Form::Cell(|_, channel| events_or_error(channel)), ColumnRule::Shortened),
    ("TAGS", Form::List("tags"), ColumnRule::Wide),
    ("QUIET HOURS", QUIET_HOURS, ColumnRule::Wide),
    ("WAITING", Form::Text("waiting"), ColumnRule::Wide),
    ("LAST SENT", Form::Time("last_sent_at"), ColumnRule::Wide),
];

/// The lines of a channel before those of its settings.
const FIRST_LINES: Lines = &[
    ("id", Form::Text("id")),
    ("type", Form::Text("type")),
    ("name", Form::Text("name")),
    ("built in", Form::Of(origin)),
];

const LAST_LINES: Lines = &[
    ("events", Form::Of(events)),
    ("tags", Form::List("tags")),
    ("quiet hours", QUIET_HOURS),
    ("repeat", Form::Of(repeat)),
    ("status", Form::Cell(state)),
    ("failures", Form::Template("{failures} in a row")),
    ("waiting", Form::Text("waiting")),
    ("last sent", Form::Time("last_sent_at")),
    ("last failed", Form::Time("last_failed_at")),
    ("last error", Form::Cell(|_, channel| Cell::new(text_of(channel, "last_error"), Style::Bad))),
    ("created", Form::Time("created_at")),
    ("updated", Form::Time("updated_at")),
];

const NEW_LINES: Lines =
    &[("id", Form::Text("id")), ("type", Form::Text("type")), ("name", Form::Text("name"))];

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
        row("list", "List channels with their state, built-in ones first")
            .request("GET /v1/channels", View::List("id", "channels", COLUMNS)),
        row(
            "show",
            "Show a channel with its settings and its state\n\nOf a secret the last four characters are shown.",
        )
        .request("GET /v1/channels/{channel}", View::Code(show)),
        row("add", ADD).args(add_arguments()).code(add).short(SHORT_FLAGS),
        row("set", SET).args(set_arguments()).code(set).short(SHORT_FLAGS),
        row("test", TEST).request("POST /v1/channels/{channel}/test", View::Code(print_test)),
        row("rm", "Delete a channel and its waiting messages").request(
            "DELETE /v1/channels/{channel}",
            View::Sentence("id", "deleted channel {channel}"),
        ),
    ]
}

fn show(call: &Call<'_>, answer: &ApiResponse) -> Result<(), CliError> {
    call.context.output.object(answer, "id", |channel| {
        let settings =
            SETTING_FLAGS.iter().map(|own| (own.label, text_of(channel, own.name).into()));
        let last = details(LAST_LINES, call.context, channel);
        details(FIRST_LINES, call.context, channel)
            .into_iter()
            .chain(settings)
            .chain(last)
            .collect()
    })
}

fn add_arguments() -> impl Iterator<Item = (Arg, Part)> {
    let channel_type = place("type", "TYPE", "Service that gets the messages");
    let channel_type = channel_type.value_parser(PossibleValuesParser::new(ChannelType::WORDS));
    std::iter::once((channel_type, Part::Body("type"))).chain(flags())
}

fn set_arguments() -> impl Iterator<Item = (Arg, Part)> {
    let quiet =
        switch("no-quiet-hours", "No quiet hours").conflicts_with_all(["quiet-hours", "tz"]);
    let tags = switch("no-tags", "Events of all cues").conflicts_with("tag");
    let removals = SETTING_FLAGS.iter().filter_map(|own| {
        let (flag, help) = own.removal?;
        let flag = switch(flag, help).conflicts_with(own.flag);
        Some((flag, Part::BodySwitch(own.name, Value::Null)))
    });
    let others = [
        (quiet, Part::BodySwitch("quiet", Value::Null)),
        (tags, Part::BodySwitch("tags", json!([]))),
    ];
    std::iter::once(channel()).chain(flags()).chain(others).chain(removals)
}

/// The flags that set the fields of a channel. If several secrets are `-`, they take lines of standard input in this
/// order.
fn flags() -> impl Iterator<Item = (Arg, Part)> {
    let event = "Event to send, more than once for several: failed, recovered, paused, alerts, or alert. with a type \
         [default: failed, recovered and alerts]";
    let quiet = "Send nothing between these times; one message follows at their end";
    let repeat = "Of failures of a cue in a row: the first, or every one [default: first]";
    let remind_after =
        "Time to a reminder while a failure lasts, 15m to 7d, or 0 for none [default: 1d]";
    let zone = "Time zone of the quiet hours, such as Europe/Berlin or Berlin [default: UTC]";
    let name = "Name of the channel [default: the type, and the topic, host or chat]";
    let event = flag("event", "EVENT", event).action(ArgAction::Append).value_parser(parse_event);
    let tag = tag_flag("Only events of cues with this tag; repeat to match any of several tags");
    let quiet = flag("quiet-hours", "FROM-TO", quiet).value_parser(parse_quiet_hours);
    // The zone of other commands is that of printed times.
    let zone = flag("tz", "ZONE", zone).long("timezone").visible_alias("tz");
    let others = [
        (event, Part::BodyList("events")),
        (tag, Part::BodyList("tags")),
        (quiet, Part::Body("quiet")),
        (words("repeat", "WHICH", &Repeat::WORDS, repeat), Part::Body("repeat")),
        (seconds("remind-after", remind_after), Part::Body("remind_after_seconds")),
        (zone, Part::Sets("quiet.timezone")),
    ];
    let first = [(flag("name", "NAME", name), Part::Body("name")), own(server_flag())];
    first.into_iter().chain(SETTING_FLAGS.iter().map(setting_flag)).chain(others)
}

fn setting_flag(own: &'static SettingFlag) -> (Arg, Part) {
    let arg = flag(own.flag, own.value, own.help);
    let arg = match own.kinds().next() {
        Some(SettingKind::Number(range)) => {
            arg.value_parser(clap::value_parser!(i64).range(range.clone()).map(Value::from))
        }
        // The id of a chat may be negative.
        Some(SettingKind::Text) => arg.allow_negative_numbers(true),
        _ => arg,
    };
    let is_secret = own.kinds().any(SettingKind::is_secret);
    (arg, if is_secret { Part::BodySecret(own.name) } else { Part::Body(own.name) })
}

fn add(call: &Call<'_>) -> Result<(), CliError> {
    let (context, output) = (call.context, &call.context.output);
    let mut body = call.fields()?;
    if body["type"] == "email" && body["to"].is_null() {
        // No other address is taken.
        body["to"] = context.fetch(&ApiRequest::get("/v1/auth/me"))?.value()?["email"].take();
    }
    complete_quiet(call, &mut body, || Ok(Value::Null))?;
    let answer = context
        .send(&ApiRequest::post("/v1/channels").json(body))
        .map_err(|error| with_needs(call, error))?;
    output.object(&answer, "id", |channel| details(NEW_LINES, context, channel))?;
    if output.format.is_for_programs() {
        return Ok(());
    }
    print_note(&format!("Send a test: cued channel test {}", text_of(&answer.value()?, "id")))
}

/// Says of each missing setting what it is.
fn with_needs(call: &Call<'_>, mut error: CliError) -> CliError {
    let word = call.text("type").unwrap_or_default();
    let settings = ChannelType::parse(word).map_or(&[][..], |known| service(known).settings);
    if let Some(refused) = error.refused()
        && refused.code == "validation_error"
    {
        let mut text = texts(refused, |fault| call.flag_of(fault));
        for Setting { name, label, example, .. } in settings {
            let missing = format!("--{}: is missing", name.replace('_', "-"));
            let such = if example.is_empty() { "" } else { ", such as " };
            let need =
                format!("{missing}; a channel of type {word} needs the {label}{such}{example}");
            text = text.replace(&missing, &need);
        }
        refused.say(text);
    }
    error
}

fn set(call: &Call<'_>) -> Result<(), CliError> {
    let context = call.context;
    let path = format!("/v1/channels/{}", segment(call.place("channel")));
    let mut patch = call.fields()?;
    complete_quiet(call, &mut patch, || {
        Ok(context.fetch(&ApiRequest::get(&path))?.value()?["quiet"].take())
    })?;
    let names: Vec<&str> =
        patch.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    if names.is_empty() {
        return Err(usage("nothing to change; `cued channel set --help` lists the flags"));
    }
    let answer = context.send(&ApiRequest::patch(path).json(&patch))?;
    context.output.done(&answer, "id", |channel| {
        format!("changed {}: {}", label_of(channel), names.join(", "))
    })
}

/// An event of the API, by the words of a person.
fn parse_event(words: &str) -> Result<String, String> {
    let event = event_of_words(words);
    if is_event(event) {
        return Ok(event.to_owned());
    }
    Err("use failed, recovered, paused, alerts, or alert. with the type of an alert".to_owned())
}

fn parse_quiet_hours(text: &str) -> Result<Value, String> {
    let hours = text.split_once('-').map(|(from, to)| (from.trim(), to.trim()));
    let hours =
        hours.filter(|(from, to)| [from, to].into_iter().all(|time| parse_minute(time).is_some()));
    let (from, to) = hours.ok_or("an example is 22:00-07:00")?;
    Ok(json!({ "from": from, "to": to }))
}

/// Adds the time zone to the quiet hours of a body. The API replaces them as a whole: a part that no flag names is that of
/// the channel.
fn complete_quiet(
    call: &Call<'_>,
    body: &mut Value,
    stored: impl FnOnce() -> Result<Value, CliError>,
) -> Result<(), CliError> {
    // `--utc` is for printed times.
    let zone = call.text("tz").and(call.context.zone.as_ref());
    if call.is_given("quiet-hours") != zone.is_some() {
        let mut quiet = stored()?;
        let given = body["quiet"].as_object().into_iter().flatten();
        given.for_each(|(name, value)| quiet[name] = value.clone());
        body["quiet"] = quiet;
    }
    let Some(zone) = zone else { return Ok(()) };
    if body["quiet"]["from"].is_null() {
        return Err(usage("--timezone is that of the quiet hours: add --quiet-hours"));
    }
    body["quiet"]["timezone"] = zone.name().into();
    Ok(())
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
        print_line(call.place("channel"))?;
        return check_delivered(answer, "message");
    }
    call.context.output.done(answer, "id", |result| {
        let time = result["duration_ms"].as_i64().map(duration).unwrap_or_default();
        let result_line = match (result["status"].as_str(), &result["http_status"]) {
            (Some("delivered"), Value::Null) => format!("Delivered in {time}."),
            (Some("delivered"), status) => {
                format!("Delivered: the service answered {status} in {time}.")
            }
            (Some("failed"), _) => {
                format!("Failed after {time}: {}", text_of(result, "error_message"))
            }
            _ => "The service has not answered within 15 s.".to_owned(),
        };
        match text_of(result, "response") {
            response if response.is_empty() => result_line,
            response => format!("{result_line}\n{response}"),
        }
    })?;
    check_delivered(answer, "message")
}

/// Errors: if a test message is not delivered.
pub fn check_delivered(answer: &ApiResponse, noun: &str) -> Result<(), CliError> {
    if answer.value()?["status"] == "delivered" {
        return Ok(());
    }
    Err(failed(format!("the test {noun} was not delivered")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_hours_are_two_times_of_day() {
        let hours = |from: &str, to: &str| Ok(json!({ "from": from, "to": to }));
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
