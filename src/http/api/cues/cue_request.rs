//! Parses the body of a create or a PATCH into types of the domain. Checks the form of the body only.

use crate::domain::api_error::Refusal;
use crate::domain::cue::patch::{
    CallbackPatch, CuePatch, OnFailurePatch, RequestedStatus, RetryPatch, ScheduleKind, SchedulePatch,
};
use crate::domain::cue::payload::Payload;
use crate::domain::cue::{NO_CLAIMS, NewCue, Transport};
use crate::domain::execution::unclaimed::{MAX_CLAIM_WITHIN, MIN_CLAIM_WITHIN};
use crate::domain::execution::verification::VerificationMode;
use crate::domain::schedule::{CatchUp, Schedule};
use crate::domain::webhook::address_policy::AddressPolicy;
use crate::domain::webhook::callback::{Method, check_headers};
use crate::domain::webhook::callback_url::{UrlError, check_url};
use crate::error::Result;
use crate::http::input::json_fields::{JsonFields, Presence};

/// Length in characters.
const MAX_DESCRIPTION: usize = 10_000;

/// Longest pause between two attempts: a year.
const MAX_BACKOFF_MINUTES: f64 = 525_600.0;

/// Parses the body of a create. Unknown fields only lead to the warning of the cue.
/// Errors: 422 with all validation errors; otherwise the first of `invalid_schedule`, `invalid_timezone`,
/// `invalid_callback…`, `invalid_payload_size`.
pub fn new_cue(mut fields: JsonFields<'_>, policy: &AddressPolicy) -> Result<NewCue> {
    let mut unknown = Vec::new();
    let name = fields.required_string("name", 1..=255);
    let description = fields.string("description", 0..=MAX_DESCRIPTION);
    let transport = fields.one_of("transport", &Transport::WORDS).and_then(Transport::parse);
    let is_worker = transport == Some(Transport::Worker);
    let is_webhook = transport == Some(Transport::Webhook) || fields.any("transport").is_none();
    let schedule = fields.required_object("schedule").and_then(|mut schedule| {
        let kind = schedule.required_one_of("type", &ScheduleKind::WORDS).and_then(ScheduleKind::parse);
        let patch = parse_schedule(&mut schedule);
        add_unknown(&schedule, "schedule", &mut unknown);
        match kind {
            Some(ScheduleKind::Recurring) if patch.at.is_some() => {
                unknown.push("schedule.at (not used by a recurring schedule)".to_owned());
            }
            Some(ScheduleKind::Once) if patch.cron.is_some() => {
                unknown.push("schedule.cron (not used by a once schedule)".to_owned());
            }
            _ => {}
        }
        Some((kind?, patch))
    });
    let callback = parse_new_callback(&mut fields, is_worker, is_webhook, policy, &mut unknown);
    let payload = fields.dictionary("payload");
    let retry = parse_retry(&mut fields, Some(&mut unknown));
    let on_failure = parse_on_failure(&mut fields, policy, Some(&mut unknown));
    let verification = parse_verification(&mut fields, Some(&mut unknown));
    let claim_within_minutes = parse_claim_within(&mut fields);
    if is_webhook && claim_within_minutes.is_some() {
        fields.reject("claim_within_minutes", NO_CLAIMS);
    }
    unknown.splice(0..0, fields.unknown());
    fields.finish()?;
    // `finish` has returned an error if one of them is missing.
    let (Some(name), Some((kind, patch))) = (name, schedule) else {
        return Err(Refusal::invalid(Vec::new()).into());
    };
    let mut new = NewCue {
        name,
        description,
        schedule: patch.schedule(kind)?,
        transport: if is_worker { Transport::Worker } else { Transport::Webhook },
        callback: callback?.callback(),
        payload: None,
        retry: crate::domain::execution::RetryPolicy::default(),
        on_failure: crate::domain::cue::OnFailure::default(),
        verification: verification.unwrap_or_default(),
        claim_within_minutes,
        warning: ignored_fields_warning(&unknown),
    };
    retry.apply_to(&mut new.retry);
    on_failure?.apply_to(&mut new.on_failure);
    new.payload = payload.map(Payload::new).transpose()?;
    Ok(new)
}

