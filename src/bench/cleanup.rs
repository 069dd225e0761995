//! Removes the child processes and the temporary folder of a run, also when a signal interrupts it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, MutexGuard};

use crate::bench::{BenchError, Result};
use crate::locks::Mutex;
use crate::random;
use crate::signals::EndSignals;

/// Everything that a run must remove.
#[derive(Default)]
pub struct Cleanup(Mutex<Leftovers>);

#[derive(Default)]
struct Leftovers {
    children: Vec<Child>,
    folder: Option<PathBuf>,
}

impl Cleanup {
    /// Installs handlers that clean up on SIGHUP, SIGINT and SIGTERM.
    pub fn install() -> Result<Arc<Self>> {
        let mut signals = EndSignals::catch_with_hangup()?;
        let cleanup = Arc::new(Self::default());
        let for_thread = Arc::clone(&cleanup);
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let code = signals.wait();
            // Held until the process exits, so that no scenario can start or create anything from here on.
            let mut leftovers = for_thread.lock();
            leftovers.kill_children(|_| true);
            leftovers.remove_folder();
            std::process::exit(code);
        })?;
        Ok(cleanup)
    }

    /// Creates the folder for the temporary files in `parent`.
    pub fn create_folder(self: &Arc<Self>, parent: &Path) -> Result<Folder> {
        let name = u64::from_le_bytes(random::bytes()?);
        let path = parent.join(format!("cued-bench-{name:016x}"));
        let mut leftovers = self.lock();
        fs::create_dir(&path).map_err(|source| BenchError::Folder { path: path.clone(), source })?;
        leftovers.folder = Some(path.clone());
        Ok(Folder { path, cleanup: Arc::clone(self) })
    }

    /// Spawns the child process and returns the result of `with`.
    pub fn spawn_child<T>(
        &self,
        spawn: impl FnOnce() -> std::io::Result<Child>,
        with: impl FnOnce(&mut Child) -> T,
    ) -> Result<T> {
        let mut leftovers = self.lock();
        let mut child = spawn()?;
        let done = with(&mut child);
        leftovers.children.push(child);
        Ok(done)
    }

    /// Kills the child process with this id, if there is one.
    pub fn kill_child(&self, id: u32) {
        self.lock().kill_children(|child| child.id() == id);
    }

    fn lock(&self) -> MutexGuard<'_, Leftovers> {
        self.0.lock()
    }
}

impl Leftovers {
    fn kill_children(&mut self, is_meant: impl Fn(&Child) -> bool) {
        // Their databases are deleted as well, so a clean shutdown is not needed.
        for mut child in self.children.extract_if(.., |child| is_meant(child)) {
            drop(child.kill());
            drop(child.wait());
        }
    }

    fn remove_folder(&mut self) {
        let Some(path) = self.folder.take() else { return };
        // A scenario in progress may create a file in the folder at the same time, which makes the removal fail.
        let removed = (0..10).map(|_| fs::remove_dir_all(&path)).find(std::io::Result::is_ok);
        if removed.is_none() && path.exists() {
            tracing::warn!(path = %path.display(), "cannot remove the temporary folder");
        }
    }
}

/// The folder for the temporary files, removed with its contents on drop.
pub struct Folder {
    path: PathBuf,
    cleanup: Arc<Cleanup>,
}

impl Folder {
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns the cleanup that owns this folder.
    pub fn cleanup(&self) -> &Arc<Cleanup> {
        &self.cleanup
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.cleanup.lock().remove_folder();
    }
}
