//! The program under test, as a process of its own on a temporary file, and what the system says of it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{BenchError, Result};
use crate::random;

/// A folder for the temporary files; it goes away with everything in it.
pub struct Folder(PathBuf);

impl Folder {
    /// Makes the folder in `parent`.
    pub fn make(parent: &Path) -> Result<Self> {
        let name = u64::from_le_bytes(random::bytes()?);
        let path = parent.join(format!("cued-bench-{name:016x}"));
        fs::create_dir(&path).map_err(|error| {
            BenchError(format!("{} cannot be made: {error}; give another --dir", path.display()))
        })?;
        Ok(Self(path))
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!("{} cannot be removed: {error}", self.0.display());
        }
    }
}

/// `cued serve`, running.
pub struct Program {
    child: Child,
    address: SocketAddr,
}

impl Program {
    /// Starts this very program on a new file, as a person would who tries it alone, and waits until it listens.
    pub fn start(db: &Path) -> Result<Self> {
        let own = std::env::current_exe()?;
        let mut command = Command::new(own);
        command.args(["serve", "--dev", "--limits", "off", "--listen", "127.0.0.1:0", "--db"]).arg(db);
        // What is set for another server must not change what is measured.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CUED_")) {
            command.env_remove(name);
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let address = line.trim().rsplit_once("http://").and_then(|(_, address)| address.parse().ok());
        match address {
            Some(address) => Ok(Self { child, address }),
            None => {
                // It has ended, or says something else: either way it is of no use.
                drop(child.kill());
                drop(child.wait());
                Err(BenchError("cued serve did not start; try it on its own to see why".to_owned()))
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
        let text = fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Its file goes away with it: there is nothing to end in order.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
