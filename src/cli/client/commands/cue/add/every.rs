//! `--every`: an even interval as a cron expression.

use crate::cli::output::times::parse_duration;

const HOUR: i64 = 60;
const DAY: i64 = 24 * HOUR;

/// The cron expression of an interval.
/// Errors: if no cron expression has even intervals of this length. The reason proposes what is near.
pub fn cron(text: &str) -> Result<String, String> {
    let seconds = parse_duration(text)?.as_secs();
    if seconds % 60 != 0 {
        return Err("a schedule has no seconds; the shortest interval is 1m".to_owned());
    }
    match seconds / 60 {
        1 => Ok("* * * * *".to_owned()),
        minutes @ 2..HOUR if HOUR % minutes == 0 => Ok(format!("*/{minutes} * * * *")),
        HOUR => Ok("0 * * * *".to_owned()),
        DAY => Ok("0 0 * * *".to_owned()),
        minutes @ 2..HOUR => Err(format!(
            "{minutes} minutes do not divide the hour; {}m is even, and --cron '*/{minutes} * * * *' begins again with \
             each hour",
            nearest(HOUR, minutes)
        )),
        minutes if minutes > DAY => Err(days(minutes)),
        minutes if minutes % HOUR != 0 => {
            let hours = nearest(DAY / HOUR, minutes / HOUR);
            Err(format!("{text} is no whole number of hours; {hours}h is even: --cron '{}'", hourly(hours)))
        }
        minutes => {
            let hours = minutes / HOUR;
            if DAY % minutes == 0 {
                return Ok(hourly(hours));
            }
            Err(format!(
                "{hours} hours do not divide the day; {}h is even, and --cron '{}' begins again with each day",
                nearest(DAY / HOUR, hours),
                hourly(hours)
            ))
        }
    }
}

fn hourly(hours: i64) -> String {
    if hours == 1 { "0 * * * *".to_owned() } else { format!("0 */{hours} * * *") }
}

fn days(minutes: i64) -> String {
    let proposal = match minutes / DAY {
        7 if minutes % DAY == 0 => "--cron '0 0 * * 1' runs on each Monday".to_owned(),
        days @ 2..=15 => format!("--cron '0 0 */{days} * *' begins again with each month"),
        _ => "--cron '0 0 1 * *' runs on the first of each month".to_owned(),
    };
    format!("an interval has a day at most; {proposal}")
}

/// The divisor of `whole` that is nearest to `number`.
fn nearest(whole: i64, number: i64) -> i64 {
    let divisors = (1..whole).filter(|divisor| whole % divisor == 0);
    divisors.min_by_key(|divisor| (divisor - number).abs()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_intervals_are_cron_expressions() {
        let crons =
            ["1m", "5m", "30m", "60m", "1h", "2h", "12h", "24h", "1d"].map(|text| cron(text).unwrap());
        let expected = [
            "* * * * *",
            "*/5 * * * *",
            "*/30 * * * *",
            "0 * * * *",
            "0 * * * *",
            "0 */2 * * *",
            "0 */12 * * *",
            "0 0 * * *",
            "0 0 * * *",
        ];
        assert_eq!(crons, expected);
    }

    #[test]
    fn others_are_refused_with_a_proposal() {
        for (text, proposal) in [
            ("7m", "--cron '*/7 * * * *'"),
            ("45m", "30m is even"),
            ("90m", "--cron '0 * * * *'"),
            ("5h", "4h is even"),
            ("7d", "--cron '0 0 * * 1'"),
            ("2d", "--cron '0 0 */2 * *'"),
            ("60d", "--cron '0 0 1 * *'"),
            ("30s", "the shortest interval is 1m"),
            ("x", "no duration"),
        ] {
            let error = cron(text).unwrap_err();
            assert!(error.contains(proposal), "{text}: {error}");
        }
    }
}
