//! The limit of open files of this process.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files of a job at most: its connection, the pipes of its command on both sides while it starts, the pipe by which
/// other threads wake it, the outcome file; 12 in all, and some to spare.
const PER_JOB: u64 = 16;

/// Those of the rest of the worker: standard streams, connections of pollers and heartbeats, signals.
const OTHERS: u64 = 64;

/// Raises the soft limit as far as `jobs` need. Commands inherit it: a limit that is already sufficient stays as it is.
///
/// # Errors
/// If the system does not permit as many: the error says how many it permits.
pub fn raise_limit(jobs: usize) -> io::Result<()> {
    let needed = OTHERS + PER_JOB * jobs as u64;
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = raised(limit, needed) else { return Ok(()) };
    setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limit })?;
    if current < needed {
        return Err(io::Error::other(format!("{needed} are needed, and {current} are permitted")));
    }
    Ok(())
}

/// The new soft limit; `None` if it stays.
fn raised(limit: Rlimit, needed: u64) -> Option<u64> {
    limit.current.filter(|current| *current < needed)?;
    Some(limit.maximum.map_or(needed, |maximum| maximum.min(needed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_raised_as_far_as_needed_and_permitted() {
        let limit = |current, maximum| Rlimit { current, maximum };
        assert_eq!(raised(limit(Some(1024), Some(4096)), 2000), Some(2000));
        assert_eq!(raised(limit(Some(1024), None), 2000), Some(2000));
        assert_eq!(raised(limit(Some(1024), Some(1500)), 2000), Some(1500));
        assert_eq!(raised(limit(Some(1024), Some(1024)), 2000), Some(1024));
        assert_eq!(raised(limit(Some(4096), Some(4096)), 2000), None);
        assert_eq!(raised(limit(None, None), 2000), None);
    }
}
