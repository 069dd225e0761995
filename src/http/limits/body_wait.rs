//! Requests that wait for their bodies. A connection with no other request gives way when the server is full (contract
//! §11.2). Polls of devices, which may be free, wait in a limited number for each client.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::domain::account::client_ip::customer_network;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::locks::Mutex;

/// Polls of one client that wait for their bodies. The body of a poll usually comes with its head, so that many devices
/// behind one address wait at different instants.
const MAX_POLL_BODIES: u32 = 16;

/// Seconds for `Retry-After` of a poll beyond that.
const RETRY_AFTER: u32 = 1;

/// Counts the waiting requests of a connection.
#[derive(Debug, Clone, Default)]
pub struct BodyWaits(Arc<AtomicUsize>);

/// One request that waits. Dropping it ends the wait.
#[derive(Debug)]
pub struct BodyWait(BodyWaits);

impl BodyWaits {
    pub fn begin(&self) -> BodyWait {
        self.0.fetch_add(1, Ordering::SeqCst);
        BodyWait(self.clone())
    }

    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Drop for BodyWait {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Counts the polls that wait for their bodies, by network.
#[derive(Debug, Default)]
pub struct PollBodies {
    // Networks without such a poll have no entry.
    waiting: Mutex<HashMap<IpAddr, u32>>,
}

/// The place of one such poll. Dropping it makes room for another.
#[derive(Debug)]
pub struct PollBody {
    bodies: Arc<PollBodies>,
    network: IpAddr,
}

impl PollBodies {
    /// Takes a place for a poll from this address.
    /// Errors: 429 if [`MAX_POLL_BODIES`] are waiting.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Result<PollBody, Refusal> {
        let network = customer_network(address);
        let mut waiting = self.waiting.lock();
        let count = waiting.entry(network).or_default();
        if *count >= MAX_POLL_BODIES {
            let message =
                "Too many polls from this address have sent no body; send the body together with the head";
            let refusal = Refusal::new(ErrorCode::RateLimitExceeded, message);
            return Err(Refusal { retry_after: Some(RETRY_AFTER), ..refusal });
        }
        *count += 1;
        Ok(PollBody { bodies: Arc::clone(self), network })
    }
}

impl Drop for PollBody {
    fn drop(&mut self) {
        let mut waiting = self.bodies.waiting.lock();
        if let Some(count) = waiting.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_of_one_network_wait_in_a_limited_number() {
        let bodies = Arc::new(PollBodies::default());
        let address = |text: &str| text.parse().unwrap();
        let mut waiting: Vec<_> =
            (0..MAX_POLL_BODIES).map(|_| bodies.admit(address("192.0.2.1")).unwrap()).collect();
        let refusal = bodies.admit(address("192.0.2.1")).unwrap_err();
        assert_eq!((refusal.code, refusal.retry_after), (ErrorCode::RateLimitExceeded, Some(RETRY_AFTER)));
        assert!(bodies.admit(address("192.0.2.2")).is_ok());
        waiting.pop();
        assert!(bodies.admit(address("192.0.2.1")).is_ok());
        waiting.clear();
        assert!(bodies.waiting.lock().is_empty());
    }
}
