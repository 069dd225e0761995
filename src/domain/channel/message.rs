//! The texts of channels: what has happened to a cue, in one line, and the digest of many such lines. A text has no
//! payload, no secret and of a URL only the host.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::domain::channel::secrets::{without_paths_of_urls, without_tokens};
use crate::domain::channel::{CUE_PAUSED, CUE_RECOVERED, EXECUTION_FAILED, alert_event};
use crate::domain::cue::tags::Tags;
use crate::domain::execution::attempt::FailureCause;
use crate::domain::json::JsonText;
use crate::domain::notification::alert::{Alert, Severity};
use crate::domain::schedule::{Zone, clock_time};
use crate::domain::text::one_line;
use crate::domain::time::instant;

const MAX_TITLE: usize = 200;
const MAX_CUE_NAME: usize = 80;
const MAX_REASON: usize = 120;

/// The tone of a message, for its colour, sound or priority.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mood {
    #[default]
    Info,
    Good,
    Warning,
    Critical,
}

/// What a channel is told. The module of its service puts it into the form of the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    pub id: String,
    /// An event of a channel, `digest` or `test`.
    pub event: String,
    pub mood: Mood,
    pub title: String,
    /// Further lines; may be empty.
    pub text: String,
    /// Set when it is sent, if the server has a public URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    pub cue_id: Option<String>,
    pub cue_name: Option<String>,
    pub execution_id: Option<String>,
    pub at: String,
    /// The alert in the form of the API, which a `webhook` channel gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alert: Option<Value>,
}

pub const DIGEST: &str = "digest";
pub const TEST: &str = "test";

/// What a notice is about. It decides which channels send the notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    pub key: i64,
    /// Several if one message stands for several events: a failure and the alert that it raises.
    pub events: Vec<String>,
    /// Those that the cue had.
    pub tags: Tags,
    /// The keys of the channels that tell it; `None` for all that take its events.
    pub channels: Option<Vec<i64>>,
    /// When it may be told.
    pub at: Timestamp,
}

/// How far ahead a notice may be told: an alert that counts for a minute, or longer after a stop.
const MAX_AHEAD: SignedDuration = SignedDuration::from_mins(10);

impl Topic {
    /// `key` is not set yet.
    pub fn new(events: Vec<String>, tags: Tags, at: Timestamp) -> Self {
        Self { key: 0, events, tags, channels: None, at }
    }

    /// One that is far ahead was made before the clock was set back: it holds up no other.
    pub fn is_ready(&self, now: Timestamp) -> bool {
        self.at <= now || self.at.duration_since(now) > MAX_AHEAD
    }
}

/// One event of an account, kept until all its channels have told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub topic: Topic,
    pub message: Message,
}

impl Message {
    pub fn read(body: &str) -> Option<Self> {
        serde_json::from_str(body).ok()
    }

    pub fn body(&self) -> String {
        JsonText::from(&json!(self)).into_string()
    }

    pub fn is_test(&self) -> bool {
        self.event == TEST
    }

    /// The address in the page of the server at `base`: the run, the cue, or for several cues the failed runs.
    pub fn address(&self, base: &str) -> String {
        let place = match (&self.execution_id, &self.cue_id) {
            (Some(execution_id), _) => format!("runs/{execution_id}"),
            (None, Some(cue_id)) => format!("cues/{cue_id}"),
            _ if self.event == DIGEST => "runs?status=failed".to_owned(),
            _ if self.event == TEST => "notifications".to_owned(),
            _ => "alerts".to_owned(),
        };
        format!("{base}/#/{place}")
    }

    pub fn test(id: &str, channel_name: &str, now: Timestamp) -> Self {
        let title = format!("Test of the channel \"{}\"", one_line(channel_name, MAX_CUE_NAME));
        let text = "Nothing has failed: this message was sent by request.";
        Self { text: text.to_owned(), ..Self::new(id.to_owned(), TEST, Mood::Info, &title, now) }
    }

