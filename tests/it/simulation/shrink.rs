//! Shrinks the steps of a failed simulation: leaves out parts of the list as long as the rest fails too.

use crate::simulation::steps::Step;

/// Runs that shrinking may take. A list of 100 steps needs about 100.
const MAX_RUNS: usize = 400;

/// The shortest list found that still fails, by `fails`.
pub fn shrink(mut steps: Vec<Step>, mut fails: impl FnMut(&[Step]) -> bool) -> Vec<Step> {
    let mut runs = 0;
    let mut part = steps.len() / 2;
    while part > 0 {
        let mut from = 0;
        let before = steps.len();
        while from < steps.len() {
            if runs == MAX_RUNS {
                return steps;
            }
            runs += 1;
            let to = (from + part).min(steps.len());
            let rest: Vec<Step> = steps[..from].iter().chain(&steps[to..]).copied().collect();
            if fails(&rest) {
                steps = rest;
            } else {
                from = to;
            }
        }
        // Single steps are tried again until none can be left out.
        if part > 1 || steps.len() == before {
            part /= 2;
        }
    }
    steps
}

#[test]
fn shrinking_keeps_only_the_steps_that_a_failure_needs() {
    let steps = crate::simulation::steps::generate(1, 64);
    let needed = [steps[3], steps[40]];
    let fails = |rest: &[Step]| needed.iter().all(|step| rest.contains(step));
    assert_eq!(shrink(steps, fails), needed);
}
