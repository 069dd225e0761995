//! Requests side by side: `cued export` reads a thousand cues in less than a second.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::thread;

/// Connections that are busy at a time.
const AT_ONCE: usize = 8;

/// The results of `work`, in the order of the items. After a result that `goes_on` refuses no further item begins; those
/// that did not begin have `None`.
pub fn each<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
    goes_on: impl Fn(&R) -> bool + Sync,
) -> Vec<Option<R>> {
    let (next, has_stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (sender, results) = mpsc::channel();
    let mut found: Vec<Option<R>> = items.iter().map(|_| None).collect();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(items.len()) {
            let sender = sender.clone();
            let (next, has_stopped, work, goes_on) = (&next, &has_stopped, &work, &goes_on);
            scope.spawn(move || {
                while !has_stopped.load(Relaxed) {
                    let index = next.fetch_add(1, Relaxed);
                    let Some(item) = items.get(index) else { return };
                    let result = work(item);
                    if !goes_on(&result) {
                        has_stopped.store(true, Relaxed);
                    }
                    if sender.send((index, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (index, result) in results {
            found[index] = Some(result);
        }
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_order_of_the_items_and_nothing_begins_after_a_stop() {
        let items: Vec<usize> = (0..1_000).collect();
        let all = each(&items, |item| item * 2, |_| true);
        assert!(all.iter().enumerate().all(|(index, result)| *result == Some(index * 2)));
        let some = each(&items, |item| *item, |item| *item != 10);
        assert_eq!(some[10], Some(10));
        assert!(some.iter().flatten().count() <= 11 + AT_ONCE, "{some:?}");
    }
}
