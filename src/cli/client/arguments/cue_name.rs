//! A cue by its id or its unique name.

use serde_json::Value;

use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::cli::output::print::printable;
use crate::client::request::ApiRequest;
use crate::domain::ids::CueId;

/// Characters of a search; a longer name is searched for by its beginning.
const MAX_SEARCH: usize = 100;

/// Pages of 100 cues that contain the name, in which it is looked for.
const MAX_PAGES: u64 = 10;

const PAGE: u64 = 100;

/// The id of a cue. `text` is an id, which is not looked up, or the whole name of one cue.
///
/// # Errors
/// [`CliError::NotFound`] if no cue has the name, [`CliError::Refused`] if several have it.
pub fn find_cue(context: &Context, text: &str) -> Result<String, CliError> {
    if CueId::parse(text).is_some() {
        return Ok(text.to_owned());
    }
    let no_cue =
        || CliError::NotFound(format!("no cue has the id or the name {text:?}; see `cued cue list`"));
    let search: String = text.chars().take(MAX_SEARCH).collect();
    if search.trim().is_empty() {
        return Err(no_cue());
    }
    let mut found = Vec::new();
    for page in 0..MAX_PAGES {
        let request = ApiRequest::get("/v1/cues").query("q", search.as_str());
        let request = request.query("limit", PAGE.to_string()).query("offset", (page * PAGE).to_string());
        let answer = context.look_up(&request)?.value()?;
        let cues = answer["cues"].as_array().into_iter().flatten();
        found.extend(cues.filter(|cue| cue["name"] == text).map(|cue| text_of(cue, "id")));
        if answer["has_more"] != Value::Bool(true) {
            break;
        }
    }
    match found.as_slice() {
        [] => Err(no_cue()),
        [id] => Ok(id.clone()),
        several => Err(CliError::Refused(format!(
            "{} cues have the name {:?}; use an id:\n  {}",
            several.len(),
            printable(text),
            several.join("\n  ")
        ))),
    }
}

/// As [`find_cue`], for a flag that may be absent.
///
/// # Errors
/// As [`find_cue`].
pub fn find_maybe_cue(context: &Context, text: Option<&str>) -> Result<Option<String>, CliError> {
    text.map(|text| find_cue(context, text)).transpose()
}
