//! The SMTP server of `--smtp-url` and `--mail-from`, and the delivery of one mail to it.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use lettre::Transport as _;
use lettre::message::header::{ContentTransferEncoding, ContentType, HeaderName, HeaderValue};
use lettre::message::{Body, Mailbox, Message};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::transport::smtp::{Error, SmtpTransport};
use percent_encoding::percent_decode_str;
use thiserror::Error;
use url::{Host, ParseError, Url};

use crate::domain::secret::Secret;
use crate::domain::text::is_order_mark;
use crate::mail::Mail;

/// Timeout of the connection, and of each response of the server.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Response codes that reject the login, independent of the mail (RFC 4954).
const LOGIN_REJECTED: [u16; 4] = [530, 534, 535, 538];

/// Texts of the mail library's errors that are about the server, not about the mail: no TLS, no known login.
const SERVER_LACKS: [&str; 2] = ["STARTTLS", "authentication mechanism"];

/// An SMTP server and the sender's address.
#[derive(Debug, Clone)]
pub struct Smtp {
    /// With the user and the password.
    transport: Secret<SmtpTransport>,
    from: Mailbox,
    tls: Option<&'static str>,
}

/// A mail was not sent.
///
/// The text contains nothing of the mail, so that it can be logged. For the same reason there is no `source()`: the
/// response of a server may repeat what was sent to it, login links included.
#[derive(Debug, Error)]
#[error("{reason}")]
pub struct SmtpError {
    pub is_transient: bool,
    reason: String,
}

impl SmtpError {
    pub fn permanent(reason: &str) -> Self {
        Self { is_transient: false, reason: reason.to_owned() }
    }
}

/// A value of `--smtp-url` or `--mail-from` is invalid. The text never repeats the URL, which holds a password.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum SmtpConfigError {
    #[error(
        "{0:?} is not a sender address: write it as cued@example.com or Name <cued@example.com>"
    )]
    Sender(String),
    #[error(
        "--smtp-url: {0}; write it as smtps://user:password@host:port, with user and password percent-encoded"
    )]
    Url(&'static str),
}

impl Smtp {
    /// A server at `smtp[s]://user:password@host:port` and the sender's address. Only the host is required; user and
    /// password are percent-encoded.
    ///
    /// `smtps` uses TLS from the start (port 465). `smtp` (port 587) requires STARTTLS, except for a server on this
    /// machine, and with `?tls=none` and no password.
    pub fn new(url: &str, from: &str) -> Result<Self, SmtpConfigError> {
        Self::with_authority(url, from, None)
    }

    /// As [`Smtp::new`]. For tests, a certificate authority in PEM is trusted as well, and a server on this machine
    /// needs TLS, too.
    pub fn with_authority(
        url: &str,
        from: &str,
        pem: Option<&[u8]>,
    ) -> Result<Self, SmtpConfigError> {
        let from = from.parse::<Mailbox>().map_err(|_| SmtpConfigError::Sender(from.to_owned()))?;
        let server = SmtpServer::parse(url).map_err(SmtpConfigError::Url)?;
        let mut tls = TlsParameters::builder(server.host.clone());
        if let Some(pem) = pem {
            let certificate = Certificate::from_pem(pem)
                .map_err(|_| SmtpConfigError::Url("the certificate authority cannot be read"))?;
            tls = tls.add_root_certificate(certificate);
        }
        let tls = tls
            .build()
            .map_err(|_| SmtpConfigError::Url("TLS cannot verify a host of this form"))?;
        let is_trusted = pem.is_none() && server.is_on_this_machine();
        let (tls, name) = match server {
            SmtpServer { implicit_tls: true, .. } => (Tls::Wrapper(tls), Some("implicit")),
            _ if is_trusted => (Tls::None, None),
            SmtpServer { refuses_tls: true, login: Some(_), .. } => {
                return Err(SmtpConfigError::Url(
                    "`?tls=none` would send the password unencrypted: remove it",
                ));
            }
            SmtpServer { refuses_tls: true, .. } => (Tls::None, Some("none")),
            _ => (Tls::Required(tls), Some("starttls")),
        };
        let mut transport = SmtpTransport::builder_dangerous(server.host)
            .port(server.port)
            .tls(tls)
            .timeout(Some(TIMEOUT));
        if let Some((user, password)) = server.login {
            transport = transport.credentials(Credentials::new(user, password.into_exposed()));
        }
        Ok(Self { transport: transport.build().into(), from, tls: name })
    }

