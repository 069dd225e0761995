//! The cue of the API: the fields of a create, of a PATCH and of a response (contract §4.1, §4.2, §4.9).
//!
//! A field that users set is named in [`FIELDS`], read in `CueReader::read` and shown in [`CueView`].

use std::ops::RangeInclusive;

use jiff::Timestamp;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::api::fields::JsonFields;
use crate::domain::api_error::Refusal;
use crate::domain::cue::tags::{MAX_TAGS, TAG_RULE, Tags, is_tag};
use crate::domain::cue::{
    CallbackPatch, Cue, CuePatch, NO_CLAIMS, NO_OUTCOMES, NewCue, OnFailure, OnFailurePatch, Payload,
    RequestedStatus, RetryPatch, ScheduleKind, SchedulePatch, ScheduleSpec, StoredSchedule, Transport,
};
use crate::domain::execution::RetryPolicy;
use crate::domain::execution::outcome::VerificationMode;
use crate::domain::execution::policies::{
    MAX_MAX_AGE, MAX_OUTCOME_DEADLINE, MIN_MAX_AGE, MIN_OUTCOME_DEADLINE, Overlap, Policies,
};
use crate::domain::execution::worker::{MAX_CLAIM_WITHIN, MIN_CLAIM_WITHIN};
use crate::domain::json::JsonStr;
use crate::domain::schedule::interval::Interval;
use crate::domain::schedule::{CatchUp, EARLIEST, Schedule, Zone, parse_instant};
use crate::domain::time::{JsonTimestamp, instant_with_offset};
use crate::domain::webhook::address_policy::AddressPolicy;
use crate::domain::webhook::callback::{
    Callback, DEFAULT_TIMEOUT_SECONDS, Method, UrlError, check_headers, check_url,
};
use crate::domain::webhook::flow::{Flow, FlowPatch, MAX_KEY, MAX_PARALLELISM, MAX_PER_MINUTE};

/// The fields of a cue that users set, in the order in which people read them. `transport` cannot be changed.
pub const FIELDS: [&str; 14] = [
    "name",
    "description",
    "tags",
    "schedule",
    "transport",
    "callback",
    "payload",
    "retry",
    "on_failure",
    "verification",
    "claim_within_minutes",
    "overlap",
    "max_age_seconds",
    "outcome_deadline_seconds",
];

/// The fields that a PATCH removes with `null`.
pub const REMOVABLE_FIELDS: [&str; 6] =
    ["description", "tags", "payload", "claim_within_minutes", "max_age_seconds", "outcome_deadline_seconds"];

/// The fields of text: a value such as `123` is text there, and not a number.
pub const TEXT_FIELDS: &str = "name description status schedule.type schedule.cron schedule.every schedule.at \
    schedule.timezone schedule.catch_up schedule.start schedule.end callback.url callback.method \
    callback.flow.key overlap on_failure.webhook verification.mode";

const MAX_DESCRIPTION: usize = 10_000;

const MAX_JITTER: i64 = 3_600;

/// Longest pause between two attempts: a year.
const MAX_BACKOFF_MINUTES: f64 = 525_600.0;

/// Parses the body of a create. Unknown fields only lead to the warning of the cue.
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
        tags: patch.tags.unwrap_or_default(),
        schedule,
        transport,
        callback: patch.callback.callback(),
        payload: patch.payload.flatten(),
        retry: RetryPolicy::default(),
        on_failure: OnFailure::default(),
        verification: patch.verification.unwrap_or_default(),
        claim_within_minutes: patch.claim_within_minutes.flatten(),
        policies: Policies {
            overlap: patch.overlap.unwrap_or_default(),
            max_age_seconds: patch.max_age_seconds.flatten(),
            outcome_deadline_seconds: patch.outcome_deadline_seconds.flatten(),
        },
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

/// Parses the `schedule` of a preview. Also returns the note of a `once` schedule whose local time a clock change
/// skips.
pub fn preview_schedule(fields: &mut JsonFields<'_>) -> Option<Result<(Schedule, Option<String>), Refusal>> {
    let mut schedule = fields.required_object("schedule")?;
    let patch = read_schedule(&mut schedule, true);
    Some(patch.schedule(patch.kind?).map(|schedule| {
        let note = patch.at.as_deref().and_then(|at| schedule.skipped_note(at));
        (schedule, note)
    }))
}

struct CueReader<'p> {
    policy: &'p AddressPolicy,
    /// The ignored fields of a create; `None` for a PATCH, in which unknown fields are errors.
    ignored: Option<Vec<String>>,
}

