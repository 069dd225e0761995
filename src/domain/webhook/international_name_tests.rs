//! Callback URLs with letters beyond ASCII in their host: converted by UTS 46, and then judged as any other.

use crate::domain::webhook::address_policy::AddressPolicy;
use crate::domain::webhook::callback::{CallbackTarget, UrlError, check_url};

fn check(url: &str) -> Result<CallbackTarget, UrlError> {
    check_url(url, &AddressPolicy::default())
}

#[test]
fn a_name_beyond_ascii_is_converted_by_uts_46() {
    for row in [
        "http://bücher.example/ http://xn--bcher-kva.example/ xn--bcher-kva.example",
        "https://BÜCHER.Example:8443/A?b#c https://xn--bcher-kva.example:8443/A?b#c xn--bcher-kva.example",
        "http://bu\u{308}cher.example./ http://xn--bcher-kva.example./ xn--bcher-kva.example",
        "http://faß.example http://xn--fa-hia.example xn--fa-hia.example",
        "http://例え。テスト/x http://xn--r8jz45g.xn--zckzah/x xn--r8jz45g.xn--zckzah",
        "http://my_app.bücher.example/ http://my_app.xn--bcher-kva.example/ my_app.xn--bcher-kva.example",
        "http://ｅｘａｍｐｌｅ.com/ http://example.com/ example.com",
        "http://ex\u{ad}ample.com/ http://example.com/ example.com",
        // The xn-- form stays as it was written.
        "http://xn--bcher-kva.example/ http://xn--bcher-kva.example/ xn--bcher-kva.example",
        "http://XN--Bcher-kva.Example/ http://XN--Bcher-kva.Example/ xn--bcher-kva.example",
        // Scripts may be mixed: UTS 46 has no rule against it.
        "http://раypal.example/ http://xn--ypal-43d9g.example/ xn--ypal-43d9g.example",
        "http://８．８.8.8/ http://8.8.8.8/ 8.8.8.8",
    ] {
        let [url, converted, host] = row.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let found = check(url).unwrap();
        assert_eq!((found.url.as_str(), found.host.as_str()), (converted, host), "{url}");
        let again = check(&found.url).unwrap();
        assert_eq!(again, found, "{url}: the converted URL is its own form");
    }
}

#[test]
fn a_name_that_uts_46_does_not_allow_is_refused() {
    for bad in [
        "xn--",
        "xn--a",
        "xn--\u{fc}",
        "xn--bcher-kva-.example",
        "XN--1.example",
        // The xn-- form of letters that UTS 46 replaces by others.
        "xn--8g7ccp.0.0.1",
        "bücher%2e.example",
        "bücher.exa mple",
        "bü\u{200d}cher.example",
        "\u{308}a.example",
        "a\u{5d0}1\u{661}.example",
        "example.com／ü",
        "user＠bücher.example",
        "bücher.example：80",
        "\u{fffd}.example",
    ] {
        let url = format!("http://{bad}/");
        let refused = UrlError::InternationalName(bad.to_owned());
        assert_eq!(check(&url), Err(refused), "{url}");
    }
    // Valid names that are too long once they are converted, or that are empty.
    for bad in [
        format!("{}.example", "ü".repeat(60)),
        format!("{}example", "bücher.".repeat(30)),
        "\u{ad}".to_owned(),
    ] {
        assert_eq!(check(&format!("http://{bad}/")), Err(UrlError::Host(bad)));
    }
    assert_eq!(check("http://[::ü]/"), Err(UrlError::InternationalName("[::ü]".to_owned())));
}

#[test]
fn an_address_in_other_digits_is_that_address() {
    for host in [
        "１２７.0.0.1",
        "127。0。0。1",
        "①②⑦.0.0.1",
        "１２７．０．０．１",
        "𝟏𝟐𝟕.𝟎.𝟎.𝟏",
        "０ｘ7f.1",
        "²¹³⁰⁷⁰⁶⁴³³",
        "ｌｏｃａｌｈｏｓｔ",
        "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ",
        "api.LOCALHOſT",
        "127.0.0.1\u{3002}",
    ] {
        let url = format!("http://{host}/");
        assert!(
            matches!(check(&url), Err(UrlError::Blocked(_, why)) if why.starts_with("a loopback address")),
            "{url}: {:?}",
            check(&url)
        );
    }
    assert!(matches!(check("http://１６９.254.169.254/"), Err(UrlError::Blocked(..))));
}
