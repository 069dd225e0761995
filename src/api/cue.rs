//! The cue of the API: the fields of a create, of a PATCH and of a response (contract §4.1, §4.2, §4.9).
//!
//! A field that users set is named in [`FIELDS`], read in `CueReader::read` and shown in [`CueView`].

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::api::fields::JsonFields;
use crate::api::instants::{JsonTimestamp, instant_with_offset};
use crate::domain::api_error::Refusal;
use crate::domain::cue::patch::{
    CallbackPatch, CuePatch, OnFailurePatch, RequestedStatus, RetryPatch, ScheduleKind, SchedulePatch,
};
use crate::domain::cue::payload::Payload;
use crate::domain::cue::{Cue, NO_CLAIMS, NewCue, OnFailure, ScheduleSpec, StoredSchedule, Transport};
use crate::domain::execution::RetryPolicy;
use crate::domain::execution::verification::VerificationMode;
use crate::domain::execution::worker::{MAX_CLAIM_WITHIN, MIN_CLAIM_WITHIN};
use crate::domain::json::JsonStr;
use crate::domain::schedule::{CatchUp, Schedule};
use crate::domain::webhook::address_policy::AddressPolicy;
use crate::domain::webhook::callback::{Callback, Method, check_headers};
use crate::domain::webhook::callback_url::{UrlError, check_url};

/// The fields of a cue that users set, in the order in which people read them. `transport` cannot be changed.
pub const FIELDS: [&str; 10] = [
    "name",
    "description",
    "schedule",
    "transport",
    "callback",
    "payload",
    "retry",
    "on_failure",
    "verification",
    "claim_within_minutes",
];

/// The fields that a PATCH removes with `null`.
pub const REMOVABLE_FIELDS: [&str; 3] = ["description", "payload", "claim_within_minutes"];

const MAX_DESCRIPTION: usize = 10_000;

/// Longest pause between two attempts: a year.
const MAX_BACKOFF_MINUTES: f64 = 525_600.0;

/// Parses the body of a create. Unknown fields only lead to the warning of the cue.
/// Errors: 422 with all validation errors; otherwise the first of `invalid_schedule`, `invalid_timezone`,
/// `invalid_callback…`, `invalid_payload_size`.
pub fn new_cue(mut fields: JsonFields<'_>, policy: &AddressPolicy) -> Result<NewCue, Refusal> {
    let mut reader = CueReader { policy, ignored: Some(Vec::new()) };
    let body = reader.read(&mut fields);
    let names: Vec<String> = fields.unknown().into_iter().chain(reader.ignored.unwrap_or_default()).collect();
    fields.finish()?;
    // `finish` has returned an error if one of them is missing.
    let (Some(name), Some(kind)) = (body.patch.name.clone(), body.patch.schedule.kind) else {
        return Err(Refusal::invalid(Vec::new()));
    };
    let schedule = body.patch.schedule.schedule(kind)?;
    let transport = body.transport.unwrap_or(Transport::Webhook);
    let patch = body.patch()?;
    let mut new = NewCue {
        name,
        description: patch.description.flatten(),
        schedule,
        transport,
        callback: patch.callback.callback(),
        payload: patch.payload.flatten(),
        retry: RetryPolicy::default(),
        on_failure: OnFailure::default(),
        verification: patch.verification.unwrap_or_default(),
        claim_within_minutes: patch.claim_within_minutes.flatten(),
        warning: ignored_fields_warning(&names),
    };
    patch.retry.apply_to(&mut new.retry);
    patch.on_failure.apply_to(&mut new.on_failure);
    Ok(new)
}

/// Parses the body of a PATCH. Unknown fields are errors.
/// Errors: as [`new_cue`], except for the schedule: it is checked after it is merged with the schedule of the cue.
pub fn cue_patch(mut fields: JsonFields<'_>, policy: &AddressPolicy) -> Result<CuePatch, Refusal> {
    let body = CueReader { policy, ignored: None }.read(&mut fields);
    fields.forbid_unknown();
    fields.finish()?;
    body.patch()
}

/// Parses the `schedule` of a preview. Also returns the note of a `once` schedule whose local time a clock change skips.
pub fn preview_schedule(fields: &mut JsonFields<'_>) -> Option<Result<(Schedule, Option<String>), Refusal>> {
    let mut schedule = fields.required_object("schedule")?;
    let patch = read_schedule(&mut schedule, true);
    Some(patch.schedule(patch.kind?).map(|schedule| {
        let note = patch.at.as_deref().and_then(|at| schedule.skipped_note(at));
        (schedule, note)
    }))
}

