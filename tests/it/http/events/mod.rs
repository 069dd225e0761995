//! Live events: `GET /v1/events` (contract §8.13).

mod sequences;
mod streams;

use serde_json::Value;

/// The types of events.
fn types(events: &[(String, Value)]) -> Vec<&str> {
    events.iter().map(|(event, _)| event.as_str()).collect()
}
