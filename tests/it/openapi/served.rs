//! `GET /openapi.json`.

use serde_json::{Value, json};

use crate::openapi::document::DOCUMENT;
use crate::support::api::Api;
use crate::support::client::Client;
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
