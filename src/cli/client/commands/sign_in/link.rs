//! The link of a login mail, as a person pastes it.

use url::Url;

/// The values of a link that approves a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginLink {
    pub token: String,
    pub user_code: String,
}

impl LoginLink {
    /// Finds the link in a line of text, such as a line of the server's log.
    pub fn find(line: &str) -> Option<Self> {
        let start = line.find("http://").or_else(|| line.find("https://"))?;
        let link = line[start..].split(|char: char| char.is_whitespace() || char == '"').next()?;
        let url = Url::parse(link).ok()?;
        let value =
            |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
        Some(Self { token: value("token")?, user_code: value("user_code")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_is_found_in_a_line_of_the_log() {
        let link = Some(LoginLink { token: "t1".to_owned(), user_code: "AB-CD".to_owned() });
        let text = "http://127.0.0.1:8000/v1/auth/verify?token=t1&user_code=AB-CD";
        assert_eq!(LoginLink::find(text), link);
        assert_eq!(LoginLink::find(&format!("mail to me@example.com: {text} ")), link);
        assert_eq!(LoginLink::find(&format!("summary=\"{text}\" x")), link);
        for other in ["me@example.com", "http://x/auth/device?code=AB-CD", "http://", ""] {
            assert_eq!(LoginLink::find(other), None, "{other}");
        }
    }
}
