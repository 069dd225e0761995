//! The server under test, a child process on a temporary database, and its resource usage from `/proc`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::bench::cleanup::Cleanup;
use crate::bench::{BenchError, Result, fsync_delay};

/// The limits of plans and the rate limits of a server, in effect or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limits {
    On,
    Off,
}

pub struct ServerProcess {
    process: u32,
    address: SocketAddr,
    cleanup: Arc<Cleanup>,
}

impl ServerProcess {
    /// Starts this executable with `serve --dev` on a database and waits until it listens. Without limits an account may
    /// have any number of cues: the measurements create more than a plan allows.
    pub fn start(db: &Path, limits: Limits, cleanup: &Arc<Cleanup>) -> Result<Self> {
        let executable = std::env::current_exe()?;
        let plans = db.with_extension("plans.json");
        fs::write(
            &plans,
            r#"{"free": {"cues": null, "executions": null, "requests_per_minute": null, "storage_mb": null}}"#,
        )?;
        let mut command = Command::new(executable);
        command.args(["serve", "--dev", "--listen", "127.0.0.1:0", "--db"]).arg(db);
        if limits == Limits::Off {
            command.args(["--limits", "off"]).arg("--plans").arg(plans);
        }
        // The server must stop with this process however that ends. Its own process group keeps Ctrl-C from stopping it
        // first.
        command.arg("--until-input-ends").stdin(Stdio::piped()).process_group(0);
        // Settings for another server must not affect the measurement.
        let is_setting = |name: &str| name.starts_with("CUED_") && name != fsync_delay::VARIABLE;
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_setting(&name.to_string_lossy())) {
            command.env_remove(name);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let (process, stdout) =
            cleanup.spawn_child(|| command.spawn(), |child| (child.id(), child.stdout.take()))?;
        let mut line = String::new();
        if let Some(stdout) = stdout {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let address = line.trim().rsplit_once("http://").and_then(|(_, address)| address.parse().ok());
        match address {
            Some(address) => Ok(Self { process, address, cleanup: Arc::clone(cleanup) }),
            None => {
                cleanup.kill_child(process);
                Err(BenchError::Failed(
                    "`cued serve` did not start: run it by itself to see the error".to_owned(),
                ))
            }
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Resident memory in bytes; `None` without `/proc`.
    pub fn resident_bytes(&self) -> Option<f64> {
        self.proc_value("status", "VmRSS:").map(|kilobytes| kilobytes * 1_024.0)
    }

    /// Peak resident memory in bytes.
    pub fn peak_resident_bytes(&self) -> Option<f64> {
        self.proc_value("status", "VmHWM:").map(|kilobytes| kilobytes * 1_024.0)
    }

    /// Bytes written to storage since the start. Some kernels count them for the wrong process, so that this says nothing
    /// but whether there are any.
    pub fn written_bytes(&self) -> Option<f64> {
        self.proc_value("io", "write_bytes:")
    }

    fn proc_value(&self, file: &str, name: &str) -> Option<f64> {
        let text = fs::read_to_string(format!("/proc/{}/{file}", self.process)).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.cleanup.kill_child(self.process);
    }
}
