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

use crate::domain::execution::attempt::FailureCause;
use crate::domain::webhook::address_policy::{AddressClass, AddressPolicy, classify, literal};
use crate::system::locks::Mutex;

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
const NO_ADDRESS: &str = "it has no address";

/// Resolves names, caches the results and checks every address on every call. Clones share the cache.
#[derive(Clone)]
pub struct AddressGuard {
    inner: Arc<dyn Resolver>,
    policy: AddressPolicy,
    monotonic: Monotonic,
    cache: Arc<Mutex<HashMap<String, CachedLookup>>>,
}

/// The message and the cause are shown to users. Of a name they never say its addresses, and whether it exists only
/// where callbacks may reach private addresses: both are facts of the operator's network.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct ResolveError {
    pub cause: FailureCause,
    message: String,
    /// More for the operator's log, without the host, which is a part of the callback URL.
    pub detail: String,
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
            ureq::Error::Io(error) => self.unknown(host, error.to_string()),
            ureq::Error::HostNotFound => self.unknown(host, NO_ADDRESS.to_owned()),
            other => other,
        })?;
        let addresses: Vec<IpAddr> = found.iter().map(SocketAddr::ip).collect();
        // A name that is not called is resolved each time, as one that does not exist: the time tells nothing.
        if addresses.iter().any(|address| self.policy.allows(*address)) {
            self.insert(name, addresses.clone());
        }
        Ok(addresses)
    }

    fn find_cached(&self, name: &str) -> Option<Vec<IpAddr>> {
        let now = (self.monotonic)();
        self.cache
            .lock()
            .get(name)
            .filter(|cache| now < cache.until)
            .map(|cache| cache.addresses.clone())
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

    fn blocked(&self, host: &str, address: IpAddr) -> ureq::Error {
        let class = classify(address);
        let detail = format!("resolved to {address} ({class})");
        let message = if literal(host).is_some() {
            // The user wrote this address.
            format!("{address} is {}", self.policy.refusal(class))
        } else if self.policy.shows_names() {
            format!(
                "callbacks may not reach the addresses of the host {host} (`cued serve --allow-callbacks-to`)"
            )
        } else {
            return self.unknown(host, detail);
        };
        refused(FailureCause::BlockedAddress, message, detail)
    }

    fn unknown(&self, host: &str, detail: String) -> ureq::Error {
        let mut message = format!("the host {host} was not found");
        if !self.policy.shows_names() {
            let remedy = self.policy.remedy(AddressClass::Private);
            message.push_str(&format!(
                ", or callbacks may not reach its addresses (for private ones: {remedy})"
            ));
        }
        refused(FailureCause::UnknownName, message, detail)
    }
}

fn refused(cause: FailureCause, message: String, detail: String) -> ureq::Error {
    ureq::Error::Other(Box::new(ResolveError { cause, message, detail }))
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
            Some(first) if allowed.is_empty() => Err(self.blocked(host, *first)),
            None => Err(self.unknown(host, NO_ADDRESS.to_owned())),
            Some(_) => Ok(allowed),
        }
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

impl fmt::Debug for AddressGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AddressGuard")
    }
}
