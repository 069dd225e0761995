//! The cause of a failed delivery attempt, in one word (contract §1.9).

use crate::domain::text::word_enum::word_enum;

word_enum! {
    /// Why a delivery attempt was no success.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum FailureCause {
        /// No complete response within the time limit.
        Timeout = "timeout",
        /// The address policy allows no address of the host.
        BlockedAddress = "blocked_address",
        /// The host has no address.
        UnknownName = "unknown_name",
        /// No connection, a broken one, or a response that is not HTTP.
        Connection = "connection",
        /// No trusted TLS connection.
        Tls = "tls",
        /// There is no valid request to send.
        Unsendable = "unsendable",
        Status3xx = "status_3xx",
        Status4xx = "status_4xx",
        Status5xx = "status_5xx",
        /// A status below 200 or above 599.
        StatusOther = "status_other",
        /// An error of the program or of its database.
        Fault = "fault",
    }
}

impl FailureCause {
    /// The cause that a status stands for; `None` for a success.
    pub fn of_status(http_status: u16) -> Option<Self> {
        match http_status {
            200..=299 => None,
            300..=399 => Some(Self::Status3xx),
            400..=499 => Some(Self::Status4xx),
            500..=599 => Some(Self::Status5xx),
            _ => Some(Self::StatusOther),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_but_a_success_is_a_cause() {
        let words = [199, 200, 299, 302, 404, 503, 600]
            .map(|http_status| FailureCause::of_status(http_status).map(FailureCause::as_str));
        let [other, status_3xx] = ["status_other", "status_3xx"].map(Some);
        assert_eq!(words, [other, None, None, status_3xx, Some("status_4xx"), Some("status_5xx"), other]);
    }
}
