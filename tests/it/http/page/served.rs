//! `GET /` and the files of the page below `/ui/{build}`.

use cued::http::pages::assets::{BUILD, FILES};
use cued::http::response::inflate;
use serde_json::Value;

use crate::support::api::Api;
use crate::support::client::{Client, Response};
use crate::support::event_stream::EventReader;
use crate::support::server::{DEV_UNLIMITED, Server};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types lit-html";

fn address(path: &str) -> String {
    format!("/ui/{BUILD}/{path}")
}

fn get(client: &Client, path: &str, headers: &[(&str, &str)]) -> Response {
    client.call("GET", path, headers, b"").unwrap()
}

#[test]
fn the_page_is_served_with_its_headers() {
    let server = Server::start(&[]);
    for headers in [&[][..], &[("Accept", "application/json")], &[("Accept", "text/html,*/*;q=0.8")]] {
        let page = get(&server.client(), "/", headers);
        assert_eq!(page.status, 200, "{}", page.text());
        for (name, value) in [
            ("content-type", "text/html; charset=utf-8"),
            ("cache-control", "no-cache"),
            ("content-security-policy", POLICY),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("x-frame-options", "DENY"),
            ("cross-origin-opener-policy", "same-origin"),
            ("permissions-policy", "camera=(), microphone=(), geolocation=()"),
            ("vary", "accept-encoding"),
        ] {
            assert_eq!(page.header(name), Some(value), "{name}");
        }
        assert!(page.text().contains(&address("app/main.js")[1..]) && !page.text().contains("{{"));
    }
}

#[test]
fn every_file_of_the_page_is_served_for_ever() {
    let server = Server::start(&[]);
    for file in FILES {
        let served = server.client().get(&address(file.path));
        assert_eq!((served.status, served.header("content-type")), (200, Some(file.content_type)));
        assert_eq!(served.body, inflate(file.gzip).unwrap().to_vec(), "{}", file.path);
        for (name, value) in [
            ("cache-control", "public, max-age=31536000, immutable"),
            ("x-content-type-options", "nosniff"),
            ("cross-origin-resource-policy", "same-origin"),
            ("vary", "accept-encoding"),
        ] {
            assert_eq!(served.header(name), Some(value), "{name} of {}", file.path);
        }
    }
    let content_type = |path| server.client().get(&address(path)).header("content-type").map(str::to_owned);
    assert_eq!(content_type("app/main.js").as_deref(), Some("text/javascript; charset=utf-8"));
    assert_eq!(content_type("icon.svg").as_deref(), Some("image/svg+xml"));
    assert_eq!(content_type("manifest.webmanifest").as_deref(), Some("application/manifest+json"));
    assert_eq!(content_type("lit/LICENSE").as_deref(), Some("text/plain; charset=utf-8"));
}

#[test]
fn a_copy_is_confirmed_by_its_tag() {
    let server = Server::start(&[]);
    let client = server.client();
    for path in ["/".to_owned(), address("app.css")] {
        let first = client.get(&path);
        let etag = first.header("etag").unwrap().to_owned();
        for tag in [etag.clone(), format!("W/{etag}"), format!("\"x\", {etag}"), "*".to_owned()] {
            let known = get(&client, &path, &[("If-None-Match", &tag)]);
            assert_eq!((known.status, known.body.len()), (304, 0), "{path} {tag}");
            assert_eq!(known.header("etag"), Some(etag.as_str()));
            for name in ["cache-control", "vary", "content-security-policy"] {
                assert_eq!(known.header(name), first.header(name), "{name}");
            }
        }
        assert_eq!(get(&client, &path, &[("If-None-Match", "\"x\"")]).body, first.body);
    }
}

#[test]
fn a_head_has_the_headers_of_the_get() {
    let server = Server::start(&[]);
    let client = server.client();
    for path in ["/".to_owned(), address("lit/lit-html.js"), address("lit/directives/repeat.js")] {
        for headers in [&[][..], &[("Accept-Encoding", "gzip")]] {
            let (head, full) =
                (client.call("HEAD", &path, headers, b"").unwrap(), get(&client, &path, headers));
            assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
            for name in ["content-length", "content-type", "content-encoding", "etag", "cache-control"] {
                assert_eq!(head.header(name), full.header(name), "{name} of {path}");
            }
        }
    }
}

