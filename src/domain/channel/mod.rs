//! Channels, which send an account its failures, recoveries and alerts (contract §12), and the pace of their messages.

pub mod digest;
pub mod message;
pub mod secrets;
pub mod services;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use jiff::civil::Time;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::domain::channel::message::{Notice, Topic};
use crate::domain::cue::tags::Tags;
use crate::domain::execution::NextStep;
use crate::domain::notification::alert::AlertType;
use crate::domain::notification::is_expired;
use crate::domain::row_keys::UserKey;
use crate::domain::schedule::Zone;
use crate::domain::secret::{Secret, exposed};
use crate::domain::text::word_enum;
use crate::domain::time::saturating_add;

/// Channels of an account.
pub const MAX_CHANNELS: i64 = 20;

pub const MAX_NAME: usize = 100;

/// Entries of the list of events of a channel: more than there are words.
pub const MAX_EVENTS: usize = 20;

/// The ids of the channels that the account and its cues set: `on_failure.email` and `alert_webhook_url`.
pub const BUILT_IN_EMAIL: &str = "email";
pub const BUILT_IN_ALERT_WEBHOOK: &str = "alert_webhook";

word_enum! {
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub enum ChannelType {
        #[default]
        Email = "email",
        Webhook = "webhook",
        Ntfy = "ntfy",
        Slack = "slack",
        Discord = "discord",
        Mattermost = "mattermost",
        Teams = "teams",
        Telegram = "telegram",
        Gotify = "gotify",
        Pushover = "pushover",
    }
}

word_enum! {
    /// Which failures of a cue in a row a channel tells.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum Repeat {
        #[default]
        First = "first",
        Every = "every",
    }
}

/// Seconds from a failure that was told, or a reminder, to the next reminder: the default, and the bounds beside 0.
pub const REMIND_AFTER: u32 = 86_400;
pub const REMIND_RANGE: RangeInclusive<i64> = 900..=604_800;

/// What tells failures beside channels: failure mails, and the alert webhook.
pub const FAILURE_MAILS: i64 = 0;
pub const ALERT_WEBHOOK: i64 = -1;

/// The settings of a channel by name, in the form that its service checks. `priority` is a text of digits.
/// Some are secrets. In JSON they are as the database has them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Settings(#[serde(serialize_with = "exposed")] Secret<BTreeMap<String, String>>);

impl Settings {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.expose().get(name).map(String::as_str)
    }

    /// Empty if the setting is absent.
    pub fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    pub fn set(&mut self, name: &str, value: Option<String>) {
        match value {
            Some(value) => self.0.expose_mut().insert(name.to_owned(), value),
            None => self.0.expose_mut().remove(name),
        };
    }
}

/// The words of the events that a channel takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChannelEvents(Vec<String>);

pub const EXECUTION_FAILED: &str = "execution.failed";
pub const CUE_RECOVERED: &str = "cue.recovered";
pub const CUE_PAUSED: &str = "cue.paused";
pub const ALERT_CONSECUTIVE_FAILURES: &str = "alert.consecutive_failures";
pub const ALL_ALERTS: &str = "alert.*";
const ALERT: &str = "alert.";

pub const EVENT_RULE: &str = "must be execution.failed, cue.recovered, cue.paused, alert.* or alert. with the \
                              type of an alert";

impl Default for ChannelEvents {
    fn default() -> Self {
        Self([EXECUTION_FAILED, CUE_RECOVERED, ALL_ALERTS].map(str::to_owned).to_vec())
    }
}

impl ChannelEvents {
    /// The caller has checked each with [`is_event`].
    pub fn new(events: Vec<String>) -> Self {
        let mut distinct = Vec::with_capacity(events.len());
        for event in events {
            if !distinct.contains(&event) {
                distinct.push(event);
            }
        }
        Self(distinct)
    }

    pub fn has(&self, event: &str) -> bool {
        self.0.iter().any(|own| own == event || (own == ALL_ALERTS && event.starts_with(ALERT)))
    }
}

pub fn is_event(text: &str) -> bool {
    matches!(text, EXECUTION_FAILED | CUE_RECOVERED | CUE_PAUSED | ALL_ALERTS)
        || text.strip_prefix(ALERT).and_then(AlertType::parse).is_some()
}

pub fn alert_event(alert_type: AlertType) -> String {
    format!("{ALERT}{}", alert_type.as_str())
}

/// A part of the day in which a channel is silent: from `from`, up to `to` of the same or the next day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quiet {
    #[serde(with = "minute")]
    pub from: Time,
    #[serde(with = "minute")]
    pub to: Time,
    pub timezone: String,
}

