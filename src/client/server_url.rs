//! The address of a server, as people write it and as it is stored.

use thiserror::Error as ThisError;
use url::{Host, Url};

use crate::domain::account::credentials::may_contain_secret;
use crate::domain::webhook::address_policy::{AddressPolicy, AllowRule};

/// Ends of names that only a local network knows. Certificates for them are rare.
const LOCAL_SUFFIXES: [&str; 6] = [".localhost", ".local", ".lan", ".home", ".internal", ".home.arpa"];

/// A text that is no address of a server. Its message repeats nothing that may be a key.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum UrlError {
    #[error("{0:?} is no address of a server; examples are https://cue.example.com and 127.0.0.1:8000")]
    Invalid(String),
    #[error("the address of a server begins with http:// or https://, not with {0}://")]
    Scheme(String),
    #[error("the address of a server has no user name and no password in it")]
    UserInfo,
    #[error("the address of a server has no `?` and no `#`: {0:?} is a page")]
    Page(String),
    #[error(
        "this address contains a key. Revoke the key: arguments can be read by every user of this machine"
    )]
    Secret,
}

/// The base URL for requests. Without a scheme it is `http` for a local name or address, else `https`.
pub fn server_url(text: &str) -> Result<String, UrlError> {
    let text = text.trim();
    if may_contain_secret(text) {
        return Err(UrlError::Secret);
    }
    let parse = |url: &str| Url::parse(url).map_err(|_| UrlError::Invalid(text.to_owned()));
    let url = if text.contains("://") {
        parse(text)?
    } else {
        let url = parse(&format!("http://{text}"))?;
        if is_local(&url) { url } else { parse(&format!("https://{text}"))? }
    };
    if !matches!(url.scheme(), "http" | "https") {
        return Err(UrlError::Scheme(url.scheme().to_owned()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(UrlError::UserInfo);
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(UrlError::Page(text.to_owned()));
    }
    Ok(normal_url(url.as_str()))
}

/// A base URL without slashes at its end and without `/v1`, which clients of the published API have in it.
pub fn normal_url(url: &str) -> String {
    let url = url.trim().trim_end_matches('/');
    url.strip_suffix("/v1").unwrap_or(url).trim_end_matches('/').to_owned()
}

/// The host of a base URL, with its port if it is not the usual one.
pub fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

/// Returns `true` if the host of a base URL is this machine by its name or address.
pub fn is_loopback(url: &str) -> bool {
    match Url::parse(url).ok().as_ref().and_then(Url::host) {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

fn is_local(url: &Url) -> bool {
    let policy = AddressPolicy::new(&[AllowRule::Private, AllowRule::Loopback]);
    match url.host() {
        Some(Host::Ipv4(address)) => policy.allows(address.into()),
        Some(Host::Ipv6(address)) => policy.allows(address.into()),
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            !name.contains('.') || LOCAL_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_names_and_addresses_have_http_and_others_https() {
        for (text, expected) in [
            ("127.0.0.1:8000", "http://127.0.0.1:8000"),
            ("localhost:8000", "http://localhost:8000"),
            ("[::1]:8000/", "http://[::1]:8000"),
            ("192.168.1.20", "http://192.168.1.20"),
            ("pi", "http://pi"),
            ("NAS.lan:80", "http://nas.lan"),
            ("pi.local", "http://pi.local"),
            ("cue.example.com", "https://cue.example.com"),
            ("cue.example.com:8443/cued/", "https://cue.example.com:8443/cued"),
            ("8.8.8.8", "https://8.8.8.8"),
            (" http://cue.example.com/v1/ ", "http://cue.example.com"),
        ] {
            assert_eq!(server_url(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_and_a_key_is_not_repeated() {
        for text in ["", "a b", "http://", "localhost:port", "mailto:me@example.com:x"] {
            assert!(matches!(server_url(text), Err(UrlError::Invalid(_))), "{text}");
        }
        assert_eq!(server_url("ftp://pi"), Err(UrlError::Scheme("ftp".to_owned())));
        assert_eq!(server_url("http://me:word@pi"), Err(UrlError::UserInfo));
        assert!(matches!(server_url("http://pi/auth/device?code=AB"), Err(UrlError::Page(_))));
        let key = format!("cue_sk_{}", "0".repeat(32));
        let error = server_url(&key).unwrap_err().to_string();
        assert!(!error.contains("cue_sk_"), "{error}");
    }

    #[test]
    fn loopback_is_known_by_name_and_address() {
        for url in ["http://localhost:8000", "http://127.0.0.1", "https://[::1]:1/x", "http://cued.localhost"]
        {
            assert!(is_loopback(url), "{url}");
        }
        for url in ["http://pi.lan", "http://10.0.0.1:8000", "https://localhost.example.com", "localhost"] {
            assert!(!is_loopback(url), "{url}");
        }
    }

    #[test]
    fn the_host_of_an_address_keeps_an_unusual_port() {
        assert_eq!(host_of("http://pi.lan:8000/cued"), "pi.lan:8000");
    }
}
