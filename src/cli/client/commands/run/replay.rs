//! `cued run replay`: runs by their ids, or all failed ones of a selection. The server names the failed ones, and they
//! are replayed by their ids, some at a time: the bar moves, and Ctrl-C waits for a moment only.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::cli::client::arguments::find_run;
use crate::cli::client::command::Call;
use crate::cli::client::context::Context;
use crate::cli::client::live_output::Interrupt;
use crate::cli::error::{CliError, Result, not_found, refused};
use crate::cli::output::table::text_of;
use crate::cli::output::{Format, count, print, print_line, print_note, yaml};
use crate::cli::progress::Bar;
use crate::client::request::ApiRequest;

const PATH: &str = "/v1/executions/replay";

/// Most ids that the server takes at a time.
const MAX_IDS: usize = 500;

/// Between the creation of two runs, at least, unless they have the same time.
const MILLISECOND: SignedDuration = SignedDuration::from_millis(1);

/// Skipped runs that are named; all of them are in the JSON.
const MAX_NAMED: usize = 20;

pub fn replay(call: &Call<'_>) -> Result {
    let context = call.context;
    if call.is_set("failed") {
        return replay_failed(call);
    }
    let ids: Vec<String> =
        call.texts("runs").iter().map(|run| find_run(context, run)).collect::<Result<_, _>>()?;
    let [id] = ids.as_slice() else {
        let rest = |left: &[String]| format!("The last {} of the given ids are left", left.len());
        return replay_parts(context, &ids, "runs", rest);
    };
    // A single run: the server says why it refuses.
    let answer = context.send(&ApiRequest::post(format!("/v1/executions/{id}/replay")))?;
    let output = &context.output;
    let sentence = |new: &Value| {
        format!("replayed run {} as {}", output.id(id), output.id(&text_of(new, "id")))
    };
    output.done(&answer, "id", sentence)
}

fn replay_failed(call: &Call<'_>) -> Result {
    let context = call.context;
    let mut filter = call.fields()?;
    for (field, value) in call.query()? {
        filter[&*field] = value.into();
    }
    let ids = find(context, filter.clone())?;
    let runs = count(ids.len() as u64, "failed run");
    if call.is_set("dry-run") {
        let result = json!({"matched": ids.len()});
        return print_result(context, &result, &format!("would replay {runs}"));
    }
    if context.is_curl() {
        let body = json!({"filter": filter, "expected": ids.len()});
        return context.send(&ApiRequest::post(PATH).json(body)).map(drop);
    }
    let Some(last) = ids.last() else {
        let none = json!({"matched": 0, "replayed": 0, "skipped": [], "execution_ids": []});
        return print_result(context, &none, "nothing to replay: no failed run matches");
    };
    context.confirm(&format!("Replay {runs}?"))?;
    // Replays that fail are none of those that are left.
    if let (true, Some(last)) = (filter["until"].is_null(), created_at(last)) {
        filter["until"] = last.checked_add(MILLISECOND).map(|at| at.to_string()).ok().into();
    }
    replay_parts(context, &ids, "failed runs", |left| {
        let mut filter = filter.clone();
        filter["since"] =
            left.first().and_then(|id| created_at(id)).map(|at| at.to_string()).into();
        let flags = [("cue", "cue_id"), ("cause", "cause"), ("since", "since"), ("until", "until")];
        let flags = flags
            .iter()
            .filter_map(|(flag, field)| Some(format!(" --{flag} {}", filter[*field].as_str()?)));
        let flags = flags.chain(call.texts("tag").into_iter().map(|tag| format!(" --tag {tag}")));
        format!("To replay the rest: cued run replay --failed{}", flags.collect::<String>())
    })
}

