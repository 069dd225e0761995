//! Registration, API keys, secrets, device login and sessions (contract §3.2 to §3.7, §3.11).

pub mod auth;
pub mod device_login;
pub mod sessions;

use crate::api::fields::JsonFields;
use crate::domain::account::credentials::Email;

/// Reads the field `email`. Adds a validation error if it is not an address.
fn required_email(fields: &mut JsonFields<'_>) -> Option<Email> {
    let text = fields.required_string("email", 0..=1_000)?;
    match Email::parse(&text) {
        Ok(email) => Some(email),
        Err(error) => {
            fields.reject("email", &error.to_string());
            None
        }
    }
}
