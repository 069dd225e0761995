//! The error codes of the API, their HTTP status, and the refusal that carries one to a caller.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// The codes with their HTTP status. Those that callers meet most are marked: their errors have a link to the documentation.
/// `claim_failed` is none of them: it is the usual answer to a worker that polls.
macro_rules! error_codes {
    (@documented) => { true };
    ($($variant:ident = $text:literal $status:literal $(($mark:ident))?)+) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $($variant),+
        }

        impl ErrorCode {
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            pub fn text_and_status(self) -> (&'static str, u16) {
                match self {
                    $(Self::$variant => ($text, $status)),+
                }
            }

            fn is_documented(self) -> bool {
                match self {
                    $(Self::$variant => false $(| error_codes!(@$mark))?),+
                }
            }
        }
    };
}

error_codes! {
    AlreadyClaimed = "already_claimed" 409
    BackupNotFound = "backup_not_found" 404
    BadRequest = "bad_request" 400
    BillingError = "billing_error" 502
    ChannelLimitExceeded = "channel_limit_exceeded" 403
    ChannelNotFound = "channel_not_found" 404
    ClaimFailed = "claim_failed" 409
    CrossSiteRequest = "cross_site_request" 403
    CueLimitExceeded = "cue_limit_exceeded" 403 (documented)
    CueNotFound = "cue_not_found" 404 (documented)
    DeviceCodeExists = "device_code_exists" 409
    DeviceCodeNotFound = "device_code_not_found" 404
    DuplicateEmail = "duplicate_email" 409
    ExecutionInFlight = "execution_in_flight" 409 (documented)
    ExecutionLimitExceeded = "execution_limit_exceeded" 403 (documented)
    ExecutionNotClaiming = "execution_not_claiming" 409
    ExecutionNotFound = "execution_not_found" 404 (documented)
    ForbiddenHost = "forbidden_host" 403 (documented)
    HeadersTooLarge = "headers_too_large" 431
    Held = "held" 503
    IdempotencyConflict = "idempotency_conflict" 409 (documented)
    InternalError = "internal_error" 500
    InvalidApiKey = "invalid_api_key" 401 (documented)
    InvalidCallback = "invalid_callback" 400 (documented)
    InvalidCallbackUrl = "invalid_callback_url" 400 (documented)
    InvalidInterval = "invalid_interval" 400
    InvalidJson = "invalid_json" 400 (documented)
    InvalidPayloadSize = "invalid_payload_size" 400
    InvalidPlan = "invalid_plan" 400
    InvalidRequest = "invalid_request" 400 (documented)
    InvalidSchedule = "invalid_schedule" 400 (documented)
    InvalidSignature = "invalid_signature" 400
    InvalidState = "invalid_state" 409 (documented)
    InvalidTimezone = "invalid_timezone" 400 (documented)
    KeyLimitExceeded = "key_limit_exceeded" 409
    KeyNotFound = "key_not_found" 404
    LastKey = "last_key" 409
    MetadataTooLarge = "metadata_too_large" 400
    MethodNotAllowed = "method_not_allowed" 405
    NoBillingCustomer = "no_billing_customer" 400
    NotExecutionOwner = "not_execution_owner" 403 (documented)
    NotFound = "not_found" 404
    OutcomeAlreadyReported = "outcome_already_reported" 409 (documented)
    PayloadTooLarge = "payload_too_large" 413
    PlanRequestNotFound = "plan_request_not_found" 404
    RateLimitExceeded = "rate_limit_exceeded" 429 (documented)
    RegistrationDisabled = "registration_disabled" 403 (documented)
    RequestTimeout = "request_timeout" 408
    ServerBusy = "server_busy" 503
    SessionNotFound = "session_not_found" 404
    SlugTaken = "slug_taken" 409
    StorageLimitExceeded = "storage_limit_exceeded" 403
    StorageUnavailable = "storage_unavailable" 503
    TooManyStreams = "too_many_streams" 429
    UserNotFound = "user_not_found" 404
    ValidationError = "validation_error" 422 (documented)
    WorkerLimitExceeded = "worker_limit_exceeded" 409
    WorkerNotFound = "worker_not_found" 404
}

