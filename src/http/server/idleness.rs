//! The order in which a full server closes connections.

use tokio::time::Instant;

/// The idleness of a connection. A full server closes by kind, then the longest idle first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Idleness {
    /// It has its last response, and what the peer still sends is discarded.
    Closing(Instant),
    /// It has sent nothing yet.
    Silent(Instant),
    /// Its requests have sent no complete body.
    AwaitingBody(Instant),
    /// It has received all its responses and is kept alive for another request.
    KeptAlive(Instant),
    /// It has sent a part of a head.
    PartialHead(Instant),
}

impl Idleness {
    pub fn since(self) -> Instant {
        match self {
            Self::Closing(since)
            | Self::Silent(since)
            | Self::AwaitingBody(since)
            | Self::KeptAlive(since)
            | Self::PartialHead(since) => since,
        }
    }
}
