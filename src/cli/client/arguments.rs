//! The meaning of arguments that several commands take: the name of a cue or a channel, the beginning of a run's id, an
//! instant; the pages of a list, and the words for a cue.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::cli::client::context::Context;
use crate::cli::client::forms::{Columns, Form, table};
use crate::cli::error::{CliError, Result, not_found, refused, usage};
use crate::cli::nearest::did_you_mean;
use crate::cli::output::table::{ColumnRule, Styles, parse_duration, text_of};
use crate::cli::output::{List, SHORT_ID};
use crate::cli::printable::printable;
use crate::client::request::{ApiRequest, ApiResponse, ClientError, segment};
use crate::domain::channel::{BUILT_IN_ALERT_WEBHOOK, BUILT_IN_EMAIL};
use crate::domain::cue::list::MAX_SEARCH;
use crate::domain::ids::{CueId, ExecutionId};

const MAX_SHOWN: usize = 10;

const TIME_DIGITS: usize = 12;

/// Runs that are searched for a part of an id. Eight characters of its beginning stand for about a minute: more runs in
/// a minute ask for more characters.
const MAX_SEARCHED: u64 = 1_000;

/// The most rows that the server returns at a time.
const PAGE: u64 = 100;

/// Reads `wanted` rows of a list. `key` is the field of the answer that has the items.
pub fn fetch(
    send: impl Fn(&ApiRequest) -> Result<ApiResponse>,
    request: &ApiRequest,
    key: &'static str,
    wanted: u64,
) -> Result<List> {
    let mut list = List::empty(key);
    let mut cursor: Option<String> = None;
    loop {
        let count = list.items.len() as u64;
        let page = request.clone().query("limit", (wanted - count).min(PAGE).to_string());
        let page = match cursor {
            None if count > 0 => page.query("offset", count.to_string()),
            cursor => page.maybe_query("cursor", cursor),
        };
        cursor = list.append(&send(&page)?)?;
        let now = list.items.len() as u64;
        if !list.has_more || now >= wanted || now == count {
            return Ok(list);
        }
    }
}

/// The items of a list, at most so many.
pub fn items(
    context: &Context,
    request: &ApiRequest,
    key: &'static str,
    wanted: u64,
) -> Result<Vec<Value>> {
    Ok(fetch(|page| context.fetch(page), request, key, wanted)?.items)
}

/// Nothing has the name or id `text`. `known` are the things with their names in `field`: the nearest is named, or else
/// the way to see them all.
pub fn unknown(what: &str, text: &str, known: &[Value], field: &str, list: &str) -> CliError {
    let names = known.iter().map(|it| text_of(it, field)).filter(|name| !name.is_empty());
    let names: Vec<String> = names.collect();
    let advice = did_you_mean(text, names.iter().map(String::as_str), list);
    not_found(format!("{what} {text:?}; {advice}"))
}

/// The id of a channel, by the id or a unique name. A text in the form of an id is not looked up.
pub fn find_channel(context: &Context, text: &str) -> Result<String> {
    if text.starts_with("chn_") || [BUILT_IN_EMAIL, BUILT_IN_ALERT_WEBHOOK].contains(&text) {
        return Ok(text.to_owned());
    }
    let channels = items(context, &ApiRequest::get("/v1/channels"), "channels", u64::MAX)?;
    Ok(text_of(pick(&channels, text, "channel", "`cued channel list` shows all")?, "id"))
}

/// The only thing of a list that a text names: by its id, else by its name or its prefix, else by the beginning of its id.
/// `noun` and `list` are for errors: what it is, and the way to see them all.
pub fn pick<'a>(known: &'a [Value], text: &str, noun: &str, list: &str) -> Result<&'a Value> {
    let rank = |it: &&Value| match text_of(it, "id") {
        id if id == text => 0,
        _ if it["name"] == text || it["prefix"] == text => 1,
        id if text.len() >= SHORT_ID && id.starts_with(text) => 2,
        _ => 3,
    };
    let best = known.iter().map(|it| rank(&it)).min().filter(|rank| *rank < 3);
    let found: Vec<&Value> = known.iter().filter(|it| Some(rank(it)) == best).collect();
    match found[..] {
        [it] => Ok(it),
        [] => Err(unknown(&format!("no {noun} has the id or name"), text, known, "name", list)),
        _ => {
            let ids: Vec<String> = found.iter().map(|it| text_of(it, "id")).collect();
            let (number, ids) = (ids.len(), ids.join(", "));
            Err(refused(format!("{number} {noun}s have the name {text:?}; use the id: {ids}")))
        }
    }
}

