//! The connection below the HTTP library: passes on the head of a response in the form that the library reads, and
//! tells a kept connection that the receiver has closed from other faults.

use std::io::{self, ErrorKind};

use thiserror::Error;
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, NextTimeout, Transport};

use crate::engine::webhook_client::INPUT_BUFFER;
use crate::metrics::Stopwatch;

/// The library refuses a head with more than 128 headers.
const MAX_HEADERS: usize = 100;
/// What the client or the library reads, first in a head that is cut.
const READ_HEADERS: [&str; 5] =
    ["content-length", "transfer-encoding", "connection", "retry-after", "content-encoding"];

/// A kept connection ended before a byte of the response. The receiver has most likely closed it as idle while the
/// request was on its way.
#[derive(Debug, Error)]
#[error("the connection was closed before the response was complete")]
pub struct Stale;

#[derive(Debug)]
pub struct LenientConnector;

impl Connector<Box<dyn Transport>> for LenientConnector {
    type Out = Lenient;

    fn connect(
        &self,
        _: &ConnectionDetails,
        chained: Option<Box<dyn Transport>>,
    ) -> Result<Option<Lenient>, ureq::Error> {
        Ok(chained.map(|inner| Lenient {
            inner,
            requests: 0,
            awaits_head: false,
            has_begun: false,
        }))
    }
}

#[derive(Debug)]
pub struct Lenient {
    inner: Box<dyn Transport>,
    requests: u64,
    awaits_head: bool,
    /// An interim response has come: the receiver works on the request.
    has_begun: bool,
}

impl Lenient {
    /// An error of a kept connection before the response, as [`Stale`].
    fn stale(&mut self, error: ureq::Error) -> ureq::Error {
        let is_closed = matches!(&error, ureq::Error::Io(error) if is_closed(error.kind()));
        let is_unanswered =
            self.awaits_head && !self.has_begun && self.inner.buffers().input().is_empty();
        if is_closed && is_unanswered && self.requests > 1 {
            return ureq::Error::Other(Box::new(Stale));
        }
        error
    }

    /// Returns whether the head is complete, and then rewritten. Heads of interim responses are left out.
    fn read_head(&mut self) -> Result<bool, ureq::Error> {
        let buffers = self.inner.buffers();
        while let Some(end) = head_end(buffers.input()) {
            if is_interim(buffers.input()) {
                buffers.input_consume(end);
                self.has_begun = true;
                continue;
            }
            let mut input = plain_head(&buffers.input()[..end]);
            input.extend_from_slice(&buffers.input()[end..]);
            let length = buffers.input().len();
            buffers.input_consume(length);
            let too_large = || ureq::Error::LargeResponseHeader(input.len(), INPUT_BUFFER);
            let free = buffers.input_append_buf().get_mut(..input.len()).ok_or_else(too_large)?;
            free.copy_from_slice(&input);
            buffers.input_appended(input.len());
            return Ok(true);
        }
        Ok(false)
    }
}

impl Transport for Lenient {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        if !self.awaits_head {
            self.requests += 1;
            self.has_begun = false;
        }
        self.awaits_head = true;
        self.inner.transmit_output(amount, timeout).map_err(|error| self.stale(error))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        let started = Stopwatch::start();
        loop {
            let left = timeout.after.saturating_sub(started.elapsed());
            let more = match self.inner.await_input(NextTimeout { after: left.into(), ..timeout }) {
                Ok(false) if self.awaits_head => {
                    let end = io::Error::from(ErrorKind::UnexpectedEof);
                    return Err(self.stale(end.into()));
                }
                more => more.map_err(|error| self.stale(error))?,
            };
            if !self.awaits_head {
                return Ok(more);
            }
            let is_complete = self.read_head()?;
            let input = self.inner.buffers().input();
            // What is no head, or too long for one, is left to the library.
            if is_complete || !may_be_head(input) || input.len() >= INPUT_BUFFER {
                self.awaits_head = false;
                return Ok(more);
            }
        }
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }

    fn is_tls(&self) -> bool {
        self.inner.is_tls()
    }
}

fn is_closed(kind: ErrorKind) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(kind, UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}

fn may_be_head(input: &[u8]) -> bool {
    let start = b"HTTP/";
    start.starts_with(&input[..input.len().min(start.len())])
}

/// The end of the empty line after the headers.
fn head_end(input: &[u8]) -> Option<usize> {
    let after = |end: &[u8]| {
        input.windows(end.len()).position(|bytes| bytes == end).map(|at| at + end.len())
    };
    after(b"\n\r\n").into_iter().chain(after(b"\n\n")).min()
}

/// 101 is final: no other protocol was asked for.
fn is_interim(head: &[u8]) -> bool {
    head.get(8..12).is_some_and(|status| status.starts_with(b" 1") && status != b" 101")
}

/// A head without what RFC 9112 asks a client to bear with: a header over several lines becomes one line (§5.2), and
/// blanks before the colon are removed (§5.1). Of too many headers only the first are kept, and those that are read.
fn plain_head(head: &[u8]) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for line in head.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let is_folded = lines.len() > 1 && matches!(line.first(), Some(b' ' | b'\t'));
        match lines.last_mut().filter(|_| is_folded) {
            Some(last) => last.extend([b" ".as_slice(), line.trim_ascii_start()].concat()),
            None => lines.push(line.to_vec()),
        }
    }
    lines.retain(|line| !line.is_empty());
    let first = lines.len().min(1);
    let (status, headers) = lines.split_at_mut(first);
    for line in headers.iter_mut() {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or_default();
        let name = line[..colon].trim_ascii_end().len();
        line.drain(name..colon);
    }
    if headers.len() > MAX_HEADERS {
        headers.sort_by_key(|line| !is_read(line));
    }
    // A head must not grow: it can fill the buffer.
    let end: &[u8] = if head.ends_with(b"\r\n\r\n") { b"\r\n" } else { b"\n" };
    let kept = status.iter().chain(headers.iter().take(MAX_HEADERS));
    let mut plain = kept.fold(Vec::with_capacity(head.len()), |mut plain, line| {
        plain.extend_from_slice(line);
        plain.extend_from_slice(end);
        plain
    });
    plain.extend_from_slice(end);
    plain
}

fn is_read(line: &[u8]) -> bool {
    let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
    READ_HEADERS.iter().any(|read| name.eq_ignore_ascii_case(read.as_bytes()))
}
