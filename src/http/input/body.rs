//! Reads a request body into memory, within the limit of the route and the memory budget of the server.

use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::error::{Error, Result};

/// Bytes of all bodies in memory. Without a budget, 4,096 connections with 2 MB each would need 8 GB.
pub const BUDGET: usize = 64 << 20;

/// A complete body. Dropping it returns its bytes to the budget.
#[derive(Debug, Default)]
pub struct BufferedBody {
    pub bytes: Bytes,
    _permit: Option<OwnedSemaphorePermit>,
}

/// Reads a body to its end.
///
/// # Errors
/// 413 if the declared length is above `limit` (before any byte is read, so that `Expect: 100-continue` gets no 100),
/// or as soon as more than `limit` bytes have arrived. 503 if the budget is used up.
pub async fn read<B>(mut body: B, limit: usize, budget: &Arc<Semaphore>) -> Result<BufferedBody>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large(limit));
    }
    let mut permit = None;
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
        reserve(&mut permit, data.len(), budget)?;
        if bytes.is_empty() && body.is_end_stream() {
            return Ok(BufferedBody { bytes: data, _permit: permit });
        }
        bytes.extend_from_slice(&data);
    }
    Ok(BufferedBody { bytes: bytes.into(), _permit: permit })
}

/// Takes bytes from the budget. Never waits: partly read bodies that wait for more budget would block each other.
fn reserve(permit: &mut Option<OwnedSemaphorePermit>, bytes: usize, budget: &Arc<Semaphore>) -> Result<()> {
    let count = u32::try_from(bytes).unwrap_or(u32::MAX);
    match (Arc::clone(budget).try_acquire_many_owned(count), permit.as_mut()) {
        (Ok(more), Some(held)) => held.merge(more),
        (Ok(first), None) => *permit = Some(first),
        (Err(TryAcquireError::NoPermits | TryAcquireError::Closed), _) => return Err(busy()),
    }
    Ok(())
}

fn too_large(limit: usize) -> Error {
    Error::refused(ErrorCode::PayloadTooLarge, format!("The body is too large; send at most {limit} bytes"))
}

fn busy() -> Error {
    let message = "The server is receiving too many large requests; try again in 1 s";
    Error::Refused(Refusal { retry_after: Some(1), ..Refusal::new(ErrorCode::ServerBusy, message) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;

    fn code(result: Result<BufferedBody>) -> ErrorCode {
        match result {
            Err(Error::Refused(refusal)) => refusal.code,
            other => panic!("expected a refusal, got {other:?}"),
        }
    }

    #[tokio::test]
    async fn a_body_at_the_limit_is_read_and_a_larger_one_is_refused() {
        let budget = Arc::new(Semaphore::new(100));
        let body = read(Full::from("12345"), 5, &budget).await.unwrap();
        assert_eq!(&body.bytes[..], b"12345");
        assert_eq!(code(read(Full::from("123456"), 5, &budget).await), ErrorCode::PayloadTooLarge);
    }

    #[tokio::test]
    async fn the_budget_is_shared_and_returned() {
        let budget = Arc::new(Semaphore::new(10));
        let held = read(Full::from("1234567"), 50, &budget).await.unwrap();
        assert_eq!(budget.available_permits(), 3);
        assert_eq!(code(read(Full::from("1234"), 50, &budget).await), ErrorCode::ServerBusy);
        drop(held);
        assert_eq!(budget.available_permits(), 10);
        assert!(read(Full::from("1234"), 50, &budget).await.is_ok());
    }
}