/// Times of day in hours and minutes.
mod minute {
    use jiff::civil::Time;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(time: &Time, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{:02}:{:02}", time.hour(), time.minute()))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
        crate::domain::channel::parse_minute(&String::deserialize(from)?)
            .ok_or_else(|| serde::de::Error::custom("not HH:MM"))
    }
}

/// Parses `22:00`.
pub fn parse_minute(text: &str) -> Option<Time> {
    let (hour, minute) = text.split_once(':')?;
    let digits = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(hour) || !digits(minute) {
        return None;
    }
    Time::new(hour.parse().ok()?, minute.parse().ok()?, 0, 0).ok()
}

impl Quiet {
    /// The end of the silence that covers `at`; `None` outside of it.
    pub fn end(&self, at: Timestamp) -> Option<Timestamp> {
        // A zone that the system no longer knows silences nothing.
        let zone = Zone::find(&self.timezone).ok()?;
        let local = zone.reading(at);
        let time = local.time();
        let covers = if self.from < self.to {
            (self.from..self.to).contains(&time)
        } else {
            time >= self.from || time < self.to
        };
        let day = if time < self.to { local.date() } else { local.date().tomorrow().ok()? };
        // After the end of a repeated hour `to` may have passed.
        if covers {
            zone.earliest_instant(day.to_datetime(self.to)).filter(|end| *end > at)
        } else {
            None
        }
    }
}

/// What users say of a channel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChannelFields {
    pub channel_type: ChannelType,
    pub name: String,
    pub settings: Settings,
    pub events: ChannelEvents,
    pub tags: Tags,
    pub quiet: Option<Quiet>,
    pub repeat: Repeat,
    /// 0: no reminders.
    pub remind_after_seconds: u32,
}

impl ChannelFields {
    /// The defaults of a new channel of this type.
    pub fn none(channel_type: ChannelType) -> Self {
        Self { channel_type, remind_after_seconds: REMIND_AFTER, ..Self::default() }
    }
}

/// A channel, as it is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Channel {
    pub key: i64,
    pub id: String,
    pub user_key: UserKey,
    pub fields: ChannelFields,
    /// The last notice that it has told or does not take.
    pub cursor: i64,
    /// The start of its current window, and the messages in it; a digest counts as more than [`MAX_SINGLE`].
    pub window_at: Option<Timestamp>,
    pub window_count: u32,
    /// Failures in a row.
    pub failures: u32,
    pub last_sent_at: Option<Timestamp>,
    pub last_failed_at: Option<Timestamp>,
    pub last_error: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// Messages of a window that are sent one by one; more become a digest.
pub const MAX_SINGLE: u32 = 5;

const WINDOW: SignedDuration = SignedDuration::from_mins(1);

/// A message after the first of its window waits for others to count with it until none has come for this time.
pub const SETTLE: SignedDuration = SignedDuration::from_secs(5);

/// What a channel does next about the notices that wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Nothing waits.
    Idle,
    /// Nothing is sent before this instant.
    WaitUntil(Timestamp),
    /// The oldest notice is sent.
    Single,
    /// One message tells them all.
    Digest,
}

impl Channel {
    pub fn takes(&self, topic: &Topic) -> bool {
        topic.channels.as_ref().is_none_or(|keys| keys.contains(&self.key))
            && topic.events.iter().any(|event| self.takes_event(event, &topic.tags))
    }

    /// `tags` are those of the cue; an event of the account has none.
    pub fn takes_event(&self, event: &str, tags: &Tags) -> bool {
        let has_tag = self.fields.tags.is_empty()
            || self.fields.tags.iter().any(|tag| tags.iter().any(|own| own == tag));
        has_tag && self.fields.events.has(event)
    }

    /// The end of the quiet hours that cover `at`.
    pub fn quiet_end(&self, at: Timestamp) -> Option<Timestamp> {
        self.fields.quiet.as_ref().and_then(|quiet| quiet.end(at))
    }

    /// Until when nothing is sent, whatever waits.
    pub fn silent_until(&self, now: Timestamp) -> Option<Timestamp> {
        let is_full = self.window_count > MAX_SINGLE;
        self.quiet_end(now).or_else(|| self.window(now).map(|(_, end)| end).filter(|_| is_full))
    }