/// Reads the body of a create or of a PATCH.
struct CueReader<'p> {
    policy: &'p AddressPolicy,
    /// The ignored fields of a create; `None` for a PATCH, in which unknown fields are errors.
    ignored: Option<Vec<String>>,
}

/// The fields of a body. The parts that are refused with a code of their own are results, because the validation errors
/// of all fields come first.
struct CueBody<'a> {
    /// Without the parts below.
    patch: CuePatch,
    transport: Option<Transport>,
    callback: Result<CallbackPatch, Refusal>,
    on_failure: Result<OnFailurePatch, Refusal>,
    payload: Option<Option<JsonStr<'a>>>,
}

impl CueBody<'_> {
    fn patch(self) -> Result<CuePatch, Refusal> {
        let (callback, on_failure) = (self.callback?, self.on_failure?);
        let payload = self.payload.map(|payload| payload.map(Payload::new).transpose()).transpose()?;
        Ok(CuePatch { callback, on_failure, payload, ..self.patch })
    }
}

impl CueReader<'_> {
    fn is_create(&self) -> bool {
        self.ignored.is_some()
    }

    fn read<'a>(&mut self, fields: &mut JsonFields<'a>) -> CueBody<'a> {
        let (mut status, mut transport) = (None, None);
        let name;
        if self.is_create() {
            name = fields.required_string("name", 1..=255);
            transport = fields.one_of("transport", &Transport::WORDS).and_then(Transport::parse);
        } else {
            status = fields.one_of("status", &RequestedStatus::WORDS).and_then(RequestedStatus::parse);
            name = fields.string("name", 1..=255);
        }
        let description =
            fields.nullable("description", |fields| fields.string("description", 0..=MAX_DESCRIPTION));
        let schedule = self.schedule(fields);
        let callback = self.callback(fields, transport);
        let payload = fields.nullable("payload", |fields| fields.dictionary("payload"));
        let retry = self.retry(fields);
        let on_failure = self.on_failure(fields);
        let verification = self.verification(fields);
        let claim_within_minutes = fields.nullable("claim_within_minutes", |fields| {
            let minutes = fields.integer("claim_within_minutes", MIN_CLAIM_WITHIN..=MAX_CLAIM_WITHIN)?;
            u32::try_from(minutes).ok()
        });
        if self.is_webhook(fields, transport) && claim_within_minutes.flatten().is_some() {
            fields.reject("claim_within_minutes", NO_CLAIMS);
        }
        let patch = CuePatch {
            status,
            name,
            description,
            schedule,
            retry,
            verification,
            claim_within_minutes,
            ..CuePatch::default()
        };
        CueBody { patch, transport, callback, on_failure, payload }
    }

    /// Whether a create is for a webhook cue. A transport with an error is neither.
    fn is_webhook(&self, fields: &mut JsonFields<'_>, transport: Option<Transport>) -> bool {
        let is_default = self.is_create() && fields.any("transport").is_none();
        transport == Some(Transport::Webhook) || is_default
    }

    fn schedule(&mut self, fields: &mut JsonFields<'_>) -> SchedulePatch {
        let is_create = self.is_create();
        let schedule = if is_create { fields.required_object("schedule") } else { fields.object("schedule") };
        let Some(mut schedule) = schedule else { return SchedulePatch::default() };
        let patch = read_schedule(&mut schedule, is_create);
        self.check_unknown(&schedule, "schedule");
        match patch.kind {
            Some(ScheduleKind::Recurring) if patch.at.is_some() => {
                self.ignore("schedule.at (not used by a recurring schedule)");
            }
            Some(ScheduleKind::Once) if patch.cron.is_some() => {
                self.ignore("schedule.cron (not used by a once schedule)");
            }
            _ => {}
        }
        patch
    }

    /// The callback: in a create required for a webhook cue and ignored for a worker cue.
    fn callback(
        &mut self,
        fields: &mut JsonFields<'_>,
        transport: Option<Transport>,
    ) -> Result<CallbackPatch, Refusal> {
        if transport == Some(Transport::Worker) {
            if fields.any("callback").is_some() {
                self.ignore("callback (not used by a worker cue)");
            }
            return Ok(CallbackPatch::default());
        }
        let Some(mut callback) = fields.object("callback") else {
            if self.is_webhook(fields, transport) && fields.any("callback").is_none() {
                fields.add_missing("callback");
            }
            return Ok(CallbackPatch::default());
        };
        if self.is_create() && callback.any("url").is_none() {
            callback.add_missing("url");
        }
        let url = callback.string("url", 0..=usize::MAX);
        let method = callback.string("method", 0..=16);
        let headers = callback.string_map("headers");
        let outcome_from_response = callback.boolean("outcome_from_response");
        self.check_unknown(&callback, "callback");
        let url = url.map(|url| check_url(&url, self.policy)).transpose()?.map(|target| target.url);
        let method = method.map(|method| Method::from_request(&method)).transpose()?;
        headers.as_deref().map(check_headers).transpose()?;
        Ok(CallbackPatch { url, method, headers, outcome_from_response })
    }

    fn retry(&mut self, fields: &mut JsonFields<'_>) -> RetryPatch {
        let Some(mut retry) = fields.object("retry") else { return RetryPatch::default() };
        let max_attempts =
            retry.integer("max_attempts", 1..=10).and_then(|attempts| u32::try_from(attempts).ok());
        let backoff_minutes = retry.numbers("backoff_minutes", 1..=10);
        if backoff_minutes.iter().flatten().any(|minutes| !(0.0..=MAX_BACKOFF_MINUTES).contains(minutes)) {
            retry.reject("backoff_minutes", "minutes should be between 0 and 525600 (a year)");
        }
        self.check_unknown(&retry, "retry");
        RetryPatch { max_attempts, backoff_minutes }
    }

    fn on_failure(&mut self, fields: &mut JsonFields<'_>) -> Result<OnFailurePatch, Refusal> {
        let Some(mut on_failure) = fields.object("on_failure") else { return Ok(OnFailurePatch::default()) };
        let email = on_failure.boolean("email");
        let webhook = on_failure.nullable("webhook", |fields| fields.string("webhook", 0..=usize::MAX));
        let pause = on_failure.boolean("pause");
        self.check_unknown(&on_failure, "on_failure");
        let check = |url: String| check_url_of("on_failure.webhook", &url, self.policy);
        let webhook = webhook.map(|url| url.map(check).transpose()).transpose()?;
        Ok(OnFailurePatch { email, webhook, pause })
    }

    fn verification(&mut self, fields: &mut JsonFields<'_>) -> Option<VerificationMode> {
        let mut verification = fields.object("verification")?;
        let mode = verification.required_one_of("mode", &VerificationMode::WORDS);
        self.check_unknown(&verification, "verification");
        mode.and_then(VerificationMode::parse)
    }

    /// Notes a field that a create ignores.
    fn ignore(&mut self, field: &str) {
        self.ignored.iter_mut().for_each(|ignored| ignored.push(field.to_owned()));
    }

    fn check_unknown(&mut self, fields: &JsonFields<'_>, parent: &str) {
        match &mut self.ignored {
            Some(ignored) => {
                ignored.extend(fields.unknown().into_iter().map(|name| format!("{parent}.{name}")));
            }
            None => fields.forbid_unknown(),
        }
    }
}

