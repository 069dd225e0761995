//! The cue in requests of the API: the fields of a create, of a PATCH and of a PUT (contract §4.1, §4.2, §4.9, §4.17).
//!
//! A field that users set is named in [`FIELDS`], read in `CueReader::read` and shown by `CueView`.

use std::ops::RangeInclusive;

use jiff::Timestamp;
use serde_json::Value;

use crate::api::fields::JsonFields;
use crate::domain::api_error::{ErrorCode, FieldError, Refusal};
use crate::domain::cue::slug::{SLUG_RULE, Slug};
use crate::domain::cue::tags::{MAX_TAGS, TAG_RULE, Tags, is_tag};
use crate::domain::cue::{
    CallbackPatch, CuePatch, NewCue, OnFailure, OnFailurePatch, Payload, RequestedStatus,
    RetryPatch, ScheduleKind, SchedulePatch, Transport,
};
use crate::domain::cue_fields::{
    Overlap, PLAIN_FIELDS, PlainField, Policies, PoliciesPatch, Values, plain_fields,
};
use crate::domain::execution::RetryPolicy;
use crate::domain::execution::outcome::VerificationMode;
use crate::domain::json::JsonStr;
use crate::domain::schedule::interval::Interval;
use crate::domain::schedule::{CatchUp, EARLIEST, Zone, parse_instant};
use crate::domain::webhook::address_policy::AddressPolicy;
use crate::domain::webhook::callback::{Method, UrlError, check_headers, check_url};
use crate::domain::webhook::flow::{FlowPatch, MAX_KEY, MAX_PARALLELISM, MAX_PER_MINUTE};

macro_rules! fields {
    ($($(#[$meta:meta])* $name:ident: $type:ty = $($row:expr),+;)+) => {
        /// The fields of a cue that users set, in reading order. `transport` cannot be changed.
        pub const FIELDS: [&str; 11 + PLAIN_FIELDS.len()] = [
            "name", "slug", "description", "tags", "schedule", "transport", "callback", "payload",
            "retry", "on_failure", "verification", $(stringify!($name)),+
        ];
    };
}

plain_fields!(fields);

/// Of `callback.timeout_seconds`.
pub const TIMEOUT_SECONDS: RangeInclusive<i64> = 1..=300;

/// A text field, or a field inside another one. The keys of the payload and of the headers are the user's own.
#[derive(Debug, Clone, Copy)]
pub struct NamedField {
    /// With a dot before a part of an object.
    pub path: &'static str,
    /// The flag that sets it, if its name differs from that of the outermost field.
    pub flag: Option<&'static str>,
    /// A value such as `123` is text there, and not a number.
    pub is_text: bool,
}

const fn text(path: &'static str, flag: Option<&'static str>) -> NamedField {
    NamedField { path, flag, is_text: true }
}

const fn other(path: &'static str, flag: Option<&'static str>) -> NamedField {
    NamedField { path, flag, is_text: false }
}

/// The text fields and the parts of objects, in reading order. Plain fields have a table of their own.
pub const NAMED_FIELDS: [NamedField; 30] = [
    text("name", None),
    text("slug", None),
    text("description", None),
    text("status", None),
    other("tags", Some("tag")),
    text("schedule.type", None),
    text("schedule.cron", Some("cron")),
    text("schedule.every", Some("every")),
    text("schedule.at", Some("at")),
    text("schedule.timezone", Some("tz")),
    text("schedule.catch_up", Some("catch-up")),
    text("schedule.start", Some("start")),
    text("schedule.end", Some("end")),
    other("schedule.jitter_seconds", Some("jitter")),
    text("callback.url", Some("url")),
    text("callback.method", Some("method")),
    other("callback.headers", Some("header")),
    other("callback.timeout_seconds", Some("timeout")),
    other("callback.flow", None),
    other("callback.outcome_from_response", Some("outcome-from-response")),
    text("callback.flow.key", Some("flow-key")),
    other("callback.flow.parallelism", Some("parallelism")),
    other("callback.flow.per_minute", Some("per-minute")),
    other("retry.max_attempts", None),
    other("retry.backoff_minutes", None),
    other("retry.backoff_seconds", None),
    other("on_failure.email", None),
    text("on_failure.webhook", Some("on-failure")),
    other("on_failure.pause", None),
    text("verification.mode", Some("verification")),
];

/// The names of the parts of an object; none if it has none, or the user's own.
pub fn parts_of(object: &str) -> impl Iterator<Item = &'static str> {
    let part = move |field: &NamedField| {
        let part = field.path.strip_prefix(object)?.strip_prefix('.')?;
        (!part.contains('.')).then_some(part)
    };
    NAMED_FIELDS.iter().filter_map(part)
}

/// The paths of all fields and their parts.
pub fn field_paths() -> impl Iterator<Item = &'static str> {
    let parts = NAMED_FIELDS.iter().map(|field| field.path).filter(|path| path.contains('.'));
    FIELDS.into_iter().chain(parts)
}

