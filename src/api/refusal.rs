//! The body of an error (contract §2.3), as the server sends it and as the command line makes it of what it finds itself.

use serde_json::{Value, json};

use crate::domain::api_error::{ErrorCode, Refusal};

pub fn error_body(refusal: &Refusal) -> Value {
    let (code, status) = refusal.code.text_and_status();
    let mut body = json!({"error": {"code": code, "message": refusal.message, "status": status}});
    if refusal.code == ErrorCode::ValidationError {
        body["detail"] = json!(refusal.problems);
    }
    if let Some(part) = &refusal.schedule_part {
        body["error"]["field"] = part.field.into();
        body["error"]["span"] = part.span.map(|(from, to)| [from, to]).into();
    }
    body
}
