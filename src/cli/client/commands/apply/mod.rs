//! `cued apply`, `cued diff` and `cued export`: cues in a file under version control.

mod channels;
mod environment;
pub mod export;
mod faults;
mod fields;
mod file;
mod parallel;
mod plan;
mod refusal;
mod show;

use clap::{Arg, ArgAction};

use crate::cli::client::command::{Call, Entry, Part, flag, own, row, switch};
use crate::cli::client::commands::apply::export::{arguments, export};
use crate::cli::client::commands::apply::file::Wanted;
use crate::cli::client::commands::apply::plan::{Action, Batch, Change, batches, count};
use crate::cli::client::commands::apply::refusal::{Refusals, check_batch, has_errors};
use crate::cli::client::commands::apply::show::{print_changes, print_plan};
use crate::cli::client::context::Context;
use crate::cli::error::{CliError, usage};
use crate::cli::output::{self, print_line};
use crate::client::request::ClientError;

const APPLY: &str = "\
Create and update cues from files

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
    let keep_going = switch("keep-going", "Continue after a refused cue");
    let exit_code = switch("exit-code", "Exit with 8 if anything differs");
    vec![
        row("apply", APPLY).args(files().chain([own(keep_going)])).code(apply),
        row("diff", DIFF).args(files().chain([own(exit_code)])).code(diff),
        row("export", EXPORT).args(arguments()).code(export),
    ]
}

fn files() -> impl Iterator<Item = (Arg, Part)> {
    let file = flag(
        "file",
        "FILE",
        "File of cues in YAML or JSON, a folder of such, - for standard input; repeat it for several",
    );
    let prune = "Delete cues in the namespaces of the files that are in none of the files";
    let adopt = "Take over cues that were made by hand, or from a file with another namespace";
    let file = file.short('f').action(ArgAction::Append).required(true);
    [file, switch("prune", prune), switch("adopt", adopt)].into_iter().map(own)
}

/// The files of the command, and whether cues that they do not have are deleted.
/// Errors: all faults of all files.
fn read(call: &Call<'_>) -> Result<(Wanted, bool), CliError> {
    let now = call.context.client.clock().now();
    let (wanted, mut faults) = file::read(&call.texts("file"), now)?;
    // What the server would find in them alone is found here, unless the rest is sent all the same.
    if !call.is_set("keep-going") || faults.count() > 0 {
        for mut batch in batches(&wanted, false) {
            batch.objects.retain(|object| object.is_valid);
            check_batch(&batch, &wanted, &mut faults);
        }
    }
    faults.check()?;
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
    let (wanted, prunes) = read(call)?;
    let (mut run, mut batches) = (Run::new(call, &wanted), batches(&wanted, prunes));
    run.show_requests(&batches, true)?;
    let mut plan = Vec::new();
    run.send_all(&mut batches, true, &mut plan)?;
    run.refusals.check("")?;
    print_all(run.context, &plan)?;
    let changed = plan.len() - count(&plan, Action::Unchanged);
    if call.is_set("exit-code") && changed > 0 {
        return Err(CliError::Differs(output::count(changed as i128, "difference")));
    }
    Ok(())
}

fn apply(call: &Call<'_>) -> Result<(), CliError> {
    let (wanted, prunes) = read(call)?;
    let (mut run, mut batches) = (Run::new(call, &wanted), batches(&wanted, prunes));
    run.show_requests(&batches, false)?;
    let (context, mut is_shown) = (run.context, false);
    let is_for_programs = context.output.format.is_for_programs();
    // A single request is all or nothing. Of several, none is made if the server would refuse something in another one.
    if batches.len() > 1 || (prunes && context.asks()) {
        let (mut plan, mut is_known) = (Vec::new(), true);
        for (number, batch) in batches.iter_mut().enumerate() {
            // What a request deletes makes room for those after it.
            let changes = run.send(batch, true, number == 0)?;
            is_known &= changes.is_some();
            plan.extend(changes.into_iter().flatten());
        }
        let must_ask = prunes && context.asks() && !is_known;
        if !run.keeps_going || must_ask {
            std::mem::take(&mut run.refusals).check("nothing was written")?;
        }
        if must_ask {
            let reason = "the cues that it deletes cannot be listed, because the plan has no room for others before";
            return Err(usage(format!(
                "--prune: {reason}; add -y to delete them without a question"
            )));
        }
        is_shown = confirm_deletion(context, &plan)?;
    }
    let mut done = Vec::new();
    let end = run.send_all(&mut batches, false, &mut done);
    let changed = done.len() - count(&done, Action::Unchanged);
    let written = match changed {
        0 => "nothing was written".to_owned(),
        1 => "1 change was written".to_owned(),
        several => format!("{several} changes were written"),
    };
    let has_failed = end.is_err() || !run.refusals.is_empty();
    if (is_for_programs || !is_shown) && !(has_failed && done.is_empty()) {
        print_all(context, &done)?;
    }
    if !is_for_programs && changed > 0 {
        if end.is_err() {
            context.output.note(&format!("{written}; run it again"))?;
        } else {
            print_line(&summary(&done))?;
        }
    }
    if end.is_err() && !run.refusals.is_empty() {
        context.output.note(&run.refusals.text(""))?;
    }
    end?;
    run.refusals.check(&written)
}

