//! The id of the key that a command uses.

use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::cli::output::list::List;
use crate::client::request::ApiRequest;

/// `None` if the server does not mark it.
/// Errors: if the request fails.
pub fn find_id(context: &Context) -> Result<Option<String>, CliError> {
    let keys = List::of(&context.look_up(&ApiRequest::get("/v1/auth/keys"))?, "keys")?.values()?;
    Ok(keys.iter().find(|key| key["current"] == true).map(|key| text_of(key, "id")))
}
