//! Shows where the fault of a refused cron expression is.

use unicode_width::UnicodeWidthStr as _;

use crate::cli::error::CliError;
use crate::cli::printable::printable;
use crate::client::error::ClientError;

/// The error with the expression and a mark below the part that the server names (contract §4.3).
pub fn with_caret(error: CliError, cron: Option<&str>) -> CliError {
    match (error, cron) {
        (CliError::Client(ClientError::Refused(mut refused)), Some(cron)) => {
            let part = |index: usize| refused.body["error"]["span"][index].as_u64();
            if let (Some(from), Some(to)) = (part(0), part(1)) {
                let lines = lines(cron, from, to);
                refused.message.push_str(&lines);
            }
            CliError::Client(ClientError::Refused(refused))
        }
        (error, _) => error,
    }
}

/// `from` and `to` count characters.
fn lines(cron: &str, from: u64, to: u64) -> String {
    let position = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let before: String = cron.chars().take(position(from)).collect();
    let part: String = cron.chars().skip(position(from)).take(position(to.saturating_sub(from))).collect();
    // An empty part is a place where something is missing.
    let marks = "^".repeat(printable(&part).width().max(1));
    format!("\n  {}\n  {}{marks}", printable(cron), " ".repeat(printable(&before).width()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_below_the_part() {
        assert_eq!(lines("0 25 * * *", 2, 4), "\n  0 25 * * *\n    ^^");
        assert_eq!(lines("日本 9", 3, 4), "\n  日本 9\n       ^");
        assert_eq!(lines("0 9", 3, 3), "\n  0 9\n     ^");
        assert_eq!(lines("0\u{1b}", 1, 99), "\n  0\u{fffd}\n   ^");
    }
}