    /// The use of TLS, for the log: `implicit`, `starttls` or `none`. `None` for a server on this machine.
    pub fn tls(&self) -> Option<&'static str> {
        self.tls
    }

    pub fn send(&self, mail: &Mail) -> Result<(), SmtpError> {
        let message = self.message(mail)?;
        self.transport.expose().send(&message).map_err(SmtpError::from)?;
        Ok(())
    }

    fn message(&self, mail: &Mail) -> Result<Message, SmtpError> {
        let to =
            mail.to.expose().parse().map_err(|_| {
                SmtpError::permanent("the recipient's address is not valid in mail")
            })?;
        // Keeps out-of-office replies away (RFC 3834).
        let automatic = HeaderName::new_from_ascii_str("Auto-Submitted");
        Message::builder()
            .from(self.from.clone())
            .to(Mailbox::new(None, to))
            // The header cannot express an earlier time.
            .date(mail.at.max(Timestamp::UNIX_EPOCH).into())
            .message_id(None)
            .raw_header(subject(mail.subject.expose()))
            .raw_header(HeaderValue::new(automatic, "auto-generated".to_owned()))
            .header(ContentType::TEXT_PLAIN)
            .body(body(&without_order_marks(mail.text.expose())))
            .map_err(|_| SmtpError::permanent("the mail cannot be encoded"))
    }
}

impl From<Error> for SmtpError {
    fn from(error: Error) -> Self {
        // The text of a response may repeat the mail; the code is enough.
        let reason = match error.status() {
            Some(code) => format!("the mail server returned {code}"),
            None if error.is_response() => {
                "the mail server's response is not valid SMTP".to_owned()
            }
            None => error.to_string(),
        };
        // Transient, because the operator corrects the password or the server, and the mail is still good.
        let is_login = error.status().is_some_and(|code| LOGIN_REJECTED.contains(&u16::from(code)));
        let is_server = error.is_client() && SERVER_LACKS.iter().any(|lack| reason.contains(lack));
        Self {
            is_transient: is_login || is_server || (!error.is_permanent() && !error.is_client()),
            reason,
        }
    }
}

fn without_order_marks(text: &str) -> String {
    text.chars().filter(|char| !is_order_mark(*char)).collect()
}

/// A subject that resembles an encoded word (RFC 2047) is encoded, or a mail program would show something else.
fn subject(text: &str) -> HeaderValue {
    let (name, text) = (HeaderName::new_from_ascii_str("Subject"), without_order_marks(text));
    if !text.contains("=?") {
        return HeaderValue::new(name, text);
    }
    let chars: Vec<char> = text.chars().collect();
    // An encoded word has 75 characters at most: ten of four bytes fit.
    let word =
        |part: &[char]| format!("=?utf-8?b?{}?=", STANDARD.encode(part.iter().collect::<String>()));
    let encoded = chars.chunks(10).map(word).collect::<Vec<_>>().join("\r\n ");
    HeaderValue::dangerous_new_pre_encoded(name, text, encoded)
}

/// Plain text is sent without an encoding, so that a long link stays on one line where the mail is read undecoded.
fn body(text: &str) -> Body {
    // The maximum line length of RFC 5322.
    let fits = |line: &str| line.len() <= 998;
    if text.is_ascii() && !text.contains(['\0', '\r']) && text.lines().all(fits) {
        let lines = text.replace('\n', "\r\n").into_bytes();
        return Body::dangerous_pre_encoded(lines, ContentTransferEncoding::SevenBit);
    }
    Body::new(text.to_owned())
}

#[derive(PartialEq, Eq)]
struct SmtpServer {
    implicit_tls: bool,
    /// `?tls=none`.
    refuses_tls: bool,
    host: String,
    port: u16,
    login: Option<(String, Secret)>,
}

