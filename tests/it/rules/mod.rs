//! Pure rules: schedules, JSON.

mod json;
mod schedule;
