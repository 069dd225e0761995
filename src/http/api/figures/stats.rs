//! `/v1/stats`: figures over time.

use jiff::Timestamp;
use serde::Serialize;

use crate::api::instants::JsonTimestamp;
use crate::domain::account::figures::{Figures, Grid, GridError, KEPT_FOR, MAX_STEPS, Step};
use crate::domain::schedule::time_zone::Zone;
use crate::domain::schedule::{EARLIEST, parse_instant};
use crate::domain::time::saturating_sub;
use crate::error::Result;
use crate::http::input::query::Query;
use crate::http::request::Request;
use crate::http::response::Response;
use crate::service::cues::not_found;
use crate::store::figures::{cue_figures, hours};
use crate::store::{ReadTx, cues};

/// `GET /v1/stats?from&to&step&cue_id`.
pub async fn stats(request: Request) -> Result<Response> {
    let (caller, query, now) = (request.caller()?, request.query(), request.now);
    let cue_id = query.text("cue_id", 0..=255).map(str::to_owned);
    let grid = parse_grid(&query, now);
    query.finish()?;
    // `finish` has returned an error if there is none.
    let Some(grid) = grid else { return Response::from_body(&()) };
    let (series, truncated) = match cue_id {
        None => {
            let _turn = request.list_turn().await?;
            let read = move |read: &ReadTx<'_>| hours::series(read, caller.user_key, &grid);
            let (kept_from, (first, _)) = (saturating_sub(now, KEPT_FOR), grid.millis());
            (request.app.store.read(read).await?, first < kept_from.as_millisecond())
        }
        Some(cue_id) => {
            let _turn = request.slow_list_turn().await?;
            let read = move |read: &ReadTx<'_>| {
                let cue_key = cues::find_key(read, caller.user_key, &cue_id)?.ok_or_else(not_found)?;
                cue_figures::series(read, cue_key, &grid)
            };
            request.app.store.read_slow(read).await?
        }
    };
    let mut totals = Figures::default();
    series.iter().for_each(|figures| totals.add(figures));
    let series = grid.begins().zip(&series);
    Response::from_body(&StatsView {
        step: grid.step.as_str(),
        series: series
            .map(|(at, figures)| StepView { at: JsonTimestamp(at), figures: FiguresView::from(figures) })
            .collect(),
        totals: FiguresView::from(&totals),
        truncated,
    })
}

/// `None` if the query has an error.
fn parse_grid(query: &Query, now: Timestamp) -> Option<Grid> {
    let instant = |name: &'static str| -> std::result::Result<Option<Timestamp>, ()> {
        let Some(text) = query.text(name, 0..=64) else {
            return if query.raw(name).is_some() { Err(()) } else { Ok(None) };
        };
        parse_instant(text, &Zone::UTC).map(Some).map_err(|_| {
            let example = "should be a time such as 2030-01-31T09:00:00Z; write the + of an offset as %2B";
            query.reject(name, &format!("{name} {example}"));
        })
    };
    let step = match query.raw("step") {
        None => Some(Step::Hour),
        Some(_) => query.one_of("step", &Step::WORDS).and_then(Step::parse),
    };
    let (Ok(from), Ok(to), Some(step)) = (instant("from"), instant("to"), step) else { return None };
    match Grid::new(step, from, to, now) {
        Ok(grid) if grid.millis().0 < EARLIEST.as_millisecond() => {
            let name = if from.is_some() { "from" } else { "to" };
            query.reject(
                name,
                &format!("{name} should be later: the span may not begin before the year 0001"),
            );
            None
        }
        Ok(grid) => Some(grid),
        Err(GridError::Empty) => {
            query.reject("from", "from should be before to, which is the present if it is left out");
            None
        }
        Err(GridError::TooLong) => {
            let (name, largest) = (step.as_str(), MAX_STEPS);
            let other = if step == Step::Hour { ", or ask for step=day" } else { "" };
            query.reject(
                "from",
                &format!(
                    "from and to may be at most {largest} {name}s apart: move them nearer to each other{other}"
                ),
            );
            None
        }
    }
}

/// The answer (contract §8.11).
#[derive(Debug, Serialize)]
struct StatsView {
    step: &'static str,
    series: Vec<StepView>,
    totals: FiguresView,
    truncated: bool,
}

#[derive(Debug, Serialize)]
struct StepView {
    at: JsonTimestamp,
    #[serde(flatten)]
    figures: FiguresView,
}

#[derive(Debug, Serialize)]
struct FiguresView {
    succeeded: i64,
    failed: i64,
    retried: i64,
    missed: i64,
    late_avg_ms: Option<i64>,
    late_max_ms: Option<i64>,
    took_avg_ms: Option<i64>,
}

impl From<&Figures> for FiguresView {
    fn from(figures: &Figures) -> Self {
        Self {
            succeeded: figures.succeeded,
            failed: figures.failed,
            retried: figures.retried,
            missed: figures.missed,
            late_avg_ms: figures.late_avg_ms(),
            late_max_ms: figures.late_max_ms(),
            took_avg_ms: figures.took_avg_ms(),
        }
    }
}
