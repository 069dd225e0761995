//! The address guard: the resolver of the webhook client. It returns only addresses that callbacks may reach
//! (contract §6.6).
//!
//! The connector uses only the returned addresses, so the address that was checked is the address of the connection.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use crate::domain::webhook::address_policy::{AddressPolicy, classify, literal};
use crate::locks::Mutex;

/// Reads the monotonic clock: the time since a fixed moment.
pub type Monotonic = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Lifetime of a cached lookup. Without a cache every delivery starts a thread, because the HTTP library resolves on
/// one. 20 s is long enough for the deliveries of one busy minute to share a few lookups, and short enough to follow a
/// changed DNS record before the first retry, a minute later by default.
pub const CACHE_TIME: Duration = Duration::from_secs(20);
/// Maximum cached names, at about 100 bytes each.
pub const MAX_CACHED: usize = 1024;
/// Maximum addresses of a name that are tried: the capacity of the library's result type.
const MAX_TRIED: usize = 16;

/// Resolves names, caches the results and checks every address on every call. Clones share the cache.
#[derive(Clone)]
pub struct AddressGuard {
    inner: Arc<dyn Resolver>,
    policy: AddressPolicy,
    monotonic: Monotonic,
    cache: Arc<Mutex<HashMap<String, CachedLookup>>>,
}

/// The text is shown to users. Of a name it says neither its addresses nor whether it exists: both could be facts of
/// the operator's network. [`ResolveError::detail`] has them for the log.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ResolveError {
    #[error("{}", describe_blocked(host, *address))]
    Blocked { host: String, address: IpAddr },
    #[error("{}", describe_unreachable(name))]
    Unknown {
        name: String,
        /// The message of the operating system.
        why: String,
    },
}

struct CachedLookup {
    until: Duration,
    addresses: Vec<IpAddr>,
}

impl AddressGuard {
    /// A guard in front of `inner`, which resolves names only; address literals need no resolver.
    pub fn new(inner: impl Resolver, policy: AddressPolicy, monotonic: Monotonic) -> Self {
        Self { inner: Arc::new(inner), policy, monotonic, cache: Arc::default() }
    }

    fn addresses(
        &self,
        host: &str,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<Vec<IpAddr>, ureq::Error> {
        if let Some(address) = literal(host) {
            return Ok(vec![address]);
        }
        let name = plain(host);
        if let Some(addresses) = self.find_cached(&name) {
            return Ok(addresses);
        }
        let found = self.inner.resolve(uri, config, timeout).map_err(|error| match error {
            ureq::Error::Io(error) => ResolveError::unknown(host, &error),
            ureq::Error::HostNotFound => ResolveError::unknown(host, &"it has no address"),
            other => other,
        })?;
        let addresses: Vec<IpAddr> = found.iter().map(SocketAddr::ip).collect();
        self.insert(name, addresses.clone());
        Ok(addresses)
    }

    fn find_cached(&self, name: &str) -> Option<Vec<IpAddr>> {
        let now = (self.monotonic)();
        self.cache.lock().get(name).filter(|cache| now < cache.until).map(|cache| cache.addresses.clone())
    }

    fn insert(&self, name: String, addresses: Vec<IpAddr>) {
        let now = (self.monotonic)();
        let mut cache = self.cache.lock();
        if cache.len() >= MAX_CACHED {
            cache.retain(|_, entry| now < entry.until);
        }
        // If the cache is full of fresh names, this one is resolved each time: slower, but as safe.
        if cache.len() < MAX_CACHED {
            cache.insert(name, CachedLookup { until: now + CACHE_TIME, addresses });
        }
    }
}

impl Resolver for AddressGuard {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let (Some(host), Some(port)) = (uri.host(), port(uri)) else {
            return Err(ureq::Error::BadUri(uri.to_string()));
        };
        let addresses = self.addresses(host, uri, config, timeout)?;
        let exempt = self.policy.exempts(&plain(host), port, uri.path());
        let mut allowed = self.empty();
        let reachable = addresses.iter().filter(|address| exempt || self.policy.allows(**address));
        for address in reachable.take(MAX_TRIED) {
            allowed.push(SocketAddr::new(*address, port));
        }
        match addresses.first() {
            Some(first) if allowed.is_empty() => Err(ResolveError::blocked(host, *first)),
            None => Err(ResolveError::unknown(host, &"it has no address")),
            Some(_) => Ok(allowed),
        }
    }
}

impl ResolveError {
    /// The error of the resolver, for the operator. Without the host, which is a part of the callback URL.
    pub fn detail(&self) -> String {
        match self {
            Self::Blocked { address, .. } => format!("resolved to {address} ({})", classify(*address)),
            Self::Unknown { why, .. } => why.clone(),
        }
    }

    fn blocked(host: &str, address: IpAddr) -> ureq::Error {
        ureq::Error::Other(Box::new(Self::Blocked { host: host.to_owned(), address }))
    }

    fn unknown(name: &str, why: &impl ToString) -> ureq::Error {
        ureq::Error::Other(Box::new(Self::Unknown { name: name.to_owned(), why: why.to_string() }))
    }
}

fn port(uri: &Uri) -> Option<u16> {
    uri.port_u16().or(match uri.scheme_str() {
        Some("http") => Some(80),
        Some("https") => Some(443),
        _ => None,
    })
}

/// A host as the policy and the kept names know it: as a `Destination` has it.
fn plain(host: &str) -> String {
    match literal(host) {
        Some(address) => address.to_string(),
        None => host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase(),
    }
}

fn describe_blocked(host: &str, address: IpAddr) -> String {
    if literal(host).is_none() {
        return describe_unreachable(host);
    }
    // The user wrote this address.
    let class = classify(address);
    format!("{address} is a {class} address, which callbacks may not reach (see --allow-callbacks-to)")
}

fn describe_unreachable(name: &str) -> String {
    format!(
        "the host {name} was not found, or callbacks may not reach its addresses (see --allow-callbacks-to)"
    )
}

impl fmt::Debug for AddressGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AddressGuard")
    }
}
