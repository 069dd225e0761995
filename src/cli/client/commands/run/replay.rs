//! `cued run replay`: runs by their ids, or all failed ones of a selection.
//!
//! The server names the failed runs of a selection without replaying them. They are then replayed by their ids, some at a
//! time: the bar moves, and Ctrl-C waits for a moment only.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::cli::client::arguments::{find_maybe_id, find_run, resolve_maybe};
use crate::cli::client::command::Call;
use crate::cli::client::context::Context;
use crate::cli::client::live_output::Interrupt;
use crate::cli::error::{CliError, not_found, refused};
use crate::cli::output::table::text_of;
use crate::cli::output::{Format, count, print, print_line, yaml};
use crate::cli::printable::printable;
use crate::cli::progress::Bar;
use crate::client::request::{Answer, ApiRequest};

const PATH: &str = "/v1/executions/replay";

/// Most ids that the server takes at a time.
const MAX_IDS: usize = 500;

/// Between the creation of two runs, at least, unless they have the same time.
const MILLISECOND: SignedDuration = SignedDuration::from_millis(1);

/// Skipped runs that are named; all of them are in the JSON.
const MAX_NAMED: usize = 20;

pub fn replay(call: &Call<'_>) -> Result<(), CliError> {
    let context = call.context;
    if call.is_set("failed") {
        return replay_failed(call);
    }
    let ids: Vec<String> =
        call.texts("runs").iter().map(|run| find_run(context, run)).collect::<Result<_, _>>()?;
    let [id] = ids.as_slice() else {
        let rest = |left| format!("The last {left} of the given ids are left");
        return replay_parts(context, &ids, "runs", rest);
    };
    // A single run: the server says why it refuses.
    let answer = context.send(&ApiRequest::post(format!("/v1/executions/{id}/replay")))?;
    let sentence = |new: &Value| format!("replayed run {id} as {}", printable(&text_of(new, "id")));
    context.output.done(&answer, "id", sentence)
}

fn replay_failed(call: &Call<'_>) -> Result<(), CliError> {
    let context = call.context;
    let instant = |id: &str| resolve_maybe(context, call.get(id).copied());
    let mut filter = json!({
        "cue_id": find_maybe_id(context, call.text("cue"))?,
        "cause": call.text("cause"),
        "since": instant("since")?.map(|at| at.to_string()),
        "until": instant("until")?.map(|at| at.to_string()),
    });
    if let Some(fields) = filter.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    let ids = find(context, filter.clone())?;
    let runs = count(ids.len() as u64, "failed run");
    if call.is_set("dry-run") {
        let json = json!({"matched": ids.len()}).to_string();
        return match context.output.format {
            Format::Json | Format::Jsonl => print_line(&json),
            Format::Yaml => print(&yaml::document(&json)?),
            // Nothing is created.
            Format::Id => Ok(()),
            Format::Table | Format::Wide => print_line(&format!("would replay {runs}")),
        };
    }
    if context.is_curl() {
        let body = json!({"filter": filter, "expected": ids.len()});
        return context.send(&ApiRequest::post(PATH).json(body)).map(drop);
    }
    if ids.is_empty() {
        return ReplayResult::default().print(context);
    }
    context.confirm(&format!("Replay {runs}?"))?;
    // Replays that fail are none of those that are left.
    if filter["until"].is_null()
        && let Some(last) = ids.last().and_then(|id| created_at(id))
    {
        filter["until"] = last.checked_add(MILLISECOND).map(|at| at.to_string()).ok().into();
    }
    replay_parts(context, &ids, "failed runs", |left| {
        let mut filter = filter.clone();
        filter["since"] =
            ids[ids.len() - left..].first().and_then(|id| created_at(id)).map(|at| at.to_string()).into();
        let flags = [("cue", "cue_id"), ("cause", "cause"), ("since", "since"), ("until", "until")];
        let flags =
            flags.iter().filter_map(|(flag, field)| Some(format!(" --{flag} {}", filter[*field].as_str()?)));
        format!("To replay the rest: cued run replay --failed{}", flags.collect::<String>())
    })
}

