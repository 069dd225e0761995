//! `GET /openapi.json`.

use serde_json::{Value, json};

use crate::openapi::document::DOCUMENT;
use crate::support::api::Api;
use crate::support::client::{Client, Connection};
use crate::support::server::Server;

const PATH: &str = "/openapi.json";

#[test]
fn the_description_is_served_to_everybody() {
    let server = Server::start(&["--dev"]);
    let client: Client = server.client();
    let served = client.get(PATH);
    assert_eq!(served.expect(200), *DOCUMENT);
    assert_eq!(served.header("content-type"), Some("application/json"));
    assert_eq!(served.header("access-control-allow-origin"), Some("*"));
    assert_eq!(served.header("cache-control"), Some("no-cache"));
    assert_eq!(DOCUMENT["servers"][0]["url"], json!("."), "right below any path of a proxy");
    let head = client.call("HEAD", PATH, &[], b"").unwrap();
    assert_eq!((head.status, head.header("etag")), (200, served.header("etag")));
}

#[test]
fn the_description_is_compressed_for_clients_that_accept_gzip() {
    let server = Server::start(&["--dev"]);
    let plain = server.client().get(PATH);
    assert_eq!((plain.header("content-encoding"), plain.header("vary")), (None, Some("accept-encoding")));
    let ask = |headers: &str| {
        let mut connection = Connection::open(server.addr()).unwrap();
        connection.send(&format!("GET {PATH} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"));
        connection.response()
    };
    let gzip = ask("Accept-Encoding: gzip, deflate\r\n");
    assert_eq!(gzip.status, 200);
    assert_eq!(
        (gzip.header("content-encoding"), gzip.header("vary")),
        (Some("gzip"), Some("accept-encoding"))
    );
    assert!(gzip.body.len() * 4 < plain.body.len(), "{} of {} bytes", gzip.body.len(), plain.body.len());
    assert_eq!(gzip.unzipped(), plain.body);

    let tag = gzip.header("etag").unwrap();
    assert_eq!(tag, format!("W/{}", plain.header("etag").unwrap()), "each encoding has its own tag");
    let known = ask(&format!("Accept-Encoding: gzip\r\nIf-None-Match: {tag}\r\n"));
    assert_eq!((known.status, known.body.len(), known.header("etag")), (304, 0, Some(tag)));
}

#[test]
fn a_copy_of_the_description_is_confirmed_by_its_tag() {
    let server = Server::start(&["--dev"]);
    let client = server.client();
    let etag = client.get(PATH).header("etag").unwrap().to_owned();
    let ask = |tag: &str| client.call("GET", PATH, &[("If-None-Match", tag)], b"").unwrap();
    for tag in [etag.clone(), format!("W/{etag}"), format!("\"x\", {etag}"), "*".to_owned()] {
        let response = ask(&tag);
        assert_eq!((response.status, response.body.len()), (304, 0), "{tag}");
        assert_eq!(response.header("etag"), Some(etag.as_str()));
        assert_eq!(response.header("content-length"), None, "that of the whole description, or none");
    }
    assert_eq!(ask("\"x\"").json(), *DOCUMENT);
}

#[test]
fn the_description_counts_in_no_rate_window() {
    let api = Api::start();
    let user = api.user("ann");
    for _ in 0..70 {
        assert_eq!(user.get(PATH).status, 200);
    }
    assert_eq!(user.get("/v1/auth/keys").header("x-ratelimit-remaining"), Some("59"));
    let refused = user.call("GET", PATH, &[], b"{}").unwrap();
    assert_eq!(refused.expect_error(400, "invalid_request")["detail"], Value::Null);
}