/// The id of a run, by the id, or a unique beginning or end of it. A whole id is not looked up.
/// Errors: [`CliError::NotFound`] if no id begins or ends so, [`CliError::Refused`] if several do.
pub fn find_run(context: &Context, text: &str) -> Result<String> {
    let part = text.to_ascii_lowercase();
    if ExecutionId::parse(&part).is_some() {
        return Ok(part);
    }
    if part.len() < SHORT_ID || !part.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') {
        return Err(not_found(format!(
            "no run has the id {text:?}: an id, or at least {SHORT_ID} characters of its beginning or end, is expected; \
             see `cued run list`"
        )));
    }
    let mut found = runs_beginning(context, &part)?;
    if found.is_empty() {
        found = runs_ending(context, &part)?;
    }
    match found.as_slice() {
        [] => Err(not_found(format!(
            "no run has the id {text:?} (short ids work for the newest {MAX_SEARCHED}); see `cued run list`"
        ))),
        [run] => Ok(text_of(run, "id")),
        several => {
            let shown = choices(context, RUNS, several);
            Err(refused(format!("several runs have an id with {text:?}; give more of it:{shown}")))
        }
    }
}

const RUNS: Columns = &[
    ("", Form::Text("id"), ColumnRule::Always),
    ("", Form::ExactTime("scheduled_for"), ColumnRule::Always),
    ("", Form::Text("cue_name"), ColumnRule::Shortened),
];

/// An id begins with the milliseconds at which the run was created: only the runs of that range of times are searched.
fn runs_beginning(context: &Context, beginning: &str) -> Result<Vec<Value>> {
    let Some(range) = created_range(beginning) else { return Ok(Vec::new()) };
    let request = ApiRequest::get("/v1/executions")
        .query("since", range.start().to_string())
        .query("until", range.end().to_string());
    let mut runs = fetch(|page| context.fetch(page), &request, "executions", MAX_SEARCHED)?;
    let is_unknown = runs.has_more;
    runs.items.retain(|run| text_of(run, "id").starts_with(beginning));
    if is_unknown && runs.items.len() < 2 {
        let reason = format!(
            "too many runs were created around the time of {beginning:?}; give more of the id"
        );
        return Err(refused(reason));
    }
    Ok(runs.items)
}

/// The end of an id is random. A command mostly means a run that was just listed: the first page is searched alone.
fn runs_ending(context: &Context, end: &str) -> Result<Vec<Value>> {
    for wanted in [PAGE, MAX_SEARCHED] {
        let request = ApiRequest::get("/v1/executions");
        let mut runs = fetch(|page| context.fetch(page), &request, "executions", wanted)?;
        runs.items.retain(|run| text_of(run, "id").ends_with(end));
        if !runs.items.is_empty() || !runs.has_more {
            return Ok(runs.items);
        }
    }
    Ok(Vec::new())
}

/// The creation times of the ids that begin so, and a second around them. `None` if the calendar has no such time.
fn created_range(prefix: &str) -> Option<RangeInclusive<Timestamp>> {
    let digits: String = prefix.chars().filter(|char| *char != '-').take(TIME_DIGITS).collect();
    let missing = u32::try_from(TIME_DIGITS - digits.len()).ok()?;
    let (first, span) = (i64::from_str_radix(&digits, 16).ok()?, 16_i64.pow(missing));
    let slack = SignedDuration::from_secs(1);
    let begin = Timestamp::from_millisecond(first * span).ok()?.checked_sub(slack).ok()?;
    let end = Timestamp::from_millisecond((first + 1) * span).ok()?.checked_add(slack).ok()?;
    Some(begin..=end)
}

/// An instant of the command line: `--since 1h`, `--until 2026-11-22`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    At(Timestamp),
    /// In the time zone of the output.
    Local(DateTime),
    /// Before the time of the server, whose clock may differ.
    Ago(SignedDuration),
}

impl Moment {
    /// Parses a duration, which counts back from now, an instant of RFC 3339, a date, or a date with a time.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Ok(ago) = parse_duration(text) {
            return Ok(Self::Ago(ago));
        }
        if let Ok(at) = text.parse() {
            return Ok(Self::At(at));
        }
        text.parse().map(Self::Local).map_err(|_| {
            "expected a duration before now such as 90s, 10m, 2h or 1d, a date, or an instant such as 2026-11-22T18:00:00Z"
                .to_owned()
        })
    }

    /// Errors: if the server does not state its time, or the instant is outside of the calendar.
    pub fn resolve(self, context: &Context) -> Result<Timestamp> {
        let out_of_range = |_| usage("the instant is too far away");
        match self {
            Self::At(at) => Ok(at),
            Self::Local(local) => {
                let zone = context.output.times.zone().clone();
                Ok(local.to_zoned(zone).map_err(out_of_range)?.timestamp())
            }
            Self::Ago(ago) => {
                let health = context.fetch(&ApiRequest::get("/health").anonymous())?.value()?;
                let now: Timestamp =
                    format!("{}Z", text_of(&health, "timestamp")).parse().map_err(|_| {
                        ClientError::NotCued { url: context.target.url.clone(), status: 200 }
                    })?;
                now.checked_sub(ago).map_err(out_of_range)
            }
        }
    }
}

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