/// The flag that sets a field, if its name differs from that of the field.
pub fn flag_of(path: &str) -> Option<&'static str> {
    let named = NAMED_FIELDS.iter().find(|field| field.path == path).and_then(|field| field.flag);
    named.or(PlainField::named(path).map(|field| field.flag.0))
}

/// The fields that a PATCH removes with `null`.
pub fn removable_fields() -> impl Iterator<Item = &'static str> {
    let plain = PLAIN_FIELDS.iter().filter(|field| field.is_removable()).map(|field| field.name);
    ["slug", "description", "tags", "payload"].into_iter().chain(plain)
}

/// The fields that a cue of this transport cannot have.
pub fn unfit_fields(transport: Transport) -> impl Iterator<Item = &'static str> {
    let callback = (transport == Transport::Worker).then_some("callback");
    let plain = PLAIN_FIELDS.iter().filter(move |field| field.misfit(transport).is_some());
    callback.into_iter().chain(plain.map(|field| field.name))
}

/// Returns whether the field has a text.
pub fn is_text_field(path: &str) -> bool {
    let is_word = |field: &PlainField| matches!(field.values, Values::Words(_));
    NAMED_FIELDS.iter().any(|field| field.is_text && field.path == path)
        || PlainField::named(path).is_some_and(is_word)
}

const MAX_DESCRIPTION: usize = 10_000;

const MAX_JITTER: i64 = 3_600;

/// Longest pause between two attempts: a year.
const MAX_BACKOFF_MINUTES: f64 = 525_600.0;

/// Parses the body of a create. Unknown fields only lead to the warning of the cue.
pub fn new_cue(mut fields: JsonFields<'_>, policy: &AddressPolicy) -> Result<NewCue, Refusal> {
    let mut reader = CueReader::new(policy, Form::Create);
    let body = reader.read(&mut fields);
    let unknown = fields.unknown().into_iter().chain(std::mem::take(&mut reader.unknown));
    let names: Vec<String> = unknown.chain(reader.ignored.iter().map(Ignored::words)).collect();
    fields.finish()?;
    let new = body.new_cue()?;
    Ok(NewCue { warning: ignored_fields_warning(&names), ..new })
}

/// Parses the body of a PUT: a whole cue, and its status where it is given. Fields without effect are errors.
pub fn put_cue(
    mut fields: JsonFields<'_>,
    slug: Slug,
    policy: &AddressPolicy,
) -> Result<(NewCue, Option<RequestedStatus>), Refusal> {
    let mut reader = CueReader::new(policy, Form::Put);
    let body = reader.read(&mut fields);
    fields.forbid_unknown();
    fields.finish()?;
    if !reader.ignored.is_empty() {
        return Err(Refusal::invalid(reader.ignored.iter().map(Ignored::error).collect()));
    }
    let status = body.patch.status;
    Ok((NewCue { slug: Some(slug), ..body.new_cue()? }, status))
}

/// Parses the body of a PATCH. Unknown fields are errors.
/// Errors: as [`new_cue`], except for the schedule: it is checked after it is merged with the schedule of the cue.
pub fn cue_patch(mut fields: JsonFields<'_>, policy: &AddressPolicy) -> Result<CuePatch, Refusal> {
    let body = CueReader::new(policy, Form::Patch).read(&mut fields);
    fields.forbid_unknown();
    fields.finish()?;
    body.patch()
}

/// Parses a callback. Unknown fields are errors.
pub fn callback_patch(
    callback: JsonFields<'_>,
    policy: &AddressPolicy,
) -> Result<CallbackPatch, Refusal> {
    CueReader::new(policy, Form::Patch).callback_fields(callback)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A whole cue. Unknown fields are ignored.
    Create,
    /// A whole cue, named by the path.
    Put,
    Patch,
}

