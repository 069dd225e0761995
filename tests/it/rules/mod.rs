//! Pure rules: schedules, JSON.

mod international_names;
mod json;
mod schedule;
