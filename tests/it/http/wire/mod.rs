//! HTTP itself: heads, bodies, connections, timeouts.

pub mod http1;
mod http2;
mod memory_shares;
mod shares;
mod test_routes;
mod timeouts;
