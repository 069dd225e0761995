//! `cued apply`, `cued diff` and `cued export`: cues in a file under version control.

mod channels;
mod environment;
pub mod export;
mod faults;
mod fields;
mod file;
mod limits;
mod parallel;
mod plan;
mod refusal;
mod show;

use clap::{Arg, ArgAction};
use serde_json::Value;

use crate::cli::client::command::{Call, Entry, Part, Work, entry, flag, own, switch};
use crate::cli::client::commands::apply::export::{arguments, export};
use crate::cli::client::commands::apply::file::{Wanted, WantedCue};
use crate::cli::client::commands::apply::limits::room;
use crate::cli::client::commands::apply::parallel::each;
use crate::cli::client::commands::apply::plan::{Action, Change, Plan, change_of, compare, put};
use crate::cli::client::commands::apply::refusal::{Refusals, is_of_one};
use crate::cli::client::commands::apply::show::{print_changes, print_plan};
use crate::cli::client::context::Context;
use crate::cli::error::{CliError, usage};
use crate::cli::output::table::text_of;
use crate::cli::output::{count, print_line};
use crate::client::request::{ApiRequest, ClientError, segment};

const APPLY: &str = "\
Create and change cues as files say

Compares the cues and channels of the files with those of the server, prints what differs, and writes it. A cue is found by its \
slug: the namespace of the file and its key. A second run changes nothing. A cue that was made by hand, or from a file with another \
namespace, is changed with --adopt only.

A file has `namespace`, `defaults`, `cues` and `channels`. A cue has the fields of the API, or short forms: schedule (text), url, \
method, headers, timeout, worker, task, timezone, catch_up, start, end, paused. ${VAR} is a variable of the environment. `cued \
export` writes such a file.";

const DIFF: &str = "\
Show what `cued apply` would change

Nothing is written. Values of headers and secrets are not shown.";

const EXPORT: &str = "\
Print cues as a file for `cued apply`

Without a flag these are the cues that have a slug. `cued export --all | cued apply -f -` changes nothing.";

pub fn entries() -> Vec<Entry> {
    let keep_going = switch("keep-going", "Write the rest after a refusal");
    let exit_code = switch("exit-code", "Exit with 8 if anything differs");
    vec![
        entry("apply", APPLY, files().chain([own(keep_going)]), Work::Code(apply)),
        entry("diff", DIFF, files().chain([own(exit_code)]), Work::Code(diff)),
        entry("export", EXPORT, arguments(), Work::Code(export)),
    ]
}

fn files() -> impl Iterator<Item = (Arg, Part)> {
    let file = flag(
        "file",
        "FILE",
        "File of cues in YAML or JSON, a folder of such, - for standard input; repeat it for several",
    );
    let prune = "Delete cues of the namespaces of the files that are in none of them";
    let adopt = "Take over cues that were made by hand, or from a file with another namespace";
    let file = file.short('f').action(ArgAction::Append).required(true);
    [file, switch("prune", prune), switch("adopt", adopt)].into_iter().map(own)
}

/// The files of the command, and whether cues that they do not have are deleted.
fn read(call: &Call<'_>) -> Result<(Wanted, bool), CliError> {
    let context = call.context;
    let now = context.client.clock().now();
    let wanted = file::read(&call.texts("file"), now, call.is_set("keep-going"))?;
    let prunes = call.is_set("prune");
    if let Some(file) = wanted.without_namespace.as_ref().filter(|_| prunes) {
        return Err(usage(format!(
            "--prune: {file} has no namespace, so every cue of the account would count as removed from it; add \
             `namespace: NAME`, or delete cues with `cued cue rm`"
        )));
    }
    Ok((wanted, prunes))
}

