//! Baselines, the same work without cued: SQLite alone, an HTTP server without middleware (`server`), and the webhook
//! client alone.

pub mod server;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::bench::{BenchError, Result};
use crate::clock::Clock;
use crate::domain::cue::Cue;
use crate::domain::cue::payload::Payload;
use crate::domain::ids::CueId;
use crate::domain::webhook::address_policy::{AddressPolicy, AllowRule};
use crate::engine::webhook_client::{ClientOptions, HttpWebhookClient, WebhookClient, WebhookRequest};
use crate::error::Error;
use crate::random;
use crate::store::maintenance::bench;
use crate::store::{Store, cues};

/// The usual page size of file systems.
const PAGE: [u8; 4_096] = [0; 4_096];
/// Size of the file in pages, 4 MiB in total, so that the writes do not all go to one block of the disk.
const PAGES: u32 = 1_024;

/// Measures how many times per second a page can be overwritten and synced. The file does not grow: changing its length
/// would cost a second disk write each time.
pub fn fsyncs(clock: &Clock, path: &Path, duration: Duration) -> Result<f64> {
    let mut file = File::create_new(path)?;
    for _ in 0..PAGES {
        file.write_all(&PAGE)?;
    }
    file.sync_all()?;
    let began = clock.monotonic();
    let mut done = 0_u32;
    while clock.monotonic() - began < duration {
        file.write_all_at(&PAGE, u64::from(done % PAGES) * PAGE.len() as u64)?;
        file.sync_data()?;
        done += 1;
    }
    Ok(f64::from(done) / (clock.monotonic() - began).as_secs_f64())
}

/// Number of cues per list, the default `limit` of `GET /v1/cues`.
pub const LIST_LIMIT: u32 = 20;

/// Measures how many times per second SQLite alone commits a row like `cue`, one row per transaction.
pub fn single_commits(
    clock: &Clock,
    path: &Path,
    duration: Duration,
    cue: &Cue,
    payload: &Payload,
) -> Result<f64> {
    let began = clock.monotonic();
    let mut next =
        || if clock.monotonic() - began < duration { with_new_id(cue).map(Some) } else { Ok(None) };
    let done = bench::single_commits(path, payload, &mut next)?;
    Ok(f64::from(done) / (clock.monotonic() - began).as_secs_f64())
}

/// Returns the same cue with a new id of this instant.
pub fn with_new_id(cue: &Cue) -> crate::error::Result<Cue> {
    Ok(Cue { id: CueId::generate(Clock::system().now(), random::fill)?.to_string(), ..cue.clone() })
}

/// Measures how many rows like `cue` per second the store inserts from `threads` threads with its group commit.
pub fn group_commits(
    clock: &Clock,
    store: &Store,
    threads: usize,
    duration: Duration,
    cue: &Cue,
    payload: &Payload,
) -> Result<f64> {
    let began = clock.monotonic();
    let done = thread::scope(|scope| {
        let insert = || {
            let mut done = 0_u32;
            while clock.monotonic() - began < duration {
                let (cue, payload) = (with_new_id(cue)?, payload.clone());
                store.write(move |tx| cues::insert(tx, cue, Some(&payload))).wait()?;
                done += 1;
            }
            std::result::Result::<u32, Error>::Ok(done)
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(insert)).collect();
        let panicked = || Error::fault("a benchmark thread panicked");
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(panicked())))
            .sum::<std::result::Result<u32, Error>>()
    })?;
    Ok(f64::from(done) / (clock.monotonic() - began).as_secs_f64())
}

/// Measures how many POST requests per second the webhook client alone sends from `threads` threads.
pub fn posts(clock: &Arc<Clock>, threads: usize, count: usize, request: &WebhookRequest) -> Result<f64> {
    let monotonic = Arc::clone(clock);
    let policy = AddressPolicy::new(&[AllowRule::Loopback]);
    let options = ClientOptions { policy, ..ClientOptions::default() };
    let webhook_client = HttpWebhookClient::new(&options, Arc::new(move || monotonic.monotonic()))?;
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let began = clock.monotonic();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while next.fetch_add(1, Ordering::Relaxed) < count {
                    if webhook_client.send(request).is_err() {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    match failed.into_inner() {
        #[allow(clippy::cast_precision_loss)]
        0 => Ok(count as f64 / (clock.monotonic() - began).as_secs_f64()),
        failed => {
            Err(BenchError::Failed(format!("{failed} of {count} POST requests of the baseline failed")))
        }
    }
}
