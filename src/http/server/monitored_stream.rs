//! A socket that records the activity of its connection.
//!
//! It also replaces the bare error response of hyper to an unreadable head by one in the format of this API.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::http::server::connection_state::ConnectionState;

/// Renders the response that replaces an error response of hyper with the given status.
pub type ErrorRenderer = Box<dyn Fn(u16) -> Vec<u8> + Send>;

/// A socket that records its activity in a [`ConnectionState`].
pub struct MonitoredStream {
    /// `Some` until this is dropped.
    stream: Option<TcpStream>,
    state: ConnectionState,
    /// The connection has its memory.
    is_admitted: bool,
    render_error: ErrorRenderer,
    /// The unwritten rest of an error response.
    outbox: Vec<u8>,
}

impl MonitoredStream {
    pub fn new(stream: TcpStream, state: ConnectionState, render_error: ErrorRenderer) -> Self {
        Self { stream: Some(stream), state, is_admitted: false, render_error, outbox: Vec::new() }
    }

    fn stream(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        self.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Returns the status of an error response of hyper.
    ///
    /// Bytes that hyper writes while no request is open are its response to an invalid head: a status line and two
    /// headers, always in one write, and always the last bytes of the connection.
    fn hyper_error_status(&self, bytes: &[u8]) -> Option<u16> {
        if !self.state.writes_of_hyper() {
            return None;
        }
        let status =
            bytes.strip_prefix(b"HTTP/1.1 ").or_else(|| bytes.strip_prefix(b"HTTP/1.0 "))?.get(..3)?;
        std::str::from_utf8(status).ok()?.parse().ok()
    }

    fn poll_outbox(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outbox.is_empty() {
            let bytes = std::mem::take(&mut self.outbox);
            let written = self.stream()?.poll_write(context, &bytes);
            self.state.record_write(&written);
            self.outbox = bytes;
            let written = ready!(written)?;
            self.outbox.drain(..written);
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for MonitoredStream {
    fn drop(&mut self) {
        let stream = self.stream.take();
        self.state.release(stream);
    }
}

impl AsyncRead for MonitoredStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.is_admitted {
            ready!(self.stream()?.poll_read_ready(context))?;
            self.is_admitted = self.state.admit();
            if !self.is_admitted {
                return Poll::Pending;
            }
        }
        if self.state.lacks_memory() {
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        ready!(self.stream()?.poll_read(context, buffer))?;
        let bytes = &buffer.filled()[before..];
        if self.state.record_read(bytes) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

impl AsyncWrite for MonitoredStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(status) = self.hyper_error_status(bytes) {
            self.outbox = (self.render_error)(status);
            self.state.ends_with_error();
            return Poll::Ready(Ok(bytes.len()));
        }
        ready!(self.poll_outbox(context))?;
        let written = self.stream()?.poll_write(context, bytes);
        self.state.record_write(&written);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_outbox(context))?;
        // hyper flushes the socket only when its own buffer is empty: all responses passed to it are written.
        self.state.record_flush();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_outbox(context))?;
        self.stream()?.poll_shutdown(context)
    }
}