/// The ids of the failed runs, oldest first. The server names some of them at a time.
fn find(context: &Context, mut filter: Value) -> Result<Vec<String>> {
    let (mut ids, mut seen) = (Vec::new(), BTreeSet::new());
    loop {
        let body = json!({"filter": filter, "dry_run": true});
        let answer = context.fetch(&ApiRequest::post(PATH).json(body))?.value()?;
        let found = answer["ids"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let before = ids.len();
        // Runs of the same millisecond are found again.
        ids.extend(found.filter(|id| seen.insert((*id).to_owned())).map(str::to_owned));
        if answer["has_more"] != true || ids.len() == before {
            return Ok(ids);
        }
        filter["since"] = ids.last().and_then(|id| created_at(id)).map(|at| at.to_string()).into();
    }
}

fn created_at(id: &str) -> Option<Timestamp> {
    let (seconds, nanos) = Uuid::parse_str(id).ok()?.get_timestamp()?.to_unix();
    Timestamp::new(i64::try_from(seconds).ok()?, i32::try_from(nanos).ok()?).ok()
}

/// The number of runs of the next request: it ends between two milliseconds, so that `--since` can name the rest.
fn part(ids: &[String]) -> usize {
    if ids.len() <= MAX_IDS {
        return ids.len();
    }
    (1..=MAX_IDS)
        .rev()
        .find(|end| created_at(&ids[*end]) != created_at(&ids[end - 1]))
        .unwrap_or(MAX_IDS)
}

/// Replays runs by requests one after another. Each is complete, so an end between two of them leaves nothing half
/// done. `rest` says what to do about the last ones if they are left.
fn replay_parts(
    context: &Context,
    ids: &[String],
    noun: &str,
    rest: impl Fn(&[String]) -> String,
) -> Result {
    let interrupt = Interrupt::listen()?;
    let (mut bar, mut all, mut left) = (Bar::new("replay"), Value::Null, ids);
    let mut result = Ok(());
    while !left.is_empty() {
        let done = ids.len() - left.len();
        let progress = format!("{done} of {} {noun}", ids.len());
        bar.show(done as u64, ids.len() as u64, &progress);
        if interrupt.is_requested() && done > 0 {
            result =
                Err(CliError::Interrupted(format!("interrupted after {progress}. {}", rest(left))));
            break;
        }
        let (now, later) = left.split_at(part(left));
        let request = ApiRequest::post(PATH).json(json!({"ids": now})).idempotent();
        match context.send(&request).and_then(|answer| Ok(answer.value()?)) {
            Ok(answer) => add(&mut all, answer),
            Err(error) if done == 0 => return Err(error),
            Err(error) => {
                bar.end();
                print_note(&format!("stopped after {progress}. {}", rest(left)))?;
                result = Err(error);
                break;
            }
        }
        left = later;
    }
    bar.end();
    let matched = count(all["matched"].as_i64().unwrap_or(0), "run");
    print_result(context, &all, &format!("replayed {} of {matched}", all["replayed"]))?;
    let skipped = all["skipped"].as_array().map_or(&[][..], Vec::as_slice);
    if !context.output.format.is_for_programs() {
        for it in skipped.iter().take(MAX_NAMED) {
            let line =
                format!("  {}  {}", context.output.id(&text_of(it, "id")), text_of(it, "code"));
            print_note(&line)?;
        }
        if skipped.len() > MAX_NAMED {
            let more = skipped.len() - MAX_NAMED;
            print_note(&format!("  and {more} more; --json names them all"))?;
        }
    }
    result?;
    match skipped.len() {
        0 => Ok(()),
        _ if all["replayed"] == 0
            && skipped.iter().all(|it| it["code"] == "execution_not_found") =>
        {
            Err(not_found("no such run; nothing was replayed"))
        }
        number => Err(refused(format!("{number} of {} were not replayed", all["matched"]))),
    }
}

/// Adds the counts and the lists of an answer to those of the answers before it.
fn add(all: &mut Value, answer: Value) {
    let (Value::Object(fields), Value::Object(more)) = (&mut *all, &answer) else {
        *all = answer;
        return;
    };
    for (name, value) in more {
        match (fields.get_mut(name), value) {
            (Some(Value::Array(items)), Value::Array(more)) => items.extend(more.iter().cloned()),
            (Some(sum @ Value::Number(_)), _) => {
                *sum = (sum.as_u64().unwrap_or(0) + value.as_u64().unwrap_or(0)).into()
            }
            _ => {}
        }
    }
}

fn print_result(context: &Context, result: &Value, sentence: &str) -> Result {
    match context.output.format {
        Format::Json | Format::Jsonl => print_line(&result.to_string()),
        Format::Yaml => print(&yaml::ordered(result, &[])),
        Format::Id => {
            let mut ids =
                result["execution_ids"].as_array().into_iter().flatten().filter_map(Value::as_str);
            ids.try_for_each(print_line)
        }
        Format::Table | Format::Wide => print_line(sentence),
    }
}
