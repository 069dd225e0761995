//! Figures of this process from `/proc`; `None` where the system has none.

use std::fs::read_to_string;

pub fn resident_bytes() -> Option<u64> {
    Some(field("/proc/self/status", "VmRSS:")?.parse::<u64>().ok()? * 1024)
}

pub fn max_open_files() -> Option<usize> {
    field("/proc/self/limits", "Max open files")?.parse().ok()
}

/// The first word after `name` in a file of lines.
fn field(path: &str, name: &str) -> Option<String> {
    let text = read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_open_files_of_this_process_are_read() {
        let is_linux = cfg!(target_os = "linux");
        assert!(
            !is_linux
                || resident_bytes().is_some_and(|bytes| (1_000_000..1 << 32).contains(&bytes))
        );
        assert!(!is_linux || max_open_files().is_some_and(|limit| limit > 16));
    }
}
