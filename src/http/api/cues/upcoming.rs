//! `/v1/cues/{cue_id}/upcoming` and `/v1/schedule/preview`.

use jiff::Timestamp;
use jiff::civil::DateTime;
use serde_json::{Value, json};

use crate::api::cue::preview_schedule;
use crate::api::instants::instant;
use crate::domain::api_error::Refusal;
use crate::domain::schedule::time_zone::Zone;
use crate::domain::schedule::{EARLIEST, Schedule, offset_text, parse_instant};
use crate::domain::time::just_before;
use crate::error::Result;
use crate::http::request::Request;
use crate::http::response::Response;
use crate::service::cues::not_found;
use crate::store::cues;

const DEFAULT_LIMIT: i64 = 10;

const MAX_FROM: usize = 64;

const BAD_FROM: &str = "from should be a time since the year 0001 such as 2030-01-31T09:00:00Z";

/// `GET /v1/cues/{cue_id}/upcoming?limit&from&detail`: an empty list if no run is scheduled.
pub async fn upcoming(request: Request) -> Result<Response> {
    let (caller, query, id) = (request.caller()?, request.query(), request.param("cue_id").to_owned());
    let limit = query.integer("limit", 1..=100, DEFAULT_LIMIT);
    let has_detail = query.boolean("detail").unwrap_or(false);
    let from = query.text("from", 0..=MAX_FROM).and_then(|text| {
        let from = parse_from(text);
        if from.is_none() {
            query.reject("from", &format!("{BAD_FROM}; write the + of an offset as %2B"));
        }
        from
    });
    query.finish()?;
    let cue = request
        .app
        .store
        .read_inline(move |read| Ok(cues::find(read, caller.user_key, &id)?.ok_or_else(not_found)?))
        .await?;
    let after = from.map_or(request.now, just_before);
    let schedule = cue.schedule.read().map_err(Refusal::from)?;
    let limit = usize::try_from(limit).unwrap_or(1);
    let runs = match (cue.next_run, from) {
        (None, _) => Vec::new(),
        (Some(_), Some(_)) => schedule.upcoming(after, limit),
        (Some(next_run), None) => {
            std::iter::once(next_run).chain(schedule.upcoming(next_run, limit - 1)).collect()
        }
    };
    let mut body = json!({"upcoming": instants(&runs)});
    if has_detail {
        let per_month = if cue.next_run.is_some() { schedule.count_in_month(after) } else { 0 };
        add_detail(&mut body, &schedule, after, &runs, per_month);
    }
    Ok(Response::ok(&body))
}

pub async fn preview(request: Request) -> Result<Response> {
    let mut fields = request.fields()?;
    let limit = fields.integer("limit", 1..=100).unwrap_or(DEFAULT_LIMIT);
    let from = fields.string("from", 0..=MAX_FROM).and_then(|text| {
        let from = parse_from(&text);
        if from.is_none() {
            fields.reject("from", BAD_FROM);
        }
        from
    });
    let parsed = preview_schedule(&mut fields);
    fields.finish()?;
    let Some(schedule) = parsed else { return Err(Refusal::invalid(Vec::new()).into()) };
    let (schedule, gap_note) = schedule?;
    schedule.first_run(request.now).map_err(Refusal::from)?;
    let after = from.map_or(request.now, just_before);
    let runs = schedule.upcoming(after, usize::try_from(limit).unwrap_or(1));
    let mut body = json!({"upcoming": instants(&runs)});
    add_detail(&mut body, &schedule, after, &runs, schedule.count_in_month(after));
    if let (Some(note), [_]) = (gap_note, &runs[..]) {
        body["occurrences"][0]["note"] = note.into();
    }
    Ok(Response::ok(&body))
}

fn parse_from(text: &str) -> Option<Timestamp> {
    parse_instant(text, &Zone::UTC).ok().filter(|from| *from >= EARLIEST)
}

/// A local time with as many digits as an [`instant`].
fn local_time(local: DateTime) -> String {
    if local.millisecond() == 0 { format!("{local:.0}") } else { format!("{local:.3}") }
}

fn instants(runs: &[Timestamp]) -> Vec<String> {
    runs.iter().copied().map(instant).collect()
}

/// Adds the schedule in words, its runs in local time, and the clock changes from `after` to the last run.
fn add_detail(body: &mut Value, schedule: &Schedule, after: Timestamp, runs: &[Timestamp], per_month: u64) {
    let occurrences = runs.iter().map(|run| schedule.occurrence(*run)).map(|run| {
        json!({
            "at": instant(run.at), "local": local_time(run.local), "offset": offset_text(run.offset),
            "note": run.note,
        })
    });
    let until = runs.last().copied().unwrap_or(after);
    let transitions = schedule.transitions(after, until).into_iter().map(|change| {
        json!({"at": instant(change.at), "from": offset_text(change.from), "to": offset_text(change.to)})
    });
    body["description"] = schedule.describe().into();
    body["occurrences"] = occurrences.collect();
    body["transitions"] = transitions.collect();
    body["per_month"] = per_month.into();
}
