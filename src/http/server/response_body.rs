//! The body of a response, and what it holds until it is written.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::{Body, Buf, Bytes, Frame, SizeHint};

use crate::http::limits::buffer_budget::BufferReservation;
use crate::http::server::connection_state::RequestGuard;

/// Bytes of a response that hyper gets at a time. It takes the next ones only when it has written most of these, so that
/// the client must read for the response to progress.
pub const RESPONSE_PART: usize = 16 << 10;

/// A response body, which hyper takes in parts.
pub struct ResponseBody {
    rest: Bytes,
    hold: Arc<Hold>,
}

/// A part of a body. HTTP/2 keeps parts until the peer's window permits them: each counts as long as it is kept.
pub struct ResponsePart {
    bytes: Bytes,
    _hold: Arc<Hold>,
}

/// Dropped when the last part is written: the request then no longer runs, and its memory is free.
struct Hold {
    guard: RequestGuard,
    _memory: [Option<BufferReservation>; 2],
}

impl ResponseBody {
    /// `memory` is what the request and the response hold of the budget.
    pub fn new(bytes: Bytes, guard: RequestGuard, memory: [Option<BufferReservation>; 2]) -> Self {
        Self { rest: bytes, hold: Arc::new(Hold { guard, _memory: memory }) }
    }
}

impl Body for ResponseBody {
    type Data = ResponsePart;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<ResponsePart>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.rest.len().min(RESPONSE_PART);
        let bytes = self.rest.split_to(length);
        self.hold.guard.part_taken();
        Poll::Ready(Some(Ok(Frame::data(ResponsePart { bytes, _hold: Arc::clone(&self.hold) }))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
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
