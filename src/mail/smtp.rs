//! The server that mail goes to: what `--smtp-url` and `--mail-from` say of it, and one delivery.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use lettre::Transport as _;
use lettre::message::header::{ContentTransferEncoding, ContentType, HeaderName, HeaderValue};
use lettre::message::{Body, Mailbox, Message};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::transport::smtp::{Error, SmtpTransport};

use crate::mail::Mail;

/// For the connection, and for each answer of the server.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Answers that refuse the login, whatever the mail.
const LOGIN_FAULTS: [u16; 4] = [530, 534, 535, 538];

/// A server for mail and the address that mails come from. Neither name nor password shows in `Debug`.
#[derive(Clone)]
pub struct Smtp {
    transport: SmtpTransport,
    from: Mailbox,
}

/// Why a mail was not sent, in words that say nothing of the mail.
#[derive(Debug)]
pub struct SmtpError {
    /// Whether another try may go better.
    pub passes: bool,
    reason: String,
}

impl SmtpError {
    /// A fault that no other try mends.
    #[must_use]
    pub fn lasting(reason: &str) -> Self {
        Self { passes: false, reason: reason.to_owned() }
    }
}

impl Smtp {
    /// The server at `smtp[s]://user:pass@host:port` (user and password percent-encoded, all but the host optional),
    /// and the address of the sender.
    ///
    /// `smtps` speaks TLS at once (port 465). `smtp` (port 587) turns to TLS when the server offers it, and insists on
    /// it before it shows a password, but to a server on this machine.
    ///
    /// # Errors
    /// What is wrong with either, without repeating the URL, which holds a password.
    pub fn new(url: &str, from: &str) -> Result<Self, String> {
        let from = from.parse::<Mailbox>().map_err(|_| {
            format!("{from:?} is no sender: write it as cued@example.com or Name <cued@example.com>")
        })?;
        let server = SmtpServer::parse(url)?;
        let tls = TlsParameters::new(server.host.clone())
            .map_err(|_| format!("{:?} is no host that TLS can check", server.host))?;
        let tls = match (server.implicit_tls, server.is_on_this_machine(), &server.login) {
            (true, ..) => Tls::Wrapper(tls),
            (false, true, _) => Tls::None,
            (false, false, Some(_)) => Tls::Required(tls),
            (false, false, None) => Tls::Opportunistic(tls),
        };
        let mut transport =
            SmtpTransport::builder_dangerous(server.host).port(server.port).tls(tls).timeout(Some(TIMEOUT));
        if let Some((user, password)) = server.login {
            transport = transport.credentials(Credentials::new(user, password));
        }
        Ok(Self { transport: transport.build(), from })
    }

    /// Sends one mail; blocks the thread until the server has taken or refused it.
    ///
    /// # Errors
    /// Says why not.
    pub fn send(&self, mail: &Mail) -> Result<(), SmtpError> {
        let message = self.message(mail)?;
        self.transport.send(&message).map_err(SmtpError::from)?;
        Ok(())
    }

    fn message(&self, mail: &Mail) -> Result<Message, SmtpError> {
        let to = mail
            .to
            .parse()
            .map_err(|_| SmtpError::lasting("the address of the reader has no form that mail knows"))?;
        // An answer by a machine, an absence note for one, is of no use here (RFC 3834).
        let automatic = HeaderName::new_from_ascii_str("Auto-Submitted");
        Message::builder()
            .from(self.from.clone())
            .to(Mailbox::new(None, to))
            // The header knows no earlier time.
            .date(mail.at.max(Timestamp::UNIX_EPOCH).into())
            .message_id(None)
            .subject(mail.subject.as_str())
            .raw_header(HeaderValue::new(automatic, "auto-generated".to_owned()))
            .header(ContentType::TEXT_PLAIN)
            .body(body(&mail.text))
            .map_err(|_| SmtpError::lasting("it could not be put into the form of a mail"))
    }
}

impl fmt::Debug for Smtp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Smtp(…)")
    }
}

impl fmt::Display for SmtpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl From<Error> for SmtpError {
    fn from(error: Error) -> Self {
        // The text of an answer may repeat what it was sent: its code says enough.
        let reason = match error.status() {
            Some(code) => format!("the mail server answered {code}"),
            None if error.is_response() => "the mail server's answer is none that SMTP knows".to_owned(),
            None => error.to_string(),
        };
        // The operator mends a password, and the mail is as good as before (RFC 4954).
        let login = error.status().is_some_and(|code| LOGIN_FAULTS.contains(&u16::from(code)));
        Self { passes: login || (!error.is_permanent() && !error.is_client()), reason }
    }
}

