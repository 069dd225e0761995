//! The values of flags.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::Path;

use clap::ValueEnum;

use crate::cli::error::{Result, failed};
use crate::domain::account::plan::Plans;
use crate::domain::webhook::address_policy::Cidr;
use crate::domain::webhook::callback::CallbackTarget;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnOff {
    On,
    Off,
}

/// Reads the plans from a file; without one, returns the built-in plans.
pub fn plans_from(path: Option<&Path>) -> Result<Plans> {
    let Some(path) = path else { return Ok(Plans::default()) };
    Plans::from_json(&String::from_utf8_lossy(&read(path)?))
        .map_err(|error| failed(format!("{}: {error}", path.display())))
}

pub fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| failed(format!("cannot read {}: {error}", path.display())))
}

pub fn network(text: &str) -> Result<Cidr, String> {
    text.parse()
        .map_err(|_| "expected an address or a network, such as 127.0.0.1 or 10.0.0.0/8".to_owned())
}

/// Parses `--allow-host`: a name or an address, as in the `Host` header, without a port.
pub fn host_name(text: &str) -> Result<String, String> {
    let is_name = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
    };
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if is_name(text) || bracketed.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok()) {
        return Ok(text.to_owned());
    }
    Err("expected a host without scheme and port, such as cue.example.com, 10.0.0.5 or [fd00::5]"
        .to_owned())
}

/// Parses `--listen`. `localhost` means 127.0.0.1; other host names are not resolved.
pub fn socket_address(text: &str) -> Result<SocketAddr, String> {
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    numeric.as_deref().unwrap_or(text).parse().map_err(|_| {
        "expected an address and a port, such as 127.0.0.1:8000, 0.0.0.0:8000 (all addresses) or [::1]:8000"
            .to_owned()
    })
}

/// Parses `--public-url`: the base of links to this server and of its echo endpoint.
pub fn web_address(text: &str) -> Result<String, String> {
    let target = CallbackTarget::parse(text).ok().filter(|_| !text.contains(['?', '#']));
    let invalid =
        || "expected a URL such as https://cue.example.com, with a path if needed".to_owned();
    target.map(|target| target.url).ok_or_else(invalid)
}