/// Parses the body of a PATCH. Unknown fields are errors.
/// Errors: as [`new_cue`], except for the schedule: it is checked after it is merged with the schedule of the cue.
pub fn cue_patch(mut fields: JsonFields<'_>, policy: &AddressPolicy) -> Result<CuePatch> {
    let status = fields.one_of("status", &RequestedStatus::WORDS).and_then(RequestedStatus::parse);
    let name = fields.string("name", 1..=255);
    let description = match fields.presence("description") {
        Presence::Absent => None,
        _ => Some(fields.string("description", 0..=MAX_DESCRIPTION)),
    };
    let payload = match fields.presence("payload") {
        Presence::Absent => None,
        _ => Some(fields.dictionary("payload")),
    };
    let schedule = fields.object("schedule").map(|mut schedule| {
        let kind = schedule.one_of("type", &ScheduleKind::WORDS).and_then(ScheduleKind::parse);
        let patch = SchedulePatch { kind, ..parse_schedule(&mut schedule) };
        schedule.forbid_unknown();
        patch
    });
    let callback = fields.object("callback").map_or(Ok(CallbackPatch::default()), |mut callback| {
        let patch = parse_callback(&mut callback, policy);
        callback.forbid_unknown();
        patch
    });
    let retry = parse_retry(&mut fields, None);
    let on_failure = parse_on_failure(&mut fields, policy, None);
    let verification = parse_verification(&mut fields, None);
    let claim_within_minutes = match fields.presence("claim_within_minutes") {
        Presence::Absent => None,
        _ => Some(parse_claim_within(&mut fields)),
    };
    fields.forbid_unknown();
    fields.finish()?;
    let mut patch = CuePatch {
        status,
        name,
        description,
        schedule: schedule.unwrap_or_default(),
        callback: callback?,
        payload: None,
        retry,
        on_failure: on_failure?,
        verification,
        claim_within_minutes,
    };
    patch.payload = payload.map(|payload| payload.map(Payload::new).transpose()).transpose()?;
    Ok(patch)
}

/// Parses the `schedule` of a preview. Also returns the note of a `once` schedule whose local time a clock change skips.
/// Errors: as [`new_cue`].
pub fn preview_schedule(
    fields: &mut JsonFields<'_>,
) -> Option<std::result::Result<(Schedule, Option<String>), Refusal>> {
    let mut schedule = fields.required_object("schedule")?;
    let kind = schedule.required_one_of("type", &ScheduleKind::WORDS).and_then(ScheduleKind::parse);
    let patch = parse_schedule(&mut schedule);
    Some(patch.schedule(kind?).map(|schedule| {
        let note = patch.at.as_deref().and_then(|at| schedule.skipped_note(at));
        (schedule, note)
    }))
}

fn parse_schedule(fields: &mut JsonFields<'_>) -> SchedulePatch {
    SchedulePatch {
        kind: None,
        // Without a length limit: the domain returns a more helpful error for a long text.
        cron: fields.string("cron", 0..=usize::MAX),
        at: fields.string("at", 0..=usize::MAX),
        timezone: fields.string("timezone", 0..=usize::MAX),
        catch_up: fields.one_of("catch_up", &CatchUp::WORDS).and_then(CatchUp::parse),
    }
}

/// Parses the callback of a create: required for a webhook cue, ignored for a worker cue.
fn parse_new_callback(
    fields: &mut JsonFields<'_>,
    is_worker: bool,
    is_webhook: bool,
    policy: &AddressPolicy,
    unknown: &mut Vec<String>,
) -> std::result::Result<CallbackPatch, Refusal> {
    if is_worker {
        if fields.any("callback").is_some() {
            unknown.push("callback (not used by a worker cue)".to_owned());
        }
        return Ok(CallbackPatch::default());
    }
    let Some(mut callback) = fields.object("callback") else {
        if is_webhook && fields.any("callback").is_none() {
            fields.add_missing("callback");
        }
        return Ok(CallbackPatch::default());
    };
    if callback.any("url").is_none() {
        callback.add_missing("url");
    }
    let patch = parse_callback(&mut callback, policy);
    add_unknown(&callback, "callback", unknown);
    patch
}

