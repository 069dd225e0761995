//! `cued check --tz-diff`: the cues whose runs of the coming year differ between the time zone data of the system, which a
//! server follows, and that in the program.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};

use crate::cli::error::{CliError, Result, failed};
use crate::cli::output::{count, print_sentence};
use crate::domain::cue::StoredSchedule;
use crate::domain::schedule::zone_change::{first_difference, first_other_run};
use crate::domain::schedule::{BUILT_IN_VERSION, Zone};
use crate::domain::time::{instant, saturating_add};
use crate::store::cues::time_zones::ZonedCue;
use crate::store::maintenance::check;

const COMPARED: SignedDuration = SignedDuration::from_hours(366 * 24);

/// A zone whose clocks differ: its rules in the program and in the system, and from when on.
struct Difference {
    zones: [Zone; 2],
    from: Timestamp,
}

pub fn compare(file: &Path, now: Timestamp) -> Result {
    let (mut zones, mut schedules) = (HashMap::new(), HashMap::new());
    let (mut cues, mut lines) = (0, Vec::new());
    check::visit_zoned_cues(file, |cue| {
        cues += 1;
        let zone = &cue.schedule.timezone;
        let difference = zones.entry(zone.clone()).or_insert_with(|| difference(zone, now));
        if let Some(difference) = difference {
            let ZonedCue { id, name, schedule, .. } = cue;
            // Many cues have the same schedule, and those that never differ take longest.
            let found =
                schedules.entry(schedule).or_insert_with_key(|it| described(it, difference, now));
            lines.extend(found.as_ref().map(|found| format!("differs     {id} {name} {found}")));
        }
    })
    .map_err(|error| failed(error.to_string()))?;
    print_sentence(&format!("built in    {BUILT_IN_VERSION}"))?;
    let Some(folder) = Zone::system_folder() else {
        return print_sentence("system      has no time zone data: a server follows the built-in");
    };
    print_sentence(&format!("system      {} in {}", version(folder), folder.display()))?;
    for line in &lines {
        print_sentence(line)?;
    }
    let differing = zones.values().flatten().count();
    let (all, zones) = (count(cues, "recurring cue"), count(zones.len() as u64, "time zone"));
    print_sentence(&format!(
        "result      {differing} of {zones} and {} of {all} differ in the coming year",
        lines.len()
    ))?;
    match lines.len() {
        0 => Ok(()),
        _ => Err(CliError::Differs("the time zone data of the system moves runs".to_owned())),
    }
}

/// The release of the database, as packages name it.
fn version(folder: &Path) -> String {
    let first_line = |name: &str| {
        let text = fs::read(folder.join(name)).ok()?;
        let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        Some(String::from_utf8_lossy(line).trim_start_matches("# version ").to_owned())
    };
    first_line("tzdata.zi")
        .or_else(|| first_line("+VERSION"))
        .unwrap_or_else(|| "unknown version".to_owned())
}

/// `None` if the clocks agree, or only one side has the zone.
fn difference(name: &str, now: Timestamp) -> Option<Difference> {
    let zones = [Zone::find_built_in(name).ok()?, Zone::find_in_system(name).ok()?];
    let from = first_difference(&zones[0], &zones[1], now, saturating_add(now, COMPARED))?;
    Some(Difference { zones, from })
}

/// `None` if the runs agree, or the schedule cannot be read: a server fails its cue.
fn described(stored: &StoredSchedule, difference: &Difference, now: Timestamp) -> Option<String> {
    let schedule = stored.read().ok()?;
    let [built_in, system] = difference.zones.each_ref().map(|zone| schedule.in_zone(zone));
    let others =
        first_other_run(&built_in, &system, difference.from, saturating_add(now, COMPARED))?;
    let both = |[built_in, system]: [Option<Timestamp>; 2]| {
        let text = |run: Option<Timestamp>| run.map_or("none".to_owned(), instant);
        format!("{} built in, {} in the system", text(built_in), text(system))
    };
    let next = [built_in.next_after(now), system.next_after(now)];
    let next = if next == others || next[0] != next[1] {
        format!("next run {}", both(next))
    } else {
        let first = next[0].map_or_else(String::new, instant);
        format!("next run {first} in both, first other run {}", both(others))
    };
    Some(format!("({}): {next}", stored.timezone))
}
