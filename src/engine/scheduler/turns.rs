//! The order of a backlog of due cues: accounts take turns, so that the many cues of one account do not delay the few of
//! another (contract §11.5).

use std::collections::HashMap;

/// The first `limit` cues of `backlog`, which holds the users and keys of cues: the first cue of every user, then the
/// second of every user, and so on. Cues of the same turn keep their order.
pub(super) fn in_turns(backlog: &[(i64, i64)], limit: usize) -> Vec<i64> {
    let mut next_turns = HashMap::new();
    let mut turns: Vec<(u32, i64)> = backlog
        .iter()
        .map(|(user_key, cue_key)| {
            let next: &mut u32 = next_turns.entry(*user_key).or_default();
            *next += 1;
            (*next, *cue_key)
        })
        .collect();
    turns.sort_by_key(|(turn, _)| *turn);
    turns.into_iter().take(limit).map(|(_, cue_key)| cue_key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cue_of_every_user_comes_before_the_second_of_any() {
        let backlog = [(1, 10), (1, 11), (1, 12), (2, 20), (3, 30), (2, 21)];
        assert_eq!(in_turns(&backlog, 6), [10, 20, 30, 11, 21, 12]);
        assert_eq!(in_turns(&backlog, 2), [10, 20]);
    }
}