fn diff(call: &Call<'_>) -> Result<(), CliError> {
    let context = call.context;
    let (wanted, prunes) = read(call)?;
    let adopts = call.is_set("adopt");
    show_requests(context, &wanted, true, adopts)?;
    let mut plan = compare(context, &wanted, prunes, adopts)?;
    std::mem::take(&mut plan.refusals).check("")?;
    if context.output.format.is_for_programs() {
        print_changes(context, &plan)?
    } else {
        print_plan(context, &plan)?
    }
    let room = room(context, &plan)?;
    if let Some(excess) = room.excess {
        context.output.note(&format!("{excess}: pause or delete some, or {}", room.remedy))?;
    }
    if call.is_set("exit-code") && plan.differs() {
        let changed = plan.all().count() - plan.count(Action::Unchanged);
        return Err(CliError::Differs(count(changed as i128, "difference")));
    }
    Ok(())
}

fn apply(call: &Call<'_>) -> Result<(), CliError> {
    let (context, keeps_going) = (call.context, call.is_set("keep-going"));
    let (wanted, prunes) = read(call)?;
    let adopts = call.is_set("adopt");
    show_requests(context, &wanted, false, adopts)?;
    let mut plan = compare(context, &wanted, prunes, adopts)?;
    if !keeps_going {
        std::mem::take(&mut plan.refusals).check("nothing was written")?;
    }
    let room = room(context, &plan)?;
    match &room.excess {
        Some(_) if keeps_going => room.leave_out(&mut plan, &wanted),
        Some(excess) => {
            let remedy = room.remedy;
            let text = format!("{excess}: pause or delete some, or {remedy}; nothing was written");
            return Err(CliError::CueLimit(text));
        }
        None => {}
    }
    let is_for_programs = context.output.format.is_for_programs();
    if !is_for_programs {
        print_plan(context, &plan)?;
    }
    confirm_deletion(context, &plan)?;
    let has_changes = plan.differs();
    let refusals = std::mem::take(&mut plan.refusals);
    let mut writer =
        Writer { context, wanted: &wanted, keeps_going, adopts, refusals, done: Plan::default() };
    let end = writer.write(plan, room.prunes_first);
    let (done, refusals) = (writer.done, writer.refusals);
    let written = match done.all().count() - done.count(Action::Unchanged) {
        0 => "nothing was written".to_owned(),
        1 => "1 change was written".to_owned(),
        several => format!("{several} changes were written"),
    };
    match is_for_programs {
        true => print_changes(context, &done)?,
        false if end.is_err() => context.output.note(&format!("{written}; run it again"))?,
        false if has_changes && done.all().next().is_some() => print_line(&summary(&done))?,
        false => {}
    }
    end?;
    let remedy =
        if room.excess.is_some() { format!("; for more, {}", room.remedy) } else { String::new() };
    refusals.check(&format!("{written}{remedy}"))
}

/// With `--curl` the requests for cues, which are not made.
fn show_requests(
    context: &Context,
    wanted: &Wanted,
    is_dry: bool,
    adopts: bool,
) -> Result<(), CliError> {
    if !context.is_curl() {
        return Ok(());
    }
    for cue in &wanted.cues {
        print_line(&put(cue, is_dry, adopts).curl(context.client.connection()))?;
    }
    Err(CliError::OnlyShown)
}

fn confirm_deletion(context: &Context, plan: &Plan) -> Result<(), CliError> {
    if plan.pruned.is_empty() || !context.asks() {
        return Ok(());
    }
    if context.output.format.is_for_programs() {
        for change in &plan.pruned {
            context.output.note(&format!("- {}", change.key))?;
        }
    }
    let whose = if plan.pruned.len() == 1 { "its" } else { "their" };
    context
        .confirm(&format!("Delete {} and {whose} runs?", count(plan.pruned.len() as i128, "cue")))
}

/// `1 created, 2 updated, 12 unchanged, 1 deleted`
fn summary(plan: &Plan) -> String {
    let actions = [Action::Created, Action::Updated, Action::Deleted, Action::Unchanged];
    let parts = actions.map(|action| (plan.count(action), action.word()));
    let parts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    format!("Done: {}.", parts.join(", "))
}

struct Writer<'a> {
    context: &'a Context,
    wanted: &'a Wanted,
    keeps_going: bool,
    adopts: bool,
    refusals: Refusals,
    /// What was written, and what did not have to be.
    done: Plan,
}

