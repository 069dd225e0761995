//! The scenarios, in order: later ones use results of earlier ones, if those ran.

mod creates;
mod deliveries;
mod reads;
mod resources;
mod workers;

use crate::bench::harness::Harness;
use crate::bench::report::{BenchReport, Unit};
use crate::bench::{BenchError, BenchOptions, Result, baseline};

pub use crate::bench::scenarios::workers::claim_and_report;

pub struct Scenario {
    /// The name for `--only`; that of several creates is the same.
    pub name: &'static str,
    pub title: &'static str,
    pub run: fn(&mut Harness, &mut BenchReport) -> Result<()>,
    when: When,
}

/// The runs that a scenario is part of if `--only` does not name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// Those on a slow disk too.
    Always,
    FastDisk,
    OnlyNamed,
}

const fn scenario(
    name: &'static str,
    title: &'static str,
    when: When,
    run: fn(&mut Harness, &mut BenchReport) -> Result<()>,
) -> Scenario {
    Scenario { name, title, run, when }
}

const SCENARIOS: [Scenario; 18] = [
    scenario("disk", "disk and SQLite", When::Always, disk),
    scenario("responses", "bare responses", When::FastDisk, responses),
    scenario("creates", "creates, 1 client", When::Always, |bench, report| creates::run(bench, report, 1)),
    scenario("creates", "creates, 2 clients", When::FastDisk, |bench, report| creates::run(bench, report, 2)),
    scenario("creates", "creates, 16 clients", When::Always, |bench, report| creates::run(bench, report, 16)),
    scenario("creates", "creates, 64 clients", When::Always, |bench, report| creates::run(bench, report, 64)),
    scenario("gets", "gets", When::FastDisk, reads::gets),
    scenario("lists", "lists", When::FastDisk, reads::lists),
    scenario("changes", "changes", When::FastDisk, workers::patches),
    scenario("claims", "claims and outcomes", When::FastDisk, workers::claims),
    scenario("claimable", "claimable executions", When::FastDisk, workers::claimable),
    scenario("herd", "herd of deliveries", When::Always, deliveries::herd),
    scenario("workers", "workers beside a herd", When::Always, workers::beside_herd),
    scenario("trickle", "trickle of deliveries", When::Always, deliveries::trickle),
    scenario("hang", "deliveries beside a host that hangs", When::FastDisk, deliveries::hang),
    scenario("overview", "overview", When::FastDisk, reads::overview),
    scenario("idle", "idle server", When::FastDisk, resources::idle),
    scenario("limiter", "rate limits of 10,000 users", When::OnlyNamed, resources::limiter),
];

/// The names for `--only`, each once.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
    names.dedup();
    names
}

/// The scenarios that these options select, in their order.
pub fn selected(options: &BenchOptions) -> Result<Vec<&'static Scenario>> {
    if let Some(name) = options.only.iter().find(|name| !names().contains(&name.as_str())) {
        return Err(BenchError::UnknownScenario { name: name.clone() });
    }
    let is_selected = |scenario: &&Scenario| {
        if options.only.is_empty() {
            scenario.when == When::Always
                || (scenario.when == When::FastDisk && options.fsync_delay.is_none())
        } else {
            options.only.iter().any(|name| name == scenario.name)
        }
    };
    Ok(SCENARIOS.iter().filter(is_selected).collect())
}

fn disk(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    let (clock, duration) = (&bench.clock, bench.options.duration);
    let rate = baseline::fsyncs(clock, &bench.folder.file("fsync"), duration)?;
    report.add("fsyncs", "disk: fsync of an overwritten 4 KiB page", rate, Unit::PerSecond);
    let (cue, payload) = &bench.sample;
    let rate = baseline::group_commits(clock, &bench.store, 64, duration, cue, payload)?;
    report.add("group_commits", "store without HTTP: inserts, 64 threads", rate, Unit::PerSecond);
    Ok(())
}

fn responses(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    let rate = bench.measure_baseline(16, &bench.get("/"))?.rate;
    report.add("baseline_responses", "bare HTTP server: responses, 16 clients", rate, Unit::PerSecond);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bench::Suite;

    fn titles(only: &[&str], fsync_delay: Option<Duration>) -> Vec<&'static str> {
        let options = BenchOptions {
            suite: Suite::Scenarios,
            only: only.iter().map(|name| (*name).to_owned()).collect(),
            folder: "/".into(),
            duration: Duration::ZERO,
            herd: 1,
            trickle: 1,
            repeat: 1,
            fsync_delay,
            largest: 1,
            label: None,
        };
        selected(&options).unwrap().iter().map(|scenario| scenario.title).collect()
    }

    #[test]
    fn named_scenarios_run_in_the_order_of_the_table() {
        assert_eq!(titles(&["limiter", "gets"], None), ["gets", "rate limits of 10,000 users"]);
        assert_eq!(titles(&["creates"], None).len(), 4);
    }

    #[test]
    fn a_slow_disk_has_scenarios_that_wait_for_it() {
        let (all, slow) = (titles(&[], None), titles(&[], Some(Duration::from_millis(10))));
        assert!(all.contains(&"lists") && !all.contains(&"rate limits of 10,000 users"), "{all:?}");
        assert!(slow.contains(&"creates, 64 clients") && !slow.contains(&"lists"), "{slow:?}");
    }
}
