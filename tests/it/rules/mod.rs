//! Pure rules: schedules, JSON.

mod canonical_json;
mod json;
mod schedule;
