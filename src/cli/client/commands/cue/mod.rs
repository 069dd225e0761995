//! `cued cue …`: the cues of the account.

mod add;
mod change;
mod flags;
mod test_call;

use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::cli::client::arguments::{
    FoundCue, find_all, label_of, schedule, schedule_column, target,
};
use crate::cli::client::command::{
    Call, Entry, Part, View, cue, flag, number, own, place, row, switch, tag_filter, tag_flag,
    words,
};
use crate::cli::client::commands::apply::export;
use crate::cli::client::commands::run::{print_end, result_or_wait, until_ended};
use crate::cli::client::commands::schedule::{note, print_next, understand};
use crate::cli::client::context::Context;
use crate::cli::client::forms::{Columns, Form, Lines, details, filled};
use crate::cli::error::{Result, not_found, refused};
use crate::cli::output::table::{ColumnRule, header, parse_duration, text_of, whole_span};
use crate::cli::output::{Format, count, print, print_line, print_note, short_id};
use crate::cli::printable::printable;
use crate::cli::width::{MIN_WIDTH, cut};
use crate::client::request::{ApiRequest, ApiResponse};
use crate::domain::cue::list::CueSort;
use crate::domain::cue::{CueStatus, Transport};
use crate::domain::cue_fields::{PLAIN_FIELDS, PlainField, Values};
use crate::domain::schedule::is_instant;

/// Columns of the result of a failed run in the details of its cue, which fit 80 with the rest of the line.
const MAX_REASON: usize = 17;

/// The most cues that a command names. The server takes as many ids in a request.
const MAX_AT_ONCE: usize = 500;

const COLUMNS: Columns = &[
    ("ID", Form::Id("id"), ColumnRule::Always),
    ("NAME", Form::Text("name"), ColumnRule::Shortened),
    ("STATUS", Form::Status("status"), ColumnRule::Always),
    ("SCHEDULE", Form::Shown(schedule_column), ColumnRule::Shortened),
    ("NEXT RUN", Form::Time("next_run"), ColumnRule::Always),
    ("FAILING", Form::Count("failing"), ColumnRule::WithValue),
    ("TARGET", Form::Of(target), ColumnRule::Roomy),
    ("SLUG", Form::Text("slug"), ColumnRule::Wide),
    ("TAGS", Form::List("tags"), ColumnRule::Wide),
    ("RUNS", Form::Text("run_count"), ColumnRule::Wide),
    ("MISSED", Form::Text("missed_count"), ColumnRule::Wide),
    ("RECENT", Form::Text("recent.statuses"), ColumnRule::Wide),
];

/// The lines of `cue show` before those of the plain fields.
const LINES: Lines = &[
    ("id", Form::Text("id")),
    ("name", Form::Text("name")),
    ("slug", Form::Text("slug")),
    ("description", Form::Text("description")),
    ("tags", Form::List("tags")),
    ("status", Form::Status("status")),
    ("warning", Form::Warning("warning")),
    ("schedule", Form::Shown(schedule)),
    ("catch-up", Form::Text("schedule.catch_up")),
    ("start", Form::Time("schedule.start")),
    ("end", Form::Time("schedule.end")),
    ("jitter", Form::Of(jitter)),
    ("next run", Form::Time("next_run")),
    ("last run", Form::Time("last_run")),
    ("target", Form::Of(method_and_target)),
    ("headers", Form::Of(headers)),
    ("timeout", Form::Of(timeout)),
    ("outcome", Form::Of(outcome)),
    ("payload", Form::Json("payload")),
    ("retry", Form::Of(retry)),
    ("on failure", Form::Shown(on_failure)),
];

const LAST_LINES: Lines = &[
    ("flow", Form::Of(flow)),
    ("verification", Form::Text("verification.mode")),
    ("runs", Form::Template("{run_count}, {missed_count} missed, {failing} failing")),
    ("created", Form::Time("created_at")),
    ("updated", Form::Time("updated_at")),
    ("latest runs", Form::Shown(latest)),
];

const GAPS: Columns = &[
    ("FIRST", Form::ExactTime("first"), ColumnRule::Always),
    ("LAST", Form::ExactTime("last"), ColumnRule::Always),
    ("COUNT", Form::Text("count"), ColumnRule::Always),
    ("REASON", Form::Text("reason"), ColumnRule::Always),
];

