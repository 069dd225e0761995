//! `--fsync-delay`: this process starts again with a variable that `fsync_delay.c` reads before `main`, so that the
//! baselines in this process are delayed as the server is.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use crate::bench::{BenchError, Result};

/// Microseconds that each sync takes longer. The server inherits it.
pub const VARIABLE: &str = "CUED_BENCH_FSYNC_DELAY";

const IS_SUPPORTED: bool = cfg!(all(target_os = "linux", target_env = "gnu"));

/// Makes each sync of this process and its children take longer by `delay`. Returns once it is so, possibly in a new
/// process image with the same arguments.
pub fn apply(delay: Option<Duration>) -> Result<()> {
    let wanted = delay.map(|delay| delay.as_micros().to_string());
    if delay.is_some() && !IS_SUPPORTED {
        return Err(BenchError::Failed(
            "--fsync-delay works on Linux with glibc only: run it without, on a slow disk (--dir)".to_owned(),
        ));
    }
    if !IS_SUPPORTED || env::var(VARIABLE).ok() == wanted {
        return Ok(());
    }
    let mut again = Command::new(env::current_exe()?);
    again.args(env::args_os().skip(1));
    match wanted {
        Some(delay) => again.env(VARIABLE, delay),
        None => again.env_remove(VARIABLE),
    };
    // Returns only if it fails.
    Err(again.exec().into())
}
