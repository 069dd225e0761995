//! HTTP itself: heads, bodies, connections, timeouts.

pub mod http1;
mod http2;
mod shares;
mod test_routes;