fn parse_callback(
    fields: &mut JsonFields<'_>,
    policy: &AddressPolicy,
) -> std::result::Result<CallbackPatch, Refusal> {
    let url = fields.string("url", 0..=usize::MAX);
    let method = fields.string("method", 0..=16);
    let headers = fields.string_map("headers");
    let outcome_from_response = fields.boolean("outcome_from_response");
    let url = url.map(|url| check_url(&url, policy)).transpose()?.map(|target| target.url);
    let method = method.map(|method| Method::from_request(&method)).transpose()?;
    if let Some(headers) = &headers {
        check_headers(headers)?;
    }
    Ok(CallbackPatch { url, method, headers, outcome_from_response })
}

fn parse_retry(fields: &mut JsonFields<'_>, unknown: Option<&mut Vec<String>>) -> RetryPatch {
    let Some(mut retry) = fields.object("retry") else { return RetryPatch::default() };
    let max_attempts =
        retry.integer("max_attempts", 1..=10).and_then(|attempts| u32::try_from(attempts).ok());
    let backoff_minutes = retry.numbers("backoff_minutes", 1..=10);
    if backoff_minutes.iter().flatten().any(|minutes| !(0.0..=MAX_BACKOFF_MINUTES).contains(minutes)) {
        retry.reject("backoff_minutes", "minutes should be between 0 and 525600 (a year)");
    }
    add_or_forbid_unknown(&retry, "retry", unknown);
    RetryPatch { max_attempts, backoff_minutes }
}

fn parse_on_failure(
    fields: &mut JsonFields<'_>,
    policy: &AddressPolicy,
    unknown: Option<&mut Vec<String>>,
) -> std::result::Result<OnFailurePatch, Refusal> {
    let Some(mut on_failure) = fields.object("on_failure") else { return Ok(OnFailurePatch::default()) };
    let email = on_failure.boolean("email");
    let mut webhook = match on_failure.presence("webhook") {
        Presence::Absent => None,
        _ => Some(on_failure.string("webhook", 0..=usize::MAX)),
    };
    let pause = on_failure.boolean("pause");
    add_or_forbid_unknown(&on_failure, "on_failure", unknown);
    if let Some(Some(url)) = &mut webhook {
        *url = check_url_of("on_failure.webhook", url, policy)?;
    }
    Ok(OnFailurePatch { email, webhook, pause })
}

/// Checks a URL by the rules of a callback (contract §4.6), in a field without headers next to it. Returns the URL to
/// store.
/// Errors: `invalid_callback_url` with the name of the field.
pub(in crate::http) fn check_url_of(
    field: &str,
    url: &str,
    policy: &AddressPolicy,
) -> std::result::Result<String, Refusal> {
    let named = |error: UrlError| {
        let message = match &error {
            UrlError::UserInfo => format!(
                "{field} must not contain a user name or password; remove them: the request is signed, and its \
                 receiver can verify the signature"
            ),
            other => other.to_string().replacen("callback.url", field, 1),
        };
        Refusal { message: message.into(), ..Refusal::from(error) }
    };
    check_url(url, policy).map(|target| target.url).map_err(named)
}

fn parse_verification(
    fields: &mut JsonFields<'_>,
    unknown: Option<&mut Vec<String>>,
) -> Option<VerificationMode> {
    let mut verification = fields.object("verification")?;
    let mode =
        verification.required_one_of("mode", &VerificationMode::WORDS).and_then(VerificationMode::parse);
    add_or_forbid_unknown(&verification, "verification", unknown);
    mode
}

fn parse_claim_within(fields: &mut JsonFields<'_>) -> Option<u32> {
    let minutes = fields.integer("claim_within_minutes", MIN_CLAIM_WITHIN..=MAX_CLAIM_WITHIN)?;
    u32::try_from(minutes).ok()
}

fn add_or_forbid_unknown(fields: &JsonFields<'_>, parent: &str, unknown: Option<&mut Vec<String>>) {
    match unknown {
        Some(unknown) => add_unknown(fields, parent, unknown),
        None => fields.forbid_unknown(),
    }
}

fn add_unknown(fields: &JsonFields<'_>, parent: &str, unknown: &mut Vec<String>) {
    unknown.extend(fields.unknown().into_iter().map(|name| format!("{parent}.{name}")));
}

fn ignored_fields_warning(unknown: &[String]) -> Option<String> {
    // A body of 2 MB can contain a very long list of names.
    let names: String = unknown.join(", ").chars().take(500).collect();
    (!unknown.is_empty()).then(|| format!("Ignored fields: {names}"))
}