fn read_schedule(fields: &mut JsonFields<'_>, requires_type: bool) -> SchedulePatch {
    let words = &ScheduleKind::WORDS;
    let kind =
        if requires_type { fields.required_one_of("type", words) } else { fields.one_of("type", words) };
    SchedulePatch {
        kind: kind.and_then(ScheduleKind::parse),
        // Without a length limit: the domain returns a more helpful error for a long text.
        cron: fields.string("cron", 0..=usize::MAX),
        at: fields.string("at", 0..=usize::MAX),
        timezone: fields.string("timezone", 0..=usize::MAX),
        catch_up: fields.one_of("catch_up", &CatchUp::WORDS).and_then(CatchUp::parse),
    }
}

/// Checks a URL by the rules of a callback (contract §4.6), in a field without headers next to it. Returns the URL to
/// store.
/// Errors: `invalid_callback_url` with the name of the field.
pub fn check_url_of(field: &str, url: &str, policy: &AddressPolicy) -> Result<String, Refusal> {
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

fn ignored_fields_warning(names: &[String]) -> Option<String> {
    // A body of 2 MB can contain a very long list of names.
    let text: String = names.join(", ").chars().take(500).collect();
    (!names.is_empty()).then(|| format!("Ignored fields: {text}"))
}

/// The fields of a cue (contract §4.1) without its payload, whose stored text is added to the serialized view.
/// Serialized directly, without building a `serde_json::Value` first, because every create and every read returns it.
#[derive(Debug)]
pub struct CueView<'a> {
    cue: &'a Cue,
    /// In lists that ask for it.
    recent: Option<RecentView<'a>>,
}

impl<'a> CueView<'a> {
    pub fn new(cue: &'a Cue, recent: Option<RecentView<'a>>) -> Self {
        Self { cue, recent }
    }
}

