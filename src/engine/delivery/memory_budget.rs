//! The memory of running deliveries: their bodies, custom headers and responses that are taken as outcomes together have a
//! bound, and an account a share of it.

use std::collections::HashMap;

use crate::store::executions::delivery_queue::ClaimedDelivery;

/// Bytes of all deliveries together. An eighth of the memory that the whole program may take under load: requests have
/// half, and the rest of it is for the program itself (contract §11.1). The largest body has 6 MiB, because a character
/// of a payload takes up to six in the canonical form.
pub const MAX_BYTES: usize = 16 << 20;

/// Deliveries up to this size are not counted: 64 of them take 2 MiB. They never wait for large ones.
pub const SMALL: usize = 32 << 10;

/// Counts the bytes of the large deliveries under way, from the claim to the end of the attempt.
///
/// - An account holds at most a quarter of all bytes, or a single delivery.
/// - The last quarter is for accounts that hold nothing.
/// - Accounts without a good record ([`FairShare::is_trusted`]) hold at most half of the bytes together, so that their
///   receivers, if they hang, leave the other half.
///
/// [`FairShare::is_trusted`]: crate::engine::delivery::fair_share::FairShare::is_trusted
#[derive(Debug, Clone, Default)]
pub struct MemoryBudget {
    in_use: usize,
    /// Of these, what was taken without a good record.
    untrusted: usize,
    /// By account; only those that hold some.
    accounts: HashMap<i64, Held>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Held {
    bytes: usize,
    untrusted: usize,
}

impl MemoryBudget {
    /// Takes the memory of `claimed`, if it may have it now.
    pub fn try_take(&mut self, claimed: &ClaimedDelivery, is_trusted: bool) -> bool {
        let (attempt_ref, bytes) = (claimed.attempt_ref, claimed.memory());
        if bytes <= SMALL {
            return true;
        }
        let held = self.accounts.get(&attempt_ref.user_key).copied().unwrap_or_default();
        let untrusted = if is_trusted { 0 } else { bytes };
        let has_room = match held.bytes {
            0 => self.in_use + bytes <= MAX_BYTES,
            own => own + bytes <= MAX_BYTES / 4 && self.in_use + bytes <= MAX_BYTES / 4 * 3,
        };
        // A lone delivery is always sent, whatever its size.
        if !(has_room && self.untrusted + untrusted <= MAX_BYTES / 2) && self.in_use > 0 {
            return false;
        }
        self.in_use += bytes;
        self.untrusted += untrusted;
        let held = Held { bytes: held.bytes + bytes, untrusted: held.untrusted + untrusted };
        self.accounts.insert(attempt_ref.user_key, held);
        true
    }

