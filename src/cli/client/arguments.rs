//! The meaning of arguments that several commands take: the name of a cue or a channel, the beginning of a run's id, an
//! instant; and the pages of a list.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::cli::client::context::Context;
use crate::cli::error::{CliError, not_found, refused, usage};
use crate::cli::output::List;
use crate::cli::output::table::{parse_duration, text_of};
use crate::cli::printable::printable;
use crate::client::request::{ApiRequest, ApiResponse, ClientError, segment};
use crate::domain::channel::{BUILT_IN_ALERT_WEBHOOK, BUILT_IN_EMAIL};
use crate::domain::cue::list::MAX_SEARCH;
use crate::domain::ids::{CueId, ExecutionId};

const MAX_SHOWN: usize = 10;

/// Characters of the beginning of a run's id. Eight stand for about a minute.
const MIN_CHARS: usize = 8;

const TIME_DIGITS: usize = 12;

/// Runs that are searched for a beginning: more in a minute ask for more characters.
const MAX_SEARCHED: u64 = 1_000;

/// The most rows that the server returns at a time.
const PAGE: u64 = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundCue {
    pub id: String,
    /// `None` if the command names the id.
    pub name: Option<String>,
}

impl FoundCue {
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

/// Reads `wanted` rows of a list. `key` is the field of the answer that has the items.
pub fn fetch(
    send: impl Fn(&ApiRequest) -> Result<ApiResponse, CliError>,
    request: &ApiRequest,
    key: &'static str,
    wanted: u64,
) -> Result<List, CliError> {
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

pub fn find_maybe_id(context: &Context, text: Option<&str>) -> Result<Option<String>, CliError> {
    text.map(|text| Ok(find(context, text)?.id)).transpose()
}

/// Finds a cue. A text in the form of an id is one, without a request.
pub fn find(context: &Context, text: &str) -> Result<FoundCue, CliError> {
    if CueId::parse(text).is_some() {
        return Ok(FoundCue { id: text.to_owned(), name: None });
    }
    if text.is_empty() {
        return Err(usage("the name of a cue is empty"));
    }
    // The search of the server is wider: it finds parts of names, and of other fields.
    let search: String = text.chars().take(MAX_SEARCH).collect();
    let request = ApiRequest::get("/v1/cues").query("q", search);
    let mut cues = fetch(|page| context.fetch(page), &request, "cues", u64::MAX)?.items;
    cues.retain(|cue| cue["name"] == text);
    let name = printable(text);
    match cues.as_slice() {
        [] => Err(not_found(format!("no cue has the id or name {name:?}; `cued cue list` shows all"))),
        [cue] => Ok(FoundCue { id: text_of(cue, "id"), name: Some(text.to_owned()) }),
        several => {
            let line = |cue: &Value| {
                let created = context.output.times.instant(&text_of(cue, "created_at"));
                format!("\n  {}  {}  created {created}", text_of(cue, "id"), text_of(cue, "status"))
            };
            let lines: String = several.iter().take(MAX_SHOWN).map(line).collect();
            Err(refused(format!("several cues have the name {name:?}; use the id:{lines}")))
        }
    }
}

/// Finds cues, each once, in the order of their names.
pub fn find_all(context: &Context, texts: &[&str]) -> Result<Vec<FoundCue>, CliError> {
    let mut seen = BTreeSet::new();
    let mut cues: Vec<FoundCue> = texts.iter().map(|text| find(context, text)).collect::<Result<_, _>>()?;
    cues.retain(|cue| seen.insert(cue.id.clone()));
    Ok(cues)
}

/// The id of a channel, by the id or a unique name. A text in the form of an id is not looked up.
pub fn find_channel(context: &Context, text: &str) -> Result<String, CliError> {
    if text.starts_with("chn_") || [BUILT_IN_EMAIL, BUILT_IN_ALERT_WEBHOOK].contains(&text) {
        return Ok(text.to_owned());
    }
    let request = ApiRequest::get("/v1/channels");
    let mut channels = fetch(|page| context.fetch(page), &request, "channels", u64::MAX)?.items;
    channels.retain(|channel| channel["name"] == text);
    let ids: Vec<String> = channels.iter().map(|channel| text_of(channel, "id")).collect();
    let name = printable(text);
    match ids.as_slice() {
        [] => {
            Err(not_found(format!("no channel has the id or name {name:?}; `cued channel list` shows all")))
        }
        [id] => Ok(id.clone()),
        several => {
            let ids = several.join(", ");
            Err(refused(format!("{} channels have the name {name:?}; use the id: {ids}", several.len())))
        }
    }
}

/// The id of a run, by the id or a unique beginning of it. A whole id is not looked up. An id begins with the
/// milliseconds at which the run was created: only the runs of that range of times are searched.
/// Errors: [`CliError::NotFound`] if no id begins so, [`CliError::Refused`] if several do.
pub fn find_run(context: &Context, text: &str) -> Result<String, CliError> {
    let prefix = text.to_ascii_lowercase();
    if ExecutionId::parse(&prefix).is_some() {
        return Ok(prefix);
    }
    if prefix.len() < MIN_CHARS || !prefix.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') {
        return Err(not_found(format!(
            "no run has the id {text:?}: an id, or at least {MIN_CHARS} characters of its beginning, is expected; see \
             `cued run list`"
        )));
    }
    let no_run = || not_found(format!("no run has an id that begins with {text:?}; see `cued run list`"));
    let range = created_range(&prefix).ok_or_else(no_run)?;
    let request = ApiRequest::get("/v1/executions")
        .query("since", range.start().to_string())
        .query("until", range.end().to_string());
    let runs = fetch(|page| context.fetch(page), &request, "executions", MAX_SEARCHED)?;
    let mut ids: Vec<String> = runs.items.iter().map(|run| text_of(run, "id")).collect();
    ids.retain(|id| id.starts_with(&prefix));
    match ids.as_slice() {
        [] if !runs.has_more => Err(no_run()),
        [id] if !runs.has_more => Ok(id.clone()),
        several => {
            let shown = several.iter().take(MAX_SHOWN).map(|id| format!("\n  {id}"));
            let more = if several.len() > MAX_SHOWN || runs.has_more { "\n  and more" } else { "" };
            let shown: String = shown.collect();
            Err(refused(format!(
                "several runs have an id that begins with {text:?}; give more of it:{shown}{more}"
            )))
        }
    }
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
    pub fn resolve(self, context: &Context) -> Result<Timestamp, CliError> {
        let out_of_range = |_| usage("the instant is too far away");
        match self {
            Self::At(at) => Ok(at),
            Self::Local(local) => {
                let zone = context.output.times.zone().clone();
                Ok(local.to_zoned(zone).map_err(out_of_range)?.timestamp())
            }
            Self::Ago(ago) => {
                let health = context.fetch(&ApiRequest::get("/health").anonymous())?.value()?;
                let now: Timestamp = format!("{}Z", text_of(&health, "timestamp"))
                    .parse()
                    .map_err(|_| ClientError::NotCued { url: context.target.url.clone(), status: 200 })?;
                now.checked_sub(ago).map_err(out_of_range)
            }
        }
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