impl ErrorCode {
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.text_and_status().0 == text)
    }

    /// The path of the documentation of this code (contract §2.3), for some codes.
    pub fn docs_path(self) -> Option<String> {
        let path = || format!("/docs/reference/errors#{}", self.text_and_status().0);
        self.is_documented().then(path)
    }
}

/// A segment of the path to an invalid value: `["body", "schedule", "cron"]`, `["body", "handlers", 2]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum LocSegment {
    /// A field of an object, or a part of the request (`body`, `query`).
    Field(Cow<'static, str>),
    Index(usize),
}

impl fmt::Display for LocSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => f.write_str(name),
            Self::Index(index) => index.fmt(f),
        }
    }
}

impl From<&'static str> for LocSegment {
    fn from(name: &'static str) -> Self {
        Self::Field(Cow::Borrowed(name))
    }
}

impl From<String> for LocSegment {
    fn from(name: String) -> Self {
        Self::Field(Cow::Owned(name))
    }
}

impl From<usize> for LocSegment {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// An entry of the `detail` of a 422, in Pydantic's terms (contract §2).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FieldError {
    /// `missing`, `string_type`, `extra_forbidden`, …
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub loc: Vec<LocSegment>,
    pub msg: String,
    /// The rejected value; for `extra_forbidden` the name of the field.
    pub input: Value,
}

/// A client error: a request that was understood and cannot be carried out, in terms of the request.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}: {message}", .code.text_and_status().0)]
pub struct Refusal {
    pub code: ErrorCode,
    /// The problem and the remedy, as a sentence.
    pub message: Cow<'static, str>,
    pub problems: Vec<FieldError>,
    /// The part of the schedule that is wrong, for `invalid_schedule` and `invalid_timezone`. In a box, because most
    /// refusals have none and all results have room for it.
    pub schedule_part: Option<Box<SchedulePart>>,
    pub retry_after: Option<u32>,
}

/// The part of a schedule that is wrong (contract §4.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulePart {
    /// A field of the cron expression (`minute`, …, `day-of-week`), `expression` for all of it, or the name of a field
    /// of the request.
    pub field: &'static str,
    /// The place in the cron expression, in characters, half open; empty where something is missing.
    pub span: Option<(usize, usize)>,
}

impl SchedulePart {
    pub fn of(field: &'static str) -> Option<Box<Self>> {
        Some(Box::new(Self { field, span: None }))
    }

    pub fn of_cron(field: &'static str, span: (usize, usize)) -> Option<Box<Self>> {
        Some(Box::new(Self { field, span: Some(span) }))
    }
}

impl Refusal {
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            problems: Vec::new(),
            schedule_part: None,
            retry_after: None,
        }
    }

    pub fn retry_after(self, seconds: u32) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    /// A 422 about one value, for a reason that follows on its name.
    pub fn invalid_value(loc: [&'static str; 2], reason: &str, input: impl Into<Value>) -> Self {
        let (loc, msg) = (loc.map(Into::into).to_vec(), format!("Value error, {reason}"));
        Self::invalid(vec![FieldError { kind: "value_error", loc, msg, input: input.into() }])
    }

    /// A 422 with all invalid fields; the message names the first.
    pub fn invalid(problems: Vec<FieldError>) -> Self {
        let path =
            |loc: &[LocSegment]| loc.iter().map(ToString::to_string).collect::<Vec<_>>().join(".");
        let message = match problems.first() {
            Some(first) => format!("{}: {}", path(&first.loc), first.msg),
            None => "The request is not valid".to_owned(),
        };
        Self { problems, ..Self::new(ErrorCode::ValidationError, message) }
    }
}
