//! The cue in requests of the API: the fields of a create, of a PATCH and of a PUT (contract §4.1, §4.2, §4.9, §4.17).
//!
//! A field that users set is named in [`FIELDS`], read in `CueReader::read` and shown by `CueView`.

use std::ops::RangeInclusive;

use serde_json::Value;

use crate::api::fields::JsonFields;
use crate::api::schedule::read_schedule;
use crate::domain::api_error::{ErrorCode, FieldError, Refusal};
use crate::domain::cue::slug::{SLUG_RULE, Slug};
use crate::domain::cue::tags::{MAX_TAGS, TAG_RULE, Tags, is_tag};
use crate::domain::cue::{
    CueFields, CueRequest, OnFailure, Payload, RequestedStatus, ScheduleKind, StoredSchedule,
    Transport,
};
use crate::domain::cue_fields::{
    Overlap, PLAIN_FIELDS, PlainField, Policies, Values, plain_fields,
};
use crate::domain::execution::RetryPolicy;
use crate::domain::execution::outcome::VerificationMode;
use crate::domain::schedule::Schedule;
use crate::domain::webhook::address_policy::AddressPolicy;
use crate::domain::webhook::callback::{
    Callback, Method, UrlError, authority_of, check_headers, check_url,
};
use crate::domain::webhook::flow::{Flow, MAX_KEY, MAX_PARALLELISM, MAX_PER_MINUTE};

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

/// Longest pause between two attempts: a year.
const MAX_BACKOFF_MINUTES: f64 = 525_600.0;

/// Parses the body of a create. Unknown fields only lead to the warning of the cue.
pub fn new_cue(mut fields: JsonFields<'_>, policy: &AddressPolicy) -> Result<CueRequest, Refusal> {
    let mut reader = CueReader::new(policy, Form::Create, None);
    let read = reader.read(&mut fields);
    let unknown = fields.unknown().into_iter().chain(std::mem::take(&mut reader.unknown));
    let names: Vec<String> = unknown.chain(reader.ignored.iter().map(Ignored::words)).collect();
    fields.finish()?;
    Ok(CueRequest { warning: ignored_fields_warning(&names), ..read? })
}

/// Parses the body of a PUT: a whole cue, and its status where it is given. Fields without effect are errors.
pub fn put_cue(
    mut fields: JsonFields<'_>,
    slug: Slug,
    policy: &AddressPolicy,
) -> Result<CueRequest, Refusal> {
    let mut reader = CueReader::new(policy, Form::Put, None);
    let read = reader.read(&mut fields);
    fields.forbid_unknown();
    fields.finish()?;
    if !reader.ignored.is_empty() {
        return Err(Refusal::invalid(reader.ignored.iter().map(Ignored::error).collect()));
    }
    let mut request = read?;
    request.fields.slug = Some(slug);
    Ok(request)
}

/// Parses the body of a PATCH of a cue with the fields `base`. Only what the body names is judged: a stored value may have
/// become invalid since. Unknown fields are errors.
pub fn changed_cue(
    mut fields: JsonFields<'_>,
    base: &CueFields,
    policy: &AddressPolicy,
) -> Result<CueRequest, Refusal> {
    let read = CueReader::new(policy, Form::Patch, Some(base)).read(&mut fields);
    fields.forbid_unknown();
    fields.finish()?;
    read
}

