//! The result of a replay of several runs: one answer of the server, or several as one.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::cli::output::format::Format;
use crate::cli::output::print::{print, print_line};
use crate::cli::output::yaml;
use crate::cli::printable::printable;
use crate::client::request::Answer;

/// Skipped runs that are named; all of them are in the JSON.
const MAX_NAMED: usize = 20;

#[derive(Debug, Default)]
pub struct ReplayResult {
    matched: u64,
    replayed: u64,
    skipped: Vec<Value>,
    execution_ids: Vec<Value>,
    answers: usize,
    /// The only answer, unchanged.
    single: Option<String>,
}

impl ReplayResult {
    /// Adds an answer.
    /// Errors: if it is no JSON.
    pub fn add(&mut self, answer: &Answer) -> Result<(), CliError> {
        let mut value = answer.value()?;
        self.matched += value["matched"].as_u64().unwrap_or(0);
        self.replayed += value["replayed"].as_u64().unwrap_or(0);
        for (field, all) in [("skipped", &mut self.skipped), ("execution_ids", &mut self.execution_ids)] {
            if let Value::Array(items) = value[field].take() {
                all.extend(items);
            }
        }
        self.answers += 1;
        self.single = (self.answers == 1).then(|| answer.text());
        Ok(())
    }

    /// Prints what was done, and fails if runs were skipped.
    /// Errors: if runs were skipped, or standard output cannot be written.
    pub fn print(self, context: &Context) -> Result<(), CliError> {
        self.print_done(context)?;
        match self.skipped.as_slice() {
            [] => Ok(()),
            skipped if self.replayed == 0 && skipped.iter().all(|it| it["code"] == "execution_not_found") => {
                Err(CliError::NotFound("no such run; nothing was replayed".to_owned()))
            }
            skipped => {
                Err(CliError::Refused(format!("{} of {} were not replayed", skipped.len(), self.matched)))
            }
        }
    }

    /// Prints what was done.
    /// Errors: if standard output cannot be written.
    pub fn print_done(&self, context: &Context) -> Result<(), CliError> {
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
        let runs = if self.matched == 1 { "run" } else { "runs" };
        print_line(&format!("replayed {} of {} {runs}", self.replayed, self.matched))?;
        let mut codes = BTreeMap::<String, usize>::new();
        for skipped in &self.skipped {
            *codes.entry(text_of(skipped, "code")).or_default() += 1;
        }
        for (code, count) in codes {
            context.output.note(&format!("skipped {count}: {}", printable(&code)))?;
        }
        for skipped in self.skipped.iter().take(MAX_NAMED) {
            let line = format!("  {}  {}", text_of(skipped, "id"), text_of(skipped, "code"));
            context.output.note(&printable(&line))?;
        }
        match self.skipped.len().saturating_sub(MAX_NAMED) {
            0 => Ok(()),
            more => context.output.note(&format!("  and {more} more; --json names them all")),
        }
    }

    fn json(&self) -> String {
        match &self.single {
            Some(single) => single.clone(),
            None => json!({
                "matched": self.matched,
                "replayed": self.replayed,
                "skipped": self.skipped,
                "execution_ids": self.execution_ids,
            })
            .to_string(),
        }
    }
}
