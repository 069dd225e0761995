//! The meaning of arguments that several commands take: the name of a cue or a channel, the beginning of a run's id, an
//! instant; and the pages of a list.

use std::ops::RangeInclusive;

use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::cli::client::context::Context;
use crate::cli::error::{CliError, not_found, refused, usage};
use crate::cli::nearest::did_you_mean;
use crate::cli::output::table::{parse_duration, text_of};
use crate::cli::output::{List, SHORT_ID};
use crate::cli::printable::printable;
use crate::cli::width::cut;
use crate::client::request::{ApiRequest, ApiResponse, ClientError};
use crate::domain::channel::{BUILT_IN_ALERT_WEBHOOK, BUILT_IN_EMAIL};
use crate::domain::ids::ExecutionId;

const MAX_SHOWN: usize = 10;

const TIME_DIGITS: usize = 12;

/// Runs that are searched for a part of an id. Eight characters of its beginning stand for about a minute: more runs in
/// a minute ask for more characters.
const MAX_SEARCHED: u64 = 1_000;

/// The most rows that the server returns at a time.
const PAGE: u64 = 100;

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

/// The id of a channel, by the id or a unique name. A text in the form of an id is not looked up.
pub fn find_channel(context: &Context, text: &str) -> Result<String, CliError> {
    if text.starts_with("chn_") || [BUILT_IN_EMAIL, BUILT_IN_ALERT_WEBHOOK].contains(&text) {
        return Ok(text.to_owned());
    }
    let request = ApiRequest::get("/v1/channels");
    let mut channels = fetch(|page| context.fetch(page), &request, "channels", u64::MAX)?.items;
    let names: Vec<String> =
        channels.iter().map(|channel| printable(&text_of(channel, "name"))).collect();
    channels.retain(|channel| channel["name"] == text);
    let ids: Vec<String> = channels.iter().map(|channel| text_of(channel, "id")).collect();
    let name = printable(text);
    match ids.as_slice() {
        [] => {
            let advice = did_you_mean(
                &name,
                names.iter().map(String::as_str),
                "`cued channel list` shows all",
            );
            Err(not_found(format!("no channel has the id or name {name:?}; {advice}")))
        }
        [id] => Ok(id.clone()),
        several => {
            let ids = several.join(", ");
            Err(refused(format!(
                "{} channels have the name {name:?}; use the id: {ids}",
                several.len()
            )))
        }
    }
}

/// The id of a run, by the id, or a unique beginning or end of it. A whole id is not looked up.
/// Errors: [`CliError::NotFound`] if no id begins or ends so, [`CliError::Refused`] if several do.
pub fn find_run(context: &Context, text: &str) -> Result<String, CliError> {
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
            let line = |run: &Value| {
                let scheduled = context.output.times.instant(&text_of(run, "scheduled_for"));
                let name = printable(&text_of(run, "cue_name"));
                let line = format!("  {}  {scheduled}  {name}", text_of(run, "id"));
                format!(
                    "\n{}",
                    context.output.styles.width.map_or(line.clone(), |width| cut(&line, width))
                )
            };
            let shown: String = several.iter().take(MAX_SHOWN).map(line).collect();
            let more = if several.len() > MAX_SHOWN { "\n  and more" } else { "" };
            Err(refused(format!(
                "several runs have an id with {text:?}; give more of it:{shown}{more}"
            )))
        }
    }
}

/// An id begins with the milliseconds at which the run was created: only the runs of that range of times are searched.
fn runs_beginning(context: &Context, beginning: &str) -> Result<Vec<Value>, CliError> {
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
fn runs_ending(context: &Context, end: &str) -> Result<Vec<Value>, CliError> {
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
                let now: Timestamp =
                    format!("{}Z", text_of(&health, "timestamp")).parse().map_err(|_| {
                        ClientError::NotCued { url: context.target.url.clone(), status: 200 }
                    })?;
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
