//! The processors that the program may use, and the numbers of threads that follow from them.

use std::num::NonZero;

/// The processors that the system lets this process use; 1 if their number is unknown.
pub fn count() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Threads that run the HTTP tasks. Two at least let one request parse a large body while the other thread serves the
/// rest. Four at most: a write needs about as much time of the one writer thread as of an HTTP thread, so more would
/// only speed up reads, and each takes a connection with a page cache of 2 MB.
pub fn http_threads() -> usize {
    count().clamp(2, 4)
}
