//! The body of a create or a PATCH → what the domain takes. Nothing is decided here but the form.

use serde_json::Value;

use crate::domain::api_error::Refusal;
use crate::domain::cue::patch::{
    CallbackPatch, CuePatch, OnFailurePatch, RequestedStatus, RetryPatch, ScheduleKind, SchedulePatch,
};
use crate::domain::cue::{NewCue, Transport};
use crate::domain::execution::verification::VerificationMode;
use crate::domain::schedule::{CatchUp, Schedule};
use crate::domain::webhook::address_policy::AddressPolicy;
use crate::domain::webhook::callback::{Method, check_headers};
use crate::domain::webhook::callback_url::{UrlError, check_url};
use crate::error::Result;
use crate::http::input::json_fields::{JsonFields, Presence};

/// The longest description, in characters.
const MAX_DESCRIPTION: usize = 10_000;

/// The longest pause between two attempts: a year, in minutes.
const MAX_BACKOFF: f64 = 525_600.0;

/// Reads the body of a create.
///
/// # Errors
/// 422 with every problem of form, else the first of `invalid_schedule`, `invalid_timezone`, `invalid_callback…`.
pub fn new_cue(mut fields: JsonFields<'_>, policy: &AddressPolicy) -> Result<NewCue> {
    let mut unknown = Vec::new();
    let name = fields.required_string("name", 1..=255);
    let description = fields.string("description", 0..=MAX_DESCRIPTION);
    let transport = fields.one_of("transport", &Transport::WORDS).and_then(Transport::parse);
    let worker = transport == Some(Transport::Worker);
    let webhook = transport == Some(Transport::Webhook) || fields.any("transport").is_none();
    let schedule = fields.required_object("schedule").and_then(|mut schedule| {
        let kind = schedule.required_one_of("type", &ScheduleKind::WORDS).and_then(ScheduleKind::parse);
        let parts = schedule_parts(&mut schedule);
        note_unknown(&schedule, "schedule", &mut unknown);
        match kind {
            Some(ScheduleKind::Recurring) if parts.at.is_some() => {
                unknown.push("schedule.at (a recurring schedule has none)".to_owned());
            }
            Some(ScheduleKind::Once) if parts.cron.is_some() => {
                unknown.push("schedule.cron (a once schedule has none)".to_owned());
            }
            _ => {}
        }
        Some((kind?, parts))
    });
    let callback = callback(&mut fields, worker, webhook, policy, &mut unknown);
    let payload = fields.dictionary("payload").cloned().map(Value::Object);
    let retry = retry_parts(&mut fields, Some(&mut unknown));
    let on_failure = on_failure_parts(&mut fields, policy, Some(&mut unknown));
    let verification = verification(&mut fields, Some(&mut unknown));
    unknown.splice(0..0, fields.rest());
    fields.finish()?;
    // `finish` has answered for whatever is missing; these hold what they must.
    let (Some(name), Some((kind, parts))) = (name, schedule) else {
        return Err(Refusal::invalid(Vec::new()).into());
    };
    let mut new = NewCue {
        name,
        description,
        schedule: parts.schedule(kind)?,
        transport: if worker { Transport::Worker } else { Transport::Webhook },
        callback: callback?.callback(),
        payload,
        retry: crate::domain::execution::RetryPolicy::default(),
        on_failure: crate::domain::cue::OnFailure::default(),
        verification: verification.unwrap_or_default(),
        warning: warning(&unknown),
    };
    retry.apply_to(&mut new.retry);
    on_failure?.apply_to(&mut new.on_failure);
    Ok(new)
}

/// Reads the body of a PATCH; every unknown field is a problem.
///
/// # Errors
/// As [`new_cue`], but that a schedule is judged when it meets the cue's own.
pub fn cue_change(mut fields: JsonFields<'_>, policy: &AddressPolicy) -> Result<CuePatch> {
    let status = fields.one_of("status", &["active", "paused"]);
    let name = fields.string("name", 1..=255);
    let description = match fields.presence("description") {
        Presence::Absent => None,
        _ => Some(fields.string("description", 0..=MAX_DESCRIPTION)),
    };
    let payload = match fields.presence("payload") {
        Presence::Absent => None,
        _ => Some(fields.dictionary("payload").cloned().map(Value::Object)),
    };
    let schedule = fields.object("schedule").map(|mut schedule| {
        let kind = schedule.one_of("type", &ScheduleKind::WORDS).and_then(ScheduleKind::parse);
        let parts = SchedulePatch { kind, ..schedule_parts(&mut schedule) };
        schedule.forbid_rest();
        parts
    });
    let callback = fields.object("callback").map_or(Ok(CallbackPatch::default()), |mut callback| {
        let parts = callback_parts(&mut callback, policy);
        callback.forbid_rest();
        parts
    });
    let retry = retry_parts(&mut fields, None);
    let on_failure = on_failure_parts(&mut fields, policy, None);
    let verification = verification(&mut fields, None);
    fields.forbid_rest();
    fields.finish()?;
    Ok(CuePatch {
        status: status
            .map(|word| if word == "active" { RequestedStatus::Active } else { RequestedStatus::Paused }),
        name,
        description,
        schedule: schedule.unwrap_or_default(),
        callback: callback?,
        payload,
        retry,
        on_failure: on_failure?,
        verification,
    })
}

/// Reads the `schedule` of a preview.
///
/// # Errors
/// As for a create.
pub fn schedule(fields: &mut JsonFields<'_>) -> Option<std::result::Result<Schedule, Refusal>> {
    let mut schedule = fields.required_object("schedule")?;
    let kind = schedule.required_one_of("type", &ScheduleKind::WORDS).and_then(ScheduleKind::parse);
    let parts = schedule_parts(&mut schedule);
    Some(parts.schedule(kind?))
}