impl Serialize for CueView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let it = self.cue;
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("id", &it.id)?;
        object.serialize_entry("name", &it.name)?;
        object.serialize_entry("description", &it.description)?;
        object.serialize_entry("status", it.status.as_str())?;
        object.serialize_entry("next_run", &it.next_run.map(instant_with_offset))?;
        object.serialize_entry("last_run", &it.last_run.map(JsonTimestamp))?;
        object.serialize_entry("schedule", &ScheduleView::from(&it.schedule))?;
        object.serialize_entry("callback", &CallbackView::from(it.callback.as_ref()))?;
        object.serialize_entry("transport", it.transport.as_str())?;
        let (max_attempts, backoff_minutes) = (it.retry.max_attempts, &it.retry.backoff_minutes);
        object.serialize_entry("retry", &RetryView { max_attempts, backoff_minutes })?;
        object.serialize_entry("on_failure", &it.on_failure)?;
        object.serialize_entry("verification", &VerificationView { mode: it.verification.as_str() })?;
        object.serialize_entry("claim_within_minutes", &it.claim_within_minutes)?;
        object.serialize_entry("run_count", &it.run_count)?;
        object.serialize_entry("fired_count", &it.run_count)?;
        object.serialize_entry("missed_count", &it.missed_count)?;
        object.serialize_entry("failing", &it.failing)?;
        object.serialize_entry("warning", &it.warning)?;
        object.serialize_entry("created_at", &JsonTimestamp(it.created_at))?;
        object.serialize_entry("updated_at", &JsonTimestamp(it.updated_at))?;
        if let Some(recent) = &self.recent {
            object.serialize_entry("recent", recent)?;
        }
        object.end()
    }
}

#[derive(Debug, Serialize)]
pub struct RecentView<'a> {
    pub statuses: &'a str,
    pub last: Option<LastRunView<'a>>,
}

#[derive(Debug, Serialize)]
pub struct LastRunView<'a> {
    pub execution_id: String,
    pub status: &'static str,
    pub at: JsonTimestamp,
    pub cause: Option<&'a str>,
    pub duration_ms: Option<i64>,
}

#[derive(Debug, Serialize)]
struct ScheduleView<'a> {
    r#type: &'static str,
    cron: Option<&'a str>,
    at: Option<JsonTimestamp>,
    timezone: &'a str,
    catch_up: &'static str,
}

#[derive(Debug, Serialize)]
struct RetryView<'a> {
    max_attempts: u32,
    #[serde(serialize_with = "minutes")]
    backoff_minutes: &'a [f64],
}

#[derive(Debug, Serialize)]
struct VerificationView {
    mode: &'static str,
}

/// A worker cue has no callback; its `url` is `null`.
#[derive(Debug, Serialize)]
struct CallbackView<'a> {
    url: Option<&'a str>,
    method: &'static str,
    #[serde(serialize_with = "headers")]
    headers: &'a [(String, String)],
    outcome_from_response: bool,
}

impl<'a> From<&'a StoredSchedule> for ScheduleView<'a> {
    fn from(schedule: &'a StoredSchedule) -> Self {
        let (r#type, cron, at) = match &schedule.when {
            ScheduleSpec::Recurring(cron) => ("recurring", Some(cron.as_str()), None),
            ScheduleSpec::Once(at) => ("once", None, Some(JsonTimestamp(*at))),
        };
        Self { r#type, cron, at, timezone: &schedule.timezone, catch_up: schedule.catch_up.as_str() }
    }
}

impl<'a> From<Option<&'a Callback>> for CallbackView<'a> {
    fn from(callback: Option<&'a Callback>) -> Self {
        Self {
            url: callback.map(|callback| callback.url.as_str()),
            method: callback.map_or(Method::default(), |callback| callback.method).as_str(),
            headers: callback.map_or(&[], |callback| &callback.headers),
            outcome_from_response: callback.is_some_and(|callback| callback.outcome_from_response),
        }
    }
}

fn headers<S: Serializer>(headers: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(headers.iter().map(|(name, value)| (name, value)))
}

/// Serializes whole numbers as integers (contract §4.6).
fn minutes<S: Serializer>(minutes: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(untagged)]
    enum Minutes {
        Whole(i64),
        Parts(f64),
    }
    // At most the minutes of a year (see `MAX_BACKOFF_MINUTES`), so the integer cannot overflow.
    let number = |it: &f64| if it.fract() == 0.0 { Minutes::Whole(*it as i64) } else { Minutes::Parts(*it) };
    serializer.collect_seq(minutes.iter().map(number))
}