    /// About no single cue, in one line.
    pub fn new(id: String, event: &str, mood: Mood, title: &str, at: Timestamp) -> Self {
        Self {
            id,
            event: event.to_owned(),
            mood,
            title: one_line(title, MAX_TITLE),
            text: String::new(),
            link: None,
            cue_id: None,
            cue_name: None,
            execution_id: None,
            at: instant(at),
            alert: None,
        }
    }
}

/// The cue and the run that a message is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    pub cue_id: String,
    pub cue_name: String,
    /// That of the schedule.
    pub timezone: String,
    pub execution_id: Option<String>,
}

impl Subject {
    fn name(&self) -> String {
        one_line(&self.cue_name, MAX_CUE_NAME)
    }

    /// `Mon 5 Jan 2026, 10:00 Europe/Berlin`
    fn time(&self, at: Timestamp) -> String {
        // In UTC if the system no longer knows the zone.
        Zone::find(&self.timezone).map_or_else(
            |_| instant(at),
            |zone| {
                let local = zone.reading(at);
                format!("{}, {} {}", local.strftime("%a %-d %b %Y"), clock_time(local), zone.name())
            },
        )
    }

    fn message(&self, id: String, event: &str, mood: Mood, title: &str, now: Timestamp) -> Message {
        Message {
            cue_id: Some(self.cue_id.clone()),
            cue_name: Some(self.name()),
            execution_id: self.execution_id.clone(),
            ..Message::new(id, event, mood, title, now)
        }
    }
}

/// How an attempt ended, as far as a text says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptFailure {
    pub http_status: Option<u16>,
    pub cause: Option<FailureCause>,
    pub error: Option<String>,
}

impl AttemptFailure {
    /// In a few words. `host` is that of the callback, if there is one.
    fn reason(&self, host: Option<&str>) -> String {
        let from =
            |what: &str| host.map_or_else(|| what.to_owned(), |host| format!("{what} from {host}"));
        match (self.http_status, self.cause) {
            (_, Some(FailureCause::Expired)) => "it did not succeed in time".to_owned(),
            (_, Some(FailureCause::Timeout)) => from("no answer in time"),
            (Some(http_status), _) => from(&http_status.to_string()),
            (None, cause) => match (self.error.as_deref().unwrap_or_default().trim(), cause) {
                ("", _) => "no reason was given".to_owned(),
                (error, None) => reported(error),
                // A text of ours: "the connection was refused"
                (error, Some(_)) => one_line(error, MAX_REASON)
                    .trim_start_matches("the ")
                    .replacen("connection was ", "connection ", 1),
            },
        }
    }
}

/// The error that a worker reports, in one line. `cued work` puts how the program ended below its output.
fn reported(error: &str) -> String {
    let is_end = |line: &str| ENDS.iter().any(|end| line.starts_with(end));
    let error = match error.rsplit_once('\n') {
        Some((output, end)) if is_end(end) => format!("{}: {}", end.trim_end(), output.trim()),
        _ => error.to_owned(),
    };
    // Cut after that: the beginning of a secret would remain.
    let error = one_line(&error, 2 * MAX_REASON);
    one_line(&without_tokens(&without_paths_of_urls(&error)), MAX_REASON)
}

const ENDS: [&str; 3] = ["exit code ", "killed by ", "timed out "];

/// A run that has failed for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedRun {
    pub subject: Subject,
    pub attempts: u32,
    pub last: AttemptFailure,
    /// The latest attempt before that ended otherwise.
    pub before: Option<AttemptFailure>,
    pub host: Option<String>,
    pub scheduled_for: Timestamp,
    /// Failed runs of the cue since its last success, with this one.
    pub streak: i64,
}

