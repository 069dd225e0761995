//! Limits per caller on what the callers of one server share (contract §11): memory, waiting requests, large work. The
//! time that a connection may take is beside them. Each is a file that says what it promises.

pub mod activity;
pub mod memory;
pub mod turns;
pub mod waiting;

use std::net::IpAddr;
use std::sync::Arc;

use crate::domain::account::rate_limit::rate_limit_address;
use crate::domain::row_keys::UserKey;
use crate::http::limits::memory::Budget;
use crate::http::limits::turns::WorkPermits;
use crate::http::limits::waiting::{CallerPermits, MAX_WAITING};

/// The holder of a body or a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The row key of the user whose API key or session came with the request.
    Account(UserKey),
    /// The address of a client without either (IPv6: its /64).
    Address(IpAddr),
}

impl Owner {
    pub fn from_client(address: IpAddr) -> Self {
        Self::Address(rate_limit_address(address))
    }
}

/// Lists that are read and rendered at a time. Each takes up to three times 4 MiB until its response counts in the
/// budget, so that their number is part of the bound on memory; two are as many as there are threads that read.
const LISTS: usize = 2;

/// What the callers of one server share.
#[derive(Debug)]
pub struct Shares {
    /// Memory for bodies and replies under way.
    pub budget: Arc<Budget>,
    /// Long polls and event streams by account.
    pub waiting: CallerPermits,
    pub lists: WorkPermits,
    /// Lists of long histories, which have a reader thread of their own: others must not wait for it.
    pub slow_lists: WorkPermits,
    /// Large bodies of JSON. One thread checks them, so that the others answer small requests.
    pub large_bodies: WorkPermits,
}

impl Shares {
    pub fn new(max_buffered: usize) -> Arc<Self> {
        Arc::new(Self {
            budget: Arc::new(Budget::new(max_buffered)),
            waiting: CallerPermits::new(MAX_WAITING),
            lists: WorkPermits::new(LISTS),
            slow_lists: WorkPermits::new(1),
            large_bodies: WorkPermits::new(1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_an_ipv6_network_are_one_caller() {
        let owner = |text: &str| Owner::from_client(text.parse().unwrap());
        assert_eq!(owner("2001:db8:0:1::1"), owner("2001:db8:0:1:f::2"));
        assert_ne!(owner("2001:db8:0:1::1"), owner("2001:db8:0:2::1"));
        assert_ne!(owner("192.0.2.1"), owner("192.0.2.2"));
    }
}
