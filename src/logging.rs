//! The log: lines on standard error. Secrets and keys never reach it (contract §1.8), nor does what a terminal would
//! execute.

use std::collections::VecDeque;
use std::io::{self, Write};

use jiff::Timestamp;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::clock::Clock;
use crate::domain::account::credentials::may_contain_secret;
use crate::domain::text::escaped;
use crate::system::locks::Mutex;

/// Writes the system's time on each line, even under a test clock, so that the lines sort with other logs.
struct LogTimer(Clock);

impl FormatTime for LogTimer {
    fn format_time(&self, writer: &mut Writer<'_>) -> std::fmt::Result {
        write!(writer, "{:.3}", self.0.now())
    }
}

/// Standard error. Each write has whole lines.
struct EscapedStderr;

impl Write for EscapedStderr {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        io::stderr().write_all(escaped(&String::from_utf8_lossy(lines), &[]).as_bytes())?;
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A value of `--log-format`. The lines of `Text` have time, level, message and `name=value`, those of `Json` the
/// fields `timestamp`, `level`, `message` and the fields of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// Human-readable lines
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

/// Warnings and errors that are kept in memory, for operators.
pub const MAX_ENTRIES: usize = 500;
/// Bytes of the texts of an entry, about.
pub const MAX_ENTRY_BYTES: usize = 2 << 10;

static LATEST: Mutex<VecDeque<LogEntry>> = Mutex::new(VecDeque::new());

#[derive(Debug, Clone)]
pub struct LogEntry {
    pub at: Timestamp,
    /// `warn` or `error`.
    pub level: &'static str,
    /// The module that wrote it.
    pub target: &'static str,
    pub message: String,
    pub fields: Map<String, Value>,
}

/// The latest warnings and errors of this process, newest first.
pub fn latest(limit: usize) -> Vec<LogEntry> {
    LATEST.lock().iter().rev().take(limit).cloned().collect()
}

/// Keeps the latest warnings and errors.
struct Latest(Clock);

impl<S: Subscriber> Layer<S> for Latest {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let (level, target) = (*event.metadata().level(), event.metadata().target());
        let level = match level {
            Level::ERROR => "error",
            Level::WARN => "warn",
            _ => return,
        };
        let mut texts =
            BoundedTexts { left: MAX_ENTRY_BYTES, message: String::new(), fields: Map::new() };
        event.record(&mut texts);
        let BoundedTexts { message, fields, .. } = texts;
        let mut latest = LATEST.lock();
        if latest.len() == MAX_ENTRIES {
            latest.pop_front();
        }
        latest.push_back(LogEntry { at: self.0.now(), level, target, message, fields });
    }
}

/// The message and the fields of an event.
struct BoundedTexts {
    left: usize,
    message: String,
    fields: Map<String, Value>,
}

impl BoundedTexts {
    fn add(&mut self, name: &str, text: &str) {
        let text = escaped(text, &[]);
        let mut end = text.len().min(self.left);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let cut = if end < text.len() { "…" } else { "" };
        self.left -= end;
        let text = format!("{}{cut}", &text[..end]);
        // Nothing logs a secret. These texts leave the machine, so they are checked.
        let text = if may_contain_secret(&text) { "(hidden)".to_owned() } else { text };
        if name == "message" {
            self.message = text;
        } else {
            self.fields.insert(name.to_owned(), text.into());
        }
    }
}

impl Visit for BoundedTexts {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.add(field.name(), &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field.name(), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.fields.insert(field.name().to_owned(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.fields.insert(field.name().to_owned(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.fields.insert(field.name().to_owned(), value.into());
    }
}

pub fn start(level: Level, format: LogFormat) {
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| EscapedStderr)
        .with_ansi(false)
        .with_target(false)
        .with_timer(LogTimer(Clock::system()));
    let log = tracing_subscriber::registry().with(filter(level)).with(Latest(Clock::system()));
    let started = match format {
        LogFormat::Text => log.with(lines).try_init(),
        LogFormat::Json => log.with(lines.json().flatten_event(true)).try_init(),
    };
    // A second start, which happens in tests, keeps the first log.
    drop(started);
}

/// Limits libraries to errors at every level. The HTTP/2 library traces request headers, which contain API keys, and
/// warns of malformed frames, and any client can send hundreds a second.
fn filter(level: Level) -> Targets {
    let level = LevelFilter::from_level(level);
    Targets::new().with_default(level.min(LevelFilter::ERROR)).with_target("cued", level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_warnings_are_kept_bounded_and_without_secrets() {
        let log = tracing_subscriber::registry().with(Latest(Clock::system()));
        tracing::subscriber::with_default(log, || {
            for count in 0..MAX_ENTRIES + 10 {
                tracing::warn!(count, "early");
            }
            tracing::info!("no warning");
            tracing::error!(
                key = "cue_sk_0123456789abcdef0123456789abcdef",
                is_it = true,
                "whsec_{}",
                "abc"
            );
            let long = "ä".repeat(MAX_ENTRY_BYTES);
            tracing::warn!(error = %long, cause = ?"\u{1b}[2J", "a long one");
        });
        let latest_one = latest(1).remove(0);
        assert_eq!((latest_one.level, latest_one.message.as_str()), ("warn", "a long one"));
        let text = latest_one.fields["error"].as_str().unwrap();
        assert!(text.ends_with("ä…") && text.len() < MAX_ENTRY_BYTES, "{}", text.len());
        assert_eq!(latest_one.fields["cause"], "…", "there was no room");
        let all = latest(MAX_ENTRIES + 10);
        assert_eq!(all.len(), MAX_ENTRIES);
        assert_eq!((all[1].level, all[1].message.as_str()), ("error", "(hidden)"));
        assert_eq!(
            Value::from(all[1].fields.clone()),
            serde_json::json!({"key": "(hidden)", "is_it": true})
        );
        assert_eq!(all[2].fields["count"], MAX_ENTRIES + 9);
        assert_eq!(all[MAX_ENTRIES - 1].fields["count"], 12);
    }

    #[test]
    fn libraries_log_only_errors_at_any_level() {
        let is_logged = |level, target, of| filter(level).would_enable(target, &of);
        assert!(is_logged(Level::TRACE, "cued::mail", Level::TRACE));
        assert!(is_logged(Level::INFO, "cued::http::middleware", Level::INFO));
        assert!(!is_logged(Level::INFO, "cued::mail", Level::DEBUG));
        for library in ["h2::codec", "hyper", "lettre"] {
            assert!(!is_logged(Level::TRACE, library, Level::WARN));
            assert!(is_logged(Level::TRACE, library, Level::ERROR));
        }
    }
}