/// The fields of a body. The parts that are refused with a code of their own are results, because the validation errors
/// of all fields come first.
struct CueBody<'a> {
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
        let tags = fields.nullable("tags", read_tags).map(Option::unwrap_or_default);
        let schedule = self.schedule(fields);
        let callback = self.callback(fields, transport);
        let payload = fields.nullable("payload", |fields| fields.dictionary("payload"));
        let retry = self.retry(fields);
        let on_failure = self.on_failure(fields);
        let verification = self.verification(fields);
        let claim_within_minutes =
            nullable_number(fields, "claim_within_minutes", MIN_CLAIM_WITHIN..=MAX_CLAIM_WITHIN);
        if self.is_webhook(fields, transport) && claim_within_minutes.flatten().is_some() {
            fields.reject("claim_within_minutes", NO_CLAIMS);
        }
        let overlap = fields.one_of("overlap", &Overlap::WORDS).and_then(Overlap::parse);
        let max_age_seconds = nullable_number(fields, "max_age_seconds", MIN_MAX_AGE..=MAX_MAX_AGE);
        let bounds = MIN_OUTCOME_DEADLINE..=MAX_OUTCOME_DEADLINE;
        let outcome_deadline_seconds = nullable_number(fields, "outcome_deadline_seconds", bounds);
        if transport == Some(Transport::Worker) && outcome_deadline_seconds.flatten().is_some() {
            fields.reject("outcome_deadline_seconds", NO_OUTCOMES);
        }
        let patch = CuePatch {
            status,
            name,
            description,
            tags,
            schedule,
            retry,
            verification,
            claim_within_minutes,
            overlap,
            max_age_seconds,
            outcome_deadline_seconds,
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
        let is_set = [
            ("at", patch.at.is_some()),
            ("cron", patch.cron.is_some()),
            ("every", patch.every.is_some()),
            ("start", matches!(patch.start, Some(Some(_)))),
            ("end", matches!(patch.end, Some(Some(_)))),
        ];
        let (unused, word) = match patch.kind {
            Some(ScheduleKind::Recurring) => (&is_set[..1], "recurring"),
            Some(ScheduleKind::Once) => (&is_set[1..], "once"),
            None => (&is_set[..0], ""),
        };
        for (name, _) in unused.iter().filter(|(_, is_set)| *is_set) {
            self.ignore(&format!("schedule.{name} (not used by a {word} schedule)"));
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
        let timeout_seconds =
            callback.integer("timeout_seconds", 1..=300).and_then(|it| u32::try_from(it).ok());
        let flow = callback.nullable("flow", |callback| self.flow(callback));
        self.check_unknown(&callback, "callback");
        let url = url.map(|url| check_url(&url, self.policy)).transpose()?.map(|target| target.url);
        let method = method.map(|method| Method::from_request(&method)).transpose()?;
        headers.as_deref().map(check_headers).transpose()?;
        Ok(CallbackPatch { url, method, headers, outcome_from_response, timeout_seconds, flow })
    }

    fn flow(&mut self, callback: &mut JsonFields<'_>) -> Option<FlowPatch> {
        let mut flow = callback.object("flow")?;
        let key = flow.string("key", 1..=MAX_KEY);
        if key.as_ref().is_some_and(|key| !key.chars().all(|c| c == ' ' || c.is_ascii_graphic())) {
            flow.reject("key", "key should have printable ASCII characters only");
        }
        let parallelism = nullable_number(&mut flow, "parallelism", 1..=MAX_PARALLELISM);
        let per_minute = nullable_number(&mut flow, "per_minute", 1..=MAX_PER_MINUTE);
        let is_limited = flow.any("parallelism").or(flow.any("per_minute")).is_some();
        self.check_unknown(&flow, "callback.flow");
        if !is_limited {
            callback.reject("flow", "set parallelism, per_minute, or both");
        }
        Some(FlowPatch { key, parallelism: parallelism.flatten(), per_minute: per_minute.flatten() })
    }

    fn retry(&mut self, fields: &mut JsonFields<'_>) -> RetryPatch {
        let Some(mut retry) = fields.object("retry") else { return RetryPatch::default() };
        let max_attempts =
            retry.integer("max_attempts", 1..=10).and_then(|attempts| u32::try_from(attempts).ok());
        let backoff_minutes = retry.numbers("backoff_minutes", 1..=10);
        if backoff_minutes.iter().flatten().any(|minutes| !(0.0..=MAX_BACKOFF_MINUTES).contains(minutes)) {
            retry.reject("backoff_minutes", "minutes should be between 0 and 525600 (a year)");
        }
        let backoff_seconds = retry.nullable("backoff_seconds", |retry| {
            let pauses = retry.numbers("backoff_seconds", 1..=10)?;
            let is_valid = |pause: &f64| pause.fract() == 0.0 && (1.0..=86_400.0).contains(pause);
            if !pauses.iter().all(is_valid) {
                retry.reject("backoff_seconds", "seconds should be whole numbers from 1 to 86400 (a day)");
            }
            Some(pauses.into_iter().map(|pause| pause as u32).collect())
        });
        self.check_unknown(&retry, "retry");
        RetryPatch { max_attempts, backoff_minutes, backoff_seconds }
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

fn nullable_number(
    fields: &mut JsonFields<'_>,
    name: &'static str,
    range: RangeInclusive<i64>,
) -> Option<Option<u32>> {
    fields.nullable(name, |fields| u32::try_from(fields.integer(name, range)?).ok())
}

/// Reads the tags of a cue or of a filter. A repeated one counts once.
pub fn read_tags(fields: &mut JsonFields<'_>) -> Option<Tags> {
    fields.words("tags", 0..=MAX_TAGS, (is_tag, TAG_RULE)).map(Tags::new)
}

fn read_schedule(fields: &mut JsonFields<'_>, requires_type: bool) -> SchedulePatch {
    let words = &ScheduleKind::WORDS;
    let kind =
        if requires_type { fields.required_one_of("type", words) } else { fields.one_of("type", words) };
    // Without a length limit: the domain returns a more helpful error for a long text.
    let text = 0..=usize::MAX;
    let mut cron = fields.string("cron", text.clone());
    let mut every = fields.string("every", text.clone());
    if cron.is_some() && every.is_some() {
        fields.reject("every", "set either cron or every, and leave the other one out");
    }
    // The form of crontabs; it is stored as the interval.
    let macro_and_rest = cron.as_deref().and_then(|cron| cron.trim().split_once(char::is_whitespace));
    if let Some((_, interval)) = macro_and_rest.filter(|(word, _)| word.eq_ignore_ascii_case("@every")) {
        every = Some(interval.to_owned());
        cron = None;
    }
    let patch = SchedulePatch {
        kind: kind.and_then(ScheduleKind::parse),
        cron,
        every: every.map(|every| every.trim().to_owned()),
        at: fields.string("at", text.clone()),
        timezone: fields.string("timezone", text.clone()),
        catch_up: fields.one_of("catch_up", &CatchUp::WORDS).and_then(CatchUp::parse),
        start: fields.nullable("start", |fields| fields.string("start", text.clone())),
        end: fields.nullable("end", |fields| fields.string("end", text.clone())),
        jitter_seconds: fields
            .integer("jitter_seconds", 0..=MAX_JITTER)
            .and_then(|seconds| u32::try_from(seconds).ok()),
    };
    check_bounds(fields, &patch, requires_type);
    patch
}

/// Adds the errors of an interval and of bounds, as far as they do not depend on the stored cue.
fn check_bounds(fields: &mut JsonFields<'_>, patch: &SchedulePatch, is_whole: bool) {
    if let Some(Err(error)) =
        patch.every.as_deref().map(|every| Interval::parse(every, Timestamp::UNIX_EPOCH))
    {
        let name = if fields.any("every").is_some() { "every" } else { "cron" };
        fields.reject(name, &error.to_string());
    }
    let zone = patch.timezone.as_deref().and_then(|name| Zone::find(name).ok()).unwrap_or(Zone::UTC);
    let mut is_valid = true;
    for (name, bound) in [("start", &patch.start), ("end", &patch.end)] {
        let Some(text) = bound.as_ref().and_then(Option::as_ref) else { continue };
        let problem = match parse_instant(text, &zone) {
            Err(error) => error.to_string(),
            Ok(instant) if instant < EARLIEST => format!("{name} should not be before the year 1"),
            Ok(_) => continue,
        };
        fields.reject(name, &problem);
        is_valid = false;
    }
    for (name, message) in patch.contradictions(is_whole).into_iter().filter(|_| is_valid) {
        fields.reject(name, message);
    }
}

/// Checks the URL of another field by the rules of a callback (contract §4.6), and names that field in the error.
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
        object.serialize_entry("tags", &it.tags)?;
        object.serialize_entry("status", it.status.as_str())?;
        object.serialize_entry("next_run", &it.next_run.map(instant_with_offset))?;
        object.serialize_entry("last_run", &it.last_run.map(JsonTimestamp))?;
        object.serialize_entry("schedule", &ScheduleView::from(&it.schedule))?;
        object.serialize_entry("callback", &CallbackView::from(it.callback.as_ref()))?;
        object.serialize_entry("transport", it.transport.as_str())?;
        object.serialize_entry("retry", &RetryView::from(&it.retry))?;
        object.serialize_entry("on_failure", &it.on_failure)?;
        object.serialize_entry("verification", &VerificationView { mode: it.verification.as_str() })?;
        object.serialize_entry("claim_within_minutes", &it.claim_within_minutes)?;
        object.serialize_entry("overlap", it.policies.overlap.as_str())?;
        object.serialize_entry("max_age_seconds", &it.policies.max_age_seconds)?;
        object.serialize_entry("outcome_deadline_seconds", &it.policies.outcome_deadline_seconds)?;
        object.serialize_entry("run_count", &it.run_count)?;
        object.serialize_entry("fired_count", &it.run_count)?;
        object.serialize_entry("missed_count", &it.missed_count)?;
        object.serialize_entry("failing", &it.failing)?;
        object.serialize_entry("warning", &it.warning)?;
        object.serialize_entry("created_at", &JsonTimestamp(it.created_at))?;
        object.serialize_entry("updated_at", &JsonTimestamp(it.updated_at))?;
        if let Some(recent) = &self.recent {
            object.serialize_entry("recent", recent)?;
            let words = it.schedule.read().ok().map(|schedule| schedule.describe());
            object.serialize_entry("schedule_words", &words)?;
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
    every: Option<&'a str>,
    at: Option<JsonTimestamp>,
    timezone: &'a str,
    catch_up: &'static str,
    start: Option<JsonTimestamp>,
    end: Option<JsonTimestamp>,
    jitter_seconds: u32,
}

#[derive(Debug, Serialize)]
struct RetryView<'a> {
    max_attempts: u32,
    #[serde(serialize_with = "minutes")]
    backoff_minutes: &'a [f64],
    /// Absent if the pauses are in minutes: a client that compares `retry` as a whole sees what it did before.
    #[serde(skip_serializing_if = "Option::is_none")]
    backoff_seconds: Option<&'a [u32]>,
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
    timeout_seconds: u32,
    flow: Option<&'a Flow>,
}

impl<'a> From<&'a StoredSchedule> for ScheduleView<'a> {
    fn from(schedule: &'a StoredSchedule) -> Self {
        let (r#type, cron, every, at) = match &schedule.when {
            ScheduleSpec::Recurring(cron) => ("recurring", Some(cron.as_str()), None, None),
            ScheduleSpec::Every(every, _) => ("recurring", None, Some(every.as_str()), None),
            ScheduleSpec::Once(at) => ("once", None, None, Some(JsonTimestamp(*at))),
        };
        Self {
            r#type,
            cron,
            every,
            at,
            timezone: &schedule.timezone,
            catch_up: schedule.catch_up.as_str(),
            start: schedule.bounds.start.map(JsonTimestamp),
            end: schedule.bounds.end.map(JsonTimestamp),
            jitter_seconds: schedule.bounds.jitter_seconds,
        }
    }
}

impl<'a> From<&'a RetryPolicy> for RetryView<'a> {
    fn from(retry: &'a RetryPolicy) -> Self {
        let RetryPolicy { max_attempts, backoff_minutes, backoff_seconds } = retry;
        Self { max_attempts: *max_attempts, backoff_minutes, backoff_seconds: backoff_seconds.as_deref() }
    }
}

impl<'a> From<Option<&'a Callback>> for CallbackView<'a> {
    fn from(callback: Option<&'a Callback>) -> Self {
        Self {
            url: callback.map(|callback| callback.url.as_str()),
            method: callback.map_or(Method::default(), |callback| callback.method).as_str(),
            headers: callback.map_or(&[], |callback| &callback.headers),
            outcome_from_response: callback.is_some_and(|callback| callback.outcome_from_response),
            timeout_seconds: callback.map_or(DEFAULT_TIMEOUT_SECONDS, |callback| callback.timeout_seconds),
            flow: callback.and_then(|callback| callback.flow.as_ref()),
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
