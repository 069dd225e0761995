//! A deterministic simulation: seeded users, workers, receivers, clock jumps, restarts and failing commits, against the
//! real store, engine and HTTP server on a clock that stands still, beside a small model in memory.
//!
//! After every step: every due instant is accounted for exactly once, no acknowledged write is lost and no refused one
//! is there, no run is in two attempts at a time or in more than its cue allows, no account is above its bounds, no run
//! waits for the receivers of another account, no policy of a cue is violated, counters equal recounts, the figures of the hours sum up to the runs
//! that ended, and all states are those of the model.
//!
//! A failure prints its seed and the shortest list of steps that was found for it. `TESTS_SEED=17` runs that
//! seed alone, `TESTS_SEEDS=200..5000` others than the usual ones.

mod check;
mod engine_steps;
mod machine;
mod model;
mod policies;
mod receivers;
mod run;
mod run_steps;
mod runner;
mod shrink;
mod steps;
mod user_steps;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::simulation::runner::Simulation;
use crate::simulation::shrink::shrink;
use crate::simulation::steps::{Step, generate};
use crate::support::*;

const STEPS: usize = 64;
const SEEDS: u64 = 200;
const SEEDS_OF_FULL_RUN: u64 = 1_000;
/// Simulations at a time. The threads of one wait for each other most of the time.
const WORKERS: usize = 2;

#[test]
fn no_rule_is_violated_in_any_order_of_steps() {
    let seeds = seeds();
    eprintln!("seeds {seeds:?}, {STEPS} steps each");
    let next = AtomicU64::new(seeds.start);
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    if seed > seeds.start && seed.is_multiple_of(1_000) {
                        eprintln!("seed {seed}");
                    }
                    let steps = generate(seed, STEPS);
                    if let Err(failure) = attempt(seed, &steps) {
                        // The others end after their present seed.
                        next.store(seeds.end, Ordering::Relaxed);
                        report(seed, steps, failure);
                    }
                }
            });
        }
    });
}

#[test]
fn a_seed_repeats_its_run() {
    // The paths and answers of requests contain random ids.
    let without_ids = |log: String| -> Vec<String> {
        let short = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words[0] == "account" {
                [&words[..3], &words[words.len() - 1..]].concat().join(" ")
            } else {
                line.to_owned()
            }
        };
        log.lines().map(short).collect()
    };
    for seed in 0..3 {
        let run = || without_ids(attempt(seed, &generate(seed, STEPS)).unwrap());
        assert_eq!(run(), run());
    }
}

/// The seed of `TESTS_SEED`, or those of `TESTS_SEEDS=FIRST..END`, or the usual ones.
fn seeds() -> Range<u64> {
    let number = |text: &str| text.parse::<u64>().expect("a number");
    if let Ok(seed) = std::env::var("TESTS_SEED") {
        return number(&seed)..number(&seed) + 1;
    }
    if let Ok(seeds) = std::env::var("TESTS_SEEDS") {
        let (first, end) = seeds.split_once("..").expect("FIRST..END");
        return number(first)..number(end);
    }
    0..if is_full_run() { SEEDS_OF_FULL_RUN } else { SEEDS }
}

/// Fails with the shortest list of steps that violates a rule, or with all of them if it does not do so each time.
fn report(seed: u64, steps: Vec<Step>, failure: (String, String)) {
    let shortest = shrink(steps, |rest| attempt(seed, rest).is_err());
    let (log, rule) = attempt(seed, &shortest).err().unwrap_or(failure);
    panic!("TESTS_SEED={seed} fails; the shortest list of steps:\n{log}{rule}");
}

/// Runs the steps. A panic counts as a failure.
fn attempt(seed: u64, steps: &[Step]) -> Result<String, (String, String)> {
    catch_unwind(AssertUnwindSafe(|| Simulation::run(seed, steps)))
        .unwrap_or_else(|_| Err((String::new(), format!("a panic after {steps:?}"))))
}