pub fn entries() -> Vec<Entry> {
    let runs = number("runs", 100, "Number of latest runs to show").default_value("5");
    let count = number("count", 100, "Number of runs to show").short('n').default_value("10");
    let with_tag = "With --all: only cues with this tag; more than once for cues with all of them";
    let cues =
        || place("cues", "CUE", "Ids, names or slugs (slug:S) of cues").num_args(1..=MAX_AT_ONCE);
    let some_cues = || {
        [
            own(cues().required(false).required_unless_present("all")),
            own(switch("all", "All cues in the right state").conflicts_with("cues")),
            (tag_flag(with_tag).conflicts_with("cues"), Part::Query("tag")),
        ]
    };
    vec![
        list(),
        row(
            "show",
            "Show a cue and its latest runs\n\nOf values of Authorization, Cookie and other headers that may be secret only \
              the end is shown. `--output json` has them whole.\n\nWith `-o yaml` it is a file for `cued apply`; what only \
              the server sets is in comments.",
        )
        .args([(runs, Part::Query("execution_limit"))])
        .request("GET /v1/cues/{cue}", View::Code(show)),
        row("add", "Add a cue").args(add::arguments()).code(add::add).short(flags::SHORT_FLAGS),
        row(
            "edit",
            "Edit a cue as YAML in an editor\n\nOpens the editor of VISUAL or EDITOR and sends only changed fields. If the cue changes in the meantime, or the \
             text cannot be read, nothing is sent and the text is kept in a file.",
        )
        .args([cue()])
        .code(change::edit),
        change::set_entry(),
        row("pause", "Pause cues until they are resumed")
            .args(some_cues())
            .code(|call| change_status(call, "pause")),
        row("resume", "Resume paused cues from now on")
            .args(some_cues())
            .code(|call| change_status(call, "resume")),
        row("rm", "Delete cues and their runs").args([own(cues())]).code(delete),
        fire_entry(),
        test_call::test_entry(),
        row("next", "Show the next runs of a cue")
            .args([(count, Part::Query("limit"))])
            .request("GET /v1/cues/{cue}/upcoming?detail=true", View::Code(print_next_runs)),
        row("missed", "List the missed runs of a cue, grouped by gap")
            .request("GET /v1/cues/{cue}/missed", View::Pages("first", "missed", GAPS)),
    ]
}

fn show(call: &Call<'_>, answer: &ApiResponse) -> Result {
    let output = &call.context.output;
    match output.format {
        Format::Yaml => print(&export::document(&answer.value()?)),
        _ => output.object(answer, "id", |cue| {
            let plain =
                PLAIN_FIELDS.iter().map(|field| (field.label, plain_text(field, cue).into()));
            let last = details(LAST_LINES, call.context, cue);
            details(LINES, call.context, cue).into_iter().chain(plain).chain(last).collect()
        }),
    }
}

fn list() -> Entry {
    let search = "Only cues with this text in the name, the slug, a tag, the description or the host, or at the beginning of the id";
    let sort = words("sort", "ORDER", &CueSort::WORDS, "Sort order; a leading - means descending");
    let status = words("status", "STATE", &CueStatus::WORDS, "Only cues in this state");
    let transport =
        words("transport", "TRANSPORT", &Transport::WORDS, "Only cues of this transport");
    let failing = switch("failing", "Only cues whose latest run failed");
    let namespace = flag("namespace", "NAME", "Only cues whose slug has this namespace");
    row("list", "List cues, newest first")
        .args([
            (status, Part::Query("status")),
            (transport, Part::Query("transport")),
            (failing, Part::QuerySwitch("failing", "true")),
            tag_filter(),
            (namespace, Part::Query("namespace")),
            (sort.allow_hyphen_values(true), Part::Query("sort")),
            (flag("search", "TEXT", search), Part::Query("q")),
        ])
        .request("GET /v1/cues", View::Pages("id", "cues", COLUMNS))
        // A letter for each of the latest runs.
        .wide("runs", "10")
}

