//! The order in which a queue is served: accounts take turns, and so do the destinations of an account.
//!
//! Users and destinations are found by seeks in the queue's index, so that a pass costs the same whether an account
//! has one row or 100,000 rows ready.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};

use crate::error::Result;

/// Destinations of an account that a pass tries, per priority. As many as there are delivery threads by default: an
/// account with more of them that may have no thread is left to the next passes, so that it holds up nobody.
const MAX_TRIED: usize = 64;

/// Accounts whose last destination is remembered. Bounds the memory; an account that is forgotten begins again with its
/// lowest destination.
const MAX_REMEMBERED: usize = 512;

/// The answer to a destination of an account that asks for one more thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    Granted,
    /// Not this destination, but another one of the account may have a thread.
    DestinationBusy,
    /// No destination of the account may have a thread.
    AccountBusy,
    /// No account may have a thread: the pass ends.
    NoneLeft,
}

/// The ready rows of one account with the same priority.
#[derive(Debug, Clone, Copy)]
pub struct AccountRows {
    pub user_key: i64,
    /// From 0, which comes first.
    pub priority: u8,
}

/// A queue with an index on user, priority, destination and row key.
pub trait FairQueue {
    const PRIORITIES: u8;

    /// The lowest user key from `from` on that has ready rows.
    fn next_user(&self, from: i64) -> Result<Option<i64>>;

    /// The lowest destination from `from` on that has ready rows, and the key of its oldest one.
    fn next_destination(&self, rows: AccountRows, from: i64) -> Result<Option<(i64, i64)>>;

    /// The keys of ready rows after `after`, oldest first, at most `limit`, without those in flight.
    fn ready(&self, rows: AccountRows, destination: i64, after: i64, limit: usize) -> Result<VecDeque<i64>>;

    /// True if the row is in the queue although it is being sent.
    fn is_in_flight(&self, _key: i64) -> bool {
        false
    }
}

/// A ready row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadyRow {
    pub key: i64,
    pub user_key: i64,
    pub destination: i64,
}

/// The place at which the last pass ended. The next pass continues there, so that all take turns.
#[derive(Debug, Clone, Default)]
pub struct Rotation {
    last_user: i64,
    last_destinations: HashMap<i64, i64>,
}

impl Rotation {
    fn after_destination(&self, user_key: i64) -> i64 {
        self.last_destinations.get(&user_key).copied().unwrap_or(i64::MIN)
    }

    fn set_destination(&mut self, user_key: i64, destination: i64) {
        if self.last_destinations.len() >= MAX_REMEMBERED {
            self.last_destinations.clear();
        }
        self.last_destinations.insert(user_key, destination);
    }
}

/// Takes at most `limit` ready rows: one of each account in turn, and of an account one of each destination in turn,
/// the oldest first. A lower priority follows when no row of the higher one may be sent. Returns the rows that
/// `try_acquire` has granted, in this order.
pub fn take(
    queue: &impl FairQueue,
    limit: usize,
    rotation: &mut Rotation,
    mut try_acquire: impl FnMut(ReadyRow) -> Result<Grant>,
) -> Result<Vec<ReadyRow>> {
    let (mut taken, mut waiting) = (Vec::new(), VecDeque::new());
    let mut users = Cycle::after(rotation.last_user);
    let is_over = Cell::new(false);
    let mut try_acquire = |row| {
        let grant = try_acquire(row)?;
        is_over.set(grant == Grant::NoneLeft);
        Ok(grant)
    };
    while taken.len() < limit && !is_over.get() {
        let user = users.next(|from| Ok(queue.next_user(from)?.map(|user_key| (user_key, ()))))?;
        let new = user.map(|(user_key, ())| Account::new(user_key, rotation.after_destination(user_key)));
        let Some(mut account) = new.or_else(|| waiting.pop_front()) else { break };
        let turn = account.next(queue, limit - taken.len(), &mut try_acquire)?;
        if let Some(last) = account.last_destination {
            rotation.set_destination(account.user_key, last);
        }
        // An account that gets no thread is dropped: its share only shrinks during a pass.
        if let Some(turn) = turn {
            rotation.last_user = account.user_key;
            taken.push(turn);
            waiting.push_back(account);
        }
    }
    Ok(taken)
}

/// The ready rows of an account during a pass.
struct Account {
    user_key: i64,
    priority: u8,
    start: i64,
    destinations: Cycle,
    tried: usize,
    /// Destinations that have got a thread in this pass.
    served: VecDeque<Destination>,
    last_destination: Option<i64>,
    is_busy: bool,
}

struct Destination {
    destination: i64,
    last_key: i64,
    /// Ready rows after `last_key` that have been read.
    keys: VecDeque<i64>,
}

