//! The description of the API (`src/http/openapi.json`) and the program say the same: its operations are the routes, and
//! every response that the client of the tests receives fits it, as does every accepted request (`checks`).

pub mod checks;
mod document;

use std::collections::BTreeSet;

use cued::http::router::{Access, Route};
use cued::http::routes::ROUTES;
use serde_json::{Value, json};

use crate::openapi::document::{DOCUMENT, OPERATIONS, Operation, faults, resolved};
use crate::support::api::Api;
use crate::support::client::{Client, Connection};
use crate::support::server::Server;

/// The routes of the API. The files of the page change with each build and are nothing to build upon.
fn routes() -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().filter(|route| route.access != Access::Asset)
}

fn operation(route: &Route) -> &'static Operation {
    let is = |it: &&Operation| it.method.eq_ignore_ascii_case(route.method.as_str()) && it.path == route.path;
    OPERATIONS
        .iter()
        .find(is)
        .unwrap_or_else(|| panic!("{} {} is not in openapi.json", route.method, route.path))
}

#[test]
fn the_document_describes_every_route_and_nothing_else() {
    for route in routes() {
        operation(route);
    }
    for it in OPERATIONS.iter() {
        let is =
            |route: &&Route| it.method.eq_ignore_ascii_case(route.method.as_str()) && it.path == route.path;
        assert_eq!(routes().filter(is).count(), 1, "there is no route {} {}", it.method, it.path);
    }
}

#[test]
fn an_operation_has_the_access_the_body_limit_and_the_parameters_of_its_route() {
    let mut ids = BTreeSet::new();
    for route in routes() {
        let it = operation(route);
        assert!(ids.insert(it.id), "{} appears twice", it.id);
        let needs_key = route.access == Access::ApiKey;
        let security = if needs_key { json!([{"bearer": []}, {"session": []}]) } else { json!([]) };
        assert_eq!(it.json["security"], security, "{}", it.id);
        let may_fail = needs_key || route.access == Access::Page || it.id == "signIn";
        assert_eq!(it.response(401).is_some(), may_fail, "{}", it.id);
        assert_eq!(it.response(429).is_some(), !route.access.is_unmetered(), "{}", it.id);
        let limit = it.json["x-body-limit"].as_u64().unwrap_or(0);
        assert_eq!(limit, route.body_limit as u64, "{}", it.id);
        assert!(route.body_limit > 0 || it.json["requestBody"].is_null(), "{} takes no body", it.id);
        let parts = route.path.split('/');
        let in_path: BTreeSet<&str> =
            parts.filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
        let described = it.parameters("path").map(|it| it["name"].as_str().unwrap());
        assert_eq!(described.collect::<BTreeSet<&str>>(), in_path, "{}", it.id);
    }
}

/// Every place with an example and a schema: a media type, a parameter, a header.
fn examples(value: &'static Value, found: &mut Vec<(&'static Value, &'static Value)>) {
    if let (Some(schema), Some(example)) = (value.get("schema"), value.get("example")) {
        found.push((schema, example));
    }
    if let (Some(schema), Some(several)) = (value.get("schema"), value["examples"].as_object()) {
        found.extend(several.values().map(|it| (schema, &resolved(&DOCUMENT, it)["value"])));
    }
    match value {
        Value::Object(fields) => {
            let is_data = |name: &str| matches!(name, "example" | "examples" | "schemas");
            fields.iter().filter(|(name, _)| !is_data(name)).for_each(|(_, it)| examples(it, found));
        }
        Value::Array(items) => items.iter().for_each(|item| examples(item, found)),
        _ => {}
    }
}

#[test]
fn examples_are_valid() {
    let mut found = Vec::new();
    examples(&DOCUMENT, &mut found);
    assert!(found.len() > 100, "{}", found.len());
    for (schema, example) in found {
        assert_eq!(faults(&DOCUMENT, schema, example), Vec::<String>::new(), "{schema} {example}");
    }
}

/// A path of the operation with parameters that name nothing.
fn path(it: &Operation) -> String {
    let execution = it.path.replace("{execution_id}", "0190a5c0-0000-7000-8000-000000000001");
    execution.replace("{token}", "a-token-of-20-letters").replace(['{', '}'], "")
}

#[test]
fn an_operation_refuses_a_request_without_a_key_if_it_needs_one() {
    let server = Server::start(&["--dev", "--trust-proxy", "127.0.0.1/32"]);
    let client = server.client();
    for (number, it) in OPERATIONS.iter().enumerate() {
        // Each from an address of its own: requests without a key share a window of 60.
        let address = format!("10.0.0.{}", number + 1);
        let headers = [("X-Forwarded-For", address.as_str())];
        let response = client.call(&it.method.to_ascii_uppercase(), &path(it), &headers, b"").unwrap();
        if it.json["security"] == json!([]) {
            assert!(![401, 405].contains(&response.status), "{}: {}", it.id, response.status);
            continue;
        }
        assert_eq!(response.expect_error(401, "invalid_api_key")["detail"], json!(null), "{}", it.id);
        assert_eq!(response.header("www-authenticate"), Some("Bearer"), "{}", it.id);
    }
}

#[test]
fn a_path_parameter_that_is_no_text_names_nothing() {
    let server = Server::start(&["--dev", "--limits", "off"]);
    let user = server.user();
    for it in OPERATIONS.iter().filter(|it| it.path.contains('{')) {
        let (begin, end) = (it.path.find('{').unwrap(), it.path.find('}').unwrap());
        let path = format!("{}%FF{}", &it.path[..begin], &it.path[end + 1..]);
        let body: &[u8] = if it.json["requestBody"].is_null() { b"" } else { b"{}" };
        let response = user.call(&it.method.to_ascii_uppercase(), &path, &[], body).unwrap();
        let code = response.code();
        assert_ne!(code, "not_found", "{}", it.id);
        assert!(code.ends_with("_not_found") || response.status == 422, "{}: {code}", it.id);
    }
}

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
