//! Pure rules: schedules, JSON.

mod canonical_json;
mod international_names;
mod json;
mod schedule;
