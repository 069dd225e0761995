//! The body of a response, and what it holds until it is written.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Buf, Bytes, Frame, SizeHint};

use crate::http::limits::activity::RequestGuard;
use crate::http::limits::budget::Reservation;
use crate::http::response::BodyStream;

/// Bytes of a response that hyper gets at a time. It takes the next ones only when it has written most of these, so that
/// the client must read for the response to progress.
pub const RESPONSE_PART: usize = 16 << 10;

/// A response body, which hyper takes in parts.
pub struct ResponseBody {
    rest: Bytes,
    /// In place of `rest`.
    stream: Option<BodyStream>,
    hold: Arc<Hold>,
}

/// A part of a body. HTTP/2 keeps parts until the peer's window permits them: each counts as long as it is kept.
pub struct ResponsePart {
    bytes: Bytes,
    hold: Arc<Hold>,
}

/// Dropped when the last part is written: the request then no longer runs, and its memory is free.
struct Hold {
    guard: RequestGuard,
    _memory: [Option<Reservation>; 2],
}

impl ResponseBody {
    /// `memory` is what the request and the response hold of the budget.
    pub fn new(
        rest: Bytes,
        stream: Option<BodyStream>,
        guard: RequestGuard,
        memory: [Option<Reservation>; 2],
    ) -> Self {
        Self { rest, stream, hold: Arc::new(Hold { guard, _memory: memory }) }
    }

    fn next_part(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(stream) = &mut self.stream else {
            let length = self.rest.len().min(RESPONSE_PART);
            return Poll::Ready((length > 0).then(|| self.rest.split_to(length)));
        };
        // HTTP/2 asks only while the window of the peer permits a part.
        self.hold.guard.reply_moves();
        let part = ready!(stream.poll_part(context));
        if part.is_none() {
            // A future that has ended must not be polled again.
            self.stream = None;
        }
        Poll::Ready(part)
    }
}

impl Body for ResponseBody {
    type Data = ResponsePart;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<ResponsePart>, Infallible>>> {
        let Some(bytes) = ready!(self.next_part(context)) else { return Poll::Ready(None) };
        self.hold.guard.reply_moves();
        Poll::Ready(Some(Ok(Frame::data(ResponsePart { bytes, hold: Arc::clone(&self.hold) }))))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_none() && self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.stream {
            None => SizeHint::with_exact(self.rest.len() as u64),
            Some(_) => SizeHint::new(),
        }
    }
}

impl Drop for ResponsePart {
    fn drop(&mut self) {
        self.hold.guard.reply_moves();
    }
}

impl Buf for ResponsePart {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}
