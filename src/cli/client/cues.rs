//! Cues on the command line: the one that an argument names, and the words for one.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::cli::client::arguments::fetch;
use crate::cli::client::context::Context;
use crate::cli::error::{CliError, not_found, refused, usage};
use crate::cli::nearest::did_you_mean;
use crate::cli::output::SHORT_ID;
use crate::cli::output::table::{Cell, ColumnRule, Styles, Table, relative, text_of};
use crate::cli::printable::printable;
use crate::client::request::{ApiRequest, segment};
use crate::domain::cue::list::MAX_SEARCH;
use crate::domain::ids::CueId;

const MAX_SHOWN: usize = 10;

/// The newest names that a mistyped one is compared to.
const MAX_COMPARED: u64 = 300;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundCue {
    pub id: String,
    /// `None` if the command names the id.
    pub name: Option<String>,
}

impl FoundCue {
    pub fn of(cue: &Value) -> Self {
        Self { id: text_of(cue, "id"), name: Some(text_of(cue, "name")) }
    }

    pub fn path(&self) -> String {
        format!("/v1/cues/{}", segment(&self.id))
    }

    pub fn label(&self) -> String {
        label(&self.id, self.name.as_deref().unwrap_or_default())
    }
}

/// A cue in a sentence: `nightly (cue_1)`.
fn label(id: &str, name: &str) -> String {
    if name.is_empty() { id.to_owned() } else { format!("{} ({id})", printable(name)) }
}

pub fn label_of(cue: &Value) -> String {
    label(&text_of(cue, "id"), &text_of(cue, "name"))
}

pub fn find_maybe_id(context: &Context, text: Option<&str>) -> Result<Option<String>, CliError> {
    text.map(|text| Ok(find(context, text)?.id)).transpose()
}

/// The text before a slug in place of the id of a cue, as in paths.
const BY_SLUG: &str = "slug:";

/// Finds a cue by its id, its slug, its name, or a unique beginning of its id. A text in the form of an id is one, without a
/// request.
pub fn find(context: &Context, text: &str) -> Result<FoundCue, CliError> {
    if CueId::parse(text).is_some() {
        return Ok(FoundCue { id: text.to_owned(), name: None });
    }
    if text.is_empty() {
        return Err(usage("the name of a cue is empty"));
    }
    if let Some(slug) = text.strip_prefix(BY_SLUG) {
        return match with_slug(context, slug)?.as_slice() {
            [cue, ..] => Ok(FoundCue::of(cue)),
            [] => Err(unknown_slug(context, slug)),
        };
    }
    let mut cues = named(context, text)?;
    let mut what = "the name";
    let chars = text.strip_prefix(CueId::PREFIX).unwrap_or(text);
    if cues.is_empty()
        && chars.len() >= SHORT_ID
        && chars.bytes().all(|byte| byte.is_ascii_alphanumeric())
    {
        let beginning = format!("{}{}", CueId::PREFIX, chars.to_ascii_lowercase());
        cues = search(context, &beginning)?;
        cues.retain(|cue| text_of(cue, "id").starts_with(&beginning));
        what = "an id that begins with";
    }
    match cues.as_slice() {
        [] => Err(unknown(context, text)),
        [cue] => Ok(FoundCue::of(cue)),
        several => Err(ambiguous(context, what, text, several)),
    }
}

/// The cue of this slug, or none.
pub fn with_slug(context: &Context, slug: &str) -> Result<Vec<Value>, CliError> {
    let request = ApiRequest::get("/v1/cues").query("slug", slug).query("runs", "0");
    fetch(|page| context.fetch(page), &request, "cues", 1).map(|cues| cues.items)
}

fn unknown_slug(context: &Context, slug: &str) -> CliError {
    let names = newest(context, "slug");
    let slug = printable(slug);
    let advice =
        did_you_mean(&slug, names.iter().map(String::as_str), "`cued cue list -o wide` shows them");
    not_found(format!("no cue has the slug {slug:?}; {advice}"))
}

/// The cues of exactly this name, newest first.
pub fn named(context: &Context, name: &str) -> Result<Vec<Value>, CliError> {
    let mut cues = search(context, name)?;
    cues.retain(|cue| cue["name"] == name);
    Ok(cues)
}

/// The search of the server is wider: it finds parts of names, and of other fields.
fn search(context: &Context, text: &str) -> Result<Vec<Value>, CliError> {
    let text: String = text.chars().take(MAX_SEARCH).collect();
    // With `runs` there are the tasks of worker cues.
    let request = ApiRequest::get("/v1/cues").query("q", text).query("runs", "0");
    fetch(|page| context.fetch(page), &request, "cues", u64::MAX).map(|cues| cues.items)
}