    /// The rule of contract §12: the first message goes at once, and more than [`MAX_SINGLE`] in a window become one. What
    /// fell in the quiet hours is one message at their end.
    pub fn turn(&self, waiting: &[Notice], now: Timestamp) -> Turn {
        let (Some(oldest), Some(newest)) = (waiting.first(), waiting.last()) else {
            return Turn::Idle;
        };
        if let Some(until) = self.silent_until(now) {
            return Turn::WaitUntil(until);
        }
        let all = if waiting.len() > 1 { Turn::Digest } else { Turn::Single };
        let count = u32::try_from(waiting.len()).unwrap_or(u32::MAX);
        let exceeds = |sent| count.saturating_add(sent) > MAX_SINGLE;
        if self.quiet_end(oldest.topic.at).is_some() {
            return all;
        }
        let Some((_, end)) = self.window(now) else {
            return if exceeds(0) { Turn::Digest } else { Turn::Single };
        };
        let settled = saturating_add(newest.topic.at, SETTLE).min(end);
        match (settled > now, exceeds(self.window_count)) {
            (true, _) => Turn::WaitUntil(settled),
            (false, false) => Turn::Single,
            // There is nothing to count it with: it opens the next window.
            (false, true) if all == Turn::Single => Turn::WaitUntil(end),
            (false, true) => Turn::Digest,
        }
    }

    /// The start and the end of the window that is open at `now`.
    fn window(&self, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let window = self.window_at.map(|start| (start, saturating_add(start, WINDOW)));
        // After a clock that was set back a window is in the future.
        window.filter(|(start, end)| (*start..*end).contains(&now))
    }

    /// The window after a message at `now`.
    pub fn window_after(&self, turn: Turn, now: Timestamp) -> (Timestamp, u32) {
        let open = self.window(now);
        let sent = if open.is_some() { self.window_count } else { 0 };
        let count = if turn == Turn::Digest { MAX_SINGLE + 1 } else { sent + 1 };
        (open.map_or(now, |(start, _)| start), count)
    }

    pub fn is_failing(&self) -> bool {
        self.failures >= FAILING
    }

    /// A channel that is set elsewhere.
    pub fn built_in(
        id: &str,
        name: &str,
        channel_type: ChannelType,
        settings: Settings,
        events: &[&str],
        created_at: Timestamp,
    ) -> Self {
        Self {
            id: id.to_owned(),
            fields: ChannelFields {
                name: name.to_owned(),
                settings,
                events: ChannelEvents(events.iter().map(|event| (*event).to_owned()).collect()),
                ..ChannelFields::none(channel_type)
            },
            created_at,
            updated_at: created_at,
            ..Self::default()
        }
    }
}

/// Failures in a row after which a channel counts as failing.
pub const FAILING: u32 = 10;

/// Failures in a row from which the overview names a channel.
pub const TROUBLED: u32 = 3;

/// The pauses after failures in a row; the last one repeats until the channel is failing.
const PAUSES: [SignedDuration; 5] = [
    SignedDuration::from_secs(10),
    SignedDuration::from_mins(1),
    SignedDuration::from_mins(5),
    SignedDuration::from_mins(15),
    SignedDuration::from_mins(30),
];

const FAILING_PAUSE: SignedDuration = SignedDuration::from_hours(1);