fn schedule_parts(fields: &mut JsonFields<'_>) -> SchedulePatch {
    SchedulePatch {
        kind: None,
        // However long: the domain says what is wrong with them.
        cron: fields.string("cron", 0..=usize::MAX),
        at: fields.string("at", 0..=usize::MAX),
        timezone: fields.string("timezone", 0..=usize::MAX),
        catch_up: fields.one_of("catch_up", &CatchUp::WORDS).and_then(CatchUp::parse),
    }
}

/// The callback of a create: a webhook cue needs a URL, a worker cue's is left aside.
fn callback(
    fields: &mut JsonFields<'_>,
    worker: bool,
    webhook: bool,
    policy: &AddressPolicy,
    unknown: &mut Vec<String>,
) -> std::result::Result<CallbackPatch, Refusal> {
    if worker {
        if fields.any("callback").is_some() {
            unknown.push("callback (a worker cue has none)".to_owned());
        }
        return Ok(CallbackPatch::default());
    }
    let Some(mut callback) = fields.object("callback") else {
        if webhook && fields.any("callback").is_none() {
            fields.missing("callback");
        }
        return Ok(CallbackPatch::default());
    };
    if callback.any("url").is_none() {
        callback.missing("url");
    }
    let parts = callback_parts(&mut callback, policy);
    note_unknown(&callback, "callback", unknown);
    parts
}

fn callback_parts(
    fields: &mut JsonFields<'_>,
    policy: &AddressPolicy,
) -> std::result::Result<CallbackPatch, Refusal> {
    let url = fields.string("url", 0..=usize::MAX);
    let method = fields.string("method", 0..=16);
    let headers = fields.string_map("headers");
    if let Some(url) = &url {
        check_url(url, policy)?;
    }
    let method = method.map(|method| Method::from_request(&method)).transpose()?;
    if let Some(headers) = &headers {
        check_headers(headers)?;
    }
    Ok(CallbackPatch { url, method, headers })
}

fn retry_parts(fields: &mut JsonFields<'_>, unknown: Option<&mut Vec<String>>) -> RetryPatch {
    let Some(mut retry) = fields.object("retry") else { return RetryPatch::default() };
    let max_attempts =
        retry.integer("max_attempts", 1..=10).and_then(|attempts| u32::try_from(attempts).ok());
    let backoff_minutes = retry.numbers("backoff_minutes", 1..=10);
    if backoff_minutes.iter().flatten().any(|minutes| !(0.0..=MAX_BACKOFF).contains(minutes)) {
        retry.refuse("backoff_minutes", "minutes should be from 0 to 525600, a year");
    }
    note_or_forbid(&retry, "retry", unknown);
    RetryPatch { max_attempts, backoff_minutes }
}

fn on_failure_parts(
    fields: &mut JsonFields<'_>,
    policy: &AddressPolicy,
    unknown: Option<&mut Vec<String>>,
) -> std::result::Result<OnFailurePatch, Refusal> {
    let Some(mut on_failure) = fields.object("on_failure") else { return Ok(OnFailurePatch::default()) };
    let email = on_failure.boolean("email");
    let webhook = match on_failure.presence("webhook") {
        Presence::Absent => None,
        _ => Some(on_failure.string("webhook", 0..=usize::MAX)),
    };
    let pause = on_failure.boolean("pause");
    note_or_forbid(&on_failure, "on_failure", unknown);
    if let Some(Some(url)) = &webhook {
        check_url_of("on_failure.webhook", url, policy)?;
    }
    Ok(OnFailurePatch { email, webhook, pause })
}

/// Checks the URL in a field that is like a callback's (contract §4), but has no headers beside it.
///
/// # Errors
/// `invalid_callback_url`, naming the field.
pub(in crate::http) fn check_url_of(
    field: &str,
    url: &str,
    policy: &AddressPolicy,
) -> std::result::Result<(), Refusal> {
    let named = |error: UrlError| {
        let message = match &error {
            UrlError::UserInfo => format!(
                "{field} must not hold a user name or password: what is sent there is signed, and its receiver \
                 knows it by that"
            ),
            other => other.to_string().replacen("callback.url", field, 1),
        };
        Refusal { message: message.into(), ..Refusal::from(error) }
    };
    check_url(url, policy).map(|_| ()).map_err(named)
}

fn verification(fields: &mut JsonFields<'_>, unknown: Option<&mut Vec<String>>) -> Option<VerificationMode> {
    let mut verification = fields.object("verification")?;
    let mode =
        verification.required_one_of("mode", &VerificationMode::WORDS).and_then(VerificationMode::parse);
    note_or_forbid(&verification, "verification", unknown);
    mode
}

fn note_or_forbid(fields: &JsonFields<'_>, within: &str, unknown: Option<&mut Vec<String>>) {
    match unknown {
        Some(unknown) => note_unknown(fields, within, unknown),
        None => fields.forbid_rest(),
    }
}

fn note_unknown(fields: &JsonFields<'_>, within: &str, unknown: &mut Vec<String>) {
    unknown.extend(fields.rest().into_iter().map(|name| format!("{within}.{name}")));
}

fn warning(unknown: &[String]) -> Option<String> {
    // A body can hold very many names; the first tell the caller enough.
    let named: String = unknown.join(", ").chars().take(500).collect();
    (!unknown.is_empty()).then(|| format!("Fields that were ignored: {named}"))
}
