//! The schedule of a cue in the form that is stored and shown.

use jiff::Timestamp;

use crate::domain::schedule::time_zone::Zone;
use crate::domain::schedule::{CatchUp, Schedule, ScheduleError, ScheduleRule};

/// A schedule as text. [`Self::read`] parses it for computing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSchedule {
    pub when: ScheduleSpec,
    /// The IANA name.
    pub timezone: String,
    pub catch_up: CatchUp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleSpec {
    /// The cron expression as the user wrote it.
    Recurring(String),
    Once(Timestamp),
}

impl StoredSchedule {
    /// The parsed schedule.
    /// Errors: the zone or the cron expression is unknown, which an upgrade of the zone database can cause.
    pub fn read(&self) -> Result<Schedule, ScheduleError> {
        match &self.when {
            ScheduleSpec::Recurring(cron) => Schedule::recurring(cron, &self.timezone, self.catch_up),
            ScheduleSpec::Once(at) => {
                let zone = Zone::find(&self.timezone)?;
                Ok(Schedule { rule: ScheduleRule::Once(*at), zone, catch_up: self.catch_up })
            }
        }
    }

    pub fn from_schedule(schedule: &Schedule) -> Self {
        let when = match &schedule.rule {
            ScheduleRule::Recurring(cron) => ScheduleSpec::Recurring(cron.text().to_owned()),
            ScheduleRule::Once(at) => ScheduleSpec::Once(*at),
        };
        Self { when, timezone: schedule.zone.name().to_owned(), catch_up: schedule.catch_up }
    }
}
