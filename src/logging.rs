//! The log: lines on standard error. Secrets and keys never reach it.

use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::clock::Clock;

/// Stamps each line with the machine's time: a log of a test clock is read beside other logs all the same.
struct LogTimer(Clock);

impl FormatTime for LogTimer {
    fn format_time(&self, writer: &mut Writer<'_>) -> std::fmt::Result {
        write!(writer, "{:.3}", self.0.now())
    }
}

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people: the time, the level, what it is about, `name=value`.
    Text,
    /// For programs: a JSON object a line, with `timestamp`, `level`, `message` and what the line has beside them.
    Json,
}

/// Starts the log of this process; at `INFO` it is silent while all is well.
pub fn start(level: Level, format: LogFormat) {
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .with_timer(LogTimer(Clock::system()));
    let log = tracing_subscriber::registry().with(filter(level));
    let started = match format {
        LogFormat::Text => log.with(lines).try_init(),
        LogFormat::Json => log.with(lines.json().flatten_event(true)).try_init(),
    };
    // A second start, in a test, keeps the first log.
    drop(started);
}

/// What is let through. The libraries only warn, whatever the level: the HTTP/2 one traces the headers of requests,
/// keys included.
fn filter(level: Level) -> Targets {
    let level = LevelFilter::from_level(level);
    Targets::new().with_default(level.min(LevelFilter::WARN)).with_target("cued", level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_log_at_most_warnings_at_any_level() {
        let told = |level, target, of| filter(level).would_enable(target, &of);
        assert!(told(Level::TRACE, "cued::mail", Level::TRACE));
        assert!(told(Level::INFO, "cued::http::middleware", Level::INFO));
        assert!(!told(Level::INFO, "cued::mail", Level::DEBUG));
        for library in ["h2::codec", "hyper", "lettre"] {
            assert!(!told(Level::TRACE, library, Level::DEBUG));
            assert!(told(Level::TRACE, library, Level::WARN));
            assert!(!told(Level::ERROR, library, Level::WARN));
        }
    }
}
