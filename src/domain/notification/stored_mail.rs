//! The form in which the outbox stores a mail: canonical JSON of its fields.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::domain::json::{self, JsonText};
use crate::domain::webhook::canonical_json::canonical;

/// A mail that the outbox stores.
pub trait StoredMail: Serialize + DeserializeOwned {
    /// The JSON that is stored.
    fn body(&self) -> String {
        canonical(JsonText::from(&json!(self)).get())
    }

    /// The mail of a stored body; `None` if it is that of another kind of mail.
    fn read(body: &str) -> Option<Self> {
        serde_json::from_value(json::read(body.as_bytes()).ok()?.get().to_value()).ok()
    }
}
