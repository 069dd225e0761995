//! The body of an error (contract §2.3), as the server sends it and as the command line makes it of what it finds itself.

use serde_json::{Value, json};

use crate::domain::api_error::{ErrorCode, Refusal};

/// The path of the field that a refusal without `detail` is about, which its message begins with or `field` names, the
/// message without it, and whether the message says itself what it is about.
pub fn place_of<'a>(code: &str, field: Option<&str>, message: &'a str) -> (String, &'a str, bool) {
    match (code, field) {
        (_, Some(field @ ("type" | "timezone" | "at" | "every" | "end" | "send_at"))) => {
            let message = message.strip_prefix(&format!("{field}: ")).unwrap_or(message);
            let around = if field == "send_at" { "" } else { "schedule." };
            (format!("{around}{field}"), message, false)
        }
        // A field of the expression.
        (_, Some(_)) => ("schedule.cron".to_owned(), message, true),
        ("invalid_schedule", None) => ("schedule".to_owned(), message, true),
        ("invalid_payload_size", None) => ("payload".to_owned(), message, true),
        ("invalid_callback" | "invalid_callback_url", None) => match message.split_once(": ") {
            Some((path, message)) => (path.to_owned(), message, false),
            None => (String::new(), message, true),
        },
        _ => (String::new(), message, true),
    }
}

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
