//! What one caller may take of what all callers share (contract §11): memory for bodies and replies, places for requests
//! that wait, turns for large work, and the time of a connection.

pub(in crate::http) mod activity;
pub(in crate::http) mod budget;
pub(in crate::http) mod places;
pub(in crate::http) mod turns;

use std::sync::Arc;

use crate::http::limits::budget::Budget;
use crate::http::limits::places::Places;
use crate::http::limits::turns::Turns;

/// Long polls and event streams that an account may have open. Each holds a connection, and every execution that becomes
/// claimable makes each poll read the database. A fleet of workers shares this number; with `--limits off` it does not
/// apply.
pub const MAX_WAITING: u32 = 20;

/// Lists that are read and rendered at a time. Each takes up to three times 4 MiB until its response counts in the
/// budget, so that their number is part of the bound on memory; two are as many as there are threads that read.
const LISTS: usize = 2;

/// What the callers of one server share.
#[derive(Debug)]
pub struct Shares {
    /// Memory for bodies and replies under way.
    pub budget: Arc<Budget>,
    /// Long polls and event streams by account.
    pub waiting: Arc<Places<i64>>,
    pub lists: Turns,
    /// Lists of long histories, which have a reader thread of their own: others must not wait for it.
    pub slow_lists: Turns,
    /// Large bodies of JSON. One thread checks them, so that the others answer small requests.
    pub large_bodies: Turns,
}

impl Shares {
    /// Shares of `max_buffered` bytes.
    pub fn new(max_buffered: usize) -> Arc<Self> {
        Arc::new(Self {
            budget: Arc::new(Budget::new(max_buffered)),
            waiting: Arc::default(),
            lists: Turns::new(LISTS),
            slow_lists: Turns::new(1),
            large_bodies: Turns::new(1),
        })
    }
}
