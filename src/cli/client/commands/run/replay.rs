//! `cued run replay`: runs by their ids, or all failed ones of a selection.

use clap::Args;
use serde_json::{Value, json};

use crate::cli::client::arguments::cue_name::find_maybe_id;
use crate::cli::client::arguments::moment::{Moment, resolve_maybe};
use crate::cli::client::arguments::run_id::find_run;
use crate::cli::client::commands::run::replay_parts::{Part, Selection, replay_step};
use crate::cli::client::commands::run::replay_result::ReplayResult;
use crate::cli::client::context::Context;
use crate::cli::client::interrupt::Interrupt;
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::cli::output::format::Format;
use crate::cli::output::print::{print, print_line};
use crate::cli::output::yaml;
use crate::cli::printable::printable;
use crate::cli::progress::Bar;
use crate::client::request::ApiRequest;

/// Most ids that the server takes at a time.
const MAX_IDS: usize = 500;

#[derive(Debug, Args)]
pub struct Replay {
    /// Ids of runs, or at least 8 characters of the beginning of each
    #[arg(value_name = "RUN", required_unless_present = "failed", conflicts_with = "failed")]
    runs: Vec<String>,
    /// Replay all failed runs that match the other flags, oldest first; cancelled ones are left out
    #[arg(long)]
    failed: bool,
    /// Only of this cue: its id or its name
    #[arg(long, value_name = "CUE", requires = "failed")]
    cue: Option<String>,
    /// Only created since then: a duration before now (1h), a date or an instant
    #[arg(long, value_name = "TIME", value_parser = Moment::parse, requires = "failed")]
    since: Option<Moment>,
    /// Only created before then
    #[arg(long, value_name = "TIME", value_parser = Moment::parse, requires = "failed")]
    until: Option<Moment>,
    /// Only with this cause of the failure, such as timeout or status_5xx
    #[arg(long, value_name = "CAUSE", requires = "failed")]
    cause: Option<String>,
    /// Only count the runs that would be replayed
    #[arg(long, requires = "failed")]
    dry_run: bool,
}

/// One request of a replay.
struct Step {
    body: Value,
    runs: u64,
}

impl Replay {
    pub fn run(self, context: &Context) -> Result<(), CliError> {
        match self.runs.as_slice() {
            [] => self.replay_failed(context),
            [run] => replay_one(context, run),
            runs => replay_several(context, runs),
        }
    }

    fn replay_failed(self, context: &Context) -> Result<(), CliError> {
        let selection = Selection {
            cue_id: find_maybe_id(context, self.cue.as_deref())?,
            cause: self.cause,
            since: resolve_maybe(context, self.since)?,
            until: resolve_maybe(context, self.until)?,
        };
        let parts = selection.parts(context)?;
        let runs: u64 = parts.iter().map(|part| part.runs).sum();
        if self.dry_run {
            return print_count(context, runs);
        }
        if runs == 0 && !context.is_curl() {
            return ReplayResult::default().print(context);
        }
        context.confirm(&format!("Replay {}?", counted(runs)))?;
        let steps = parts.iter().map(|part| Step { body: part.body(&selection), runs: part.runs });
        let rest = |done: usize| match parts.get(done) {
            Some(Part { since, .. }) => {
                let last = parts.last().and_then(|part| part.until);
                format!("To replay the rest: {}", selection.command(*since, last))
            }
            None => String::new(),
        };
        replay_steps(context, steps.collect(), rest)
    }
}

/// A single run: the server says why it refuses.
fn replay_one(context: &Context, run: &str) -> Result<(), CliError> {
    let id = find_run(context, run)?;
    let answer = context.send(&ApiRequest::post(format!("/v1/executions/{id}/replay")))?;
    context
        .output
        .done(&answer, "id", |new| format!("replayed run {id} as {}", printable(&text_of(new, "id"))))
}

fn replay_several(context: &Context, runs: &[String]) -> Result<(), CliError> {
    let ids: Vec<String> = runs.iter().map(|run| find_run(context, run)).collect::<Result<_, _>>()?;
    let steps = ids.chunks(MAX_IDS).map(|ids| Step { body: json!({"ids": ids}), runs: ids.len() as u64 });
    let rest = |done: usize| {
        let left = ids.len().saturating_sub(done * MAX_IDS);
        format!("The last {left} of the given ids are left")
    };
    replay_steps(context, steps.collect(), rest)
}

/// Makes the requests one after another. Each is complete, so an end between two of them leaves nothing half done. `rest`
/// says what to do about those after a number of steps.
fn replay_steps(context: &Context, steps: Vec<Step>, rest: impl Fn(usize) -> String) -> Result<(), CliError> {
    let interrupt = Interrupt::listen()?;
    let all: u64 = steps.iter().map(|step| step.runs).sum();
    let (mut bar, mut result) = (Bar::new("replay"), ReplayResult::default());
    let (count, mut done) = (steps.len(), 0);
    for (index, step) in steps.into_iter().enumerate() {
        bar.show(done, all, &format!("{done} of {}", counted(all)));
        let failed = match replay_step(context, &step.body) {
            Ok(answer) => {
                done += step.runs;
                result.add(&answer)?;
                let is_stopped = interrupt.is_requested() && index + 1 < count;
                is_stopped.then(|| CliError::Interrupted(stopped("interrupted", done, all, &rest(index + 1))))
            }
            Err(error) if index == 0 => Some(error),
            Err(error) => {
                bar.end();
                context.output.note(&stopped("stopped", done, all, &rest(index)))?;
                Some(error)
            }
        };
        if let Some(error) = failed {
            bar.end();
            if done > 0 {
                result.print_done(context)?;
            }
            return Err(error);
        }
    }
    bar.end();
    result.print(context)
}

fn stopped(how: &str, done: u64, all: u64, rest: &str) -> String {
    format!("{how} after {done} of {}. {rest}", counted(all))
}

fn counted(runs: u64) -> String {
    format!("{runs} failed run{}", if runs == 1 { "" } else { "s" })
}

fn print_count(context: &Context, runs: u64) -> Result<(), CliError> {
    let json = json!({"matched": runs}).to_string();
    match context.output.format {
        Format::Json | Format::Jsonl => print_line(&json),
        Format::Yaml => print(&yaml::document(&json)?),
        // Nothing is created.
        Format::Id => Ok(()),
        Format::Table | Format::Wide => print_line(&format!("would replay {}", counted(runs))),
    }
}
