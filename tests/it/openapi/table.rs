//! The operations of the document are the routes of the program.

use std::collections::BTreeSet;

use cued::http::router::{Access, Route};
use cued::http::routes::ROUTES;
use serde_json::{Value, json};

use crate::openapi::document::{OPERATIONS, Operation};

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
fn an_operation_requires_a_key_if_its_route_does() {
    for route in routes() {
        let it = operation(route);
        let needs_key = route.access == Access::ApiKey;
        let security = if needs_key { json!([{"bearer": []}, {"session": []}]) } else { json!([]) };
        assert_eq!(it.json["security"], security, "{}", it.id);
        let may_fail = needs_key || route.access == Access::Page || it.id == "signIn";
        assert_eq!(it.response(401).is_some(), may_fail, "{}", it.id);
        let is_metered = !route.access.is_unmetered();
        assert_eq!(it.response(429).is_some(), is_metered, "{}", it.id);
        let is_page = it.json["responses"]["200"] == json!({"$ref": "#/components/responses/Page"});
        assert_eq!(is_page, route.access == Access::Page, "{}", it.id);
    }
}

#[test]
fn an_operation_has_the_body_limit_of_its_route() {
    for route in routes() {
        let it = operation(route);
        let limit = it.json["x-body-limit"].as_u64().unwrap_or(0);
        assert_eq!(limit, route.body_limit as u64, "{}", it.id);
        let has_413 = it.response(413).is_some();
        assert_eq!(has_413, route.body_limit > 0 || route.access == Access::Page, "{}", it.id);
        assert!(route.body_limit > 0 || it.json["requestBody"].is_null(), "{} takes no body", it.id);
    }
}

#[test]
fn an_operation_has_the_parameters_of_its_path() {
    for route in routes() {
        let it = operation(route);
        let in_path: BTreeSet<&str> =
            route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
        let described: BTreeSet<&str> =
            it.parameters("path").map(|it| it["name"].as_str().unwrap()).collect();
        assert_eq!(described, in_path, "{}", it.id);
        assert!(it.parameters("path").all(|it| it["required"] == true), "{}", it.id);
    }
}

#[test]
fn every_operation_is_described_and_has_an_id_of_its_own() {
    let mut ids = BTreeSet::new();
    for it in OPERATIONS.iter() {
        assert!(ids.insert(it.id), "{} appears twice", it.id);
        for field in ["summary", "description"] {
            assert!(it.json[field].as_str().is_some_and(|text| !text.is_empty()), "{} has no {field}", it.id);
        }
        assert_eq!(it.json["tags"].as_array().map(Vec::len), Some(1), "{}", it.id);
        for parameter in ["path", "query", "header"].into_iter().flat_map(|part| it.parameters(part)) {
            let is_described = parameter["description"].as_str().is_some_and(|text| !text.is_empty());
            assert!(is_described && parameter["schema"] != Value::Null, "{}: {parameter}", it.id);
        }
        let has_success = it.responses().any(|(key, _)| key.starts_with('2'));
        assert!(has_success, "{} has no success", it.id);
    }
}