impl SmtpServer {
    fn parse(url: &str) -> Result<Self, &'static str> {
        let url = Url::parse(url).map_err(|error| match error {
            ParseError::RelativeUrlWithoutBase => WRONG_SCHEME,
            ParseError::InvalidPort => "the port is not a number up to 65535",
            _ => NO_HOST,
        })?;
        let (implicit_tls, default_port) = match url.scheme() {
            "smtps" => (true, 465),
            "smtp" => (false, 587),
            _ => return Err(WRONG_SCHEME),
        };
        let host = match url.host() {
            Some(Host::Domain(name)) if !name.is_empty() => name.to_owned(),
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => address.to_string(),
            _ => return Err(NO_HOST),
        };
        let refuses_tls = match url.query() {
            None => false,
            Some("tls=none") if !implicit_tls => true,
            Some("tls=none") => return Err("`?tls=none` is for smtp://, not for smtps://"),
            Some(_) => return Err(WRONG_END),
        };
        if !matches!(url.path(), "" | "/") || url.fragment().is_some() {
            return Err(WRONG_END);
        }
        let login = match (url.username(), url.password()) {
            ("", None) => None,
            (user, password) => {
                let login =
                    password.and_then(|password| Some((decode(user)?, decode(password)?.into())));
                Some(login.ok_or("the user and password cannot be read")?)
            }
        };
        Ok(Self {
            implicit_tls,
            refuses_tls,
            host,
            port: url.port().unwrap_or(default_port),
            login,
        })
    }

    fn is_on_this_machine(&self) -> bool {
        self.host.eq_ignore_ascii_case("localhost")
            || self.host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
    }
}

const WRONG_SCHEME: &str = "the URL must begin with smtp:// or smtps://";
const WRONG_END: &str =
    "nothing may follow the host and the port but `?tls=none`, for a mail server without TLS";
const NO_HOST: &str = "the URL has no valid host";

/// Decodes a user or password. An invalid escape is an error, because it is most likely a `%` that was not encoded.
fn decode(text: &str) -> Option<String> {
    let is_escape = |rest: &str| {
        rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    let decoded = percent_decode_str(text).decode_utf8().ok().map(Cow::into_owned);
    decoded.filter(|_| text.split('%').skip(1).all(is_escape))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_parsed_with_defaults_and_escapes() {
        let login =
            |user: &str, password: &str| Some((user.to_owned(), password.to_owned().into()));
        let table = [
            ("smtp://mail.example.com", false, "mail.example.com", 587, None),
            ("smtps://mail.example.com/", true, "mail.example.com", 465, None),
            ("smtp://127.0.0.1:2525", false, "127.0.0.1", 2525, None),
            ("smtp://[::1]:25", false, "::1", 25, None),
            ("smtp://[::1]", false, "::1", 587, None),
            ("smtp://localhost:25", false, "localhost", 25, None),
            ("smtp://127.0.0.1.example.com", false, "127.0.0.1.example.com", 587, None),
            ("smtp://mail.example.com?tls=none", false, "mail.example.com", 587, None),
            ("smtp://127.0.0.1:25/?tls=none", false, "127.0.0.1", 25, None),
            ("smtps://a:b@h:1", true, "h", 1, login("a", "b")),
            ("smtps://a%40b.c:p%3A%2f%C3%A4@h", true, "h", 465, login("a@b.c", "p:/ä")),
            ("smtps://a:p@ss:w@h", true, "h", 465, login("a", "p@ss:w")),
        ];
        for (url, implicit_tls, host, port, login) in table {
            let refuses_tls = url.ends_with("?tls=none");
            let expected =
                SmtpServer { implicit_tls, refuses_tls, host: host.to_owned(), port, login };
            let is_local = ["127.0.0.1", "::1", "localhost"].contains(&host);
            assert!(expected.is_on_this_machine() == is_local, "{url}");
            assert!(SmtpServer::parse(url) == Ok(expected), "{url}");
        }
    }

    #[test]
    fn an_error_about_a_url_does_not_repeat_it() {
        let invalid = [
            "",
            "http://hunter2@mail.example.com",
            "smtp://",
            "smtp://a:hunter2@",
            "smtp://hunter2@mail.example.com",
            "smtp://a:hunter2%zz@mail.example.com",
            "smtp://a:hunter2%ff@mail.example.com",
            "smtp://a:hunter2@mail.example.com:99999",
            "smtp://a:hunter2@mail.example.com/path",
            "smtp://a:hunter2@mail.example.com?query",
            "smtp://mail.example.com?tls=hunter2",
            "smtp://mail.example.com?tls=none&hunter2",
            "smtps://hunter2.example.com?tls=none",
            "smtp://a:hunter2@mail.example.com?tls=none",
            "smtp://a:hunter2@mail example.com",
        ];
        for url in invalid {
            let error = Smtp::new(url, "cued@example.com").unwrap_err();
            let error = error.to_string();
            assert!(error.contains("--smtp-url") && !error.contains("hunter2"), "{error}");
        }
        assert!(Smtp::new("smtp://h", "nobody").is_err());
        assert!(
            !format!("{:?}", Smtp::new("smtp://a:hunter2@h", "a@b.c").unwrap()).contains("hunter2")
        );
    }
}