impl FailedRun {
    /// `backup failed 3 times: 503 from nas.lan (connection refused before)`
    pub fn message(&self, id: String, now: Timestamp) -> Message {
        let Self { subject, attempts, streak, .. } = self;
        let times = if *attempts > 1 { format!(" {attempts} times") } else { String::new() };
        let title = format!("{} failed{times}: {}", subject.name(), self.reason());
        let mut message = subject.message(id, EXECUTION_FAILED, Mood::Critical, &title, now);
        message.text =
            format!("The run of {} will not be retried.", subject.time(self.scheduled_for));
        if *streak > 1 {
            message.text += &format!("\n{streak} runs in a row have failed.");
        }
        message
    }

    /// `503 from nas.lan (connection refused before)`
    pub fn reason(&self) -> String {
        let (host, reason) = (self.host.as_deref(), self.last.reason(self.host.as_deref()));
        let before = self.before.as_ref().map(|before| {
            // The host is named once.
            before.reason(
                host.filter(|_| before.http_status.is_none() && self.last.http_status.is_none()),
            )
        });
        let before = before.filter(|before| !reason.starts_with(before.as_str()));
        let before = before.map(|before| format!(" ({before} before)")).unwrap_or_default();
        reason + &before
    }
}

/// `backup is still failing after 2 d: 503 from nas.lan`
pub fn reminder(
    subject: &Subject,
    id: String,
    reason: Option<&str>,
    since: Timestamp,
    failures: i64,
    now: Timestamp,
) -> Message {
    let after = in_words(now.duration_since(since));
    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    let title = format!("{} is still failing after {after}{reason}", subject.name());
    let mut message = subject.message(id, EXECUTION_FAILED, Mood::Critical, &title, now);
    message.text = failed_since(subject, since, failures);
    message
}

fn failed_since(subject: &Subject, since: Timestamp, failures: i64) -> String {
    let runs = if failures == 1 { "1 run has".to_owned() } else { format!("{failures} runs have") };
    format!("{runs} failed since {}.", subject.time(since))
}

/// `backup recovered after 2 h 10 min`
pub fn recovered(
    subject: &Subject,
    id: String,
    since: Timestamp,
    failures: i64,
    now: Timestamp,
) -> Message {
    let after = in_words(now.duration_since(since));
    let title = format!("{} recovered after {after}", subject.name());
    let mut message = subject.message(id, CUE_RECOVERED, Mood::Good, &title, now);
    message.text = failed_since(subject, since, failures);
    message
}

/// `reason` begins with "by" or "because".
pub fn paused(subject: &Subject, id: String, reason: &str, now: Timestamp) -> Message {
    let title = format!("{} was paused {reason}", subject.name());
    subject.message(id, CUE_PAUSED, Mood::Warning, &title, now)
}

pub fn alert(alert: &Alert, cue_name: Option<&str>) -> Message {
    let mood = match alert.alert_type.severity() {
        Severity::Critical => Mood::Critical,
        Severity::Warning => Mood::Warning,
    };
    let event = alert_event(alert.alert_type);
    Message {
        cue_id: alert.cue_id.clone(),
        cue_name: cue_name.map(|name| one_line(name, MAX_CUE_NAME)),
        execution_id: alert.execution_id.map(|id| id.to_string()),
        alert: Some(alert.json()),
        ..Message::new(alert.id.clone(), &event, mood, &alert.message, alert.created_at)
    }
}

