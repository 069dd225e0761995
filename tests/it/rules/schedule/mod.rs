//! Schedules: the table of cron cases, named nights, and random cases against a second implementation.

mod cron_cases;
mod descriptions;
mod dst_nights;
mod instants;
mod occurrences;
mod random;
mod refusals;
mod spans;

use cued::domain::schedule::cron::CronExpr;
use cued::domain::schedule::time_zone::Zone;
use cued::domain::schedule::{CatchUp, Schedule, ScheduleRule};
use jiff::Timestamp;

/// A zone with the built-in rules, so that no test depends on the system.
fn zone(name: &str) -> Zone {
    Zone::find_built_in(name).unwrap()
}

fn recurring(cron: &str, zone_name: &str) -> Schedule {
    let cron = CronExpr::parse(cron).unwrap_or_else(|error| panic!("{cron}: {error}"));
    Schedule { rule: ScheduleRule::Recurring(cron), zone: zone(zone_name), catch_up: CatchUp::Latest }
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}
