//! A request that a sink has received.

use hyper::body::Bytes;
use jiff::Timestamp;

#[derive(Debug, Clone)]
pub struct Delivery {
    pub received_at: Timestamp,
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Names in lower case. Bytes that are no UTF-8 are replaced.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
}

impl Delivery {
    /// The first header of this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    #[must_use]
    pub fn execution_id(&self) -> Option<&str> {
        self.header("x-cueapi-execution-id")
    }

    /// The number of the attempt, from 1.
    #[must_use]
    pub fn attempt(&self) -> Option<u32> {
        self.header("x-cueapi-attempt")?.parse().ok()
    }
}
