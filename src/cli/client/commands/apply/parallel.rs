//! Requests side by side: `cued export` reads a thousand cues in less than a second.

use std::panic::resume_unwind;
use std::thread;

use crate::system::locks::Mutex;

/// Connections that are busy at a time.
const AT_ONCE: usize = 8;

/// The results of `work`, in the order of the items.
/// Errors: the first one. No further item begins after it.
pub fn each<T: Sync, R: Send, E: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    each_of(AT_ONCE, items, work)
}

fn each_of<T: Sync, R: Send, E: Send>(
    at_once: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let left = Mutex::new(items.iter().enumerate());
    let next = || left.lock().next();
    let run = || {
        let mut done = Vec::new();
        while let Some((index, item)) = next() {
            let result = work(item);
            if result.is_err() {
                left.lock().by_ref().for_each(drop);
            }
            done.push((index, result));
        }
        done
    };
    let mut results: Vec<(usize, Result<R, E>)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once.min(items.len())).map(|_| scope.spawn(run)).collect();
        let results = threads.into_iter().map(|thread| thread.join());
        results.flat_map(|done| done.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn results_have_the_order_of_the_items_and_nothing_begins_after_an_error() {
        let items: Vec<usize> = (0..1_000).collect();
        let all = each(&items, |item| Ok::<_, usize>(item * 2));
        assert_eq!(all, Ok(items.iter().map(|item| item * 2).collect()));
        let begun = AtomicUsize::new(0);
        let some = each_of(1, &items, |item| {
            begun.fetch_add(1, Relaxed);
            if *item == 10 { Err(*item) } else { Ok(()) }
        });
        assert_eq!((some, begun.into_inner()), (Err(10), 11));
    }
}