fn print_all(context: &Context, changes: &[Change]) -> Result<(), CliError> {
    if context.output.format.is_for_programs() {
        print_changes(context, changes)
    } else {
        print_plan(context, changes)
    }
}

/// Shows a plan that deletes cues, and asks. Returns whether it was shown.
fn confirm_deletion(context: &Context, plan: &[Change]) -> Result<bool, CliError> {
    let deleted = plan.iter().filter(|change| change.action == Action::Deleted);
    let count = deleted.clone().count();
    if count == 0 || !context.asks() {
        return Ok(false);
    }
    if context.output.format.is_for_programs() {
        for change in deleted {
            context.output.note(&format!("- {}", change.key))?;
        }
    } else {
        print_plan(context, plan)?;
    }
    let whose = if count == 1 { "its" } else { "their" };
    let question = format!("Delete {} and {whose} runs?", output::count(count as i128, "cue"));
    context.confirm(&question).map(|()| true)
}

/// `1 created, 2 updated, 12 unchanged, 1 deleted`
fn summary(done: &[Change]) -> String {
    let actions = [Action::Created, Action::Updated, Action::Deleted, Action::Unchanged];
    let counts = actions.map(|action| (count(done, action), action.word()));
    let parts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    format!("Done: {}.", parts.join(", "))
}

struct Run<'a> {
    context: &'a Context,
    wanted: &'a Wanted,
    keeps_going: bool,
    adopts: bool,
    refusals: Refusals,
}

impl<'a> Run<'a> {
    fn new(call: &Call<'a>, wanted: &'a Wanted) -> Self {
        let (keeps_going, adopts) = (call.is_set("keep-going"), call.is_set("adopt"));
        Self { context: call.context, wanted, keeps_going, adopts, refusals: Refusals::default() }
    }

    /// With `--curl` the requests, which are not made. Errors: no key, which only those that are made need.
    fn show_requests(&self, batches: &[Batch<'_>], is_dry: bool) -> Result<(), CliError> {
        if !self.context.is_curl() {
            return self.context.check_key();
        }
        for batch in batches {
            let request = batch.request(is_dry, self.adopts);
            print_line(&request.curl(self.context.client.connection()))?;
        }
        Err(CliError::OnlyShown)
    }

    /// Makes the requests, and adds what they change. After a refusal nothing more is written, unless the command says
    /// otherwise; a dry run finds all refusals.
    fn send_all(
        &mut self,
        batches: &mut [Batch<'_>],
        is_dry: bool,
        changes: &mut Vec<Change>,
    ) -> Result<(), CliError> {
        for batch in batches {
            changes.extend(self.send(batch, is_dry, true)?.into_iter().flatten());
            if !is_dry && !self.keeps_going && !self.refusals.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Makes a request, and again without what is refused if the rest is wanted. `None` for one that is refused, which
    /// changes nothing.
    fn send(
        &mut self,
        batch: &mut Batch<'_>,
        is_dry: bool,
        counts_limits: bool,
    ) -> Result<Option<Vec<Change>>, CliError> {
        loop {
            // So that a request without an answer can be repeated.
            let request = batch.request(is_dry, self.adopts).idempotent();
            match self.context.client.send(&request) {
                Ok(answer) => return Ok(Some(batch.changes(answer.read()?))),
                Err(ClientError::Refused(refused)) if has_errors(&refused, true) => {
                    if !has_errors(&refused, counts_limits) {
                        return Ok(None);
                    }
                    let has_more = self.refusals.add(refused, batch, self.wanted, counts_limits);
                    if !self.keeps_going || !has_more {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
