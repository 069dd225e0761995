//! A run by its id or a unique beginning of it.
//!
//! An id begins with the milliseconds at which the run was created, so a beginning stands for a range of creation times.
//! Only that range is searched, however many runs there are.

use std::ops::RangeInclusive;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::client::request::ApiRequest;
use crate::domain::ids::ExecutionId;

/// Characters of a beginning. Eight stand for about a minute.
const MIN_CHARS: usize = 8;

/// Digits of an id that are its time.
const TIME_DIGITS: usize = 12;

/// Pages of 100 runs of the range that are searched: more than a thousand runs in a minute ask for more characters.
const MAX_PAGES: u64 = 10;

const PAGE: u64 = 100;

/// Ids that are shown if a beginning is not unique.
const MAX_SHOWN: usize = 5;

/// The id of a run. A whole id is not looked up.
/// Errors: [`CliError::NotFound`] if no id begins so, [`CliError::Refused`] if several do.
pub fn find_run(context: &Context, text: &str) -> Result<String, CliError> {
    let prefix = text.to_ascii_lowercase();
    if ExecutionId::parse(&prefix).is_some() {
        return Ok(prefix);
    }
    let no_run =
        || CliError::NotFound(format!("no run has an id that begins with {text:?}; see `cued run list`"));
    let is_beginning =
        prefix.len() >= MIN_CHARS && prefix.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    if !is_beginning {
        return Err(CliError::NotFound(format!(
            "no run has the id {text:?}: an id, or at least {MIN_CHARS} characters of its beginning, is expected; see \
             `cued run list`"
        )));
    }
    let range = created_range(&prefix).ok_or_else(no_run)?;
    let (found, is_complete) = search(context, &prefix, &range)?;
    match found.as_slice() {
        [] if is_complete => Err(no_run()),
        [id] if is_complete => Ok(id.clone()),
        several => {
            let shown: Vec<&str> = several.iter().take(MAX_SHOWN).map(String::as_str).collect();
            let more = if several.len() > MAX_SHOWN || !is_complete { "\n  and more" } else { "" };
            Err(CliError::Refused(format!(
                "several runs have an id that begins with {text:?}; give more of it:\n  {}{more}",
                shown.join("\n  ")
            )))
        }
    }
}

/// The ids that begin so, newest first, and whether all runs of the range were looked at.
fn search(
    context: &Context,
    prefix: &str,
    range: &RangeInclusive<Timestamp>,
) -> Result<(Vec<String>, bool), CliError> {
    let mut found = Vec::new();
    for page in 0..MAX_PAGES {
        let request = ApiRequest::get("/v1/executions")
            .query("since", range.start().to_string())
            .query("until", range.end().to_string())
            .query("limit", PAGE.to_string())
            .query("offset", (page * PAGE).to_string());
        let answer = context.look_up(&request)?.value()?;
        let ids = answer["executions"].as_array().into_iter().flatten().map(|run| text_of(run, "id"));
        found.extend(ids.filter(|id| id.starts_with(prefix)));
        if answer["has_more"] != Value::Bool(true) {
            return Ok((found, true));
        }
    }
    Ok((found, false))
}

/// The creation times of the ids that begin so, and a second around them. `None` if the calendar has no such time.
fn created_range(prefix: &str) -> Option<RangeInclusive<Timestamp>> {
    let digits: String = prefix.chars().filter(|char| *char != '-').take(TIME_DIGITS).collect();
    let missing = u32::try_from(TIME_DIGITS - digits.len()).ok()?;
    let (first, span) = (i64::from_str_radix(&digits, 16).ok()?, 16_i64.pow(missing));
    let first_millis = first * span;
    let slack = SignedDuration::from_secs(1);
    let begin = Timestamp::from_millisecond(first_millis).ok()?.checked_sub(slack).ok()?;
    let end = Timestamp::from_millisecond(first_millis + span).ok()?.checked_add(slack).ok()?;
    Some(begin..=end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_stands_for_its_creation_times() {
        let seconds = |prefix: &str| {
            let range = created_range(prefix).unwrap();
            (range.start().as_second(), range.end().as_second())
        };
        // From 0x018cc251 * 65.536 s, which is 1704067137.536 s, to 65.536 s later.
        assert_eq!(seconds("018cc251"), (1_704_067_136, 1_704_067_204));
        let id = "018cc251-f400-7abc-8000-000000000000";
        let at = created_range(id).unwrap();
        assert_eq!(at.end().duration_since(*at.start()).as_millis(), 2_001);
        assert_eq!(created_range(&id[..13]), Some(at), "the rest is random");
        assert_eq!(created_range("ffffffff"), None);
    }
}
