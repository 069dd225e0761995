//! Reads a request body into memory, within the limit of the route and the memory budget of the server.

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes};

use crate::domain::api_error::ErrorCode;
use crate::error::{Error, Result};
use crate::http::limits::budget::Reservation;

/// A body that arrives in pieces grows by a quarter of what it holds, at least by this much. A buffer that doubled would
/// hold twice what has arrived; with a quarter, a body of 2 MB is moved 25 times.
const MIN_GROWTH: usize = 4 << 10;

/// A complete body. Dropping it returns its bytes to the budget.
#[derive(Debug, Default)]
pub struct BufferedBody {
    pub bytes: Bytes,
    _reservation: Option<Reservation>,
}

/// Reads a body to its end. It holds of the budget what has arrived of it.
/// Errors: 413 if the declared length is above `limit` (before any byte is read, so that `Expect: 100-continue` gets
/// no 100), or as soon as more than `limit` bytes have arrived. 503 if the budget has no room for what arrives.
pub async fn read<B>(mut body: B, limit: usize, mut reservation: Reservation) -> Result<BufferedBody>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large(limit));
    }
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Error::refused(
                ErrorCode::BadRequest,
                format!("The body is incomplete ({error}); send the request again"),
            )
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > limit {
            return Err(too_large(limit));
        }
        reservation.grow_to(bytes.len() + data.len())?;
        if bytes.is_empty() && body.is_end_stream() {
            return Ok(BufferedBody { bytes: data, _reservation: Some(reservation) });
        }
        if bytes.capacity() - bytes.len() < data.len() {
            bytes.reserve_exact(data.len().max(bytes.len() / 4).max(MIN_GROWTH));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(BufferedBody { bytes: bytes.into(), _reservation: Some(reservation) })
}

fn too_large(limit: usize) -> Error {
    Error::refused(ErrorCode::PayloadTooLarge, format!("The body is too large; send at most {limit} bytes"))
}
