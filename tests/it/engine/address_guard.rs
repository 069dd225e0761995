//! The address guard on the webhook client: no connection to a blocked address, whatever its source.

use std::sync::mpsc::channel;

use cued::domain::execution::attempt::FailureCause;
use cued::domain::webhook::address_policy::{AddressPolicy, AllowRule};
use cued::domain::webhook::callback::{Method, check_url};
use cued::engine::webhook_client::address_guard::{
    AddressGuard, CACHE_TIME, MAX_CACHED, Monotonic,
};
use cued::engine::webhook_client::{
    ClientOptions, DeliveryError, HttpWebhookClient, MAX_KEPT_BODY, WebhookClient, WebhookRequest,
};
use proptest::prelude::*;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use crate::support::*;

/// A resolver with a list of results; the last one repeats.
#[derive(Debug, Clone)]
struct Script {
    results: Arc<Mutex<Vec<&'static str>>>,
    asked: Arc<AtomicUsize>,
}

impl Script {
    fn new(results: &[&'static str]) -> Self {
        let results = Arc::new(Mutex::new(results.iter().rev().copied().collect()));
        Self { results, asked: Arc::default() }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Resolver for Script {
    fn resolve(
        &self,
        uri: &Uri,
        _: &Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut results = self.results.lock().unwrap();
        let result = if results.len() > 1 { results.pop() } else { results.last().copied() };
        let mut found = self.empty();
        for address in result.unwrap().split_whitespace() {
            found.push(SocketAddr::new(address.parse().unwrap(), uri.port_u16().unwrap_or(80)));
        }
        if found.is_empty() { Err(ureq::Error::HostNotFound) } else { Ok(found) }
    }
}

/// A resolver that never returns.
#[derive(Debug)]
struct Deaf;

impl Resolver for Deaf {
    fn resolve(
        &self,
        _: &Uri,
        _: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let (_open, nothing) = channel::<()>();
        assert!(nothing.recv_timeout(*timeout.after).is_err());
        Err(ureq::Error::Timeout(timeout.reason))
    }
}

/// A monotonic clock in seconds, advanced by a test.
#[derive(Clone, Default)]
struct Seconds(Arc<AtomicU64>);

impl Seconds {
    fn clock(&self) -> Monotonic {
        let now = self.0.clone();
        Arc::new(move || Duration::from_secs(now.load(Ordering::SeqCst)))
    }

    fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_secs(), Ordering::SeqCst);
    }
}

fn policy(values: &str) -> AddressPolicy {
    let values: Vec<AllowRule> =
        values.split_whitespace().map(|value| value.parse().unwrap()).collect();
    AddressPolicy::new(&values)
}

fn webhook_client(
    policy: AddressPolicy,
    seconds: &Seconds,
    resolver: impl Resolver,
) -> HttpWebhookClient {
    let options = ClientOptions { policy, ..ClientOptions::default() };
    HttpWebhookClient::with_resolver(&options, seconds.clock(), resolver).unwrap()
}

fn request(url: &str) -> WebhookRequest {
    WebhookRequest {
        method: Method::Post,
        url: url.to_owned().into(),
        headers: Vec::new().into(),
        body: Some(b"{}".to_vec().into()),
        timeout: None,
        max_response: MAX_KEPT_BODY,
        keeps_headers: false,
    }
}

fn refused(result: Result<impl std::fmt::Debug, DeliveryError>) -> String {
    match result {
        Err(delivery_error @ DeliveryError::NoAddress(_)) => delivery_error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// The addresses that the guard passes to the connector for a URL.
fn resolve(guard: &AddressGuard, url: &str) -> Result<Vec<String>, String> {
    let found = guard.resolve(&url.parse().unwrap(), &Config::default(), a_while());
    found
        .map(|found| found.iter().map(ToString::to_string).collect())
        .map_err(|error| error.to_string())
}

fn a_while() -> NextTimeout {
    NextTimeout {
        after: ureq::unversioned::transport::time::Duration::from_secs(5),
        ..NextTimeout::default()
    }
}

#[test]
fn the_local_host_name_is_refused_without_a_connection() {
    let receiver = Receiver::on_all_addresses();
    let options = ClientOptions::default();
    let webhook_client = HttpWebhookClient::new(&options, Seconds::default().clock()).unwrap();
    for host in ["localhost", "LOCALHOST.", "localhost"] {
        let text = refused(
            webhook_client.send(&request(&format!("http://{host}:{}/", receiver.addr.port()))),
        );
        assert!(
            text.starts_with(&format!(
                "the host {host} was not found, or callbacks may not reach its addresses"
            )),
            "{text}"
        );
    }
    assert_eq!(receiver.connections(), 0);
}

#[test]
fn a_blocked_ip_literal_is_refused_in_every_notation_without_a_lookup() {
    let receiver = Receiver::on_all_addresses();
    let script = Script::new(&["8.8.8.8"]);
    let webhook_client =
        webhook_client(policy("public private"), &Seconds::default(), script.clone());
    for host in "127.0.0.1 127.1 2130706433 0x7f000001 0x7f.1 0177.0.0.1 017700000001 127.0.0.1. 127.9.9.9 0.0.0.0 0 \
                 [::1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1] [64:ff9b::7f00:1] [2002:7f00:1::] \
                 169.254.169.254 2852039166 [fd00:ec2::254] [::ffff:a9fe:a9fe]"
        .split_whitespace()
    {
        let text = refused(webhook_client.send(&request(&format!("http://{host}:{}/", receiver.addr.port()))));
        assert!(text.contains(" address, which callbacks may not reach"), "{text}");
    }
    assert_eq!((receiver.connections(), script.asked()), (0, 0));
}

#[test]
fn an_allowed_ip_literal_needs_no_lookup() {
    let receiver = Receiver::on_all_addresses();
    let script = Script::new(&["8.8.8.8"]);
    let webhook_client = webhook_client(policy("loopback"), &Seconds::default(), script.clone());
    for host in ["127.0.0.1", "127.1", "2130706433", "0177.0.0.1"] {
        let url = format!("http://{host}:{}/", receiver.addr.port());
        assert_eq!(webhook_client.send(&request(&url)).unwrap().http_status, 200);
    }
    assert_eq!(script.asked(), 0);
}

#[test]
fn a_name_that_changes_to_a_blocked_address_gets_no_connection() {
    let receiver = Receiver::on_all_addresses();
    let script = Script::new(&["127.0.0.1", "127.0.0.2"]);
    let seconds = Seconds::default();
    let webhook_client = webhook_client(policy("127.0.0.1/32"), &seconds, script.clone());
    let url = format!("http://rebind.example:{}/", receiver.addr.port());
    assert_eq!(webhook_client.send(&request(&url)).unwrap().http_status, 200);
    seconds.advance(CACHE_TIME);
    refused(webhook_client.send(&request(&url)));
    assert_eq!((receiver.connections(), script.asked()), (1, 2));
}

#[test]
fn a_name_that_changes_from_public_to_loopback_yields_no_address() {
    let seconds = Seconds::default();
    let script = Script::new(&["93.184.216.34", "127.0.0.1"]);
    let guard = AddressGuard::new(script, AddressPolicy::default(), seconds.clock());
    assert_eq!(resolve(&guard, "http://rebind.example/"), Ok(vec!["93.184.216.34:80".to_owned()]));
    seconds.advance(CACHE_TIME);
    assert!(resolve(&guard, "http://rebind.example/").is_err());
}

#[test]
fn only_the_allowed_addresses_of_a_mixed_dns_result_are_used() {
    let script =
        Script::new(&["10.0.0.1 8.8.8.8 ::1 ::ffff:127.0.0.1 2606:4700::1111 169.254.169.254"]);
    let guard = AddressGuard::new(script, AddressPolicy::default(), Seconds::default().clock());
    let found = resolve(&guard, "https://mixed.example:8443/").unwrap();
    assert_eq!(found, ["8.8.8.8:8443", "[2606:4700::1111]:8443"]);
}

#[test]
fn dns_results_are_cached_but_checked_on_every_use() {
    let seconds = Seconds::default();
    let script = Script::new(&["8.8.8.8"]);
    let guard = AddressGuard::new(script.clone(), AddressPolicy::default(), seconds.clock());
    for url in ["http://a.example/", "http://A.example.:81/x", "https://a.example/"] {
        assert!(resolve(&guard, url).is_ok());
    }
    assert_eq!(script.asked(), 1);
    seconds.advance(CACHE_TIME - Duration::from_secs(1));
    assert!(resolve(&guard, "http://a.example/").is_ok());
    assert_eq!(script.asked(), 1);
    seconds.advance(Duration::from_secs(1));
    assert!(resolve(&guard, "http://a.example/").is_ok());
    assert_eq!(script.asked(), 2);
}

#[test]
fn the_dns_cache_is_bounded_and_names_beyond_it_still_resolve() {
    let seconds = Seconds::default();
    let script = Script::new(&["8.8.8.8"]);
    let guard = AddressGuard::new(script.clone(), AddressPolicy::default(), seconds.clock());
    let url = |n: usize| format!("http://n{n}.example/");
    (0..=MAX_CACHED).for_each(|n| assert!(resolve(&guard, &url(n)).is_ok()));
    assert!(resolve(&guard, &url(0)).is_ok());
    assert_eq!(script.asked(), MAX_CACHED + 1);
    // The entry beyond the limit is not kept until others have expired.
    assert!(resolve(&guard, &url(MAX_CACHED)).is_ok());
    assert_eq!(script.asked(), MAX_CACHED + 2);
    seconds.advance(CACHE_TIME);
    assert!(resolve(&guard, &url(MAX_CACHED)).is_ok() && resolve(&guard, &url(MAX_CACHED)).is_ok());
    assert_eq!(script.asked(), MAX_CACHED + 3);
}

#[test]
fn an_unknown_name_is_reported_and_resolved_again() {
    let script = Script::new(&["", "127.0.0.1"]);
    let receiver = Receiver::on_all_addresses();
    let webhook_client = webhook_client(policy("loopback"), &Seconds::default(), script);
    let url = format!("http://late.example:{}/", receiver.addr.port());
    let delivery_error = webhook_client.send(&request(&url)).unwrap_err();
    assert_eq!(delivery_error.cause(), FailureCause::UnknownName);
    assert_eq!(delivery_error.detail().unwrap(), "it has no address");
    assert_eq!(webhook_client.send(&request(&url)).unwrap().http_status, 200);
}

/// Text, cause and time reach users, who could map the operator's network with them.
#[test]
fn the_error_of_a_blocked_name_equals_that_of_an_unknown_one() {
    let error = |addresses: &'static str| {
        let script = Script::new(&[addresses, addresses]);
        let webhook_client =
            webhook_client(AddressPolicy::default(), &Seconds::default(), script.clone());
        let send = || webhook_client.send(&request("http://db.corp.example/")).unwrap_err();
        let first = send();
        assert_eq!(first, send());
        assert_eq!(script.asked(), 2, "{addresses}: a second attempt is as slow as the first");
        first
    };
    let unknown = error("");
    for addresses in ["10.1.2.3", "10.1.2.3 10.1.2.4", "127.0.0.1", "169.254.169.254", "fd12::7"] {
        let blocked = error(addresses);
        assert_eq!(blocked.to_string(), unknown.to_string());
        assert_eq!(blocked.cause(), FailureCause::UnknownName);
        let first = addresses.split(' ').next().unwrap();
        assert!(!blocked.to_string().contains(first), "{blocked}");
        assert!(
            blocked.detail().unwrap().starts_with(&format!("resolved to {first} (")),
            "{blocked:?}"
        );
    }
}

#[test]
fn where_private_addresses_are_allowed_a_blocked_name_is_told_from_an_unknown_one() {
    let error = |addresses: &'static str| {
        let script = Script::new(&[addresses]);
        let webhook_client = webhook_client(policy("public private"), &Seconds::default(), script);
        let error = webhook_client.send(&request("http://nas.example/")).unwrap_err();
        (error.cause(), error.to_string())
    };
    assert_eq!(
        error(""),
        (FailureCause::UnknownName, "the host nas.example was not found".to_owned())
    );
    let (cause, text) = error("127.0.0.1");
    assert_eq!(cause, FailureCause::BlockedAddress);
    assert!(
        text.starts_with("callbacks may not reach the addresses of the host nas.example"),
        "{text}"
    );
}

#[test]
fn the_dns_lookup_counts_toward_the_timeout() {
    let within = Duration::from_millis(200);
    let options = ClientOptions { timeout: within, ..ClientOptions::default() };
    let webhook_client =
        HttpWebhookClient::with_resolver(&options, Seconds::default().clock(), Deaf).unwrap();
    let delivery_error = webhook_client.send(&request("http://deaf.example/")).unwrap_err();
    assert_eq!(delivery_error, DeliveryError::Timeout { within, status: None });
}

#[test]
fn only_the_exempt_path_is_reachable_even_on_an_open_connection() {
    let receiver = Receiver::start();
    let port = receiver.addr.port();
    let policy = AddressPolicy::default().with_exemption("cue.example", port, "/v1/echo/");
    let webhook_client = webhook_client(policy, &Seconds::default(), Script::new(&["127.0.0.1"]));
    let send =
        |path: &str| webhook_client.send(&request(&format!("http://Cue.example:{port}{path}")));
    assert_eq!(send("/v1/echo/0123456789abcdef").unwrap().http_status, 200);
    for path in ["/v1/cues", "/v1/echo/../cues", "/v1/echo/", "/"] {
        refused(send(path));
    }
    assert_eq!(receiver.count(), 1);
}

proptest! {
    /// The HTTP library reads every URL accepted at creation as the same host, port and path.
    #[test]
    fn the_url_check_and_the_webhook_client_agree_on_the_host(
        scheme in "(http|https|HTTP|hTTps)",
        host in r"([a-c0-9_.\-]{1,12}|0x[0-9a-f]{1,8}|[0-9]{1,3}(\.[0-9]{1,3}){0,3}|\[[0-9a-f:]{2,12}\])[.]?",
        port in r"(:[0-9]{0,5})?",
        tail in r#"([/?#][!-~]{0,12})?"#,
    ) {
        let url = format!("{scheme}://{host}{port}{tail}");
        let open = policy("0.0.0.0/0 ::/0 public");
        if let Ok(destination) = check_url(&url, &open) {
            let uri: Uri = url.parse().unwrap();
            let script = Script::new(&["8.8.8.8"]);
            let guard = AddressGuard::new(script.clone(), open, Seconds::default().clock());
            let found = resolve(&guard, &url).unwrap();
            let literal = destination.host.parse::<std::net::IpAddr>().is_ok();
            let expected = if literal { destination.authority() } else { format!("8.8.8.8:{}", destination.port) };
            prop_assert_eq!(&found, &[expected], "{}", url);
            prop_assert_eq!(script.asked(), usize::from(!literal), "{}", url);
            prop_assert_eq!(uri.path(), destination.path, "{}", url);
        }
    }
}