/// A known field that has no effect beside the others.
struct Ignored {
    path: Vec<&'static str>,
    reason: String,
}

impl Ignored {
    fn words(&self) -> String {
        format!("{} ({})", self.path.join("."), self.reason)
    }

    fn error(&self) -> FieldError {
        FieldError {
            kind: "value_error",
            loc: std::iter::once("body").chain(self.path.iter().copied()).map(Into::into).collect(),
            msg: format!("Value error, {}; leave it out", self.reason),
            input: Value::Null,
        }
    }
}

macro_rules! reader {
    ($($(#[$meta:meta])* $name:ident: $type:ty = $($row:expr),+;)+) => {
        /// Reads the plain fields of a cue of this transport, if it is known.
        fn read_policies(fields: &mut JsonFields<'_>, transport: Option<Transport>) -> PoliciesPatch {
            PoliciesPatch { $($name: read_plain(fields, stringify!($name), transport)),+ }
        }
    };
}

plain_fields!(reader);

fn read_plain<T: PlainValue>(
    fields: &mut JsonFields<'_>,
    name: &'static str,
    transport: Option<Transport>,
) -> Option<T> {
    let field = PlainField::named(name)?;
    let value = T::read(fields, field);
    if value.is_some_and(|value| value != T::default())
        && let Some(misfit) = transport.and_then(|transport| field.misfit(transport))
    {
        fields.reject(name, &misfit);
    }
    value
}

trait PlainValue: Copy + PartialEq + Default {
    fn read(fields: &mut JsonFields<'_>, field: &'static PlainField) -> Option<Self>;
}

impl PlainValue for Option<u32> {
    /// Null removes the value.
    fn read(fields: &mut JsonFields<'_>, field: &'static PlainField) -> Option<Self> {
        let (Values::Minutes(range) | Values::Seconds(range)) = &field.values else { return None };
        nullable_number(fields, field.name, range.clone())
    }
}

impl PlainValue for Overlap {
    fn read(fields: &mut JsonFields<'_>, field: &'static PlainField) -> Option<Self> {
        fields.one_of(field.name, &Self::WORDS).and_then(Self::parse)
    }
}

struct CueReader<'p> {
    policy: &'p AddressPolicy,
    form: Form,
    ignored: Vec<Ignored>,
    /// The unknown fields of the objects in a create.
    unknown: Vec<String>,
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
    /// The cue of a whole body without errors.
    fn new_cue(self) -> Result<NewCue, Refusal> {
        // The validation has returned an error if one of them is missing.
        let (Some(name), Some(kind)) = (self.patch.name.clone(), self.patch.schedule.kind) else {
            return Err(Refusal::invalid(Vec::new()));
        };
        let schedule = self.patch.schedule.schedule(kind)?;
        let transport = self.transport.unwrap_or(Transport::Webhook);
        let patch = self.patch()?;
        let mut new = NewCue {
            slug: patch.slug.flatten(),
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
            policies: Policies::default(),
            warning: None,
        };
        patch.policies.apply_to(&mut new.policies);
        patch.retry.apply_to(&mut new.retry);
        patch.on_failure.apply_to(&mut new.on_failure);
        Ok(new)
    }

    fn patch(self) -> Result<CuePatch, Refusal> {
        let (callback, on_failure) = (self.callback?, self.on_failure?);
        let payload =
            self.payload.map(|payload| payload.map(Payload::new).transpose()).transpose()?;
        Ok(CuePatch { callback, on_failure, payload, ..self.patch })
    }
}

impl<'p> CueReader<'p> {
    fn new(policy: &'p AddressPolicy, form: Form) -> Self {
        Self { policy, form, ignored: Vec::new(), unknown: Vec::new() }
    }

    /// Whether the body is a whole cue, with the required fields.
    fn is_whole(&self) -> bool {
        self.form != Form::Patch
    }

    fn read<'a>(&mut self, fields: &mut JsonFields<'a>) -> CueBody<'a> {
        let (mut status, mut transport) = (None, None);
        let name;
        if self.is_whole() {
            name = fields.required_string("name", 1..=255);
            transport = fields.one_of("transport", &Transport::WORDS).and_then(Transport::parse);
        } else {
            name = fields.string("name", 1..=255);
        }
        if self.form != Form::Create {
            status =
                fields.one_of("status", &RequestedStatus::WORDS).and_then(RequestedStatus::parse);
        }
        let slug = if self.form == Form::Put { None } else { fields.nullable("slug", read_slug) };
        let description = fields
            .nullable("description", |fields| fields.string("description", 0..=MAX_DESCRIPTION));
        let tags = fields.nullable("tags", read_tags).map(Option::unwrap_or_default);
        let schedule = self.schedule(fields);
        let callback = self.callback(fields, transport);
        let payload = fields.nullable("payload", |fields| fields.dictionary("payload"));
        let retry = self.retry(fields);
        let on_failure = self.on_failure(fields);
        let verification = self.verification(fields);
        let is_webhook = self.is_webhook(fields, transport);
        let policies =
            read_policies(fields, if is_webhook { Some(Transport::Webhook) } else { transport });
        let patch = CuePatch {
            status,
            slug,
            name,
            description,
            tags,
            schedule,
            retry,
            verification,
            policies,
            ..CuePatch::default()
        };
        CueBody { patch, transport, callback, on_failure, payload }
    }

    /// Whether a whole body is for a webhook cue. A transport with an error is neither.
    fn is_webhook(&self, fields: &mut JsonFields<'_>, transport: Option<Transport>) -> bool {
        let is_default = self.is_whole() && fields.any("transport").is_none();
        transport == Some(Transport::Webhook) || is_default
    }

    fn schedule(&mut self, fields: &mut JsonFields<'_>) -> SchedulePatch {
        let is_whole = self.is_whole();
        let schedule =
            if is_whole { fields.required_object("schedule") } else { fields.object("schedule") };
        let Some(mut schedule) = schedule else { return SchedulePatch::default() };
        let patch = read_schedule(&mut schedule, is_whole);
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
            self.ignore(&["schedule", *name], format!("not used by a {word} schedule"));
        }
        patch
    }

    /// The callback: in a whole body required for a webhook cue and without effect for a worker cue.
    fn callback(
        &mut self,
        fields: &mut JsonFields<'_>,
        transport: Option<Transport>,
    ) -> Result<CallbackPatch, Refusal> {
        if transport == Some(Transport::Worker) {
            if fields.any("callback").is_some() {
                self.ignore(&["callback"], "not used by a worker cue".to_owned());
            }
            return Ok(CallbackPatch::default());
        }
        let Some(mut callback) = fields.object("callback") else {
            if self.is_webhook(fields, transport) && fields.any("callback").is_none() {
                fields.add_missing("callback");
            }
            return Ok(CallbackPatch::default());
        };
        if self.is_whole() && callback.any("url").is_none() {
            callback.add_missing("url");
        }
        self.callback_fields(callback)
    }

    fn callback_fields(&mut self, mut callback: JsonFields<'_>) -> Result<CallbackPatch, Refusal> {
        let url = callback.string("url", 0..=usize::MAX);
        let method = callback.string("method", 0..=16);
        let headers = callback.string_map("headers");
        let outcome_from_response = callback.boolean("outcome_from_response");
        let timeout_seconds = callback
            .integer("timeout_seconds", TIMEOUT_SECONDS)
            .and_then(|it| u32::try_from(it).ok());
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
            flow.reject("key", "should have printable ASCII characters only");
        }
        let parallelism = nullable_number(&mut flow, "parallelism", 1..=MAX_PARALLELISM);
        let per_minute = nullable_number(&mut flow, "per_minute", 1..=MAX_PER_MINUTE);
        let is_limited = flow.any("parallelism").or(flow.any("per_minute")).is_some();
        self.check_unknown(&flow, "callback.flow");
        if !is_limited {
            callback.reject("flow", "set parallelism, per_minute, or both");
        }
        Some(FlowPatch {
            key,
            parallelism: parallelism.flatten(),
            per_minute: per_minute.flatten(),
        })
    }

    fn retry(&mut self, fields: &mut JsonFields<'_>) -> RetryPatch {
        let Some(mut retry) = fields.object("retry") else { return RetryPatch::default() };
        let max_attempts =
            retry.integer("max_attempts", 1..=10).and_then(|attempts| u32::try_from(attempts).ok());
        let backoff_minutes = retry.numbers("backoff_minutes", 1..=10);
        if backoff_minutes
            .iter()
            .flatten()
            .any(|minutes| !(0.0..=MAX_BACKOFF_MINUTES).contains(minutes))
        {
            retry.reject("backoff_minutes", "should have pauses of 0 to 525600 minutes (a year)");
        }
        let backoff_seconds = retry.nullable("backoff_seconds", |retry| {
            let pauses = retry.numbers("backoff_seconds", 1..=10)?;
            let is_valid = |pause: &f64| pause.fract() == 0.0 && (1.0..=86_400.0).contains(pause);
            if !pauses.iter().all(is_valid) {
                retry.reject(
                    "backoff_seconds",
                    "should have pauses of whole seconds, from 1 to 86400",
                );
            }
            Some(pauses.into_iter().map(|pause| pause as u32).collect())
        });
        self.check_unknown(&retry, "retry");
        RetryPatch { max_attempts, backoff_minutes, backoff_seconds }
    }

    fn on_failure(&mut self, fields: &mut JsonFields<'_>) -> Result<OnFailurePatch, Refusal> {
        let Some(mut on_failure) = fields.object("on_failure") else {
            return Ok(OnFailurePatch::default());
        };
        let email = on_failure.boolean("email");
        let webhook =
            on_failure.nullable("webhook", |fields| fields.string("webhook", 0..=usize::MAX));
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

    fn ignore(&mut self, path: &[&'static str], reason: String) {
        self.ignored.push(Ignored { path: path.to_vec(), reason });
    }

    fn check_unknown(&mut self, fields: &JsonFields<'_>, parent: &str) {
        match self.form {
            Form::Create => {
                self.unknown
                    .extend(fields.unknown().into_iter().map(|name| format!("{parent}.{name}")));
            }
            Form::Put | Form::Patch => fields.forbid_unknown(),
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

fn read_slug(fields: &mut JsonFields<'_>) -> Option<Slug> {
    let text = fields.string("slug", 0..=usize::MAX)?;
    let slug = Slug::parse(&text);
    if slug.is_none() {
        fields.reject("slug", SLUG_RULE);
    }
    slug
}

/// Reads the tags of a cue or of a filter. A repeated one counts once.
pub fn read_tags(fields: &mut JsonFields<'_>) -> Option<Tags> {
    fields.words("tags", 0..=MAX_TAGS, (is_tag, TAG_RULE)).map(Tags::new)
}

/// Reads the fields of a schedule: of a whole one, which has a type, or of a change.
pub fn read_schedule(fields: &mut JsonFields<'_>, requires_type: bool) -> SchedulePatch {
    let words = &ScheduleKind::WORDS;
    let kind = if requires_type {
        fields.required_one_of("type", words)
    } else {
        fields.one_of("type", words)
    };
    // Without a length limit: the domain returns a more helpful error for a long text.
    let text = 0..=usize::MAX;
    let mut cron = fields.string("cron", text.clone());
    let mut every = fields.string("every", text.clone());
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
    let zone =
        patch.timezone.as_deref().and_then(|name| Zone::find(name).ok()).unwrap_or(Zone::UTC);
    let mut is_valid = true;
    for (name, bound) in [("start", &patch.start), ("end", &patch.end)] {
        let Some(text) = bound.as_ref().and_then(Option::as_ref) else { continue };
        let problem = match parse_instant(text, &zone) {
            Err(error) => error.to_string(),
            Ok(instant) if instant < EARLIEST => "should not be before the year 1".to_owned(),
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
    let named = |error: UrlError| match error {
        UrlError::UserInfo => Refusal::new(
            ErrorCode::InvalidCallbackUrl,
            format!(
                "{field}: must not contain a user name or password; remove them: the request is signed, and its \
                 receiver can verify the signature"
            ),
        ),
        other => other.of_field(field),
    };
    check_url(url, policy).map(|target| target.url).map_err(named)
}

fn ignored_fields_warning(names: &[String]) -> Option<String> {
    // A body of 2 MB can contain a very long list of names.
    let text: String = names.join(", ").chars().take(500).collect();
    (!names.is_empty()).then(|| format!("Ignored fields: {text}"))
}
