//! Endpoints for operators: health, version, metrics, the description of the API and the test clock.

pub mod health;
pub mod info;
pub mod metrics;
pub mod openapi;
pub mod test_clock;