/// Parses the callback of a test call, of which only the URL is required. Unknown fields are errors.
pub fn test_callback(
    callback: JsonFields<'_>,
    policy: &AddressPolicy,
) -> Result<Callback, Refusal> {
    CueReader::new(policy, Form::Put, None).callback_fields(callback, None)
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
        fn read_policies(
            fields: &mut JsonFields<'_>,
            transport: Option<Transport>,
            policies: &mut Policies,
        ) {
            $(set(&mut policies.$name, read_plain(fields, stringify!($name), transport));)+
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

/// Reads the fields of a body onto those of a cue, or of none.
struct CueReader<'p> {
    policy: &'p AddressPolicy,
    form: Form,
    /// The cue that is changed.
    base: Option<&'p CueFields>,
    ignored: Vec<Ignored>,
    /// The unknown fields of the objects in a create.
    unknown: Vec<String>,
}

impl<'p> CueReader<'p> {
    fn new(policy: &'p AddressPolicy, form: Form, base: Option<&'p CueFields>) -> Self {
        Self { policy, form, base, ignored: Vec::new(), unknown: Vec::new() }
    }

    /// Whether the body is a whole cue, with the required fields.
    fn is_whole(&self) -> bool {
        self.form != Form::Patch
    }

    /// The result counts if the fields have no validation errors, which come before all refusals with a code of their own.
    fn read(&mut self, fields: &mut JsonFields<'_>) -> Result<CueRequest, Refusal> {
        let mut it = self.base.cloned().unwrap_or_default();
        let (mut status, mut transport) = (None, Some(it.transport));
        if self.is_whole() {
            set(&mut it.name, fields.required_string("name", 1..=255));
            if fields.any("transport").is_some() {
                let word = fields.one_of("transport", &Transport::WORDS);
                transport = word.and_then(Transport::parse);
                set(&mut it.transport, transport);
            }
        } else {
            set(&mut it.name, fields.string("name", 1..=255));
        }
        if self.form != Form::Create {
            status =
                fields.one_of("status", &RequestedStatus::WORDS).and_then(RequestedStatus::parse);
        }
        if self.form != Form::Put {
            set(&mut it.slug, fields.nullable("slug", read_slug));
        }
        let description =
            |fields: &mut JsonFields<'_>| fields.string("description", 0..=MAX_DESCRIPTION);
        set(&mut it.description, fields.nullable("description", description));
        set(&mut it.tags, fields.nullable("tags", read_tags).map(Option::unwrap_or_default));
        let schedule = self.schedule(fields);
        let callback = self.callback(fields, transport);
        let payload = fields.nullable("payload", |fields| fields.dictionary("payload"));
        self.retry(fields, &mut it.retry);
        let on_failure = self.on_failure(fields, &mut it.on_failure);
        set(&mut it.verification, self.verification(fields));
        read_policies(fields, transport, &mut it.policies);
        if fields.has_errors() {
            return Ok(CueRequest::default());
        }
        let schedule = schedule.transpose()?;
        let names_schedule = schedule.is_some();
        set(&mut it.schedule, schedule.as_ref().map(StoredSchedule::from));
        it.callback = callback?;
        on_failure?;
        let payload = payload.map(|payload| payload.map(Payload::new).transpose()).transpose()?;
        let is_whole = self.is_whole();
        let warning = None;
        Ok(CueRequest { fields: it, payload, status, warning, schedule, is_whole, names_schedule })
    }

    /// Nothing if no field of it is named.
    fn schedule(&mut self, fields: &mut JsonFields<'_>) -> Option<Result<Schedule, Refusal>> {
        let schedule = if self.is_whole() {
            fields.required_object("schedule")
        } else {
            fields.object("schedule")
        };
        let mut schedule = schedule?;
        let read = read_schedule(&mut schedule, self.base.map(|it| &it.schedule));
        self.check_unknown(&schedule, "schedule");
        let (unused, word): (&[&'static str], _) = match read.kind {
            Some(ScheduleKind::Recurring) => (&["at"], "recurring"),
            Some(ScheduleKind::Once) => (&["cron", "every", "start", "end"], "once"),
            None => (&[], ""),
        };
        for name in unused.iter().filter(|name| schedule.any(name).is_some()) {
            self.ignore(&["schedule", *name], format!("not used by a {word} schedule"));
        }
        read.is_named.then_some(read.schedule)
    }

    /// The callback: in a whole body required for a webhook cue and without effect for a worker cue. A transport with an
    /// error is neither.
    fn callback(
        &mut self,
        fields: &mut JsonFields<'_>,
        transport: Option<Transport>,
    ) -> Result<Option<Callback>, Refusal> {
        let base = self.base.and_then(|it| it.callback.clone());
        if transport == Some(Transport::Worker) && self.is_whole() {
            if fields.any("callback").is_some() {
                self.ignore(&["callback"], "not used by a worker cue".to_owned());
            }
            return Ok(None);
        }
        let Some(mut callback) = fields.object("callback") else {
            let is_required = self.is_whole() && transport.is_some();
            if is_required && fields.any("callback").is_none() {
                fields.add_missing("callback");
            }
            return Ok(base);
        };
        if self.is_whole() && callback.any("url").is_none() {
            callback.add_missing("url");
        }
        let callback = self.callback_fields(callback, base)?;
        match transport {
            Some(Transport::Worker) if callback == Callback::default() => Ok(None),
            Some(Transport::Worker) => {
                Err(Refusal::new(ErrorCode::InvalidCallback, "A worker cue calls no URL"))
            }
            _ => Ok(Some(callback)),
        }
    }

    fn callback_fields(
        &mut self,
        mut callback: JsonFields<'_>,
        base: Option<Callback>,
    ) -> Result<Callback, Refusal> {
        let mut it = base.unwrap_or_default();
        let before = authority_of(&it.url);
        let url = callback.string("url", 0..=usize::MAX);
        let method = callback.string("method", 0..=16);
        let headers = callback.string_map("headers");
        set(&mut it.outcome_from_response, callback.boolean("outcome_from_response"));
        let timeout_seconds = callback.integer("timeout_seconds", TIMEOUT_SECONDS);
        set(&mut it.timeout_seconds, timeout_seconds.and_then(|it| u32::try_from(it).ok()));
        // A key that was the host and port follows them, also if the client sends it back.
        let follows = it.flow.as_ref().is_some_and(|flow| flow.key == before);
        set(&mut it.flow, callback.nullable("flow", |callback| self.flow(callback)));
        self.check_unknown(&callback, "callback");
        let url = url.map(|url| check_url(&url, self.policy)).transpose()?;
        set(&mut it.url, url.map(|target| target.url));
        set(&mut it.method, method.map(|method| Method::from_request(&method)).transpose()?);
        headers.as_deref().map(check_headers).transpose()?;
        set(&mut it.headers, headers);
        if let Some(flow) = &mut it.flow
            && (flow.key.is_empty() || (follows && flow.key == before))
        {
            flow.key = authority_of(&it.url);
        }
        Ok(it)
    }

    /// The key is empty if none is given.
    fn flow(&mut self, callback: &mut JsonFields<'_>) -> Option<Flow> {
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
        Some(Flow {
            key: key.unwrap_or_default(),
            parallelism: parallelism.flatten(),
            per_minute: per_minute.flatten(),
        })
    }

    fn retry(&mut self, fields: &mut JsonFields<'_>, policy: &mut RetryPolicy) {
        let Some(mut retry) = fields.object("retry") else { return };
        let max_attempts = retry.integer("max_attempts", 1..=10);
        set(&mut policy.max_attempts, max_attempts.and_then(|it| u32::try_from(it).ok()));
        let minutes = retry.numbers("backoff_minutes", 1..=10);
        if minutes.iter().flatten().any(|minutes| !(0.0..=MAX_BACKOFF_MINUTES).contains(minutes)) {
            retry.reject("backoff_minutes", "should have pauses of 0 to 525600 minutes (a year)");
        }
        // A client that does not know the seconds sends back the minutes that it has read: it does not change them.
        if let Some(minutes) = minutes.filter(|minutes| *minutes != policy.backoff_minutes) {
            policy.backoff_minutes = minutes;
            policy.backoff_seconds = None;
        }
        let seconds = retry.nullable("backoff_seconds", |retry| {
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
        if let Some(seconds) = seconds {
            policy.set_backoff_seconds(seconds);
        }
        self.check_unknown(&retry, "retry");
    }

    fn on_failure(
        &mut self,
        fields: &mut JsonFields<'_>,
        it: &mut OnFailure,
    ) -> Result<(), Refusal> {
        let Some(mut on_failure) = fields.object("on_failure") else { return Ok(()) };
        set(&mut it.email, on_failure.boolean("email"));
        let webhook =
            on_failure.nullable("webhook", |fields| fields.string("webhook", 0..=usize::MAX));
        set(&mut it.pause, on_failure.boolean("pause"));
        self.check_unknown(&on_failure, "on_failure");
        let check = |url: String| check_url_of("on_failure.webhook", &url, self.policy);
        set(&mut it.webhook, webhook.map(|url| url.map(check).transpose()).transpose()?);
        Ok(())
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

/// Sets a field that a body gives.
pub fn set<T>(field: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *field = value;
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
