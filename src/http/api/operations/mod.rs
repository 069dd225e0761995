//! Endpoints for operators: health, version, metrics and the test clock.

pub mod health;
pub mod info;
pub mod metrics;
pub mod test_clock;