    /// Returns the memory of `claimed`, whose attempt has ended.
    pub fn release(&mut self, claimed: &ClaimedDelivery) {
        let (attempt_ref, bytes) = (claimed.attempt_ref, claimed.memory());
        let Some(held) = self.accounts.get_mut(&attempt_ref.user_key).filter(|_| bytes > SMALL) else {
            return;
        };
        // Which of its deliveries were taken without a good record is not known: those end first.
        let untrusted = held.untrusted.min(bytes);
        held.untrusted -= untrusted;
        self.untrusted -= untrusted;
        held.bytes -= bytes;
        self.in_use -= bytes;
        if held.bytes == 0 {
            self.accounts.remove(&attempt_ref.user_key);
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::domain::ids::ExecutionId;
    use crate::domain::webhook::request::AttemptRef;

    const MIB: usize = 1 << 20;
    /// A delivery of the largest payload, with the largest headers.
    const LARGEST: usize = 6 * MIB + MIB / 2;

    fn of(user_key: i64, bytes: usize) -> ClaimedDelivery {
        let attempt_ref = AttemptRef {
            key: 1,
            id: ExecutionId::from_bytes([0; 16]),
            cue_key: 1,
            user_key,
            destination: 1,
            attempt: 1,
            scheduled_for: Timestamp::UNIX_EPOCH,
            by_schedule: true,
            started_at: Timestamp::UNIX_EPOCH,
        };
        ClaimedDelivery { attempt_ref, bytes, takes_outcome: false, is_unconfirmed: false }
    }

    /// The deliveries of this size that the account may have at once.
    fn take_all(budget: &mut MemoryBudget, user_key: i64, bytes: usize, is_trusted: bool) -> usize {
        (0..1_000).take_while(|_| budget.try_take(&of(user_key, bytes), is_trusted)).count()
    }

    #[test]
    fn an_account_holds_a_quarter_and_all_accounts_no_more_than_the_bound() {
        let mut budget = MemoryBudget::default();
        let held: Vec<_> = (1..=6).map(|user| take_all(&mut budget, user, MIB, true)).collect();
        assert_eq!(held, [4, 4, 4, 1, 1, 1], "the last quarter is for those that hold nothing");
        assert_eq!((take_all(&mut budget, 7, MIB, true), take_all(&mut budget, 8, MIB, true)), (1, 0));
        budget.release(&of(1, MIB));
        assert_eq!(take_all(&mut budget, 8, MIB, true), 1);
        assert_eq!(budget.in_use, MAX_BYTES);
    }

    #[test]
    fn small_deliveries_wait_for_no_large_one() {
        let mut budget = MemoryBudget::default();
        for user in 1..=20 {
            take_all(&mut budget, user, MIB, true);
        }
        assert_eq!(take_all(&mut budget, 1, SMALL, false), 1_000);
        assert_eq!(take_all(&mut budget, 21, SMALL + 1, true), 0);
    }

    #[test]
    fn the_largest_delivery_fits_into_either_half() {
        let mut budget = MemoryBudget::default();
        assert_eq!(take_all(&mut budget, 1, LARGEST, false), 1);
        assert_eq!(take_all(&mut budget, 2, LARGEST, false), 0);
        assert_eq!(take_all(&mut budget, 3, LARGEST, true), 1);
        budget.release(&of(1, LARGEST));
        budget.release(&of(3, LARGEST));
        assert_eq!(take_all(&mut budget, 1, 2 * MAX_BYTES, false), 1, "one alone, whatever its size");
    }

    #[test]
    fn accounts_without_a_good_record_leave_half_to_the_others() {
        let mut budget = MemoryBudget::default();
        let held: Vec<_> = (1..=6).map(|user| take_all(&mut budget, user, 3 * MIB, false)).collect();
        assert_eq!(held, [1, 1, 0, 0, 0, 0]);
        assert_eq!(take_all(&mut budget, 7, LARGEST, true), 1);
    }

    #[test]
    fn accounts_with_a_good_record_leave_room_to_new_ones() {
        let mut budget = MemoryBudget::default();
        let held: Vec<_> = (1..=3).map(|user| take_all(&mut budget, user, MIB, true)).collect();
        assert_eq!(held, [4, 4, 4]);
        assert_eq!(take_all(&mut budget, 4, MIB, false), 1);
        budget.release(&of(4, MIB));
        assert_eq!(budget.untrusted, 0);
    }

    #[test]
    fn a_response_that_is_taken_as_outcome_counts() {
        let mut budget = MemoryBudget::default();
        let claimed = ClaimedDelivery { takes_outcome: true, ..of(1, 0) };
        assert_eq!((0..1_000).take_while(|_| budget.try_take(&claimed, true)).count(), 32);
        assert_eq!(budget.in_use, MAX_BYTES / 4);
        (0..32).for_each(|_| budget.release(&claimed));
        assert_eq!((budget.in_use, budget.accounts.len()), (0, 0));
    }

    #[test]
    fn ended_deliveries_leave_nothing_behind() {
        let mut budget = MemoryBudget::default();
        for user in 1..=4 {
            for bytes in [1, SMALL, SMALL + 1, MIB] {
                assert!(budget.try_take(&of(user, bytes), true));
            }
        }
        for user in 1..=4 {
            for bytes in [MIB, 1, SMALL + 1, SMALL] {
                budget.release(&of(user, bytes));
            }
        }
        assert_eq!((budget.in_use, budget.accounts.len()), (0, 0));
    }
}
