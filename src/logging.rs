//! The log: lines on standard error. Secrets and keys never reach it (contract §1.8), nor does what a terminal would
//! execute.

use std::io::{self, Write};

use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::clock::Clock;
use crate::domain::text::escaped;

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

pub fn start(level: Level, format: LogFormat) {
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| EscapedStderr)
        .with_ansi(false)
        .with_target(false)
        .with_timer(LogTimer(Clock::system()));
    let log = tracing_subscriber::registry().with(filter(level));
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