fn fire_entry() -> Entry {
    let payload = "Payload of this run, merged into that of the cue; @FILE and - read a file and standard input";
    let payload = flag("payload", "JSON|@FILE|-", payload).allow_hyphen_values(true);
    let at = "When to run: an instant, or words such as '+10m' or 'tomorrow 9:00', in the cue's time zone";
    let replace = switch("replace", "Replace the cue's payload instead of merging into it");
    let timeout = "Stop waiting after this time, such as 90s, 5m, 2h [default: never]";
    let timeout = flag("timeout", "SPAN", timeout).value_parser(parse_duration);
    row("fire", "Run a cue now or at a given time")
        .args([
            cue(),
            (payload, Part::BodyObject("payload_override")),
            (replace.requires("payload"), Part::BodySwitch("merge_strategy", "replace".into())),
            (flag("at", "TIME", at), Part::Sets("send_at")),
            own(switch("wait", "Wait for the run to finish; exits with 8 if it fails")),
            own(timeout.requires("wait")),
        ])
        .code(fire)
}

fn jitter(cue: &Value) -> String {
    match cue["schedule"]["jitter_seconds"].as_u64() {
        None | Some(0) => String::new(),
        Some(seconds) => format!("up to {seconds} s later"),
    }
}

fn method_and_target(cue: &Value) -> String {
    let method = if cue["transport"] == "webhook" { &text_of(cue, "callback.method") } else { "" };
    format!("{method} {}", target(cue)).trim_start().to_owned()
}

fn timeout(cue: &Value) -> String {
    let seconds = cue["callback"]["timeout_seconds"].as_u64();
    let seconds = seconds.filter(|_| cue["transport"] == "webhook");
    seconds.map(|seconds| format!("{seconds} s")).unwrap_or_default()
}

/// Empty for the default.
fn outcome(cue: &Value) -> String {
    let is_own = cue["callback"]["outcome_from_response"] == true;
    if is_own { "from the response" } else { "" }.to_owned()
}

/// Empty for the default.
fn plain_text(field: &PlainField, cue: &Value) -> String {
    let value = &cue[field.name];
    match &field.values {
        Values::Minutes(_) => {
            value.as_u64().map(|minutes| format!("{minutes} min")).unwrap_or_default()
        }
        Values::Seconds(_) => span(value),
        Values::Words(known) => {
            let says = known.iter().find(|(word, ..)| value == word).map(|(_, says, _)| *says);
            says.unwrap_or_default().to_owned()
        }
    }
}

/// A number of seconds: `1h 30m`.
fn span(seconds: &Value) -> String {
    seconds
        .as_i64()
        .map(|seconds| format!("{:#}", SignedDuration::from_secs(seconds)))
        .unwrap_or_default()
}

fn flow(cue: &Value) -> String {
    let flow = &cue["callback"]["flow"];
    let limits = [("parallelism", "at once"), ("per_minute", "a minute")];
    let limits =
        limits.map(|(name, words)| flow[name].as_u64().map(|limit| format!("{limit} {words}")));
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    if limits.is_empty() {
        String::new()
    } else {
        format!("{}, {}", text_of(flow, "key"), limits.join(", "))
    }
}

fn headers(cue: &Value) -> String {
    let headers = cue["callback"]["headers"].as_object().into_iter().flatten();
    let lines = headers.map(|(name, value)| header(name, value.as_str().unwrap_or_default()));
    lines.collect::<Vec<_>>().join("\n")
}

fn retry(cue: &Value) -> String {
    let retry = &cue["retry"];
    let (pauses, unit) = match &retry["backoff_seconds"] {
        Value::Null => (&retry["backoff_minutes"], 60.0),
        seconds => (seconds, 1.0),
    };
    let pauses = pauses.as_array().into_iter().flatten().filter_map(Value::as_f64);
    let pauses: Vec<String> =
        pauses.map(|pause| whole_span((pause * unit).round() as i64)).collect();
    match retry["max_attempts"].as_u64() {
        Some(1) => "none (one attempt)".to_owned(),
        _ => format!("{} attempts, pauses {}", text_of(retry, "max_attempts"), pauses.join(", ")),
    }
}

