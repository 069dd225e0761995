//! The address guard: the resolver of the courier, which hands on only addresses that callbacks may reach.
//!
//! The connector uses nothing but what it returns, so the address that was checked is the one connected to.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thiserror::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use crate::domain::webhook::address_policy::AddressPolicy;
use crate::domain::webhook::ip_class::{AddressClass, classify, literal};

/// A reading of the monotonic clock: the time since some fixed moment.
pub type Monotonic = Arc<dyn Fn() -> Duration + Send + Sync>;

/// How long the addresses of a name are used again without another look-up.
pub const CACHE_TIME: Duration = Duration::from_secs(20);
/// The most names whose addresses are kept.
pub const MAX_KEPT: usize = 1024;

/// Looks names up, keeps the answers for a while, and checks every address on every call. Clones share what they keep.
#[derive(Clone)]
pub struct AddressGuard {
    inner: Arc<dyn Resolver>,
    policy: AddressPolicy,
    monotonic: Monotonic,
    kept: Arc<Mutex<HashMap<String, CachedLookup>>>,
}

/// Why the guard returned no address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ResolveError {
    /// The host leads to this address only, or to others that are blocked too.
    #[error(
        "{}, which callbacks may not reach (see --allow-callbacks-to)",
        describe_blocked(host, *address)
    )]
    Blocked {
        /// The host as it stands in the URL.
        host: String,
        /// The first of its addresses.
        address: IpAddr,
    },
    /// The name has no address now, and what the system says about it.
    #[error("the name {name} could not be looked up: {why}")]
    Unknown {
        /// The name as it stands in the URL.
        name: String,
        /// The system's words.
        why: String,
    },
}

struct CachedLookup {
    until: Duration,
    addresses: Vec<IpAddr>,
}

impl AddressGuard {
    /// A guard in front of `inner`, which is asked for names only.
    pub fn new(inner: impl Resolver, policy: AddressPolicy, monotonic: Monotonic) -> Self {
        Self { inner: Arc::new(inner), policy, monotonic, kept: Arc::default() }
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
        if let Some(addresses) = self.recall(&name) {
            return Ok(addresses);
        }
        let found = self.inner.resolve(uri, config, timeout).map_err(|error| match error {
            ureq::Error::Io(error) => ResolveError::unknown(host, &error),
            ureq::Error::HostNotFound => ResolveError::unknown(host, &"it has no address"),
            other => other,
        })?;
        let addresses: Vec<IpAddr> = found.iter().map(SocketAddr::ip).collect();
        self.keep(name, addresses.clone());
        Ok(addresses)
    }

    fn recall(&self, name: &str) -> Option<Vec<IpAddr>> {
        let now = (self.monotonic)();
        let kept = self.kept.lock();
        kept.get(name).filter(|kept| now < kept.until).map(|kept| kept.addresses.clone())
    }

    fn keep(&self, name: String, addresses: Vec<IpAddr>) {
        let now = (self.monotonic)();
        let mut kept = self.kept.lock();
        if kept.len() >= MAX_KEPT {
            kept.retain(|_, entry| now < entry.until);
        }
        // Still full of fresh names: this one is looked up each time, which is slower and no less safe.
        if kept.len() < MAX_KEPT {
            kept.insert(name, CachedLookup { until: now + CACHE_TIME, addresses });
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

/// The most addresses of a name that are tried: what the answer of a resolver can hold.
const MAX_TRIED: usize = 16;

impl ResolveError {
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
    let class = classify(address);
    if literal(host).is_some() {
        return format!("{address} is a {class} address");
    }
    match class {
        // The name of the class would read as the reason for the refusal.
        AddressClass::Public => format!("the name {host} resolves to {address}"),
        _ => format!("the name {host} resolves to {address} ({class})"),
    }
}

impl fmt::Debug for AddressGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("inner", &self.inner)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}
