//! Figures over time. `hours` holds those of each user and hour, `cue_figures` counts the kept executions of one cue,
//! `overview` reads what the overview shows.

pub mod cue_figures;
pub mod hours;
pub mod overview;
