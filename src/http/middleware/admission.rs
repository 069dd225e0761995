//! The memory that a request takes before its body arrives: it counts from the end of its head (contract §11.1).

use std::mem::size_of;
use std::net::SocketAddr;

use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Request, Version};

use crate::domain::api_error::ErrorCode;
use crate::error::Error;
use crate::http::limits::buffer_budget::{BufferOwner, BufferReservation};
use crate::http::middleware::context::client_ip;
use crate::http::middleware::state::ServerState;

/// The bytes that a concurrent request of HTTP/2 takes: the state of its stream, its task, the frames of a small response. One of
/// HTTP/1.1 has no more than its connection, which counts already.
const STREAM_COST: usize = 8 << 10;
/// Bytes of parsed headers that do not count. Usual requests have less.
const FREE_HEAD: usize = 4 << 10;
/// A place for a header in a `HeaderMap`: name, value, hash, index and links.
const HEADER_COST: usize = size_of::<HeaderName>() + size_of::<HeaderValue>() + 40;
/// The most headers of a request. hyper limits them in HTTP/1.1 only.
const MAX_HEADERS: usize = 100;

/// The memory of an admitted request.
pub struct Admission {
    /// To be held until the response is written.
    pub stream: Option<BufferReservation>,
    /// To be held until the headers are dropped.
    pub head: Option<BufferReservation>,
}

/// The answer to a request that is not admitted.
pub enum Denial {
    /// HTTP/2: the stream ends without a response, and the client may repeat the request.
    Reset,
    /// A small response.
    Respond { error: Error, is_http1: bool, stream: Option<BufferReservation> },
}

/// Reserves the memory of a request for the client address.
pub fn admit<B>(
    server: &ServerState,
    peer: SocketAddr,
    request: &Request<B>,
) -> std::result::Result<Admission, Denial> {
    let (headers, is_stream) = (request.headers(), request.version() == Version::HTTP_2);
    let owner = BufferOwner::from_client(client_ip(server, peer, headers));
    let reserve = |bytes| if bytes == 0 { Ok(None) } else { server.buffers.reserve(owner, bytes).map(Some) };
    let stream = if is_stream { reserve(STREAM_COST).map_err(|_| Denial::Reset)? } else { None };
    if headers.len() > MAX_HEADERS {
        let message = format!("The request has more than {MAX_HEADERS} headers; send fewer");
        let error = Error::refused(ErrorCode::HeadersTooLarge, message);
        return Err(Denial::Respond { error, is_http1: !is_stream, stream });
    }
    match reserve(head_cost(headers)) {
        Ok(head) => Ok(Admission { stream, head }),
        Err(error) => Err(Denial::Respond { error, is_http1: !is_stream, stream }),
    }
}

fn head_cost(headers: &HeaderMap) -> usize {
    let text: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    let cost = headers.capacity() * HEADER_COST + text;
    if cost > FREE_HEAD { cost } else { 0 }
}
