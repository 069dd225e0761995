//! Texts of others that are shown: a service, a proxy or a worker may repeat a token or a URL.

/// Texts of letters and digits that are at least this long may be tokens.
const MIN_TOKEN: usize = 15;

/// Shorter secrets are not looked for: they occur in any text.
const MIN_SECRET: usize = 4;

/// Parts of a secret, as the last segment of a URL, from this length on.
const MIN_PART: usize = 8;

fn may_be_token(text: &str) -> bool {
    text.len() >= MIN_TOKEN
        && text.bytes().any(|byte| byte.is_ascii_digit())
        && text.bytes().any(|byte| byte.is_ascii_alphabetic())
}

/// The line without words that look like a path, a URL or a token. For the error of a service, which has few of them.
pub fn without_secrets(line: &str) -> String {
    let is_token = |part: &str| {
        let part = part.trim_matches(|char: char| !char.is_ascii_alphanumeric());
        may_be_token(part)
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_:".contains(&byte))
    };
    let is_secret =
        |word: &str| word.matches('/').count() > 1 || word.split(['.', ',', '=']).any(is_token);
    line.split(' ')
        .map(|word| if is_secret(word) { "…" } else { word })
        .collect::<Vec<_>>()
        .join(" ")
}

/// The text without tokens. JSON, instants, UUIDs and paths stay, which are ordinary in an answer.
pub fn without_tokens(text: &str) -> String {
    let is_part_of_token = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while !rest.is_empty() {
        let (word, after) =
            rest.split_at(rest.find(|char| !is_part_of_token(char)).unwrap_or(rest.len()));
        // Dates and UUIDs are short between their dashes.
        shown.push_str(if word.split(['-', '_']).any(may_be_token) { "…" } else { word });
        let (between, next) = after.split_at(after.find(is_part_of_token).unwrap_or(after.len()));
        shown.push_str(between);
        rest = next;
    }
    shown
}

/// The line with the host alone of each URL, and without its user.
pub fn without_paths_of_urls(line: &str) -> String {
    let shown = |word: &str| match word.split_once("://") {
        Some((scheme, rest)) => {
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
            format!("{scheme}://{host}{}", if path.len() > 1 { "/…" } else { path })
        }
        None => word.to_owned(),
    };
    line.split(' ').map(shown).collect::<Vec<_>>().join(" ")
}

/// The text without each of the `secrets` and the parts of them.
pub fn without_own<'a>(text: &str, secrets: impl Iterator<Item = &'a str>) -> String {
    let mut known: Vec<&str> = secrets.flat_map(with_parts).collect();
    // A part may be the beginning of a longer one.
    known.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    known.into_iter().fold(text.to_owned(), |text, secret| text.replace(secret, "…"))
}

/// The secret, of a URL also all that follows the host, its last segment, and what looks like no word in it: a proxy may
/// show them alone.
fn with_parts(secret: &str) -> Vec<&str> {
    let mut parts = vec![secret];
    let mut after_host = secret;
    if let Some((_, rest)) = secret.split_once("://") {
        after_host = rest.find('/').map_or("", |at| &rest[at..]);
        let path = after_host.split(['?', '#']).next().unwrap_or_default();
        parts.extend([after_host, path].into_iter().filter(|path| path.len() >= MIN_PART));
        parts.extend(
            path.rsplit('/').find(|part| !part.is_empty()).filter(|part| part.len() >= MIN_PART),
        );
    }
    let is_no_word = |part: &&str| {
        part.len() >= MIN_PART
            && part.bytes().any(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase())
    };
    parts.extend(after_host.split(['/', '?', '&', '=', ':', '#']).filter(is_no_word));
    parts.retain(|part| part.len() >= MIN_SECRET);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_answer_stays_and_a_token_in_it_does_not() {
        let ordinary = r#"{"id":"bUhbhgmmbeW0","at":"2026-01-01T10:00:00Z","request":"647d2300-702c-4b38-8b2f-d56326ae460b","link":"https://ntfy.sh/docs/publish/#limitations"}"#;
        assert_eq!(without_tokens(ordinary), ordinary);
        let echo = r#"{"path":"/bot123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw_/sendMessage"}"#;
        assert_eq!(without_tokens(echo), r#"{"path":"/bot123456789:…/sendMessage"}"#);
        for text in ["", "é", "No space left on /mnt/backup/daily"] {
            assert_eq!(without_tokens(text), text);
        }
    }

    #[test]
    fn of_a_url_the_host_stays() {
        for (line, shown) in [
            ("GET https://a.example/ping/abc?x failed", "GET https://a.example/… failed"),
            ("postgres://me:pass@db:5432/x is down", "postgres://db:5432/… is down"),
            ("https://a.example/ /mnt/a/b", "https://a.example/ /mnt/a/b"),
        ] {
            assert_eq!(without_paths_of_urls(line), shown);
        }
    }

    #[test]
    fn own_secrets_go_whole_and_in_parts() {
        let own = |text: &str, secret: &str| without_own(text, std::iter::once(secret));
        let slack = "https://hooks.slack.com/services/T0/B0/XXXXXXXXXXXXXXXXXXXXXXXX";
        for (text, secret, shown) in [
            ("no AWSF2n2Tb.4hXyz here", "AWSF2n2Tb.4hXyz", "no … here"),
            ("at https://hooks.slack.com/services/T0/B0/XXXXXXXXXXXXXXXXXXXXXXXX", slack, "at …"),
            ("at /services/T0/B0/XXXXXXXXXXXXXXXXXXXXXXXX", slack, "at …"),
            ("at \\/XXXXXXXXXXXXXXXXXXXXXXXX, services", slack, "at \\/…, services"),
            ("bot 12:AAHdqTcv", "12:AAHdqTcv", "bot …"),
            ("bot 12%3AAAHdqTcv", "12:AAHdqTcv", "bot 12%3A…"),
            ("a hook", "https://a.example/hooks/lowercaseword", "a hook"),
            ("lowercaseword", "https://a.example/hooks/lowercaseword", "…"),
            ("sig s3cretSIG", "https://a.example/invoke?v=1&sig=s3cretSIG", "sig …"),
            ("abc", "abc", "abc"),
            ("https://a.example", "https://a.example/", "https://a.example"),
        ] {
            assert_eq!(own(text, secret), shown);
        }
    }
}
