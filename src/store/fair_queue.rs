//! Accounts take turns, and so do the destinations of each, found by seeks: a pass costs the same for one row or
//! 100,000.

use std::collections::{HashMap, VecDeque};

use crate::domain::row_keys::UserKey;
use crate::error::Result;

/// Destinations of an account that a pass tries per priority: as many as delivery threads by default. The rest is left
/// to the next passes ([`Rotation::leaves_untried`]), so it delays no other.
const MAX_TRIED: usize = 64;

/// Bounds the memory; an account that is forgotten begins again with its lowest destination.
const MAX_REMEMBERED: usize = 512;

const CHUNK: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    Granted,
    DestinationBusy,
    /// No destination of the account may have one.
    AccountBusy,
    /// No account may have one: the pass ends.
    NoneLeft,
}

#[derive(Debug, Clone, Copy)]
pub struct AccountRows {
    pub user_key: UserKey,
    /// From 0, which comes first.
    pub priority: u32,
}

/// A queue, by the seeks in its indexes.
pub struct FairQueue<'a> {
    pub priorities: u32,
    /// The first account from this one on that has ready rows.
    pub next_user: &'a dyn Fn(UserKey) -> Result<Option<UserKey>>,
    /// The first destination from this one on.
    pub next_destination: &'a dyn Fn(AccountRows, i64) -> Result<Option<i64>>,
    /// The keys of the ready rows of a destination after a key, oldest first, at most so many, without those in flight.
    pub ready: &'a dyn Fn(AccountRows, i64, i64, usize) -> Result<Vec<i64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadyRow {
    pub key: i64,
    pub user_key: UserKey,
    pub destination: i64,
}

/// The place at which the last pass ended. The next pass continues there, so that all take turns.
#[derive(Debug, Default)]
pub struct Rotation {
    last_user: UserKey,
    last_destinations: HashMap<UserKey, i64>,
    leaves_untried: bool,
}

impl Rotation {
    /// Returns whether the last pass has tried as many destinations of an account as it may, and not all.
    pub fn leaves_untried(&self) -> bool {
        self.leaves_untried
    }
}

/// One row of each account in turn, and of it one of each destination, oldest first. A lower priority follows when no
/// row of the higher one may be sent. Returns the rows that `try_acquire` has granted.
pub fn take(
    queue: &FairQueue<'_>,
    rotation: &mut Rotation,
    mut try_acquire: impl FnMut(UserKey, i64) -> Result<Grant>,
) -> Result<Vec<ReadyRow>> {
    let (mut taken, mut waiting) = (Vec::new(), VecDeque::new());
    let mut users = Cycle::after(rotation.last_user.number());
    rotation.leaves_untried = false;
    loop {
        let next_user = |from| Ok((queue.next_user)(UserKey::new(from))?.map(UserKey::number));
        let user = users.next(next_user)?;
        let new = user.map(|user| Account::new(UserKey::new(user), rotation));
        let Some(mut account) = new.or_else(|| waiting.pop_front()) else { break };
        let turn = account.next(queue, &mut try_acquire)?;
        if rotation.last_destinations.len() >= MAX_REMEMBERED {
            rotation.last_destinations.clear();
        }
        rotation.last_destinations.insert(account.user_key, account.last_destination);
        match turn {
            Ok(row) => {
                rotation.last_user = account.user_key;
                taken.push(row);
                waiting.push_back(account);
            }
            Err(Grant::NoneLeft) => break,
            // An account that gets none is dropped: its share only shrinks during a pass.
            Err(_) => rotation.leaves_untried |= account.leaves_untried,
        }
    }
    Ok(taken)
}

struct Account {
    user_key: UserKey,
    priority: u32,
    start: i64,
    untried: Cycle,
    tried: usize,
    leaves_untried: bool,
    served: VecDeque<Destination>,
    last_destination: i64,
}

struct Destination {
    destination: i64,
    last_key: i64,
    keys: VecDeque<i64>,
}

impl Account {
    fn new(user_key: UserKey, rotation: &Rotation) -> Self {
        let start = rotation.last_destinations.get(&user_key).copied().unwrap_or(i64::MIN);
        Self {
            user_key,
            priority: 0,
            start,
            untried: Cycle::after(start),
            tried: 0,
            leaves_untried: false,
            served: VecDeque::new(),
            last_destination: start,
        }
    }

    /// Or why it gets none. A destination that gets none is not tried again in this pass.
    fn next(
        &mut self,
        queue: &FairQueue<'_>,
        try_acquire: &mut impl FnMut(UserKey, i64) -> Result<Grant>,
    ) -> Result<std::result::Result<ReadyRow, Grant>> {
        let user_key = self.user_key;
        while self.priority < queue.priorities {
            let rows = AccountRows { user_key, priority: self.priority };
            let Some(mut of) = self.next_destination(queue, rows)? else {
                self.priority += 1;
                (self.untried, self.tried) = (Cycle::after(self.start), 0);
                continue;
            };
            let destination = of.destination;
            if of.keys.is_empty() {
                of.keys = (queue.ready)(rows, destination, of.last_key, CHUNK)?.into();
            }
            let Some(key) = of.keys.pop_front() else { continue };
            match try_acquire(user_key, destination)? {
                Grant::Granted => {
                    (self.last_destination, of.last_key) = (destination, key);
                    self.served.push_back(of);
                    return Ok(Ok(ReadyRow { key, user_key, destination }));
                }
                Grant::DestinationBusy => self.last_destination = destination,
                // The next pass begins with this destination.
                refusal => return Ok(Err(refusal)),
            }
        }
        Ok(Err(Grant::AccountBusy))
    }

