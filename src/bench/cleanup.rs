//! What a run has on the machine while it lasts: a folder and the program. They go with it when it is cut short too.

use std::fs;
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::task::Poll;

use parking_lot::{Mutex, MutexGuard};
use tokio::signal::unix::{SignalKind, signal};

use crate::bench::{BenchError, Result};
use crate::random;

/// What there is of a run.
#[derive(Default)]
pub struct Cleanup(Mutex<Leftovers>);

#[derive(Default)]
struct Leftovers {
    child: Option<Child>,
    folder: Option<PathBuf>,
}

impl Cleanup {
    /// From now on a signal that ends this process leaves nothing behind.
    pub fn watch() -> Result<Arc<Self>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let mut signals = {
            let _within = runtime.enter();
            [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()]
                .into_iter()
                .map(|kind| Ok((signal(kind)?, kind.as_raw_value())))
                .collect::<std::io::Result<Vec<_>>>()?
        };
        let traces = Arc::new(Self::default());
        let watched = Arc::clone(&traces);
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let number = runtime.block_on(poll_fn(|context| {
                let come = signals
                    .iter_mut()
                    .find_map(|(signal, number)| signal.poll_recv(context).is_ready().then_some(*number));
                come.map_or(Poll::Pending, Poll::Ready)
            }));
            // Never given back: what the measures meet now is no news to anybody.
            let mut left = watched.lock();
            left.end_child();
            left.remove_folder();
            // As a shell tells that a signal ended a program.
            std::process::exit(128 + number);
        })?;
        Ok(traces)
    }

    /// Makes the folder for the temporary files in `parent`.
    pub fn folder(self: &Arc<Self>, parent: &Path) -> Result<Folder> {
        let name = u64::from_le_bytes(random::bytes()?);
        let path = parent.join(format!("cued-bench-{name:016x}"));
        let mut left = self.lock();
        fs::create_dir(&path).map_err(|source| BenchError::Folder { path: path.clone(), source })?;
        left.folder = Some(path.clone());
        Ok(Folder { path, traces: Arc::clone(self) })
    }

    /// Starts the program; what `with` makes of it is answered.
    pub fn start<T>(
        &self,
        spawn: impl FnOnce() -> std::io::Result<Child>,
        with: impl FnOnce(&mut Child) -> T,
    ) -> Result<T> {
        let mut left = self.lock();
        Ok(with(left.child.insert(spawn()?)))
    }

    /// Ends the program, if there is one.
    pub fn end_child(&self) {
        self.lock().end_child();
    }

    fn lock(&self) -> MutexGuard<'_, Leftovers> {
        self.0.lock()
    }
}

impl Leftovers {
    fn end_child(&mut self) {
        // Its file goes away with it: there is nothing to end in order.
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }

    fn remove_folder(&mut self) {
        let Some(path) = self.folder.take() else { return };
        // A measure that is under way may make a file in it meanwhile.
        let removed = (0..10).map(|_| fs::remove_dir_all(&path)).find(std::io::Result::is_ok);
        if removed.is_none() && path.exists() {
            tracing::warn!("{} cannot be removed", path.display());
        }
    }
}

/// A folder for the temporary files; it goes away with everything in it.
pub struct Folder {
    path: PathBuf,
    traces: Arc<Cleanup>,
}

impl Folder {
    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// What there is of the run, beside it.
    pub fn traces(&self) -> &Arc<Cleanup> {
        &self.traces
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.traces.lock().remove_folder();
    }
}
