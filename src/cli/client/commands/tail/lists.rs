//! The events before a stream, or while there was none: read from the lists of runs and alerts.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::cli::client::commands::tail::event::TailEvent;
use crate::cli::client::commands::tail::run_events::{events_of, has_earlier_attempts, has_ended};
use crate::cli::client::commands::tail::seen::OpenRuns;
use crate::cli::client::commands::tail::selection::Selection;
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::client::request::{ApiRequest, segment};

/// Pages of 100 that are read of a list.
const MAX_PAGES: u64 = 10;
const PAGE: u64 = 100;

/// Runs whose attempts are read one by one, and runs under way that are looked up: each is a request.
const MAX_SINGLE_READS: usize = 100;

/// The lists of an account, or of one of its cues.
pub struct Lists<'a> {
    pub context: &'a Context,
    pub cue_id: Option<&'a str>,
    pub selection: &'a Selection,
}

/// The events that lists tell.
#[derive(Debug, Default)]
pub struct Told {
    /// Oldest first.
    pub events: Vec<TailEvent>,
    /// There was more than the lists were read for.
    pub is_cut: bool,
}

impl Lists<'_> {
    /// Records the runs that are under way.
    ///
    /// # Errors
    /// If the list cannot be read.
    pub fn find_open(&self, open: &mut OpenRuns) -> Result<(), CliError> {
        if !self.selection.has_runs() {
            return Ok(());
        }
        let request = self.list("/v1/executions").query("status__in", "pending,delivering,retrying");
        self.pages(&request, "executions", |run| {
            open.add(&text_of(run, "id"));
            Ok(())
        })?;
        Ok(())
    }

    /// The events at `floor` or later to the runs created at `created` or later, and to those of `open`.
    ///
    /// # Errors
    /// If a list cannot be read.
    pub fn since(&self, floor: Timestamp, created: Timestamp, open: &mut OpenRuns) -> Result<Told, CliError> {
        let mut told = Told::default();
        if self.selection.has_runs() {
            self.runs_since(floor, created, open, &mut told)?;
        }
        if self.selection.has_alerts() {
            let request = self.list("/v1/alerts").query("since", floor.to_string());
            let is_whole = self.pages(&request, "alerts", |alert| {
                told.events.push(TailEvent::listed("alert.created", alert.clone()));
                Ok(())
            })?;
            told.is_cut |= !is_whole;
        }
        told.events.retain(|event| event.at().is_some_and(|at| at >= floor) && self.selection.admits(event));
        told.events.sort_by_key(TailEvent::at);
        Ok(told)
    }

    fn runs_since(
        &self,
        floor: Timestamp,
        created: Timestamp,
        open: &mut OpenRuns,
        told: &mut Told,
    ) -> Result<(), CliError> {
        let mut reads = 0;
        let mut listed = BTreeSet::new();
        let mut oldest = None;
        let request = self.list("/v1/executions").query("since", created.to_string());
        let is_whole = self.pages(&request, "executions", |run| {
            oldest = run["created_at"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
            // Pages shift while runs are created.
            if listed.insert(text_of(run, "id")) {
                self.tell(run, open, &mut reads, told)?;
            }
            Ok(())
        })?;
        told.is_cut |= !is_whole && oldest.is_none_or(|oldest| oldest >= floor);
        let others: Vec<String> = open.ids().into_iter().filter(|id| !listed.contains(id)).collect();
        // The newest ones first: their ends are the most likely.
        for id in others.iter().rev() {
            if reads >= MAX_SINGLE_READS {
                told.is_cut = true;
                break;
            }
            reads += 1;
            match self.context.look_up(&ApiRequest::get(format!("/v1/executions/{}", segment(id)))) {
                Ok(answer) => self.tell(&answer.value()?, open, &mut reads, told)?,
                Err(error) if error.exit_code() == 3 => open.remove(id),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn tell(
        &self,
        run: &Value,
        open: &mut OpenRuns,
        reads: &mut usize,
        told: &mut Told,
    ) -> Result<(), CliError> {
        let id = text_of(run, "id");
        if has_ended(run) {
            open.remove(&id)
        } else {
            open.add(&id)
        }
        let attempts = if has_earlier_attempts(run) && *reads < MAX_SINGLE_READS {
            *reads += 1;
            self.attempts(&id)?
        } else {
            told.is_cut |= has_earlier_attempts(run);
            None
        };
        told.events.extend(events_of(run, attempts.as_ref()));
        Ok(())
    }

    /// The attempts of a run; `None` if it was deleted.
    ///
    /// # Errors
    /// If the list cannot be read.
    pub fn attempts(&self, id: &str) -> Result<Option<Value>, CliError> {
        let request = ApiRequest::get(format!("/v1/executions/{}/attempts", segment(id)));
        match self.context.look_up(&request) {
            Ok(answer) => Ok(Some(answer.value()?)),
            Err(error) if error.exit_code() == 3 => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn list(&self, path: &str) -> ApiRequest {
        ApiRequest::get(path).maybe_query("cue_id", self.cue_id).query("limit", PAGE.to_string())
    }

    /// Hands out the items of a list, newest first. Returns whether these were all.
    fn pages(
        &self,
        request: &ApiRequest,
        key: &str,
        mut item: impl FnMut(&Value) -> Result<(), CliError>,
    ) -> Result<bool, CliError> {
        for page in 0..MAX_PAGES {
            let request = request.clone().query("offset", (page * PAGE).to_string());
            let answer = self.context.look_up(&request)?.value()?;
            for value in answer[key].as_array().into_iter().flatten() {
                item(value)?;
            }
            if answer["has_more"] != Value::Bool(true) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// An instant some time before another; the earliest of the calendar if there is none.
#[must_use]
pub fn before(at: Timestamp, span: SignedDuration) -> Timestamp {
    at.checked_sub(span).unwrap_or(Timestamp::UNIX_EPOCH)
}