#[test]
fn a_client_gets_gzip_only_if_it_accepts_it() {
    let server = Server::start(&[]);
    let client = server.client();
    let paths = FILES.iter().map(|file| address(file.path));
    for path in paths.chain(["/".to_owned()]) {
        let plain = client.get(&path);
        let gzip = get(&client, &path, &[("Accept-Encoding", "deflate, gzip;q=0.5, br")]);
        assert_eq!((plain.header("content-encoding"), gzip.header("content-encoding")), (None, Some("gzip")));
        assert_eq!(gzip.unzipped(), plain.body, "{path}");
        assert_eq!(gzip.header("etag").unwrap(), format!("W/{}", plain.header("etag").unwrap()));
        for refusing in ["gzip;q=0", "identity", "br, gzip; q=0.0", "*;q=0"] {
            assert_eq!(get(&client, &path, &[("Accept-Encoding", refusing)]).body, plain.body, "{refusing}");
        }
    }
}

#[test]
fn other_builds_and_odd_paths_are_not_found() {
    let server = Server::start(DEV_UNLIMITED);
    let client = server.client();
    for path in [
        "/ui".to_owned(),
        "/ui/".to_owned(),
        "//".to_owned(),
        "/index.html".to_owned(),
        "/favicon.ico".to_owned(),
        "/ui/000000000000/app/main.js".to_owned(),
        format!("/ui/{}/app/main.js", BUILD.to_uppercase() + "0"),
        format!("/ui/{BUILD}"),
        address(""),
        address("index.html"),
        address("package.json"),
        address("lit/VENDORED"),
        address("app"),
        address("app/"),
        address("app/main.js/"),
        address("app//main.js"),
        address("/app/main.js"),
        address("app%2Fmain.js"),
        address("app%2fmain.js"),
        address("../app/main.js"),
        address("app/../app.css"),
        address("lit/../app/main.js"),
        address("%2e%2e/app/main.js"),
        address("lit/%2e%2e/app.css"),
        address("..%2f..%2fCargo.toml"),
        address("app/main.js%00"),
        address("app/%FF"),
        address("App/main.js"),
        address("lit/directives/deep/repeat.js"),
    ] {
        client.get(&path).expect_error(404, "not_found");
    }
    let wrong = client.call("POST", "/", &[], b"").unwrap();
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("GET, HEAD")));
    client.call("GET", "/", &[], b"{}").unwrap().expect_error(400, "invalid_request");
}

#[test]
fn the_page_can_be_switched_off() {
    for flags in [&["--page", "off"][..], &["--page=on"], &[]] {
        let server = Server::start(flags);
        let client = server.client();
        let is_off = flags.contains(&"off");
        for path in ["/".to_owned(), address("app/main.js")] {
            let response = client.get(&path);
            if is_off {
                let body = response.expect_error(404, "not_found");
                assert_eq!(
                    body,
                    client.get("/nowhere").expect_error(404, "not_found"),
                    "as any unknown path"
                );
            } else {
                assert_eq!(response.status, 200, "{path}");
            }
        }
        assert_eq!(client.get("/v1/info").expect(200)["build"], BUILD);
    }
}

#[test]
fn the_page_counts_in_no_rate_window() {
    let api = Api::start();
    let user = api.user("ann");
    for _ in 0..500 {
        assert_eq!(user.get("/").status, 200);
        assert_eq!(user.get(&address("app/main.js")).status, 200);
        user.get("/ui/0/x.js").expect_error(404, "not_found");
    }
    assert_eq!(user.get("/v1/auth/keys").header("x-ratelimit-remaining"), Some("59"));
    let guest = Client::new(api.addr());
    assert_eq!(guest.get("/v1/info").header("x-ratelimit-remaining"), Some("59"));
}

#[test]
fn the_page_answers_to_the_names_of_its_server_only() {
    let server = Server::start(&["--allow-host", "pi.lan"]);
    let ask = |host: &str, path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        server.client().send(request.as_bytes()).unwrap().status
    };
    for path in ["/".to_owned(), address("app/main.js")] {
        for host in ["pi.lan:8000", "pi.lan", "localhost", "127.0.0.1:80"] {
            assert_eq!(ask(host, &path), 200, "{host}");
        }
        for host in ["evil.example", "pi.lan.evil.example"] {
            assert_eq!(ask(host, &path), 403, "{host}");
        }
    }
}

#[test]
fn the_server_tells_its_build_everywhere_alike() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    assert_eq!(user.get("/v1/info").expect(200)["build"], BUILD);
    let mut stream = EventReader::open(server.addr(), &user, "");
    let hello: Value = stream.next_event().unwrap().data.unwrap();
    assert_eq!(hello["build"], BUILD);
    assert_eq!(hello["version"], env!("CARGO_PKG_VERSION"));
    assert!(BUILD.len() == 12 && BUILD.bytes().all(|byte| byte.is_ascii_hexdigit()), "{BUILD}");
}
