//! The schedule of a preview: in the fields of a cue, or as the text of a person (contract §4.13).

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::cue::read_schedule;
use crate::api::fields::JsonFields;
use crate::domain::api_error::Refusal;
use crate::domain::schedule::words::{MAX_CHARS, Understood, understand};
use crate::domain::schedule::{Schedule, ScheduleError, ScheduleRule, Zone};
use crate::domain::time::instant;

#[derive(Debug)]
pub struct PreviewedSchedule {
    pub schedule: Schedule,
    /// The note of a `once` schedule whose local time a clock change skips.
    pub skipped_note: Option<String>,
    /// The body has the schedule as a text.
    pub is_text: bool,
}

/// Parses `schedule`, or `text` with `timezone`.
pub fn preview_schedule(
    fields: &mut JsonFields<'_>,
    now: Timestamp,
) -> Option<Result<PreviewedSchedule, Refusal>> {
    let has_text = fields.any("text").is_some();
    let (text, timezone) =
        (fields.string("text", 0..=MAX_CHARS), fields.string("timezone", 0..=usize::MAX));
    if !has_text {
        if timezone.is_some() {
            fields.reject(
                "timezone",
                "is the time zone of text; that of a schedule is schedule.timezone",
            );
        }
        let mut schedule = fields.required().object("schedule")?;
        let read = read_schedule(&mut schedule, None);
        return Some(read.schedule.map(|schedule| {
            let skipped_note = read.at.as_deref().and_then(|at| schedule.skipped_note(at));
            PreviewedSchedule { schedule, skipped_note, is_text: false }
        }));
    }
    if fields.any("schedule").is_some() {
        fields.reject("schedule", "must be left out beside text");
    }
    let text = text?;
    let understood = Zone::find(timezone.as_deref().unwrap_or("UTC"))
        .map_err(ScheduleError::from)
        .and_then(|zone| understand(&text, &zone, now));
    Some(understood.map_err(Refusal::from).map(|Understood { schedule, local, .. }| {
        let skipped_note = local.and_then(|local| schedule.skipped_note(&local));
        PreviewedSchedule { schedule, skipped_note, is_text: true }
    }))
}

/// The schedule in the fields of a create.
pub fn schedule_fields(schedule: &Schedule) -> Value {
    let zone = schedule.zone.name();
    match &schedule.rule {
        ScheduleRule::Recurring(cron) => {
            json!({"type": "recurring", "cron": cron.text(), "timezone": zone})
        }
        ScheduleRule::Every(interval) => {
            json!({"type": "recurring", "every": interval.text(), "timezone": zone})
        }
        ScheduleRule::Once(at) => json!({"type": "once", "at": instant(*at), "timezone": zone}),
    }
}