impl Account {
    fn new(user_key: i64, start: i64) -> Self {
        Self {
            user_key,
            priority: 0,
            start,
            destinations: Cycle::after(start),
            tried: 0,
            served: VecDeque::new(),
            last_destination: None,
            is_busy: false,
        }
    }

    /// The next row of the account that gets a thread. Reads at most `limit` rows of a destination.
    fn next<Q: FairQueue>(
        &mut self,
        queue: &Q,
        limit: usize,
        try_acquire: &mut impl FnMut(ReadyRow) -> Result<Grant>,
    ) -> Result<Option<ReadyRow>> {
        while self.priority < Q::PRIORITIES && !self.is_busy {
            let taken = match self.next_untried(queue, limit, try_acquire)? {
                None => self.next_served(queue, limit, try_acquire)?,
                taken => taken,
            };
            if taken.is_some() || self.is_busy {
                return Ok(taken);
            }
            self.priority += 1;
            (self.destinations, self.tried) = (Cycle::after(self.start), 0);
        }
        Ok(None)
    }

    /// The first row of the next destination that gets a thread.
    fn next_untried(
        &mut self,
        queue: &impl FairQueue,
        limit: usize,
        try_acquire: &mut impl FnMut(ReadyRow) -> Result<Grant>,
    ) -> Result<Option<ReadyRow>> {
        let rows = self.rows();
        while self.tried < MAX_TRIED
            && let Some((destination, first)) =
                self.destinations.next(|from| queue.next_destination(rows, from))?
        {
            self.tried += 1;
            let before = self.last_destination.replace(destination);
            let mut keys = VecDeque::new();
            if queue.is_in_flight(first) {
                keys = queue.ready(rows, destination, first, limit)?;
            } else {
                keys.push_back(first);
            }
            if let Some(taken) =
                self.try_next(Destination { destination, last_key: first, keys }, try_acquire)?
            {
                return Ok(Some(taken));
            }
            if self.is_busy {
                // The next pass begins with it.
                self.last_destination = before;
                break;
            }
        }
        Ok(None)
    }

    /// A further row of a destination that has got a thread in this pass.
    fn next_served(
        &mut self,
        queue: &impl FairQueue,
        limit: usize,
        try_acquire: &mut impl FnMut(ReadyRow) -> Result<Grant>,
    ) -> Result<Option<ReadyRow>> {
        let rows = self.rows();
        while let Some(mut served) = self.served.pop_front() {
            if served.keys.is_empty() {
                served.keys = queue.ready(rows, served.destination, served.last_key, limit)?;
            }
            let destination = served.destination;
            if let Some(taken) = self.try_next(served, try_acquire)? {
                self.last_destination = Some(destination);
                return Ok(Some(taken));
            }
            if self.is_busy {
                break;
            }
        }
        Ok(None)
    }

    /// Takes the next row of a destination. A destination that gets no thread is not tried again in this pass.
    fn try_next(
        &mut self,
        mut of: Destination,
        try_acquire: &mut impl FnMut(ReadyRow) -> Result<Grant>,
    ) -> Result<Option<ReadyRow>> {
        let Some(key) = of.keys.pop_front() else { return Ok(None) };
        let row = ReadyRow { key, user_key: self.user_key, destination: of.destination };
        let grant = try_acquire(row)?;
        self.is_busy = matches!(grant, Grant::AccountBusy | Grant::NoneLeft);
        if grant != Grant::Granted {
            return Ok(None);
        }
        of.last_key = key;
        self.served.push_back(of);
        Ok(Some(row))
    }

    fn rows(&self) -> AccountRows {
        AccountRows { user_key: self.user_key, priority: self.priority }
    }
}

/// Visits every value of an index once: those after `start` in order, then those from the lowest up to `start`.
struct Cycle {
    start: i64,
    current: i64,
    has_wrapped: bool,
    is_over: bool,
}

impl Cycle {
    fn after(start: i64) -> Self {
        Self { start, current: start, has_wrapped: false, is_over: false }
    }