/// Plain text goes as it stands, so that a long link stays in one piece for whoever reads the mail undecoded.
fn body(text: &str) -> Body {
    // What RFC 5322 lets a line have.
    let fits = |line: &str| line.len() <= 998;
    if text.is_ascii() && !text.contains(['\0', '\r']) && text.lines().all(fits) {
        let lines = text.replace('\n', "\r\n").into_bytes();
        return Body::dangerous_pre_encoded(lines, ContentTransferEncoding::SevenBit);
    }
    Body::new(text.to_owned())
}

/// What a URL says of a server.
#[derive(PartialEq, Eq)]
struct SmtpServer {
    implicit_tls: bool,
    host: String,
    port: u16,
    login: Option<(String, String)>,
}

impl SmtpServer {
    fn parse(url: &str) -> Result<Self, String> {
        let form =
            "--smtp-url: write it as smtps://user:password@host:port, user and password percent-encoded";
        let wrong = |what: &str| format!("{what}; {form}");
        let (implicit_tls, rest) = match url.split_once("://") {
            Some(("smtps", rest)) => (true, rest),
            Some(("smtp", rest)) => (false, rest),
            _ => return Err(wrong("it begins with neither smtp:// nor smtps://")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (login, place) = match rest.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, rest),
        };
        let (host, port) = match place.rsplit_once(':') {
            // The colons of a bare IPv6 address stand inside its brackets.
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| wrong("its port is no number up to 65535"))?)
            }
            _ => (place, if implicit_tls { 465 } else { 587 }),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() || host.contains(['/', '?', '#', '@', '[', ']', ' ']) {
            return Err(wrong("it names no host, or more than a host and a port"));
        }
        let login = login.map(|login| {
            let (user, password) = login.split_once(':')?;
            Some((decoded(user)?, decoded(password)?))
        });
        let login = login.map(|read| read.ok_or_else(|| wrong("its user and password cannot be read")));
        Ok(Self { implicit_tls, host: host.to_owned(), port, login: login.transpose()? })
    }

    fn is_on_this_machine(&self) -> bool {
        let is_loopback = |address: IpAddr| address.is_loopback();
        self.host.eq_ignore_ascii_case("localhost") || self.host.parse().is_ok_and(is_loopback)
    }
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        bytes.push(digit()? * 16 + digit()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_parsed_with_defaults_and_escapes() {
        let login = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        let table = [
            ("smtp://mail.example.com", false, "mail.example.com", 587, None),
            ("smtps://mail.example.com/", true, "mail.example.com", 465, None),
            ("smtp://127.0.0.1:2525", false, "127.0.0.1", 2525, None),
            ("smtp://[::1]:25", false, "::1", 25, None),
            ("smtp://[::1]", false, "::1", 587, None),
            ("smtps://a:b@h:1", true, "h", 1, login("a", "b")),
            ("smtps://a%40b.c:p%3A%2f%C3%A4@h", true, "h", 465, login("a@b.c", "p:/ä")),
            ("smtps://a:p@ss:w@h", true, "h", 465, login("a", "p@ss:w")),
        ];
        for (url, implicit_tls, host, port, login) in table {
            let expected = SmtpServer { implicit_tls, host: host.to_owned(), port, login };
            assert!(SmtpServer::parse(url) == Ok(expected), "{url}");
        }
    }

    #[test]
    fn url_errors_do_not_repeat_the_url() {
        let odd = [
            "",
            "mail.example.com",
            "http://hunter2@mail.example.com",
            "smtp://",
            "smtp://a:hunter2@",
            "smtp://hunter2@mail.example.com",
            "smtp://a:hunter2%zz@mail.example.com",
            "smtp://a:hunter2%ff@mail.example.com",
            "smtp://a:hunter2@mail.example.com:99999",
            "smtp://a:hunter2@mail.example.com/path",
        ];
        for url in odd {
            let fault = Smtp::new(url, "cued@example.com").unwrap_err();
            assert!(fault.contains("--smtp-url") && !fault.contains("hunter2"), "{fault}");
        }
        assert!(Smtp::new("smtp://h", "nobody").is_err());
        assert!(!format!("{:?}", Smtp::new("smtp://a:hunter2@h", "a@b.c").unwrap()).contains("hunter2"));
    }

    #[test]
    fn a_password_is_sent_only_over_tls_or_loopback() {
        let server = |url: &str| SmtpServer::parse(url).ok().unwrap();
        assert!(server("smtp://a:b@localhost:25").is_on_this_machine());
        assert!(server("smtp://[::1]").is_on_this_machine());
        assert!(!server("smtp://mail.example.com").is_on_this_machine());
        assert!(!server("smtp://127.0.0.1.example.com").is_on_this_machine());
    }
}
