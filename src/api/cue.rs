//! The cue in requests of the API: the fields of a create, of a PATCH and of a PUT (contract §4.1, §4.2, §4.9, §4.17).
//!
//! A field that users set is named in `cue_names`, read in `CueReader::read` and shown by `CueView`.

use std::ops::RangeInclusive;

use jiff::Timestamp;
use serde_json::Value;

use crate::api::fields::JsonFields;
use crate::domain::api_error::{ErrorCode, FieldError, Refusal, SchedulePart};
use crate::domain::cue::slug::{SLUG_RULE, Slug};
use crate::domain::cue::tags::{MAX_TAGS, TAG_RULE, Tags, is_tag};
use crate::domain::cue::{
    CueFields, CueRequest, OnFailure, Payload, RequestedStatus, ScheduleKind, ScheduleSpec,
    StoredSchedule, Transport, bounds_errors,
};
use crate::domain::cue_fields::{Overlap, PlainField, Policies, Values, plain_fields};
use crate::domain::execution::RetryPolicy;
use crate::domain::execution::outcome::VerificationMode;
use crate::domain::schedule::interval::Interval;
use crate::domain::schedule::{
    Bounds, CatchUp, EARLIEST, Schedule, ScheduleError, ScheduleRule, Zone, parse_instant,
};
use crate::domain::secret::Secret;
use crate::domain::webhook::address_policy::AddressPolicy;
use crate::domain::webhook::callback::{
    Callback, Method, UrlError, authority_of, check_headers, check_url,
};
use crate::domain::webhook::flow::{Flow, MAX_KEY, MAX_PARALLELISM, MAX_PER_MINUTE};

/// Of `callback.timeout_seconds`.
pub const TIMEOUT_SECONDS: RangeInclusive<i64> = 1..=300;

const MAX_DESCRIPTION: usize = 10_000;

const MAX_JITTER: i64 = 3_600;

/// Longest pause between two attempts: a year.
const MAX_BACKOFF_MINUTES: f64 = 525_600.0;

/// Parses the body of a create. Unknown fields only lead to the warning of the cue.
pub fn new_cue(mut fields: JsonFields<'_>, policy: &AddressPolicy) -> Result<CueRequest, Refusal> {
    let mut reader = CueReader::new(policy, Form::Create, None);
    let read = reader.read(&mut fields);
    let unknown = fields.unknown().into_iter().chain(std::mem::take(&mut reader.unknown));
    let names: Vec<String> = unknown.chain(reader.ignored.iter().map(Ignored::words)).collect();
    fields.finish()?;
    Ok(CueRequest { warning: ignored_fields_warning(&names), ..reader.accepted(read)? })
}

/// Parses the body of a PUT: a whole cue, and its status where it is given. Fields without effect are errors. The request
/// counts if there are no refusals. Validation errors come first.
pub fn put_cue(
    mut fields: JsonFields<'_>,
    slug: Slug,
    policy: &AddressPolicy,
) -> (CueRequest, Vec<Refusal>) {
    let mut reader = CueReader::new(policy, Form::Put, None);
    let mut request = reader.read(&mut fields);
    fields.forbid_unknown();
    let mut refusals: Vec<Refusal> = fields.finish().err().into_iter().collect();
    if !reader.ignored.is_empty() {
        refusals.push(Refusal::invalid(reader.ignored.iter().map(Ignored::error).collect()));
    }
    refusals.append(&mut reader.refusals);
    request.fields.slug = Some(slug);
    (request, refusals)
}

/// Parses the body of a PATCH of a cue with the fields `base`. Only what the body names is judged: a stored value may have
/// become invalid since. Unknown fields are errors.
pub fn changed_cue(
    mut fields: JsonFields<'_>,
    base: &CueFields,
    policy: &AddressPolicy,
) -> Result<CueRequest, Refusal> {
    let mut reader = CueReader::new(policy, Form::Patch, Some(base));
    let read = reader.read(&mut fields);
    fields.forbid_unknown();
    fields.finish()?;
    reader.accepted(read)
}

/// Parses the callback of a test call. Only its URL is required. Unknown fields are errors.
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
    /// Those with a code of their own. They count after the validation errors.
    refusals: Vec<Refusal>,
}

impl<'p> CueReader<'p> {
    fn new(policy: &'p AddressPolicy, form: Form, base: Option<&'p CueFields>) -> Self {
        let (ignored, unknown, refusals) = (Vec::new(), Vec::new(), Vec::new());
        Self { policy, form, base, ignored, unknown, refusals }
    }

    /// Whether the body is a whole cue, with the required fields.
    fn is_whole(&self) -> bool {
        self.form != Form::Patch
    }

