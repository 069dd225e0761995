//! `/v1/alerts`: the alerts of a user.

use crate::domain::notification::alert::{Alert, AlertType};
use crate::domain::schedule::parse_instant;
use crate::domain::schedule::time_zone::Zone;
use crate::error::Result;
use crate::http::list::ListBody;
use crate::http::request::Request;
use crate::http::response::Response;
use crate::store::notifications::alerts;
use crate::store::notifications::alerts::AlertFilter;

/// `GET /v1/alerts?alert_type&cue_id&since&limit&offset`, newest first.
pub async fn list(request: Request) -> Result<Response> {
    let (caller, query) = (request.caller()?, request.query());
    let pagination = query.pagination(50);
    let since = query.text("since", 0..=64).map(|text| parse_instant(text, &Zone::UTC));
    if let Some(Err(_)) = &since {
        query.reject(
            "since",
            "since should be a time such as 2030-01-31T09:00:00Z; write the + of an offset as %2B",
        );
    }
    let filter = AlertFilter {
        alert_type: query.one_of("alert_type", &AlertType::WORDS).and_then(AlertType::parse),
        cue_id: query.text("cue_id", 0..=255).map(str::to_owned),
        since: since.and_then(std::result::Result::ok),
    };
    query.finish()?;
    let _turn = request.list_turn().await?;
    let (page, total) = request
        .app
        .store
        .read(move |read| alerts::list(read, caller.user_key, &filter, pagination.limit, pagination.offset))
        .await?;
    let list = ListBody::new("alerts", page.iter().map(Alert::json))?;
    Ok(list.with_page("", total, pagination).into_response())
}
