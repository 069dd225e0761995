//! The reasons why an attempt got no response, worded for the user who asks why a cue did not run (contract §6.4).

use std::io::{self, ErrorKind};
use std::time::Duration;

use thiserror::Error as ThisError;
use ureq::Error;

use crate::domain::execution::attempt::FailureCause;
use crate::engine::webhook_client::address_guard::ResolveError;

/// An attempt got no complete response.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum DeliveryError {
    #[error("{}", describe_timeout(*within, *status))]
    Timeout {
        within: Duration,
        /// The status, if the response had begun.
        status: Option<u16>,
    },
    /// The host has no address that callbacks may reach. Nothing was sent.
    #[error("{0}")]
    NoAddress(ResolveError),
    /// No connection, a broken one, or a response that is not HTTP.
    #[error("{0}")]
    Connection(String),
    /// No trusted TLS connection.
    #[error("{0}")]
    Tls(String),
    /// The URL or a header is not valid in a request. Nothing was sent.
    #[error("{0}")]
    Unsendable(String),
}

impl DeliveryError {
    pub fn cause(&self) -> FailureCause {
        match self {
            Self::Timeout { .. } => FailureCause::Timeout,
            Self::NoAddress(ResolveError::Blocked { .. }) => FailureCause::BlockedAddress,
            Self::NoAddress(ResolveError::Unknown { .. }) => FailureCause::UnknownName,
            Self::Connection(_) => FailureCause::Connection,
            Self::Tls(_) => FailureCause::Tls,
            Self::Unsendable(_) => FailureCause::Unsendable,
        }
    }

    /// More than the text says, for the operator's log only.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::NoAddress(error) => Some(error.detail()),
            _ => None,
        }
    }

    /// Converts an error of the HTTP library. `status` is set if the error occurred while the body was read.
    pub(in crate::engine) fn from_ureq(error: Error, status: Option<u16>, within: Duration) -> Self {
        match error {
            Error::Timeout(_) => Self::Timeout { within, status },
            Error::Other(other) => match other.downcast::<ResolveError>() {
                Ok(error) => Self::NoAddress(*error),
                Err(other) => Self::Connection(other.to_string()),
            },
            Error::Io(error) if error.kind() == ErrorKind::InvalidData => Self::Tls(tls(&error.to_string())),
            Error::Io(error) => Self::Connection(after(status, &connection(&error))),
            Error::Rustls(error) => Self::Tls(tls(&error.to_string())),
            Error::Tls(what) => Self::Tls(tls(what)),
            Error::Protocol(what) => {
                Self::Connection(after(status, &format!("the response is not valid HTTP ({what})")))
            }
            Error::LargeResponseHeader(..) => {
                Self::Connection("the headers of the response are too large".to_owned())
            }
            Error::Http(what) => Self::Unsendable(format!("the request is not valid: {what}")),
            Error::BadUri(what) => Self::Unsendable(format!("the request is not valid: {what}")),
            other => Self::Connection(after(status, &other.to_string())),
        }
    }
}

fn connection(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => "the connection was refused".to_owned(),
        ErrorKind::UnexpectedEof
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe => "the connection was closed before the response was complete".to_owned(),
        _ => format!("the connection failed: {error}"),
    }
}

fn tls(what: &str) -> String {
    if what.contains("UnknownIssuer") {
        return "the certificate is from an issuer that is not trusted (a certificate authority of your own is named \
                with --callback-ca)"
            .to_owned();
    }
    format!("no encrypted connection: {what}")
}

fn after(status: Option<u16>, what: &str) -> String {
    match status {
        Some(status) => format!("returned {status}, but {what}"),
        None => what.to_owned(),
    }
}

fn describe_timeout(within: Duration, status: Option<u16>) -> String {
    let seconds = within.as_secs_f64();
    match status {
        None => format!("no response within {seconds} s"),
        Some(status) => format!("returned {status}, but the body did not end within {seconds} s"),
    }
}
