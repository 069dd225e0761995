//! A request as a command line of curl. The key is named, never shown.

use crate::client::Connection;
use crate::client::request::ApiRequest;

/// The command that makes the same request. It expects the key in `CUED_API_KEY`.
pub fn command(connection: &Connection, request: &ApiRequest) -> String {
    let mut parts = vec!["curl".to_owned()];
    if let Some(ca) = &connection.tls.ca {
        parts.push(format!("--cacert {}", quoted(&ca.display().to_string())));
    }
    if connection.tls.is_insecure {
        parts.push("--insecure".to_owned());
    }
    if request.headers.iter().any(|(name, value)| *name == "accept" && value == "text/event-stream") {
        parts.push("--no-buffer".to_owned());
    }
    if request.method == "HEAD" {
        // With `-X HEAD` curl would wait for a body.
        parts.push("--head".to_owned());
    } else if request.method != "GET" {
        parts.push(format!("-X {}", request.method));
    }
    parts.push(quoted(&format!("{}{}", connection.url, request.target())));
    if !request.is_anonymous {
        // In double quotes, so that the shell puts in the key.
        parts.push("-H \"Authorization: Bearer $CUED_API_KEY\"".to_owned());
    }
    for (name, value) in &request.headers {
        parts.push(format!("-H {}", quoted(&format!("{name}: {value}"))));
    }
    if let Some(body) = &request.body {
        if !request.has_header("content-type") {
            parts.push("-H 'Content-Type: application/json'".to_owned());
        }
        parts.push(format!("--data-raw {}", quoted(body)));
    }
    parts.join(" ")
}

/// A text as one word of a shell.
fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::tls::TlsOptions;

    fn of(request: &ApiRequest) -> String {
        let key = Some("cue_sk_secret".to_owned());
        command(&Connection { url: "http://pi:8000".to_owned(), key, tls: TlsOptions::default() }, request)
    }

    #[test]
    fn the_command_names_the_key_and_does_not_show_it() {
        let get = of(&ApiRequest::get("/v1/cues").query("limit", "2"));
        assert_eq!(get, "curl 'http://pi:8000/v1/cues?limit=2' -H \"Authorization: Bearer $CUED_API_KEY\"");
    }

    #[test]
    fn a_body_is_one_word_of_the_shell() {
        let post = of(&ApiRequest::post("/v1/cues").json(r#"{"name":"it's"}"#).anonymous());
        let body = r#"'{"name":"it'\''s"}'"#;
        let expected = format!(
            "curl -X POST http://pi:8000/v1/cues -H 'Content-Type: application/json' --data-raw {body}"
        );
        assert_eq!(post, expected);
    }
}
