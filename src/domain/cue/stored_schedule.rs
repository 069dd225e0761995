//! The schedule of a cue in the form that is stored and shown.

use jiff::Timestamp;

use crate::domain::schedule::time_zone::Zone;
use crate::domain::schedule::{CatchUp, Schedule, ScheduleError, ScheduleRule};

/// The schedule as it is stored and shown; [`StoredSchedule::read`] makes it able to compute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSchedule {
    /// What it runs on.
    pub when: ScheduleSpec,
    /// The zone's name.
    pub timezone: String,
    /// What becomes of runs that were missed.
    pub catch_up: CatchUp,
}

/// A cron line, or one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleSpec {
    /// The cron line as the user wrote it.
    Recurring(String),
    /// The only instant.
    Once(Timestamp),
}

impl StoredSchedule {
    /// The schedule behind the text.
    ///
    /// # Errors
    /// When the zone or the cron line is not known (any more).
    pub fn read(&self) -> Result<Schedule, ScheduleError> {
        match &self.when {
            ScheduleSpec::Recurring(cron) => Schedule::recurring(cron, &self.timezone, self.catch_up),
            ScheduleSpec::Once(at) => {
                let zone = Zone::find(&self.timezone)?;
                Ok(Schedule { timing: ScheduleRule::Once(*at), zone, catch_up: self.catch_up })
            }
        }
    }

    /// The text of `schedule`.
    #[must_use]
    pub fn from_schedule(schedule: &Schedule) -> Self {
        let when = match &schedule.timing {
            ScheduleRule::Recurring(cron) => ScheduleSpec::Recurring(cron.text().to_owned()),
            ScheduleRule::Once(at) => ScheduleSpec::Once(*at),
        };
        Self { when, timezone: schedule.zone.name().to_owned(), catch_up: schedule.catch_up }
    }
}