    /// The next value and what `seek` found with it. `seek` finds the lowest value from its argument on.
    fn next<T>(&mut self, mut seek: impl FnMut(i64) -> Result<Option<(i64, T)>>) -> Result<Option<(i64, T)>> {
        if self.is_over {
            return Ok(None);
        }
        let mut next = match self.current.checked_add(1) {
            Some(from) => seek(from)?,
            None => None,
        };
        if next.is_none() && !self.has_wrapped {
            self.has_wrapped = true;
            next = seek(i64::MIN)?;
        }
        let next = next.filter(|(value, _)| !self.has_wrapped || *value <= self.start);
        match &next {
            Some((value, _)) => self.current = *value,
            None => self.is_over = true,
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeSet;

    use super::*;

    /// Rows of user, priority, destination and key.
    #[derive(Default)]
    struct Rows {
        rows: BTreeSet<(i64, u8, i64, i64)>,
        seeks: Cell<usize>,
    }

    impl FairQueue for Rows {
        const PRIORITIES: u8 = 2;

        fn next_user(&self, from: i64) -> Result<Option<i64>> {
            Ok(self.rows.range((from, 0, i64::MIN, 0)..).next().map(|row| row.0))
        }

        fn next_destination(&self, rows: AccountRows, from: i64) -> Result<Option<(i64, i64)>> {
            self.seeks.set(self.seeks.get() + 1);
            let AccountRows { user_key, priority } = rows;
            let next = self.rows.range((user_key, priority, from, 0)..).next();
            Ok(next.filter(|row| (row.0, row.1) == (user_key, priority)).map(|row| (row.2, row.3)))
        }

        fn ready(
            &self,
            rows: AccountRows,
            destination: i64,
            after: i64,
            limit: usize,
        ) -> Result<VecDeque<i64>> {
            let AccountRows { user_key, priority } = rows;
            let first = (user_key, priority, destination, after + 1);
            Ok(self
                .rows
                .range(first..=(user_key, priority, destination, i64::MAX))
                .take(limit)
                .map(|row| row.3)
                .collect())
        }
    }

    fn queue(rows: impl IntoIterator<Item = (i64, u8, i64, i64)>) -> Rows {
        Rows { rows: rows.into_iter().collect(), seeks: Cell::default() }
    }

    fn keys(taken: &[ReadyRow]) -> Vec<i64> {
        taken.iter().map(|taken| taken.key).collect()
    }

    #[test]
    fn accounts_take_turns_and_destinations_take_turns_within_an_account() {
        let many = (1..=4).map(|key| (1, 0, 7, key)).chain((11..=12).map(|key| (1, 0, 8, key)));
        let queue = queue(many.chain([(2, 0, 7, 21), (3, 0, 9, 31), (3, 0, 9, 32)]));
        let taken = take(&queue, 64, &mut Rotation::default(), |_| Ok(Grant::Granted)).unwrap();
        assert_eq!(keys(&taken), [1, 21, 31, 11, 32, 2, 12, 3, 4]);
    }

    #[test]
    fn the_next_pass_continues_after_the_last_account_and_its_last_destination() {
        let mut rows = queue([(1, 0, 7, 1), (1, 0, 8, 2), (2, 0, 7, 3), (2, 0, 7, 4)]);
        let mut rotation = Rotation::default();
        let mut order = Vec::new();
        while let [taken] = take(&rows, 1, &mut rotation, |_| Ok(Grant::Granted)).unwrap()[..] {
            rows.rows.retain(|row| row.3 != taken.key);
            order.push(taken.key);
        }
        assert_eq!(order, [1, 3, 2, 4]);
    }

    #[test]
    fn a_lower_priority_waits_until_no_row_of_the_higher_one_may_be_sent() {
        let queue =
            queue([(1, 1, 7, 1), (1, 1, 7, 2), (1, 0, 8, 3), (1, 0, 8, 4), (1, 0, 9, 5), (2, 1, 7, 6)]);
        let granted =
            |row: ReadyRow| Ok(if row.destination == 9 { Grant::DestinationBusy } else { Grant::Granted });
        let taken = take(&queue, 64, &mut Rotation::default(), granted).unwrap();
        assert_eq!(keys(&taken), [3, 6, 4, 1, 2]);
    }

    #[test]
    fn a_pass_over_100_000_rows_of_an_account_that_may_have_no_thread_takes_few_seeks() {
        let rows = (1..=100_000).map(|key| (1, 0, key, key)).chain([(2, 0, 1, 100_001)]);
        for refusal in [Grant::AccountBusy, Grant::DestinationBusy] {
            let queue = queue(rows.clone());
            let grant = |row: ReadyRow| Ok(if row.user_key == 1 { refusal } else { Grant::Granted });
            let taken = take(&queue, 64, &mut Rotation::default(), grant).unwrap();
            assert_eq!(keys(&taken), [100_001]);
            assert!(queue.seeks.get() < 2 * MAX_TRIED, "{refusal:?}: {} seeks", queue.seeks.get());
        }
    }

    #[test]
    fn every_destination_is_tried_by_one_of_the_next_passes() {
        let queue = queue((1..=1_000).map(|key| (1, 0, key, key)));
        let mut rotation = Rotation::default();
        let found = (0..1_000 / MAX_TRIED + 1).any(|_| {
            let only = |row: ReadyRow| {
                Ok(if row.destination == 900 { Grant::Granted } else { Grant::DestinationBusy })
            };
            !take(&queue, 1, &mut rotation, only).unwrap().is_empty()
        });
        assert!(found);
    }
}
