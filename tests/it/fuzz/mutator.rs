//! The mutator, and the loop over its inputs.

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use crate::support::random::Random;
use crate::support::server::is_full_run;

/// The longest input, so that one that grows does not slow down the others.
const MAX_LENGTH: usize = 2048;
/// Accepted inputs that are kept as further seeds.
const MAX_KEPT: usize = 256;
/// Bytes that end or begin something in most of the formats.
const EDGES: &[u8] = b"\0\t\n\r \"%&'*+,-./0123456789:;<=>?@[\\]^_`{|}~\x7f\x80\xc3\xe2\xef\xf0\xff";

/// Inputs for one target: seeds that are changed at random, mostly by words of the target's dictionary.
pub struct Mutator {
    pub random: Random,
    seeds: Vec<Vec<u8>>,
    kept: Vec<Vec<u8>>,
    dictionary: &'static [&'static str],
    input: Vec<u8>,
}

impl Mutator {
    pub fn new(target: &str, seeds: &[&str], dictionary: &'static [&'static str]) -> Self {
        let seeds = seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect();
        let random = Random::seeded(&format!("fuzz {target}"));
        Self { random, seeds, kept: Vec::new(), dictionary, input: Vec::new() }
    }

    /// The next input: a seed, or an input that was accepted before, with one to eight changes.
    pub fn next(&mut self) -> &[u8] {
        let known = if self.kept.is_empty() || self.random.below(2) == 0 { &self.seeds } else { &self.kept };
        let seed = &known[self.random.index(known.len())];
        self.input.clear();
        self.input.extend_from_slice(seed);
        for _ in 0..=self.random.below(8) {
            self.change();
        }
        self.input.truncate(MAX_LENGTH);
        &self.input
    }

    /// Keeps the last input as a seed, in place of a random one where there are many.
    fn keep(&mut self) {
        if self.kept.len() < MAX_KEPT {
            self.kept.push(self.input.clone());
        } else if self.random.below(16) == 0 {
            let place = self.random.index(MAX_KEPT);
            self.kept[place].clone_from(&self.input);
        }
    }

    fn change(&mut self) {
        let length = self.input.len();
        let at = self.random.index(length + 1);
        let end = (at + self.random.index(9)).min(length);
        match self.random.below(10) {
            0 if at < length => self.input[at] ^= 1 << self.random.below(8),
            1 if at < length => self.input[at] = EDGES[self.random.index(EDGES.len())],
            2 => self.input.insert(at, EDGES[self.random.index(EDGES.len())]),
            3 => drop(self.input.drain(at..end)),
            4 => self.input.truncate(at),
            5 => {
                let copy = self.input[at..end].to_vec();
                let place = self.random.index(length + 1);
                self.input.splice(place..place, copy);
            }
            6 => {
                let other = &self.seeds[self.random.index(self.seeds.len())];
                let tail = &other[self.random.index(other.len() + 1)..];
                self.input.truncate(at);
                self.input.extend_from_slice(tail);
            }
            7 => {
                let word = self.dictionary[self.random.index(self.dictionary.len())];
                let copies = 1 << self.random.below(8);
                self.input.splice(at..at, word.repeat(copies).into_bytes());
                self.input.truncate(2 * MAX_LENGTH);
            }
            _ => {
                let word = self.dictionary[self.random.index(self.dictionary.len())];
                let end = if self.random.below(2) == 0 { at } else { end };
                self.input.splice(at..end, word.bytes());
            }
        }
    }
}

/// Calls `check` with `inputs` inputs in the long tests, and with a thousandth of them otherwise. `check` returns
/// whether the target accepted the input, and panics if it breaks a property. A failure shows the input.
pub fn fuzz(target: &str, inputs: u64, mut mutator: Mutator, mut check: impl FnMut(&[u8]) -> bool) {
    let inputs = budget(inputs);
    let (begun, mut accepted) = (Instant::now(), 0_u64);
    for number in 0..inputs {
        let input = mutator.next();
        match catch_unwind(AssertUnwindSafe(|| check(input))) {
            Ok(false) => {}
            Ok(true) => {
                accepted += 1;
                mutator.keep();
            }
            Err(panic) => {
                eprintln!("fuzz {target}: input {number}: {}", mutator.input.escape_ascii());
                resume_unwind(panic);
            }
        }
    }
    assert!(accepted > 0, "no input is accepted: the target is not reached");
    report(target, inputs, accepted, begun);
}

/// The number of inputs in this run.
pub fn budget(full: u64) -> u64 {
    if is_full_run() { full } else { full / 1000 }
}

/// Shows the figures of a long run. Not by `eprintln!`, whose text the test harness shows for failed tests only.
pub fn report(target: &str, inputs: u64, accepted: u64, begun: Instant) {
    if is_full_run() {
        let rate = inputs as f64 / begun.elapsed().as_secs_f64();
        let line = format!("fuzz {target}: {inputs} inputs, {accepted} accepted, {rate:.0} a second\n");
        io::stderr().write_all(line.as_bytes()).unwrap();
    }
}

#[test]
fn the_mutator_repeats_its_inputs_and_bounds_their_length() {
    let inputs = |seed: u64| {
        let mut mutator = Mutator::new("itself", &["* * * * *", "@daily"], &["*/", "fri-mon"]);
        mutator.random = Random::new(seed);
        let take = |_| {
            let input = mutator.next().to_vec();
            mutator.keep();
            input
        };
        (0..2_000).map(take).collect::<Vec<_>>()
    };
    let first = inputs(1);
    assert_eq!(first, inputs(1));
    assert_ne!(first, inputs(2));
    assert!(first.iter().all(|input| input.len() <= MAX_LENGTH));
    let mut distinct = first.clone();
    distinct.sort();
    distinct.dedup();
    assert!(distinct.len() > 1_500, "{} of 2,000 differ", distinct.len());
}