    fn next_destination(
        &mut self,
        queue: &FairQueue<'_>,
        rows: AccountRows,
    ) -> Result<Option<Destination>> {
        if self.tried < MAX_TRIED {
            self.tried += 1;
            if let Some(destination) =
                self.untried.next(|from| (queue.next_destination)(rows, from))?
            {
                return Ok(Some(Destination {
                    destination,
                    last_key: i64::MIN,
                    keys: VecDeque::new(),
                }));
            }
        }
        self.leaves_untried |= !self.untried.is_over;
        Ok(self.served.pop_front())
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

    fn next(&mut self, seek: impl Fn(i64) -> Result<Option<i64>>) -> Result<Option<i64>> {
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
        let next = next.filter(|value| !self.has_wrapped || *value <= self.start);
        match next {
            Some(value) => self.current = value,
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

    #[derive(Default)]
    struct Rows {
        rows: BTreeSet<(UserKey, u32, i64, i64)>,
        seeks: Cell<usize>,
    }

    impl Rows {
        fn take(
            &self,
            rotation: &mut Rotation,
            try_acquire: impl FnMut(UserKey, i64) -> Result<Grant>,
        ) -> Vec<ReadyRow> {
            let rows = &self.rows;
            let queue = FairQueue {
                priorities: 2,
                next_user: &|from| Ok(rows.range((from, 0, i64::MIN, 0)..).next().map(|row| row.0)),
                next_destination: &|AccountRows { user_key, priority }, from| {
                    self.seeks.set(self.seeks.get() + 1);
                    let next = rows.range((user_key, priority, from, 0)..).next();
                    Ok(next.filter(|row| (row.0, row.1) == (user_key, priority)).map(|row| row.2))
                },
                ready: &|AccountRows { user_key, priority }, destination, after, limit| {
                    let first = (user_key, priority, destination, after.saturating_add(1));
                    let ready = rows.range(first..=(user_key, priority, destination, i64::MAX));
                    Ok(ready.take(limit).map(|row| row.3).collect())
                },
            };
            take(&queue, rotation, try_acquire).unwrap()
        }
    }

    fn queue(rows: impl IntoIterator<Item = (i64, u32, i64, i64)>) -> Rows {
        let rows = rows.into_iter().map(|(user, at, to, key)| (UserKey::new(user), at, to, key));
        Rows { rows: rows.collect(), seeks: Cell::default() }
    }

    fn keys(taken: &[ReadyRow]) -> Vec<i64> {
        taken.iter().map(|taken| taken.key).collect()
    }

    #[test]
    fn a_lower_priority_waits_until_no_row_of_the_higher_one_may_be_sent() {
        let queue = queue([
            (1, 1, 7, 1),
            (1, 1, 7, 2),
            (1, 0, 8, 3),
            (1, 0, 8, 4),
            (1, 0, 9, 5),
            (2, 1, 7, 6),
        ]);
        let granted = |_, to| Ok(if to == 9 { Grant::DestinationBusy } else { Grant::Granted });
        let taken = queue.take(&mut Rotation::default(), granted);
        assert_eq!(keys(&taken), [3, 6, 4, 1, 2]);
    }

    #[test]
    fn a_pass_over_100_000_rows_of_an_account_that_may_have_no_thread_takes_few_seeks() {
        let rows = (1..=100_000).map(|key| (1, 0, key, key)).chain([(2, 0, 1, 100_001)]);
        for refusal in [Grant::AccountBusy, Grant::DestinationBusy] {
            let queue = queue(rows.clone());
            let grant = |user_key, _| {
                Ok(if user_key == UserKey::new(1) { refusal } else { Grant::Granted })
            };
            let taken = queue.take(&mut Rotation::default(), grant);
            assert_eq!(keys(&taken), [100_001]);
            assert!(queue.seeks.get() < 2 * MAX_TRIED, "{refusal:?}: {} seeks", queue.seeks.get());
        }
    }

    #[test]
    fn every_destination_is_tried_by_one_of_the_next_passes() {
        let only = |_, to| Ok(if to == 900 { Grant::Granted } else { Grant::DestinationBusy });
        let mut rotation = Rotation::default();
        let many = queue((1..=1_000).map(|key| (1, 0, key, key)));
        let found = (0..1_000 / MAX_TRIED + 1).any(|_| {
            let is_found = !many.take(&mut rotation, only).is_empty();
            assert!(rotation.leaves_untried());
            is_found
        });
        assert!(found);
        let few = queue((1..MAX_TRIED as i64).map(|key| (1, 0, key, key)));
        assert!(few.take(&mut rotation, only).is_empty() && !rotation.leaves_untried());
    }
}