/// A duration in its two largest units: `2 h 10 min`, `45 s`.
fn in_words(span: SignedDuration) -> String {
    let seconds = span.as_secs().max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    let two = |(large, unit): (i64, &str), (small, of): (i64, &str)| {
        if small == 0 { format!("{large} {unit}") } else { format!("{large} {unit} {small} {of}") }
    };
    match (days, hours, minutes) {
        (1.., ..) => two((days, "d"), (hours, "h")),
        (_, 1.., _) => two((hours, "h"), (minutes, "min")),
        (_, _, 1..) => two((minutes, "min"), (seconds % 60, "s")),
        _ => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-05T10:00:00Z";

    fn now() -> Timestamp {
        NOW.parse().unwrap()
    }

    fn subject() -> Subject {
        Subject {
            cue_id: "cue_abcdefghijkl".to_owned(),
            cue_name: "backup".to_owned(),
            timezone: "Europe/Berlin".to_owned(),
            execution_id: Some("0190a5c0-0000-7000-8000-000000000001".to_owned()),
        }
    }

    fn ended(http_status: Option<u16>, cause: Option<FailureCause>, error: &str) -> AttemptFailure {
        AttemptFailure {
            http_status,
            cause,
            error: Some(error.to_owned()).filter(|error| !error.is_empty()),
        }
    }

    #[test]
    fn a_title_says_what_failed_and_why_in_one_line() {
        let refused = ended(None, Some(FailureCause::Connection), "the connection was refused");
        let status = ended(Some(503), Some(FailureCause::Status5xx), "the receiver returned 503");
        let late = ended(None, Some(FailureCause::Timeout), "no response within 30 s");
        let host = Some("nas.lan");
        for (attempts, last, before, host, title) in [
            (
                3,
                &status,
                Some(&refused),
                host,
                "backup failed 3 times: 503 from nas.lan (connection refused before)",
            ),
            (1, &status, None, host, "backup failed: 503 from nas.lan"),
            (
                2,
                &late,
                Some(&status),
                host,
                "backup failed 2 times: no answer in time from nas.lan (503 before)",
            ),
            (
                2,
                &refused,
                Some(&late),
                host,
                "backup failed 2 times: connection refused (no answer in time from nas.lan before)",
            ),
            (
                1,
                &ended(None, None, "exit code 1\nof tar"),
                None,
                None,
                "backup failed: exit code 1 of tar",
            ),
            (1, &ended(None, None, ""), None, None, "backup failed: no reason was given"),
            (
                1,
                &ended(None, Some(FailureCause::Expired), "x"),
                None,
                host,
                "backup failed: it did not succeed in time",
            ),
        ] {
            let run = FailedRun {
                subject: subject(),
                attempts,
                last: last.clone(),
                before: before.cloned(),
                host: host.map(str::to_owned),
                scheduled_for: now(),
                streak: 2,
            };
            let message = run.message("id".to_owned(), now());
            assert_eq!(message.title, title);
            assert_eq!(
                message.text,
                "The run of Mon 5 Jan 2026, 11:00 Europe/Berlin will not be retried.\n2 runs in a row have failed."
            );
            assert_eq!(Message::read(&message.body()), Some(message));
        }
    }

    #[test]
    fn the_error_of_a_worker_keeps_its_words_and_says_first_how_the_program_ended() {
        for (error, reason) in [
            ("disk full\nat 99 %\nexit code 3\n", "exit code 3: disk full at 99 %"),
            ("killed by SIGKILL", "killed by SIGKILL"),
            ("half\nexit code 1\nof tar", "half exit code 1 of tar"),
            ("the connection was lost", "the connection was lost"),
            (
                "POST https://a.example/x/y?k=1 with tk_AgQdq7mVBoFD37zQVN29 to /mnt/a/b",
                "POST https://a.example/… with … to /mnt/a/b",
            ),
        ] {
            assert_eq!(ended(None, None, error).reason(None), reason);
        }
    }

    #[test]
    fn a_recovery_says_after_how_long_in_two_units() {
        for (since, words) in [
            ("2026-01-05T09:59:15Z", "45 s"),
            ("2026-01-05T09:57:55Z", "2 min 5 s"),
            ("2026-01-05T09:55:00Z", "5 min"),
            ("2026-01-05T07:50:00Z", "2 h 10 min"),
            ("2026-01-02T10:00:00Z", "3 d"),
            ("2026-01-02T08:59:00Z", "3 d 1 h"),
            ("2026-01-05T11:00:00Z", "0 s"),
        ] {
            let message = recovered(&subject(), "id".to_owned(), since.parse().unwrap(), 3, now());
            assert_eq!(message.title, format!("backup recovered after {words}"));
            assert!(message.text.starts_with("3 runs have failed since "), "{}", message.text);
            assert!(message.text.ends_with(" Europe/Berlin."), "{}", message.text);
        }
    }
}
