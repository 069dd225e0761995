//! Reads which objects an action on many is for: a list of ids, or a filter and the number that it must match.

use crate::api::fields::{JsonFields, Presence};
use crate::domain::api_error::{FieldError, Refusal};
use crate::error::Result;
use crate::service::bulk::{MAX_IDS, MAX_MATCHED};

/// Most characters of an id. Ids of other forms are answered as unknown, and repeated in the answer.
const MAX_ID: usize = 64;

/// Bytes of the answer for each object, with the sentence why it was refused.
pub const ANSWER_BYTES: usize = 300;

/// The objects of an action.
#[derive(Debug)]
pub enum Targets<F> {
    Ids(Vec<String>),
    /// All that match, if they are `expected` many: the number that a person has seen and confirmed. It may be missing in a
    /// dry run.
    Matching {
        filter: F,
        expected: Option<usize>,
    },
}

/// Reads `ids`.
pub fn read_ids(fields: &mut JsonFields<'_>) -> Option<Vec<String>> {
    fields.required_strings("ids", 1..=MAX_IDS, 1..=MAX_ID)
}

/// Reads either `ids`, or `filter` and `expected`; and `dry_run`, which is returned too. `None` after an error, which is in
/// the list of errors. A misspelled condition of the filter would match more, so unknown fields are errors.
pub fn read_targets<F>(
    fields: &mut JsonFields<'_>,
    read_filter: fn(&mut JsonFields<'_>) -> F,
) -> Option<(Targets<F>, bool)> {
    let is_dry_run = fields.boolean("dry_run") == Some(true);
    let has_ids = fields.presence("ids") == Presence::Given;
    let filter = fields.object("filter").map(|mut filter| {
        let read = read_filter(&mut filter);
        filter.forbid_unknown();
        read
    });
    let has_filter = fields.presence("filter") == Presence::Given;
    let has_expected = fields.presence("expected") == Presence::Given;
    let most = i64::try_from(MAX_MATCHED).unwrap_or(i64::MAX);
    let expected = fields.integer("expected", 0..=most);
    match (has_ids, has_filter) {
        (true, true) => fields.reject("filter", "send either ids or filter, not both"),
        (false, false) => {
            fields.reject("ids", "send ids, or filter and expected, the number of objects that it matches");
        }
        (true, false) if has_expected => fields.reject("expected", "expected goes with filter, not with ids"),
        (true, false) => return Some((Targets::Ids(read_ids(fields)?), is_dry_run)),
        (false, true) if !has_expected && !is_dry_run => fields.add_missing("expected"),
        (false, true) => {
            let expected = expected.and_then(|expected| usize::try_from(expected).ok());
            return filter.map(|filter| (Targets::Matching { filter, expected }, is_dry_run));
        }
    }
    None
}

/// Checks how many objects a filter matches; a selection reads one more than it may have.
/// Errors: 422 if there are more than [`MAX_MATCHED`].
pub fn check_bound(matched: usize, narrower: &str) -> Result<()> {
    if matched <= MAX_MATCHED {
        return Ok(());
    }
    let msg = format!("Value error, the filter matches more than {MAX_MATCHED}; {narrower}");
    let loc = vec!["body".into(), "filter".into()];
    Err(Refusal::invalid(vec![FieldError { kind: "value_error", loc, msg, input: serde_json::Value::Null }])
        .into())
}