pub fn find_maybe_id(context: &Context, text: Option<&str>) -> Result<Option<String>> {
    text.map(|text| Ok(find(context, text)?.id)).transpose()
}

/// The text before a slug in place of the id of a cue, as in paths.
const BY_SLUG: &str = "slug:";

/// Finds a cue by its id, its slug, its name, or a unique beginning of its id. A text in the form of an id is one, without a
/// request.
pub fn find(context: &Context, text: &str) -> Result<FoundCue> {
    if CueId::parse(text).is_some() {
        return Ok(FoundCue { id: text.to_owned(), name: None });
    }
    if text.is_empty() {
        return Err(usage("the name of a cue is empty"));
    }
    if let Some(slug) = text.strip_prefix(BY_SLUG) {
        let list = "`cued cue list -o wide` shows them";
        let unknown = || missing(context, "no cue has the slug", slug, "slug", list);
        return with_slug(context, slug)?.first().map(FoundCue::of).ok_or_else(unknown);
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
        [] => {
            let list = "`cued cue list` shows all";
            Err(missing(context, "no cue has the id or name", text, "name", list))
        }
        [cue] => Ok(FoundCue::of(cue)),
        several => Err(ambiguous(context, what, text, several)),
    }
}

/// The cue of this slug, or none.
pub fn with_slug(context: &Context, slug: &str) -> Result<Vec<Value>> {
    let request = ApiRequest::get("/v1/cues").query("slug", slug).query("runs", "0");
    items(context, &request, "cues", 1)
}

/// The cues of exactly this name, newest first.
pub fn named(context: &Context, name: &str) -> Result<Vec<Value>> {
    let mut cues = search(context, name)?;
    cues.retain(|cue| cue["name"] == name);
    Ok(cues)
}

/// The search of the server is wider: it finds parts of names, and of other fields.
fn search(context: &Context, text: &str) -> Result<Vec<Value>> {
    let text: String = text.chars().take(MAX_SEARCH).collect();
    // With `runs` there are the tasks of worker cues.
    let request = ApiRequest::get("/v1/cues").query("q", text).query("runs", "0");
    items(context, &request, "cues", u64::MAX)
}

/// No cue is the wanted one. Without a list there is the advice that needs none.
fn missing(context: &Context, what: &str, text: &str, field: &str, list: &str) -> CliError {
    let newest = items(context, &ApiRequest::get("/v1/cues"), "cues", MAX_COMPARED);
    unknown(what, text, &newest.unwrap_or_default(), field, list)
}

/// The refusal of a name that several cues have.
pub fn ambiguous(context: &Context, what: &str, text: &str, cues: &[Value]) -> CliError {
    let shown = choices(context, CUES, cues);
    refused(format!("several cues have {what} {text:?}; use the id:{shown}"))
}

/// The columns of a choice between cues.
pub const CUES: Columns = &[
    ("", Form::Id("id"), ColumnRule::Always),
    ("", Form::Of(target), ColumnRule::Shortened),
    ("", Form::Shown(schedule_column), ColumnRule::Shortened),
    ("", Form::Text("status"), ColumnRule::Always),
    ("", Form::Template("created {created_at:when}"), ColumnRule::Always),
];

/// The lines of a choice, each after the end of a line.
pub fn choices(context: &Context, columns: Columns, items: &[Value]) -> String {
    let width = context.output.styles.width.map(|width| width.saturating_sub(2));
    let table = table(columns, context, &items[..items.len().min(MAX_SHOWN)]);
    let text = table.render(false, &Styles { has_colour: false, width }.in_columns());
    let more = if items.len() > MAX_SHOWN { "\n  and more" } else { "" };
    // The first line has the titles.
    text.lines().skip(1).map(|line| format!("\n  {line}")).collect::<String>() + more
}

/// Finds cues, each once, in the order of their names.
pub fn find_all(context: &Context, texts: &[&str]) -> Result<Vec<FoundCue>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_duration_a_date_or_an_instant() {
        assert_eq!(Moment::parse("1h30m"), Ok(Moment::Ago(SignedDuration::from_mins(90))));
        let at = "2026-11-22T17:00:00Z".parse().unwrap();
        assert_eq!(Moment::parse("2026-11-22T18:00:00+01:00"), Ok(Moment::At(at)));
        let local = |text: &str| Ok(Moment::Local(text.parse().unwrap()));
        assert_eq!(Moment::parse("2026-11-22"), local("2026-11-22T00:00"));
        assert_eq!(Moment::parse("2026-11-22 18:00"), local("2026-11-22T18:00"));
        for bad in ["", "yesterday", "1", "18:00", "-1h", "2026-13-01"] {
            assert!(Moment::parse(bad).is_err(), "{bad}");
        }
    }
}