    /// The request if nothing was refused. Errors: the first refusal.
    fn accepted(self, request: CueRequest) -> Result<CueRequest, Refusal> {
        self.refusals.into_iter().next().map_or(Ok(request), Err)
    }

    /// Reads a part. Its refusal counts if it has no validation errors: it may follow from one.
    fn part<T>(
        &mut self,
        fields: &mut JsonFields<'_>,
        read: impl FnOnce(&mut Self, &mut JsonFields<'_>) -> Result<T, Refusal>,
    ) -> Option<T> {
        let before = fields.count_errors();
        match read(self, fields) {
            Ok(value) => return Some(value),
            Err(refusal) if fields.count_errors() == before => self.refusals.push(refusal),
            Err(_) => {}
        }
        None
    }

    /// The request counts if the fields have no validation errors and nothing is refused.
    fn read(&mut self, fields: &mut JsonFields<'_>) -> CueRequest {
        let mut it = self.base.cloned().unwrap_or_default();
        let (mut status, mut transport) = (None, Some(it.transport));
        set(&mut it.name, fields.required_if(self.is_whole()).string("name", 1..=255));
        if self.is_whole() && fields.any("transport").is_some() {
            let word = fields.one_of("transport", &Transport::WORDS);
            transport = word.and_then(Transport::parse);
            set(&mut it.transport, transport);
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
        let schedule =
            self.part(fields, |reader, fields| reader.schedule(fields).transpose()).flatten();
        let names_schedule = schedule.is_some();
        set(&mut it.schedule, schedule.as_ref().map(StoredSchedule::from));
        set(
            &mut it.callback,
            self.part(fields, |reader, fields| reader.callback(fields, transport)),
        );
        self.retry(fields, &mut it.retry);
        self.part(fields, |reader, fields| reader.on_failure(fields, &mut it.on_failure));
        set(&mut it.verification, self.verification(fields));
        read_policies(fields, transport, &mut it.policies);
        let payload = self.part(fields, |_, fields| {
            let payload = fields.nullable("payload", |fields| fields.dictionary("payload"));
            payload.map(|payload| payload.map(Payload::new).transpose()).transpose()
        });
        CueRequest {
            fields: it,
            payload: payload.flatten(),
            status,
            schedule,
            is_whole: self.is_whole(),
            names_schedule,
            ..CueRequest::default()
        }
    }

    /// Nothing if no field of it is named.
    fn schedule(&mut self, fields: &mut JsonFields<'_>) -> Option<Result<Schedule, Refusal>> {
        let mut schedule = fields.required_if(self.is_whole()).object("schedule")?;
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
            Some(Transport::Worker) => Err(Refusal::new(
                ErrorCode::InvalidCallback,
                "A worker cue has no callback; create a webhook cue instead",
            )),
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
        set(&mut it.headers, headers.map(Secret::new));
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
            flow.reject("key", "must have printable ASCII characters only");
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
            retry.reject("backoff_minutes", "must have pauses of 0 to 525600 minutes (a year)");
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
                    "must have pauses of whole seconds, from 1 to 86400",
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
        let mode = verification.required().one_of("mode", &VerificationMode::WORDS);
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
    let kind = fields.required_if(base.is_none()).one_of("type", &ScheduleKind::WORDS);
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
            fields.reject("every", "must be left out beside cron: a schedule has one of the two");
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
        Ok(match kind {
            ScheduleKind::Recurring => match (&self.cron, &self.every, before) {
                (Some(cron), ..) | (None, None, Some(ScheduleSpec::Recurring(cron))) => {
                    ScheduleRule::cron(cron)?
                }
                (None, Some(every), _) => ScheduleRule::every(every, Timestamp::UNIX_EPOCH)?,
                (None, None, Some(ScheduleSpec::Every(every, from))) => {
                    ScheduleRule::every(every, *from)?
                }
                _ => {
                    return Err(incomplete(
                        "expression",
                        "A recurring schedule needs schedule.cron, such as \"0 9 * * *\", or schedule.every, such as \"5m\"",
                    ));
                }
            },
            ScheduleKind::Once => match (&self.at, before) {
                (Some(at), _) => ScheduleRule::Once(parse_instant(at, zone)?),
                (None, Some(ScheduleSpec::Once(at))) => ScheduleRule::Once(*at),
                _ => {
                    return Err(incomplete(
                        "at",
                        "at: is missing; a once schedule needs it, such as \"2030-01-31T09:00:00Z\"",
                    ));
                }
            },
        })
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
            Ok(Some(instant)) if instant < EARLIEST => "must not be before the year 1".to_owned(),
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
                fields.reject("start", "must be before end");
            }
            "jitter_seconds" if fields.any("jitter_seconds").is_none() => {
                let name = if fields.any("every").is_some() { "every" } else { "cron" };
                fields.reject(name, "the time between two runs must be at least jitter_seconds");
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
