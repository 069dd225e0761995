//! A cron expression in English.
//!
//! The words are made from the sets of values, so expressions with the same meaning read alike. Expressions with
//! different meanings have different words, unless a long list is cut.

use crate::domain::schedule::cron::{ALL_DAYS, ALL_WEEKDAYS, CronExpr};

/// Most parts of a list that are written out. Longer ones are hard to read, and a cron line may have 30 parts.
const MAX_LISTED: usize = 10;
/// The values that are shown of a longer list, beside their number.
const SHOWN: usize = 3;
const MAX_TIMES: usize = 6;
/// The fewest values that are described by their step; fewer are easier to read as a list.
const MIN_STEPPED: usize = 4;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const SURE_DAYS: [usize; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
const WEEKDAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

struct Values {
    values: Vec<usize>,
    size: usize,
}

/// `At 09:00, Monday to Friday, in March`.
pub(super) fn describe(cron: &CronExpr) -> String {
    let hours = Values::from_bits(cron.hours, 24);
    let months = Values::from_bits(cron.months >> 1, 12);
    let (days, joins_months) = days(cron, &months);
    // Hours past midnight follow the evening before only if the day after always matches too.
    let past_midnight = days.is_none() && months.is_all();
    let mut words = times(&Values::from_bits(cron.minutes, 60), &hours, past_midnight);
    match days {
        Some(days) => words = format!("{words}, {days}"),
        // `Every 15 minutes` needs no `every day`.
        None if hours.is_all() => {}
        None => match words.strip_prefix("At ") {
            Some(times) => words = format!("Every day at {times}"),
            None => words.push_str(", every day"),
        },
    }
    if !months.is_all() && !joins_months {
        let comma = if words.ends_with("every day") { "" } else { "," };
        words = format!("{words}{comma} {}", months.of_months());
    }
    words
}

/// `past_midnight`: whether hours may be a range such as 22 to 2.
fn times(minutes: &Values, hours: &Values, past_midnight: bool) -> String {
    let (first, last) = (minutes.first(), minutes.last());
    let clock = |hour: usize, minute: usize| format!("{hour:02}:{minute:02}");
    if hours.is_all() {
        return match (minutes.values.len(), minutes.cycle()) {
            (1, _) => format!("Every hour at :{first:02}"),
            (_, Some(_)) => minutes_of_hour(minutes),
            _ => format!("{} of every hour", minutes_of_hour(minutes)),
        };
    }
    let count = minutes.values.len() * hours.values.len();
    let hour_range = hours.range().filter(|(from, to)| past_midnight || from <= to);
    let span = |from: (usize, usize), to: (usize, usize)| {
        format!("from {} to {}", clock(from.0, from.1), clock(to.0, to.1))
    };
    if let (Some(step), Some((from, to))) = (minutes.cycle(), hour_range)
        && count > 2
    {
        return format!("{} {}", every(step, "minute"), span((from, first), (to, last)));
    }
    if let (Some(step), [hour]) = (minutes.progression(), &hours.values[..]) {
        return format!("{} {}", every(step, "minute"), span((*hour, first), (*hour, last)));
    }
    if minutes.values.len() == 1 {
        if let Some((from, to)) = hour_range.filter(|_| hours.values.len() > 2) {
            return format!("Every hour {}", span((from, first), (to, first)));
        }
        let stepped = hours.values.len() >= MIN_STEPPED;
        if let Some(step) = hours.cycle().filter(|_| stepped) {
            return format!("{} from {}", every(step, "hour"), clock(hours.first(), first));
        }
        if let Some(step) = hours.progression() {
            let (from, to) = (hours.first(), hours.last());
            return format!("{} {}", every(step, "hour"), span((from, first), (to, first)));
        }
    }
    if count <= MAX_TIMES {
        let each = hours.values.iter();
        let all =
            each.flat_map(|hour| minutes.values.iter().map(move |minute| clock(*hour, *minute)));
        return format!("At {}", list(&all.collect::<Vec<_>>()));
    }
    let plural = if hours.values.len() == 1 { "hour" } else { "hours" };
    let (text, is_whole) = hours.listed("hours", |hour| format!("{hour:02}"));
    if is_whole {
        format!("{} in the {plural} {text}", minutes_of_hour(minutes))
    } else {
        format!("{} in {text} of the day", minutes_of_hour(minutes))
    }
}

fn minutes_of_hour(minutes: &Values) -> String {
    let (first, last) = (minutes.first(), minutes.last());
    if let Some(step) = minutes.cycle() {
        let from = if first == 0 { String::new() } else { format!(" from :{first:02}") };
        return format!("{}{from}", every(step, "minute"));
    }
    if let Some(step) = minutes.progression() {
        return format!("{} from :{first:02} to :{last:02}", every(step, "minute"));
    }
    format!("At {}", minutes.listed("minutes", |minute| format!(":{minute:02}")).0)
}

/// The days, `None` for all, and whether the words contain the months.
fn days(cron: &CronExpr, months: &Values) -> (Option<String>, bool) {
    let (every_day, every_weekday) = (cron.days == ALL_DAYS, cron.weekdays == ALL_WEEKDAYS);
    if (every_day && every_weekday) || cron.either_day && (every_day || every_weekday) {
        return (None, false);
    }
    // A week begins on Monday, and Sunday is bit 0.
    let weekdays =
        Values::from_bits(cron.weekdays >> 1 | (cron.weekdays & 1) << 6, 7).of_weekdays();
    if every_day {
        return (Some(weekdays), false);
    }
    let days = Values::from_bits(cron.days >> 1, 31);
    if every_weekday {
        return days_of_months(&days, months);
    }
    let days = days_of_month(&days);
    let words = if cron.either_day {
        format!("on {days} of the month, or {weekdays}")
    } else {
        format!("on {days} of the month, but only {weekdays}")
    };
    (Some(words), false)
}

fn days_of_months(days: &Values, months: &Values) -> (Option<String>, bool) {
    let first = days.first() + 1;
    let words = match (&days.values[..], &months.values[..]) {
        ([_], [month]) => format!("on {first} {}", MONTHS[*month]),
        _ => {
            let is_one = days.values.len() == 1;
            let of = match months.range() {
                // Every month has 28 days.
                _ if months.is_all() && first > 28 && is_one => {
                    "the months that have it".to_owned()
                }
                _ if months.is_all() => "the month".to_owned(),
                Some((from, to)) if months.values.len() > 2 => {
                    format!("every month from {} to {}", MONTHS[from], MONTHS[to])
                }
                _ => months.listed("months", |month| MONTHS[month].to_owned()).0,
            };
            let lacks = |month: &usize| days.last() + 1 > SURE_DAYS[*month];
            // Nobody expects every day up to 31 in every month.
            let is_plain = months.is_all() && (is_one || first <= 28);
            let rest = if is_plain || !months.values.iter().any(lacks) {
                ""
            } else if is_one {
                ", where it exists"
            } else {
                ", where they exist"
            };
            format!("on {} of {of}{rest}", days_of_month(days))
        }
    };
    (Some(words), true)
}

/// `day 1`, `days 1, 8 and 20 to 22`, `every 2nd day from 1 to 31`; values are counted from 0.
fn days_of_month(days: &Values) -> String {
    // Four days with a step read better as a list: 1, 11, 21 and 31.
    if let Some(step) =
        days.progression().filter(|step| *step > 1 && days.values.len() > MIN_STEPPED)
    {
        let (first, last) = (days.first() + 1, days.last() + 1);
        let ending = match step {
            2 => "nd",
            3 => "rd",
            _ => "th",
        };
        return format!("every {step}{ending} day from {first} to {last}");
    }
    let plural = if days.values.len() == 1 { "day" } else { "days" };
    let (text, is_whole) = days.listed("days", |day| (day + 1).to_string());
    if is_whole { format!("{plural} {text}") } else { text }
}

impl Values {
    fn from_bits(set: u64, size: usize) -> Self {
        Self { values: (0..size).filter(|value| set & (1 << value) != 0).collect(), size }
    }

    fn is_all(&self) -> bool {
        self.values.len() == self.size
    }

    /// The smallest value. A field has at least one.
    fn first(&self) -> usize {
        self.values.first().copied().unwrap_or_default()
    }

    fn last(&self) -> usize {
        self.values.last().copied().unwrap_or_default()
    }

    /// The step of values with equal distances, also from the last one around to the first.
    fn cycle(&self) -> Option<usize> {
        let count = self.values.len();
        let step = self.size / count.max(1);
        let is_even = self.size.is_multiple_of(count.max(1)) && self.has_step(step);
        (count > 1 && is_even).then_some(step)
    }

    fn progression(&self) -> Option<usize> {
        let [first, second, ..] = self.values[..] else { return None };
        let step = second - first;
        (self.values.len() >= MIN_STEPPED && self.has_step(step)).then_some(step)
    }

    fn has_step(&self, step: usize) -> bool {
        self.values.windows(2).all(|pair| pair[1] - pair[0] == step)
    }

    /// The ends of values without a hole, which may pass the end of the cycle: `22-2`.
    fn range(&self) -> Option<(usize, usize)> {
        let follows = |value: &usize| self.values.contains(&((value + self.size - 1) % self.size));
        let mut starts = self.values.iter().filter(|value| !follows(value));
        let (Some(start), None) = (starts.next(), starts.next()) else { return None };
        Some((*start, (start + self.values.len() - 1) % self.size))
    }

    /// The values in words, three or more in a row as `a to b`, and whether all are named: a long list is cut to the
    /// number of values and the first of them, `17 days (1, 3, 4 …)`.
    fn listed(&self, plural: &str, name: impl Fn(usize) -> String) -> (String, bool) {
        let mut parts = Vec::new();
        let mut rest = &self.values[..];
        while let [first, ..] = rest {
            let length =
                rest.iter().zip(*first..).take_while(|(value, next)| *value == next).count();
            let (run, after) = rest.split_at(length);
            match run {
                [first, .., last] if length > 2 => {
                    parts.push(format!("{} to {}", name(*first), name(*last)));
                }
                _ => parts.extend(run.iter().map(|value| name(*value))),
            }
            rest = after;
        }
        if parts.len() <= MAX_LISTED {
            return (list(&parts), true);
        }
        let shown: Vec<String> = self.values.iter().take(SHOWN).map(|value| name(*value)).collect();
        (format!("{} {plural} ({} …)", self.values.len(), shown.join(", ")), false)
    }

    /// `on Mondays and Fridays`, `Monday to Friday`.
    fn of_weekdays(&self) -> String {
        match self.range().filter(|_| self.values.len() > 2) {
            Some((from, to)) => format!("{} to {}", WEEKDAYS[from], WEEKDAYS[to]),
            None => {
                let names: Vec<String> =
                    self.values.iter().map(|day| format!("{}s", WEEKDAYS[*day])).collect();
                format!("on {}", list(&names))
            }
        }
    }

    /// `in January and March`, `from November to February`.
    fn of_months(&self) -> String {
        match self.range().filter(|_| self.values.len() > 2) {
            Some((from, to)) => format!("from {} to {}", MONTHS[from], MONTHS[to]),
            None => format!("in {}", self.listed("months", |month| MONTHS[month].to_owned()).0),
        }
    }
}

fn every(step: usize, unit: &str) -> String {
    match step {
        1 => format!("Every {unit}"),
        _ => format!("Every {step} {unit}s"),
    }
}

fn list(parts: &[String]) -> String {
    match parts {
        [before @ .., last] if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => parts.concat(),
    }
}