/// The ids of the failed runs, oldest first. The server names some of them at a time.
fn find(context: &Context, mut filter: Value) -> Result<Vec<String>, CliError> {
    let (mut ids, mut seen) = (Vec::new(), BTreeSet::new());
    loop {
        let body = json!({"filter": filter, "dry_run": true});
        let answer = context.look_up(&ApiRequest::post(PATH).json(body))?.value()?;
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

/// The creation of a run, which its id begins with.
fn created_at(id: &str) -> Option<Timestamp> {
    let (seconds, nanos) = Uuid::parse_str(id).ok()?.get_timestamp()?.to_unix();
    Timestamp::new(i64::try_from(seconds).ok()?, i32::try_from(nanos).ok()?).ok()
}

/// The number of runs of the next request: it ends between two milliseconds, so that `--since` can name the rest.
fn part(ids: &[String]) -> usize {
    if ids.len() <= MAX_IDS {
        return ids.len();
    }
    (1..=MAX_IDS).rev().find(|end| created_at(&ids[*end]) != created_at(&ids[end - 1])).unwrap_or(MAX_IDS)
}

/// Replays runs by requests one after another. Each is complete, so an end between two of them leaves nothing half done.
/// `rest` says what to do about the last ones if they are left.
fn replay_parts(
    context: &Context,
    ids: &[String],
    noun: &str,
    rest: impl Fn(usize) -> String,
) -> Result<(), CliError> {
    let interrupt = Interrupt::listen()?;
    let (mut bar, mut result, mut left) = (Bar::new("replay"), ReplayResult::default(), ids);
    while !left.is_empty() {
        let done = ids.len() - left.len();
        let progress = format!("{done} of {} {noun}", ids.len());
        bar.show(done as u64, ids.len() as u64, &progress);
        let stopped = |how: &str| format!("{how} after {progress}. {}", rest(left.len()));
        let (now, later) = left.split_at(part(left));
        let request = ApiRequest::post(PATH).json(json!({"ids": now})).idempotent();
        let answer = match interrupt.is_requested() && done > 0 {
            true => Err(CliError::Interrupted(stopped("interrupted"))),
            false => context.send(&request),
        };
        match answer {
            Ok(answer) => result.add(&answer)?,
            Err(error) if done == 0 => return Err(error),
            Err(error) => {
                bar.end();
                if !matches!(error, CliError::Interrupted(_)) {
                    context.output.note(&stopped("stopped"))?;
                }
                result.print_done(context)?;
                return Err(error);
            }
        }
        left = later;
    }
    bar.end();
    result.print(context)
}

/// The answers of the server as one.
#[derive(Debug, Default)]
struct ReplayResult {
    matched: u64,
    replayed: u64,
    skipped: Vec<Value>,
    execution_ids: Vec<Value>,
    /// The only answer, unchanged.
    single: Option<String>,
}

impl ReplayResult {
    fn add(&mut self, answer: &Answer) -> Result<(), CliError> {
        let mut value = answer.value()?;
        self.single = (self.matched == 0).then(|| answer.text());
        self.matched += value["matched"].as_u64().unwrap_or(0);
        self.replayed += value["replayed"].as_u64().unwrap_or(0);
        for (field, all) in [("skipped", &mut self.skipped), ("execution_ids", &mut self.execution_ids)] {
            if let Value::Array(items) = value[field].take() {
                all.extend(items);
            }
        }
        Ok(())
    }

    /// Prints what was done.
    fn print(self, context: &Context) -> Result<(), CliError> {
        self.print_done(context)?;
        let is_unknown = |it: &Value| it["code"] == "execution_not_found";
        match self.skipped.as_slice() {
            [] => Ok(()),
            skipped if self.replayed == 0 && skipped.iter().all(is_unknown) => {
                Err(not_found("no such run; nothing was replayed"))
            }
            skipped => Err(refused(format!("{} of {} were not replayed", skipped.len(), self.matched))),
        }
    }

    fn print_done(&self, context: &Context) -> Result<(), CliError> {
        match context.output.format {
            Format::Json | Format::Jsonl => print_line(self.json().trim_end()),
            Format::Yaml => print(&yaml::document(&self.json())?),
            Format::Id => self.execution_ids.iter().filter_map(Value::as_str).try_for_each(print_line),
            Format::Table | Format::Wide => self.print_sentence(context),
        }
    }

    fn print_sentence(&self, context: &Context) -> Result<(), CliError> {
        if self.matched == 0 {
            return print_line("nothing to replay: no failed run matches");
        }
        print_line(&format!("replayed {} of {}", self.replayed, count(self.matched, "run")))?;
        let mut codes = BTreeMap::<String, usize>::new();
        for skipped in &self.skipped {
            *codes.entry(text_of(skipped, "code")).or_default() += 1;
        }
        let mut notes: Vec<String> =
            codes.iter().map(|(code, count)| format!("skipped {count}: {code}")).collect();
        let line = |it: &Value| format!("  {}  {}", text_of(it, "id"), text_of(it, "code"));
        notes.extend(self.skipped.iter().take(MAX_NAMED).map(line));
        if self.skipped.len() > MAX_NAMED {
            notes.push(format!("  and {} more; --json names them all", self.skipped.len() - MAX_NAMED));
        }
        notes.iter().try_for_each(|note| context.output.note(&printable(note)))
    }

    fn json(&self) -> String {
        let Self { matched, replayed, skipped, execution_ids, single } = self;
        let all = || json!({"matched": matched, "replayed": replayed, "skipped": skipped, "execution_ids": execution_ids});
        single.clone().unwrap_or_else(|| all().to_string())
    }
}