/// The next step for a message that was not accepted, after this number of `failures` of the channel in a row, this one
/// included. `asked` is the pause that the service asks for; a longer one than that of a failing channel counts as that,
/// or the message would be too old when it ends.
pub fn after_failure(
    failures: u32,
    asked: Option<SignedDuration>,
    created_at: Timestamp,
    now: Timestamp,
) -> NextStep {
    let step = (failures.max(1) as usize - 1).min(PAUSES.len() - 1);
    let pause = if failures >= FAILING { FAILING_PAUSE } else { PAUSES[step] };
    let due = saturating_add(now, pause.max(asked.unwrap_or_default().min(FAILING_PAUSE)));
    if is_expired(created_at, due) { NextStep::Failed } else { NextStep::RetryAt(due) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::channel::message::Message;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn quiet(from: &str, to: &str, timezone: &str) -> Quiet {
        let (from, to) = (parse_minute(from).unwrap(), parse_minute(to).unwrap());
        Quiet { from, to, timezone: timezone.to_owned() }
    }

    #[test]
    fn quiet_hours_end_at_their_local_time_also_at_a_clock_change() {
        let (night, noon) = (("22:00", "07:00"), ("12:00", "13:00"));
        for ((from, to), now, end) in [
            (night, "2026-01-05T20:59:59Z", None),
            (night, "2026-01-05T21:00:00Z", Some("2026-01-06T06:00:00Z")),
            (night, "2026-01-06T05:59:59Z", Some("2026-01-06T06:00:00Z")),
            (night, "2026-01-06T06:00:00Z", None),
            (noon, "2026-01-06T11:30:00Z", Some("2026-01-06T12:00:00Z")),
            (noon, "2026-01-06T12:00:00Z", None),
            // The night is an hour shorter, then an hour longer.
            (night, "2026-03-28T22:00:00Z", Some("2026-03-29T05:00:00Z")),
            (night, "2026-10-24T22:00:00Z", Some("2026-10-25T06:00:00Z")),
            // 02:30 does not exist, and comes twice.
            (("22:00", "02:30"), "2026-03-29T00:30:00Z", Some("2026-03-29T01:00:00Z")),
            (("22:00", "02:30"), "2026-10-25T00:00:00Z", Some("2026-10-25T00:30:00Z")),
            (("22:00", "02:30"), "2026-10-25T01:10:00Z", None),
        ] {
            let quiet = quiet(from, to, "Europe/Berlin");
            assert_eq!(quiet.end(at(now)), end.map(at), "{from} to {to} at {now}");
        }
        assert_eq!(quiet("22:00", "07:00", "No/Where").end(at("2026-01-05T23:00:00Z")), None);
        for text in ["24:00", "7:00", "07:60", "07-00", "0700", "+7:00", ""] {
            assert_eq!(parse_minute(text), None, "{text}");
        }
    }

    #[test]
    fn a_turn_follows_the_window_and_the_last_notice() {
        let settings = Settings::default();
        let built_in = Channel::built_in(
            "id",
            "name",
            ChannelType::Ntfy,
            settings,
            &[],
            at("2026-01-01T00:00:00Z"),
        );
        let (now, open) = (at("2026-01-01T10:00:30Z"), "2026-01-01T10:00:00Z");
        let (full, settled) = (at("2026-01-01T10:01:00Z"), at("2026-01-01T10:00:31Z"));
        for (window, ages, turn) in [
            (None, vec![], Turn::Idle),
            (None, vec![0], Turn::Single),
            (None, vec![0; 5], Turn::Single),
            (None, vec![0; 6], Turn::Digest),
            (Some((open, 1)), vec![9, 4], Turn::WaitUntil(settled)),
            (Some((open, 1)), vec![9, 5], Turn::Single),
            (Some((open, 4)), vec![9, 5], Turn::Digest),
            // One message that would be too many waits for others or for the next window.
            (Some((open, 5)), vec![5], Turn::WaitUntil(full)),
            (Some((open, 6)), vec![9, 5], Turn::WaitUntil(full)),
            (Some(("2026-01-01T09:59:30Z", 6)), vec![5], Turn::Single),
            // The clock was set back.
            (Some(("2026-01-01T18:00:00Z", 6)), vec![5], Turn::Single),
        ] {
            let mut channel = built_in.clone();
            (channel.window_at, channel.window_count) =
                window.map_or((None, 0), |(start, count)| (Some(at(start)), count));
            let notice = |seconds: &i64| Notice {
                topic: Topic::new(
                    Vec::new(),
                    Tags::default(),
                    now - SignedDuration::from_secs(*seconds),
                ),
                message: Message::test("id", "x", now),
            };
            let waiting: Vec<Notice> = ages.iter().map(notice).collect();
            assert_eq!(channel.turn(&waiting, now), turn, "{window:?}, {ages:?}");
        }
    }

    #[test]
    fn pauses_grow_to_an_hour_and_a_message_ends_after_a_day() {
        let (made, now) = (at("2026-01-01T10:00:00Z"), at("2026-01-01T12:00:00Z"));
        for (failures, asked, next) in [
            (1, None, "2026-01-01T12:00:10Z"),
            (2, None, "2026-01-01T12:01:00Z"),
            (5, None, "2026-01-01T12:30:00Z"),
            (9, None, "2026-01-01T12:30:00Z"),
            (10, None, "2026-01-01T13:00:00Z"),
            (1, Some(90), "2026-01-01T12:01:30Z"),
            (3, Some(90), "2026-01-01T12:05:00Z"),
            // Longer than a message is kept.
            (1, Some(86_400), "2026-01-01T13:00:00Z"),
        ] {
            let asked = asked.map(SignedDuration::from_secs);
            assert_eq!(
                after_failure(failures, asked, made, now),
                NextStep::RetryAt(at(next)),
                "{failures}"
            );
        }
        assert_eq!(after_failure(1, None, made, at("2026-01-02T09:59:55Z")), NextStep::Failed);
    }

    #[test]
    fn an_event_is_one_of_the_words() {
        for word in
            ["execution.failed", "cue.recovered", "cue.paused", "alert.*", "alert.clock_behind"]
        {
            assert!(is_event(word), "{word}");
        }
        for word in ["", "*", "alert.", "alert.test", "execution.succeeded", "execution.failed "] {
            assert!(!is_event(word), "{word}");
        }
    }
}
