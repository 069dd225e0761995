//! The schedule in requests of the API: of a whole cue, of a change to one, or of a preview (contract §4.2, §4.9, §4.13).

use jiff::Timestamp;

use crate::api::fields::JsonFields;
use crate::domain::api_error::{ErrorCode, Refusal, SchedulePart};
use crate::domain::cue::{ScheduleKind, ScheduleSpec, StoredSchedule, bounds_errors};
use crate::domain::schedule::interval::Interval;
use crate::domain::schedule::{
    Bounds, CatchUp, EARLIEST, Schedule, ScheduleError, ScheduleRule, Zone, parse_instant,
};

const MAX_JITTER: i64 = 3_600;

/// A schedule without validation errors.
#[derive(Debug)]
pub struct ReadSchedule {
    /// The refusals that have a code of their own are results, because the validation errors of all fields come first.
    pub schedule: Result<Schedule, Refusal>,
    /// The instant of a `once` schedule as the caller wrote it.
    pub at: Option<String>,
    pub kind: Option<ScheduleKind>,
    /// One of its fields has a value, or a bound is removed.
    pub is_named: bool,
}

/// Reads the fields of a schedule. What they leave out is as in `base`, the schedule of the cue that is changed; without
/// one the type is required. An expression, an interval or an instant alone implies the type.
pub fn read_schedule(fields: &mut JsonFields<'_>, base: Option<&StoredSchedule>) -> ReadSchedule {
    let words = &ScheduleKind::WORDS;
    let kind = match base {
        None => fields.required_one_of("type", words),
        Some(_) => fields.one_of("type", words),
    };
    let kind = kind.and_then(ScheduleKind::parse);
    let rule = GivenRule::read(fields);
    let is_named = ["type", "cron", "every", "at", "timezone", "catch_up", "jitter_seconds"]
        .into_iter()
        .any(|name| fields.any(name).is_some())
        || !fields.is_absent("start")
        || !fields.is_absent("end");
    let zone = text(fields, "timezone").or(base.map(|it| it.timezone.clone()));
    let zone = zone.map_or(Ok(Zone::UTC), |name| Zone::find(&name)).map_err(ScheduleError::from);
    let catch_up = fields.one_of("catch_up", &CatchUp::WORDS).and_then(CatchUp::parse);
    let catch_up = catch_up.or(base.map(|it| it.catch_up)).unwrap_or_default();
    let bounds = read_bounds(fields, zone.as_ref().unwrap_or(&Zone::UTC), base);
    let schedule = zone.map_err(Refusal::from).and_then(|zone| {
        let rule = rule.resolve(kind, &zone, base)?;
        let bounds = bounds.unwrap_or_default();
        let bounds = match rule {
            ScheduleRule::Once(_) => Bounds { start: None, end: None, ..bounds },
            _ => bounds,
        };
        Ok(Schedule { bounds, ..Schedule::new(rule, zone, catch_up) })
    });
    if let (Ok(schedule), Some(_), true) = (&schedule, bounds, is_named) {
        reject_contradictions(fields, schedule);
    }
    ReadSchedule { schedule, at: rule.at, kind, is_named }
}

/// Without a length limit: the domain returns a more helpful error for a long text.
fn text(fields: &mut JsonFields<'_>, name: &'static str) -> Option<String> {
    fields.string(name, 0..=usize::MAX)
}

/// The rule as the caller wrote it. An expression and an interval are never there together.
struct GivenRule {
    cron: Option<String>,
    every: Option<String>,
    /// Without an offset it is a local time of the zone.
    at: Option<String>,
}

impl GivenRule {
    fn read(fields: &mut JsonFields<'_>) -> Self {
        let (mut cron, mut every) = (text(fields, "cron"), text(fields, "every"));
        if cron.is_some() && every.is_some() {
            fields.reject("every", "should be left out beside cron: a schedule has one of the two");
        }
        // The form of crontabs; it is stored as the interval.
        let macro_and_rest =
            cron.as_deref().and_then(|cron| cron.trim().split_once(char::is_whitespace));
        if let Some((_, interval)) =
            macro_and_rest.filter(|(word, _)| word.eq_ignore_ascii_case("@every"))
        {
            every = Some(interval.to_owned());
            cron = None;
        }
        let every = every.map(|every| every.trim().to_owned());
        if let Some(Err(error)) =
            every.as_deref().map(|every| Interval::parse(every, Timestamp::UNIX_EPOCH))
        {
            let name = if fields.any("every").is_some() { "every" } else { "cron" };
            fields.reject(name, &error.to_string());
        }
        Self { cron, every, at: text(fields, "at") }
    }