fn unknown(context: &Context, text: &str) -> CliError {
    let names = newest(context, "name");
    let name = printable(text);
    let advice = did_you_mean(&name, names.iter().map(String::as_str), "`cued cue list` shows all");
    not_found(format!("no cue has the id or name {name:?}; {advice}"))
}

/// This field of the newest cues. Without them there is the advice that needs none.
fn newest(context: &Context, field: &str) -> Vec<String> {
    let request = ApiRequest::get("/v1/cues");
    let cues = fetch(|page| context.fetch(page), &request, "cues", MAX_COMPARED);
    let cues = cues.map(|cues| cues.items).unwrap_or_default();
    cues.iter().map(|cue| printable(&text_of(cue, field))).filter(|text| !text.is_empty()).collect()
}

/// The refusal of a name that several cues have.
pub fn ambiguous(context: &Context, what: &str, text: &str, cues: &[Value]) -> CliError {
    refused(format!(
        "several cues have {what} {:?}; use the id:{}",
        printable(text),
        choices(context, cues)
    ))
}

/// The lines of a choice between cues, each after the end of a line.
pub fn choices(context: &Context, cues: &[Value]) -> String {
    let output = &context.output;
    let row = |cue: &Value| {
        let created = text_of(cue, "created_at");
        let created = if output.is_short() {
            relative(&created, context.client.server_time())
        } else {
            output.times.instant(&created)
        };
        let (id, status) = (output.id(&text_of(cue, "id")), text_of(cue, "status"));
        [id, target(cue), schedule_column(context, cue), status, format!("created {created}")]
            .map(Cell::from)
            .to_vec()
    };
    let columns = [
        ColumnRule::Always,
        ColumnRule::Shortened,
        ColumnRule::Shortened,
        ColumnRule::Always,
        ColumnRule::Always,
    ];
    let table = Table {
        columns: columns.map(|rule| ("", rule)).to_vec(),
        rows: cues.iter().take(MAX_SHOWN).map(row).collect(),
    };
    let width = output.styles.width.map(|width| width.saturating_sub(2));
    let text = table.render(false, &Styles { has_colour: false, width }.in_columns());
    let more = if cues.len() > MAX_SHOWN { "\n  and more" } else { "" };
    // The first line has the titles.
    text.lines().skip(1).map(|line| format!("\n  {line}")).collect::<String>() + more
}

/// Finds cues, each once, in the order of their names.
pub fn find_all(context: &Context, texts: &[&str]) -> Result<Vec<FoundCue>, CliError> {
    let mut seen = BTreeSet::new();
    let mut cues: Vec<FoundCue> =
        texts.iter().map(|text| find(context, text)).collect::<Result<_, _>>()?;
    cues.retain(|cue| seen.insert(cue.id.clone()));
    Ok(cues)
}

/// The expression and its zone, the interval, or the instant.
pub fn schedule(context: &Context, cue: &Value) -> String {
    let (cron, every) = (text_of(cue, "schedule.cron"), text_of(cue, "schedule.every"));
    match text_of(cue, "schedule.timezone") {
        _ if !every.is_empty() => format!("every {every}"),
        _ if cron.is_empty() => {
            format!("at {}", context.output.times.instant(&text_of(cue, "schedule.at")))
        }
        zone => format!("{cron} {zone}"),
    }
}

/// The same, without the zone of the person, and with the instant to the minute where a line must be short.
pub fn schedule_column(context: &Context, cue: &Value) -> String {
    match text_of(cue, "schedule.at") {
        at if !at.is_empty() && context.output.is_short() => {
            format!("at {}", context.output.times.minute(&at))
        }
        _ => {
            let schedule = schedule(context, cue);
            let own = format!(" {}", context.own_zone().name());
            schedule.strip_suffix(&own).map(str::to_owned).unwrap_or(schedule)
        }
    }
}

/// The callback, or the task of a worker.
pub fn target(cue: &Value) -> String {
    // In a list, or in the whole cue.
    let task = text_of(cue, "task") + &text_of(cue, "payload.task");
    match text_of(cue, "transport").as_str() {
        "webhook" => text_of(cue, "callback.url"),
        transport if task.is_empty() => transport.to_owned(),
        transport => format!("{transport}, task {task}"),
    }
}
