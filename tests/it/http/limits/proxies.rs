//! `--trust-proxy`: the rate window of a request without a key.

use super::number;
use crate::support::client::Client;
use crate::support::server::{DEV_UNLIMITED, Server, cued};

/// The remaining requests of a client with this `X-Forwarded-For`.
fn left(client: &Client, hops: &str) -> i64 {
    let response = client.call("GET", "/v1/cues", &[("X-Forwarded-For", hops)], b"").unwrap();
    number(&response, "x-ratelimit-remaining")
}

#[test]
fn behind_a_trusted_proxy_each_client_has_its_own_rate_window() {
    let trusted = ["--trust-proxy", "127.0.0.1,10.0.0.0/8", "--trust-proxy", "fd00::/8"];
    let server = Server::start(&[DEV_UNLIMITED, &trusted].concat());
    let proxy = server.client();
    assert_eq!(left(&proxy, "203.0.113.1"), 59);
    assert_eq!(left(&proxy, "203.0.113.2"), 59);
    // Entries written by the client precede its address.
    assert_eq!(left(&proxy, "198.51.100.7, 203.0.113.1"), 58);
    assert_eq!(left(&proxy, "203.0.113.1, fd00::1, 10.1.2.3"), 57);
    let two = [("X-Forwarded-For", "198.51.100.7"), ("X-Forwarded-For", "203.0.113.1")];
    assert_eq!(number(&proxy.call("GET", "/v1/cues", &two, b"").unwrap(), "x-ratelimit-remaining"), 56);
    assert_eq!(left(&proxy, "2001:db8:0:1::5"), 59);
    assert_eq!(left(&proxy, "2001:db8:0:1:ffff::9"), 58, "one /64 is one client");
    assert_eq!(left(&proxy, "2001:db8:0:2::5"), 59);
    assert_eq!(left(&proxy, "nonsense"), 59, "the proxy itself");
}

#[test]
fn empty_entries_of_a_proxy_do_not_count_and_unreadable_ones_are_not_skipped() {
    let server = Server::start(&[DEV_UNLIMITED, &["--trust-proxy", "127.0.0.1"]].concat());
    let proxy = server.client();
    let mut expected = 60;
    for hops in ["203.0.113.1", "203.0.113.1,", "203.0.113.1, ", "203.0.113.1 ,, ,", ",203.0.113.1,\t,"] {
        expected -= 1;
        assert_eq!(left(&proxy, hops), expected, "{hops:?}");
    }
    let more = [("X-Forwarded-For", "203.0.113.1"), ("X-Forwarded-For", ""), ("X-Forwarded-For", ",")];
    assert_eq!(number(&proxy.call("GET", "/v1/cues", &more, b"").unwrap(), "x-ratelimit-remaining"), 54);
    // What a client sends that is no text hides nothing that the proxy appends.
    assert_eq!(left(&proxy, "Größe, 203.0.113.1"), 53);
    // The entries before one that cannot be read may be those of the client.
    assert_eq!(left(&proxy, "203.0.113.9, unknown"), 59, "the proxy itself");
    assert_eq!(left(&proxy, "203.0.113.9, unknown, "), 58, "the proxy itself");
    assert_eq!(left(&proxy, " , "), 57, "the proxy itself");
}

#[test]
fn without_a_trusted_proxy_the_header_is_ignored() {
    let server = Server::start(DEV_UNLIMITED);
    let client = server.client();
    for (hops, expected) in [("203.0.113.1", 59), ("203.0.113.2", 58), ("203.0.113.3", 57)] {
        assert_eq!(left(&client, hops), expected);
    }
}

#[test]
fn an_invalid_proxy_network_is_wrong_usage() {
    let refused = cued(&["serve", "--trust-proxy", "proxy.example.com"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("10.0.0.0/8"));
}