    fn resolve(
        &self,
        kind: Option<ScheduleKind>,
        zone: &Zone,
        base: Option<&StoredSchedule>,
    ) -> Result<ScheduleRule, Refusal> {
        let recurs = self.cron.is_some() || self.every.is_some();
        if kind.is_none() && recurs && self.at.is_some() {
            return Err(incomplete(
                "type",
                "schedule.at is set beside schedule.cron or schedule.every; set schedule.type, or only one of them",
            ));
        }
        let before = base.map(|it| &it.when);
        let kind = kind.unwrap_or(match (&self.at, before) {
            _ if recurs => ScheduleKind::Recurring,
            (Some(_), _) | (None, Some(ScheduleSpec::Once(_))) => ScheduleKind::Once,
            (None, _) => ScheduleKind::Recurring,
        });
        let rule = match (kind, self, before) {
            (ScheduleKind::Recurring, Self { cron: Some(cron), .. }, _) => {
                ScheduleRule::cron(cron)?
            }
            (ScheduleKind::Recurring, Self { every: Some(every), .. }, _) => {
                ScheduleRule::every(every, Timestamp::UNIX_EPOCH)?
            }
            (ScheduleKind::Recurring, _, Some(ScheduleSpec::Recurring(cron))) => {
                ScheduleRule::cron(cron)?
            }
            (ScheduleKind::Recurring, _, Some(ScheduleSpec::Every(every, from))) => {
                ScheduleRule::every(every, *from)?
            }
            (ScheduleKind::Once, Self { at: Some(at), .. }, _) => {
                ScheduleRule::Once(parse_instant(at, zone)?)
            }
            (ScheduleKind::Once, _, Some(ScheduleSpec::Once(at))) => ScheduleRule::Once(*at),
            (ScheduleKind::Recurring, ..) => {
                return Err(incomplete(
                    "expression",
                    "A recurring schedule needs schedule.cron, such as \"0 9 * * *\", or schedule.every, such as \"5m\"",
                ));
            }
            (ScheduleKind::Once, ..) => {
                return Err(incomplete(
                    "at",
                    "at: is missing; a once schedule needs it, such as \"2030-01-31T09:00:00Z\"",
                ));
            }
        };
        Ok(rule)
    }
}

/// `None` after an error.
fn read_bounds(
    fields: &mut JsonFields<'_>,
    zone: &Zone,
    base: Option<&StoredSchedule>,
) -> Option<Bounds> {
    let mut bounds = base.map(|it| it.bounds).unwrap_or_default();
    let mut is_valid = true;
    for (name, bound) in [("start", &mut bounds.start), ("end", &mut bounds.end)] {
        let Some(given) = fields.nullable(name, |fields| text(fields, name)) else { continue };
        let problem = match given.as_deref().map(|text| parse_instant(text, zone)).transpose() {
            Err(error) => error.to_string(),
            Ok(Some(instant)) if instant < EARLIEST => "should not be before the year 1".to_owned(),
            Ok(instant) => {
                *bound = instant;
                continue;
            }
        };
        fields.reject(name, &problem);
        is_valid = false;
    }
    if let Some(seconds) = fields.integer("jitter_seconds", 0..=MAX_JITTER) {
        bounds.jitter_seconds = u32::try_from(seconds).unwrap_or_default();
    }
    is_valid.then_some(bounds)
}

/// Adds the errors of bounds that contradict other parts, at the fields that are given.
fn reject_contradictions(fields: &mut JsonFields<'_>, schedule: &Schedule) {
    for (name, message) in bounds_errors(schedule) {
        match name {
            "end" if fields.any("end").is_none() => {
                fields.reject("start", "should be before end");
            }
            "jitter_seconds" if fields.any("jitter_seconds").is_none() => {
                let name = if fields.any("every").is_some() { "every" } else { "cron" };
                fields.reject(name, "the time between two runs should be at least jitter_seconds");
            }
            _ => fields.reject(name, message),
        }
    }
}

fn incomplete(field: &'static str, message: &'static str) -> Refusal {
    Refusal {
        schedule_part: SchedulePart::of(field),
        ..Refusal::new(ErrorCode::InvalidSchedule, message)
    }
}
