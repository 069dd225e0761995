//! Random crons at random instants against a second implementation of contract §4.4 and §4.5, which walks through real
//! time minute by minute and shares only the time zone data of jiff with the program.

use std::collections::HashMap;

use cued::domain::schedule::cron::CronExpr;
use cued::domain::schedule::interval::Interval;
use cued::domain::schedule::{Bounds, CatchUp, Schedule, ScheduleRule, Zone};
use jiff::civil::DateTime;

use crate::support::*;

/// A zone with the built-in rules, so that no test depends on the system.
fn zone(name: &str) -> Zone {
    Zone::find_built_in(name).unwrap()
}

fn parsed(cron: &str) -> CronExpr {
    CronExpr::parse(cron).unwrap_or_else(|error| panic!("{cron}: {error}"))
}

fn recurring(cron: &str, zone_name: &str) -> Schedule {
    Schedule::new(ScheduleRule::Recurring(parsed(cron)), zone(zone_name), CatchUp::Latest)
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Instants around changes of all kinds, and two places without any change.
const PLACES: [(&str, &str); 25] = [
    ("UTC", "2028-02-29T00:00:00Z"),
    ("Asia/Kathmandu", "2026-12-31T18:15:00Z"),
    ("America/New_York", "2026-03-08T07:00:00Z"),
    ("America/New_York", "2026-11-01T06:00:00Z"),
    ("America/New_York", "2090-03-12T07:00:00Z"),
    ("Europe/London", "2026-03-29T01:00:00Z"),
    ("Europe/London", "2026-10-25T01:00:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00:00Z"),
    ("Africa/Casablanca", "2026-02-15T02:00:00Z"),
    ("Africa/Casablanca", "2026-03-22T02:00:00Z"),
    ("America/Havana", "2026-03-08T05:00:00Z"),
    ("America/Havana", "2026-11-01T05:00:00Z"),
    ("America/Santiago", "2026-09-06T04:00:00Z"),
    ("America/Santiago", "2026-04-05T03:00:00Z"),
    ("Asia/Beirut", "2026-03-28T22:00:00Z"),
    ("Asia/Beirut", "2026-10-24T21:00:00Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00:00Z"),
    ("Antarctica/Troll", "2026-03-29T01:00:00Z"),
    ("Antarctica/Troll", "2026-10-25T01:00:00Z"),
    ("Asia/Pyongyang", "2015-08-14T15:00:00Z"),
    ("America/Caracas", "2016-05-01T07:00:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00:00Z"),
    ("Pacific/Kwajalein", "1993-08-21T12:00:00Z"),
    ("Pacific/Kwajalein", "1969-09-30T13:00:00Z"),
];
const CASES_PER_PLACE: usize = 480;
const DAY: usize = 1440;

#[test]
fn random_crons_run_when_the_local_clock_first_reaches_or_passes_their_times() {
    let mut cases = 0;
    for (seed, (zone_name, middle)) in (1..).zip(PLACES) {
        let minutes = walk(at(middle), |at| zone(zone_name).reading(at));
        let changes = minutes.iter().skip(1).filter(|minute| minute.reached.len() != 1).count();
        assert_eq!(
            changes > 0,
            !["UTC", "Asia/Kathmandu"].contains(&zone_name),
            "{zone_name} {middle}"
        );
        let mut random = Random::new(seed);
        for _ in 0..CASES_PER_PLACE {
            check(&Cron::random(&mut random), zone_name, &minutes, &mut random);
            check_bounds(&Cron::random(&mut random), zone_name, &minutes, &mut random);
            cases += 1;
        }
    }
    assert_eq!(cases, 12_000);
}

/// Zones whose rules become those of another one at an instant.
const CHANGES: [(&str, &str, &str); 9] = [
    ("Europe/Berlin", "Europe/Athens", "2026-01-05T07:30:00Z"),
    ("Europe/Berlin", "Europe/London", "2026-01-05T08:30:00Z"),
    ("Europe/Berlin", "Europe/Moscow", "2026-10-25T01:30:00Z"),
    ("Europe/Moscow", "Europe/Berlin", "2026-03-29T01:10:00Z"),
    ("Asia/Kathmandu", "Asia/Kolkata", "2026-12-31T18:15:00Z"),
    ("Australia/Adelaide", "Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
    ("Pacific/Apia", "Pacific/Pago_Pago", "2026-05-01T07:00:00Z"),
    ("Pacific/Pago_Pago", "Pacific/Apia", "2026-05-01T07:00:00Z"),
    ("America/New_York", "America/Havana", "2026-11-01T05:30:00Z"),
];

#[test]
fn new_rules_of_a_zone_are_a_clock_change_that_no_run_is_lost_or_repeated_by() {
    for (seed, (old, new, changed_at)) in (1..).zip(CHANGES) {
        let (old, new_zone, changed_at) = (zone(old), zone(new), at(changed_at));
        let clock =
            |at: Timestamp| if at > changed_at { new_zone.reading(at) } else { old.reading(at) };
        let minutes = walk(changed_at, clock);
        let now = changed_at.checked_add(SignedDuration::from_mins(1)).unwrap();
        let mut random = Random::new(seed);
        for _ in 0..CASES_PER_PLACE {
            let cron = Cron::random(&mut random);
            let expected =
                minutes.iter().find(|minute| minute.at > changed_at && cron.runs_in(minute));
            let next = recurring(&cron.text, new).next_after_change(&old, changed_at, now);
            let found = next.filter(|next| *next <= minutes[minutes.len() - 1].at);
            assert_eq!(
                found,
                expected.map(|minute| minute.at),
                "{} in {old:?}, then {new}",
                cron.text
            );
        }
    }
}

#[test]
fn equal_crons_have_equal_words_and_different_crons_different_words() {
    const CASES: usize = 40_000;
    /// Longer than any description: the longest has cut lists in all fields.
    const LONGEST: usize = 300;
    let mut random = Random::new(1);
    let mut known: HashMap<String, Cron> = HashMap::new();
    let mut repeated = 0;
    for _ in 0..CASES {
        let cron = Cron::random(&mut random);
        let (words, line) = (parsed(&cron.text).describe(), &cron.text);
        assert!(words.chars().count() <= LONGEST, "{line}: {words}");
        if words.contains('…') {
            continue;
        }
        assert_eq!(parsed(&cron.backwards()).describe(), words, "{line}");
        if let Some(other) = known.get(&words) {
            assert!(cron.meaning() == other.meaning(), "{words}: {line} and {}", other.text);
            repeated += 1;
        } else {
            known.insert(words, cron);
        }
    }
    assert!(repeated > 100 && known.len() > 10_000, "{repeated} {}", known.len());
}

fn check(cron: &Cron, zone_name: &str, minutes: &[Minute], random: &mut Random) {
    let schedule = recurring(&cron.text, zone_name);
    // Three days earlier, so that each repeated local time has occurred once.
    let minutes = &minutes[3 * DAY + random.index(3 * DAY)..];
    let after = minutes[0]
        .at
        .checked_add(SignedDuration::from_millis(30_001 * random.index(2) as i64))
        .unwrap();
    let until = minutes[minutes.len() - 1].at;
    let expected: Vec<Timestamp> = minutes
        .iter()
        .filter(|minute| minute.at > after && cron.runs_in(minute))
        .map(|minute| minute.at)
        .collect();

    let case = format!("{} in {zone_name}", cron.text);
    compare(&schedule, (after, until), &expected, random.index(40), &case);
}

/// The same crons, and intervals, between a start and an end, delayed (contract §4.3).
fn check_bounds(cron: &Cron, zone_name: &str, minutes: &[Minute], random: &mut Random) {
    let begin = 3 * DAY;
    let some = |random: &mut Random| {
        let place = begin + random.index(3 * DAY);
        (random.index(3) > 0).then_some(minutes[place].at)
    };
    let (start, end) = (some(random), some(random));
    let delay = SignedDuration::from_secs((random.index(2) * random.index(3_601)) as i64);
    let (after, until) = (minutes[begin + random.index(DAY)].at, minutes[minutes.len() - 1].at);
    let mut schedule = recurring(&cron.text, zone_name);
    let planned: Vec<Timestamp> = if random.index(2) == 0 {
        minutes.iter().filter(|minute| cron.runs_in(minute)).map(|minute| minute.at).collect()
    } else {
        let period = SignedDuration::from_secs((60 + random.index(40_000)) as i64);
        let from = minutes[begin + random.index(DAY)].at;
        schedule.rule = ScheduleRule::Every(Interval::parse(&format!("{period:#}"), from).unwrap());
        // The instant from which intervals count is a run only as their start.
        let first = if start.is_some() { from } else { from.checked_add(period).unwrap() };
        std::iter::successors(Some(first), |run| run.checked_add(period).ok())
            .take_while(|run| *run < until)
            .collect()
    };
    let delay_seconds = u32::try_from(delay.as_secs()).unwrap();
    schedule.bounds =
        Bounds { start, end, jitter_seconds: delay_seconds, delay_seconds: Some(delay_seconds) };
    let is_in = |run: &Timestamp| *run > after && *run <= until && end.is_none_or(|end| *run < end);
    let runs = planned.iter().filter(|run| start.is_none_or(|start| **run >= start));
    let expected: Vec<Timestamp> =
        runs.map(|run| run.checked_add(delay).unwrap()).filter(is_in).collect();
    let case = format!("{:?} in {zone_name} within {:?}", schedule.rule, schedule.bounds);
    compare(&schedule, (after, until), &expected, random.index(40), &case);
}

/// Compares the runs of a schedule in a span with those that are expected.
fn compare(
    schedule: &Schedule,
    (after, until): (Timestamp, Timestamp),
    expected: &[Timestamp],
    limit: usize,
    case: &str,
) {
    let case = format!("{case} after {after} until {until}");
    let next: Vec<Timestamp> =
        schedule.upcoming(after, 4).into_iter().filter(|run| *run <= until).collect();
    assert_eq!(next, expected.iter().copied().take(4).collect::<Vec<_>>(), "{case}");
    let spans = schedule.occurrences(after, until);
    assert_eq!(spans.count, expected.len() as u64, "{case}");
    assert_eq!(spans.first, expected.first().copied(), "{case}");
    assert_eq!(spans.last, expected.last().copied(), "{case}");
    let newest = &expected[expected.len().saturating_sub(limit)..];
    assert_eq!(schedule.newest(after, until, limit), newest, "{case}");
}

/// One minute of real time, the local time, and the local times first reached in it.
struct Minute {
    at: Timestamp,
    reading: Time,
    reached: Vec<Time>,
}

#[derive(Clone, Copy)]
struct Time {
    minute: usize,
    hour: usize,
    day: usize,
    month: usize,
    weekday: usize,
}

/// The minutes from five days before an instant to two days after it.
fn walk(middle: Timestamp, clock: impl Fn(Timestamp) -> DateTime) -> Vec<Minute> {
    let minute = SignedDuration::from_mins(1);
    let mut furthest = None;
    let begin = middle.checked_sub(SignedDuration::from_hours(5 * 24)).unwrap();
    (0..7 * DAY)
        .map(|distance| {
            let at = begin.checked_add(SignedDuration::from_mins(distance as i64)).unwrap();
            let reading = clock(at);
            let mut time = furthest.unwrap_or(reading);
            let mut reached = Vec::new();
            while time < reading {
                time = time.checked_add(minute).unwrap();
                reached.push(Time::new(time));
            }
            furthest = Some(time);
            Minute { at, reading: Time::new(reading), reached }
        })
        .collect()
}

impl Time {
    fn new(reading: DateTime) -> Self {
        let number = |value: i8| usize::try_from(value).unwrap();
        Self {
            minute: number(reading.minute()),
            hour: number(reading.hour()),
            day: number(reading.day()),
            month: number(reading.month()),
            weekday: number(reading.weekday().to_sunday_zero_offset()),
        }
    }
}

/// A cron expression and the values of its fields.
struct Cron {
    text: String,
    minutes: Values,
    hours: Values,
    days: Values,
    months: Values,
    weekdays: Values,
    /// True if day of month and day of week must both match because one starts with a star.
    both_days: bool,
    every_hour: bool,
}

type Values = [bool; 60];

impl Cron {
    fn random(random: &mut Random) -> Self {
        let (minute, minutes) = random_field(random, 0, 59, 1);
        let (hour, hours) = random_field(random, 0, 23, 2);
        let (day, days) = random_field(random, 1, 31, 4);
        let (month, months) = random_field(random, 1, 12, 8);
        let (weekday, weekdays) = random_field(random, 0, 6, 3);
        let both_days = day.starts_with('*') || weekday.starts_with('*');
        let every_hour = hours[..24].iter().all(|hour| *hour);
        let text = [minute, hour, day, month, weekday].join(" ");
        Self { text, minutes, hours, days, months, weekdays, both_days, every_hour }
    }

    fn fields(&self) -> [Values; 5] {
        [self.minutes, self.hours, self.days, self.months, self.weekdays]
    }

    /// The values of the fields, and whether both day fields must match.
    fn meaning(&self) -> ([Values; 5], bool) {
        let mut fields = self.fields();
        let is_any = |values: &Values, count| values.iter().filter(|it| **it).count() == count;
        // A list of all values is not a star, and the other field no longer restricts the days.
        if !self.both_days && (is_any(&self.days, 31) || is_any(&self.weekdays, 7)) {
            fields[2][1..=31].fill(true);
            fields[4][..7].fill(true);
            return (fields, true);
        }
        (fields, self.both_days)
    }

    /// The same values, written backwards and as ranges.
    fn backwards(&self) -> String {
        let backwards = |(text, values): (&str, Values)| {
            let values = (0..60).rev().filter(|value| values[*value]);
            let ranges = values.map(|value| format!("{value}-{value}")).collect::<Vec<_>>();
            if text.starts_with('*') { text.to_owned() } else { ranges.join(",") }
        };
        self.text.split(' ').zip(self.fields()).map(backwards).collect::<Vec<_>>().join(" ")
    }

    fn runs_in(&self, minute: &Minute) -> bool {
        if self.every_hour {
            self.matches(&minute.reading)
        } else {
            minute.reached.iter().any(|time| self.matches(time))
        }
    }

    fn matches(&self, time: &Time) -> bool {
        let (day, weekday) = (self.days[time.day], self.weekdays[time.weekday]);
        self.minutes[time.minute]
            && self.hours[time.hour]
            && self.months[time.month]
            && if self.both_days { day && weekday } else { day || weekday }
    }
}

/// A field of one to three items, or a star; more `stars` make a star more likely.
fn random_field(
    random: &mut Random,
    least: usize,
    greatest: usize,
    stars: usize,
) -> (String, Values) {
    let mut values = [false; 60];
    if random.index(stars + 2) >= 2 {
        values[least..=greatest].fill(true);
        return ("*".to_owned(), values);
    }
    let items: Vec<_> =
        (0..=random.index(3)).map(|_| random_item(random, least, greatest, &mut values)).collect();
    (items.join(","), values)
}

fn random_item(random: &mut Random, least: usize, greatest: usize, values: &mut Values) -> String {
    let size = greatest - least + 1;
    let (first, last) = (least + low(random, size), least + random.index(size));
    let first_text = written(random, first, greatest);
    // `sun-7` is `0-7`, the whole week, where `sun-sun` is one day.
    let last_text =
        if first == last { first_text.clone() } else { written(random, last, greatest) };
    let step = 1 + low(random, size);
    let (text, first, last, step) = match random.index(8) {
        0 => (format!("*/{step}"), least, greatest, step),
        1 => (format!("{first_text}-{last_text}"), first, last, 1),
        2 => (format!("{first_text}-{last_text}/{step}"), first, last, step),
        3 => (format!("{first_text}/{step}"), first, greatest, step),
        _ => (first_text, first, first, 1),
    };
    let (mut value, mut distance) = (first, 0);
    loop {
        values[value] |= distance % step == 0;
        if value == last {
            return text;
        }
        value = if value == greatest { least } else { value + 1 };
        distance += 1;
    }
}

/// A value as a number, with a leading zero, or by name; Sunday also as 7.
fn written(random: &mut Random, value: usize, greatest: usize) -> String {
    const DAYS: [&str; 7] = ["Sun", "mon", "TUE", "wed", "thu", "Fri", "sat"];
    const MONTHS: [&str; 12] =
        ["jan", "Feb", "MAR", "apr", "may", "jun", "Jul", "aug", "sep", "OCT", "nov", "dec"];
    match (random.index(4), greatest) {
        (0, 6) => DAYS[value].to_owned(),
        (1, 6) if value == 0 => "7".to_owned(),
        (0, 12) => MONTHS[value - 1].to_owned(),
        (1, _) => format!("{value:02}"),
        _ => value.to_string(),
    }
}

/// Low numbers more often: daylight saving changes early in the day.
fn low(random: &mut Random, bound: usize) -> usize {
    random.index(bound).min(random.index(bound))
}
