//! Figures of this process from `/proc`, on Linux.

use std::fs::read_to_string;

/// Resident memory in bytes.
pub fn resident_bytes() -> Option<u64> {
    resident(&read_to_string("/proc/self/status").ok()?)
}

/// The limit of open files.
pub fn max_open_files() -> Option<usize> {
    let limits = read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_in_bytes() {
        assert_eq!(resident("VmHWM:\t   9 kB\nVmRSS:\t   12345 kB\nRssAnon: 1 kB\n"), Some(12_641_280));
        assert_eq!(resident("Name: cued\n"), None);
    }

    #[test]
    fn memory_and_open_files_of_this_process_are_read() {
        assert!(!cfg!(target_os = "linux") || resident_bytes().is_some_and(|bytes| bytes > 100_000));
        assert!(!cfg!(target_os = "linux") || max_open_files().is_some_and(|limit| limit > 16));
    }
}
