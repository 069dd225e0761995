//! The program under test, as a process of its own on a temporary file, and what the system says of it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::bench::cleanup::Cleanup;
use crate::bench::{BenchError, Result};

/// `cued serve`, running.
pub struct ServerProcess {
    process: u32,
    address: SocketAddr,
    traces: Arc<Cleanup>,
}

impl ServerProcess {
    /// Starts this very program on a new file, as a person would who tries it alone, and waits until it listens.
    pub fn start(db: &Path, traces: &Arc<Cleanup>) -> Result<Self> {
        let own = std::env::current_exe()?;
        let mut command = Command::new(own);
        command.args(["serve", "--dev", "--limits", "off", "--listen", "127.0.0.1:0", "--db"]).arg(db);
        // It ends with this process, however that ends, and not before it by the same key on a terminal.
        command.arg("--until-input-ends").stdin(Stdio::piped()).process_group(0);
        // What is set for another server must not change what is measured.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CUED_")) {
            command.env_remove(name);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let (process, stdout) =
            traces.start(|| command.spawn(), |child| (child.id(), child.stdout.take()))?;
        let mut line = String::new();
        if let Some(stdout) = stdout {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let address = line.trim().rsplit_once("http://").and_then(|(_, address)| address.parse().ok());
        match address {
            Some(address) => Ok(Self { process, address, traces: Arc::clone(traces) }),
            None => {
                // It has ended, or says something else: either way it is of no use.
                traces.end_child();
                Err(BenchError::Failed("cued serve did not start; try it on its own to see why".to_owned()))
            }
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Bytes of memory in use now; none where the system does not say.
    pub fn resident(&self) -> Option<f64> {
        self.figure("status", "VmRSS:").map(|kilobytes| kilobytes * 1_024.0)
    }

    /// The most bytes of memory that were in use so far.
    pub fn peak(&self) -> Option<f64> {
        self.figure("status", "VmHWM:").map(|kilobytes| kilobytes * 1_024.0)
    }

    /// Bytes that it has caused to be written to storage so far.
    pub fn written(&self) -> Option<f64> {
        self.figure("io", "write_bytes:")
    }

    fn figure(&self, file: &str, name: &str) -> Option<f64> {
        let text = fs::read_to_string(format!("/proc/{}/{file}", self.process)).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.traces.end_child();
    }
}
