//! Outgoing mail: the transport, and the queue of login mails.
//!
//! The queue is in memory, so a crash loses the login mails in it; the user then requests a new link. Mail that must
//! not be lost is stored by its sender, who calls [`MailTransport::send`] directly. The content and the recipient of a
//! mail never reach the log while an SMTP server is configured and the file is not on hold (contract §1.8).

pub mod limit;
pub mod queue;
mod smtp;

use std::io::{self, Write as _};

use jiff::Timestamp;

use crate::domain::secret::Secret;
use crate::domain::text::escaped;

pub use crate::mail::smtp::{Smtp, SmtpConfigError, SmtpError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    pub to: Secret,
    pub subject: Secret,
    pub text: Secret,
    /// One line with the link of the mail: all that is logged where there is no SMTP server.
    pub log_line: Secret,
    pub at: Timestamp,
    /// Log the mail in place of sending it, because the file is on hold.
    pub log_only: bool,
}

#[derive(Debug, Clone)]
pub enum MailTransport {
    Smtp(Box<Smtp>),
    Log {
        /// Also print to standard output, so that a developer sees the link.
        stdout: bool,
    },
}

impl MailTransport {
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Smtp(_) => "smtp",
            Self::Log { .. } => "log",
        }
    }

    /// Whether mails leave this machine.
    pub fn reaches_people(&self) -> bool {
        matches!(self, Self::Smtp(_))
    }

    /// Sends a mail and blocks the thread until the server accepts or rejects it.
    /// Errors: the server or the connection failed; [`SmtpError::is_transient`] says whether a retry may succeed.
    pub fn send(&self, mail: &Mail) -> Result<(), SmtpError> {
        match self {
            Self::Smtp(_) if mail.log_only => write_to_log(mail, "the database is on hold", false),
            Self::Smtp(smtp) => {
                smtp.send(mail)?;
                tracing::debug!("mail sent");
            }
            Self::Log { stdout } => write_to_log(mail, "no --smtp-url", *stdout),
        }
        Ok(())
    }
}

/// Logs a mail that is not sent, so that the operator can forward it.
fn write_to_log(Mail { to, log_line, .. }: &Mail, reason: &str, stdout: bool) {
    let (to, log_line) = (to.expose(), log_line.expose());
    tracing::info!(reason, %to, summary = %log_line, "mail not sent");
    if stdout {
        let mut out = io::stdout().lock();
        let line = format!("mail to {to}: {log_line}");
        if let Err(error) = writeln!(out, "{}", escaped(&line, &[])).and_then(|()| out.flush()) {
            tracing::warn!(%error, "standard output cannot be written");
        }
    }
}