impl Writer<'_> {
    /// Writes a plan.
    /// Errors: what is not about one object alone. What was done before it is known all the same.
    fn write(&mut self, plan: Plan, prunes_first: bool) -> Result<(), CliError> {
        self.write_channels(plan.channels)?;
        let (pruned_first, pruned_last) =
            if prunes_first { (plan.pruned, Vec::new()) } else { (Vec::new(), plan.pruned) };
        self.prune(pruned_first)?;
        // A cue that is taken over is marked as one of the file, even if nothing else changes.
        let is_written = |change: &Change| self.adopts || change.action != Action::Unchanged;
        let (changed, unchanged): (Vec<_>, Vec<_>) =
            plan.cues.into_iter().partition(|(_, change)| is_written(change));
        self.done.cues.extend(unchanged);
        // What makes room comes before what needs it.
        let (freeing, others) =
            changed.into_iter().partition(|(_, change)| change.more_active <= 0);
        let end = self.write_cues(freeing).and_then(|()| self.write_cues(others));
        self.done.cues.sort_by_key(|(index, _)| *index);
        end.and_then(|()| self.prune(pruned_last))
    }

    /// After a refusal nothing more is written, unless the command says otherwise.
    fn has_stopped(&self) -> bool {
        !self.keeps_going && !self.refusals.is_empty()
    }

    fn write_channels(&mut self, channels: Vec<(usize, Change)>) -> Result<(), CliError> {
        for (index, mut change) in channels {
            if self.has_stopped() {
                return Ok(());
            }
            let channel = &self.wanted.channels[index];
            let body = channel.body.to_value();
            let request = match (change.action, &change.id) {
                (Action::Created, _) => ApiRequest::post("/v1/channels").json(body).idempotent(),
                (Action::Updated, Some(id)) => {
                    ApiRequest::patch(format!("/v1/channels/{}", segment(id))).json(body)
                }
                _ => {
                    self.done.channels.push((index, change));
                    continue;
                }
            };
            match self.context.client.send(&request) {
                Ok(answer) => {
                    change.id = Some(text_of(&answer.value()?, "id"));
                    self.done.channels.push((index, change));
                }
                Err(error) => {
                    self.refusals.add(error, &channel.at, &channel.body, &self.wanted.short)?;
                }
            }
        }
        Ok(())
    }

    fn write_cues(&mut self, changed: Vec<(usize, Change)>) -> Result<(), CliError> {
        if self.has_stopped() {
            return Ok(());
        }
        let (client, wanted, adopts) = (&*self.context.client, self.wanted, self.adopts);
        let keeps_going = self.keeps_going;
        let goes_on = |result: &Result<Value, ClientError>| {
            result.as_ref().err().is_none_or(|error| keeps_going && is_of_one(error))
        };
        let write = |(index, _): &(usize, Change)| -> Result<Value, ClientError> {
            client.send(&put(&wanted.cues[*index], false, adopts))?.value()
        };
        let results = each(&changed, write, goes_on);
        let mut end = Ok(());
        for ((index, planned), result) in changed.into_iter().zip(results) {
            let cue: &WantedCue = &wanted.cues[index];
            match result {
                Some(Ok(answer)) => {
                    let change = Change { fields: planned.fields, ..change_of(cue, &answer) };
                    self.done.cues.push((index, change));
                }
                Some(Err(error)) => {
                    let refused = self.refusals.add(error, &cue.at, &cue.body, &self.wanted.short);
                    end = end.and(refused);
                }
                None => {}
            }
        }
        end
    }

    fn prune(&mut self, pruned: Vec<Change>) -> Result<(), CliError> {
        if self.has_stopped() {
            return Ok(());
        }
        let client = &*self.context.client;
        let delete = |change: &Change| {
            // By its slug: a cue that has left the namespace meanwhile stays.
            let path = format!("/v1/cues/{}", segment(&format!("slug:{}", change.slug)));
            client.send(&ApiRequest::delete(path)).map(drop)
        };
        let results = each(&pruned, delete, |_| true);
        let mut end = Ok(());
        for (change, result) in pruned.into_iter().zip(results) {
            match result {
                Some(Err(error)) if error.status() != Some(404) => end = end.and(Err(error.into())),
                _ => self.done.pruned.push(change),
            }
        }
        end
    }
}