fn on_failure(context: &Context, cue: &Value) -> String {
    let actions = &cue["on_failure"];
    let flags = ["email", "pause"].into_iter().filter(|name| actions[name] == true);
    let words = flags.map(|name| match name {
        "email" if context.sends_no_mail() => "email (this server sends none)",
        name => name,
    });
    let words: Vec<&str> = words.chain(actions["webhook"].as_str()).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

fn latest(context: &Context, cue: &Value) -> String {
    let line = |run: &Value| {
        let scheduled = context.output.times.instant(&text_of(run, "scheduled_for"));
        let (id, status) = (context.output.id(&text_of(run, "id")), text_of(run, "status"));
        let reason =
            if status == "failed" { cut(&result_or_wait(run), MAX_REASON) } else { String::new() };
        format!("{id}  {scheduled}  {status}  {reason}").trim_end().to_owned()
    };
    let runs = cue["executions"].as_array().into_iter().flatten();
    runs.map(line).collect::<Vec<_>>().join("\n")
}

/// A cue that will not run by its schedule has no next run: a person reads why.
fn print_next_runs(call: &Call<'_>, answer: &ApiResponse) -> Result {
    let (context, has_runs) = (call.context, answer.value()?["upcoming"] != json!([]));
    let Some(found) =
        call.cue.as_ref().filter(|_| !has_runs && !context.output.format.is_for_programs())
    else {
        return print_next(call, answer);
    };
    let cue = change::fetch(context, found)?;
    let (id, name) = (text_of(&cue, "id"), printable(&text_of(&cue, "name")));
    print_note(&match text_of(&cue, "status") {
        status if status == "paused" => {
            format!("{name} is paused: cued cue resume {}", short_id(&id))
        }
        status => format!("{name} has no more runs: it is {status}"),
    })
}

/// Sets the status of cues. `action` is `pause` or `resume`.
fn change_status(call: &Call<'_>, action: &'static str) -> Result {
    let (title, done, from, to) = match action {
        "pause" => ("Pause", "paused", "active", "paused"),
        _ => ("Resume", "resumed", "paused", "active"),
    };
    let context = call.context;
    let cues = find_all(context, &call.texts("cues"))?;
    if let [cue] = cues.as_slice() {
        if !context.is_curl() && context.output.format == Format::Table {
            let found = change::fetch(context, cue)?;
            if found["status"] == to {
                return print_line(&format!("{} is {to} already", label_of(&found)));
            }
        }
        let answer = context.send(&ApiRequest::patch(cue.path()).json(json!({ "status": to })))?;
        return context.output.done(&answer, "id", |cue| {
            format!("{done} {}{}", label_of(cue), filled(NEXT_RUN, context, cue))
        });
    }
    let mut body = json!({ "action": action, "ids": ids(&cues) });
    if call.is_set("all") {
        // The server refuses if the number of cues in this status is another than the confirmed one.
        let tags = call.texts("tag");
        let mut request = ApiRequest::get("/v1/cues").query("status", from).query("limit", "1");
        request.query.extend(call.query()?);
        let total = context.fetch(&request)?.value()?["total"].as_i64().unwrap_or(0);
        if total > 0 {
            let with =
                if tags.is_empty() { String::new() } else { format!(" with {}", tags.join(", ")) };
            context
                .confirm(&format!("{title} all {}{with}?", count(total, &format!("{from} cue"))))?;
        }
        body = json!({ "action": action, "expected": total, "filter": { "status": from } });
        if !tags.is_empty() {
            body["filter"]["tags"] = json!(tags);
        }
    }
    let answer = context.send(&ApiRequest::post("/v1/cues/bulk").json(body).idempotent())?;
    report(context, done, &answer, &cues)
}

pub fn delete(call: &Call<'_>) -> Result {
    let context = call.context;
    let cues = find_all(context, &call.texts("cues"))?;
    if context.asks() {
        context.confirm(&question(context, &cues)?)?;
    }
    if let [cue] = cues.as_slice() {
        let answer = context.send(&ApiRequest::delete(cue.path()))?;
        return match context.output.format {
            Format::Id => print_line(&cue.id),
            _ => context.output.done(&answer, "id", |_| format!("deleted {}", cue.label())),
        };
    }
    let request = ApiRequest::post("/v1/cues/bulk-delete").json(json!({ "ids": ids(&cues) }));
    report(context, "deleted", &context.send(&request.idempotent())?, &cues)
}

pub fn fire(call: &Call<'_>) -> Result {
    let (context, output) = (call.context, &call.context.output);
    let mut body = call.fields()?;
    let Some(cue) = &call.cue else { return Ok(()) };
    if let Some(at) = call.text("at") {
        body["send_at"] = send_at(context, cue, at)?.into();
    }
    let request = ApiRequest::post(format!("{}/fire", cue.path())).json(body).idempotent();
    if call.is_set("wait") && !context.is_curl() {
        let run = context.send(&request)?.value()?;
        return print_end(
            context,
            &until_ended(context, &run, "execution_id", call.get("timeout"))?,
        );
    }
    let answer = context.send(&request)?;
    output.object(&answer, "execution_id", |run| {
        vec![
            ("run", output.id(&text_of(run, "execution_id")).into()),
            ("cue", cue.label().into()),
            ("scheduled for", output.times.instant(&text_of(run, "scheduled_for")).into()),
        ]
    })?;
    if !output.is_short() {
        return Ok(());
    }
    let id = text_of(&answer.value()?, "execution_id");
    print_note(&format!("Follow it: cued run wait {}", output.id(&id)))
}

/// The instant of a run, which may be in words. Local times are those of the cue.
fn send_at(context: &Context, cue: &FoundCue, text: &str) -> Result<String> {
    if is_instant(text) {
        return Ok(text.to_owned());
    }
    let understood = understand(context, "at", text, &change::zone_of(context, cue)?)?;
    note(context, &understood)?;
    Ok(text_of(&understood, "schedule.at"))
}

/// The question names each cue and the number of its runs.
fn question(context: &Context, cues: &[FoundCue]) -> Result<String> {
    let mut described = Vec::new();
    for cue in cues {
        let cue = change::fetch(context, cue)?;
        let runs = count(cue["execution_total"].as_i64().unwrap_or(0), "run");
        let mut named = json!({ "id": cue["id"], "name": text_of(&cue, "name") });
        if let Some(width) = context.output.styles.width {
            // A name without blanks cannot be folded.
            named["name"] =
                cut(&printable(&text_of(&cue, "name")), (width / 2).max(MIN_WIDTH)).into();
        }
        described.push(format!("{}, {}, with {runs}", label_of(&named), text_of(&cue, "status")));
    }
    Ok(match described.as_slice() {
        [cue] => format!("Delete {cue}?"),
        cues => {
            format!("These {} cues are deleted:\n  {}\nDelete them?", cues.len(), cues.join("\n  "))
        }
    })
}

/// The next run of a changed cue, at the end of a sentence.
const NEXT_RUN: &str = "; next run {next_run:at}";

fn ids(cues: &[FoundCue]) -> Value {
    cues.iter().map(|cue| cue.id.as_str()).collect()
}

/// Prints a line for each cue; of all cues their number and the refused ones.
fn report(context: &Context, done: &str, answer: &ApiResponse, cues: &[FoundCue]) -> Result {
    let value = answer.value()?;
    let array = |field: &str| value[field].as_array().into_iter().flatten();
    // A deletion skips the cues that do not exist.
    let skipped = array("skipped")
        .map(|id| json!({"id": id, "code": "cue_not_found", "message": "no cue has this id"}));
    let faults: Vec<Value> = array("failed").cloned().chain(skipped).collect();
    let changed = || cues.iter().filter(|cue| faults.iter().all(|it| it["id"] != cue.id.as_str()));
    match context.output.format {
        Format::Table | Format::Wide => {
            changed().try_for_each(|cue| print_line(&format!("{done} {}", cue.label())))?;
            if cues.is_empty() {
                print_line(&format!(
                    "{done} {}",
                    count(value["done"].as_i64().unwrap_or(0), "cue")
                ))?;
            }
            for it in &faults {
                let label =
                    cues.iter().find(|cue| it["id"] == cue.id.as_str()).map(FoundCue::label);
                let label = label.unwrap_or_else(|| text_of(it, "id"));
                print_line(&format!("refused {label}: {}", text_of(it, "message")))?;
            }
        }
        Format::Id => changed().try_for_each(|cue| print_line(&cue.id))?,
        _ => context.output.object(answer, "", |_| Vec::new())?,
    }
    let matched =
        if cues.is_empty() { value["matched"].to_string() } else { cues.len().to_string() };
    let message = match faults.len() {
        0 => return Ok(()),
        1 => format!("1 of {matched} cues was refused"),
        number => format!("{number} of {matched} cues were refused"),
    };
    let is_unknown = faults.iter().all(|cue| cue["code"] == "cue_not_found");
    Err(if is_unknown { not_found(message) } else { refused(message) })
}
