//! The description of the API (`src/http/openapi.json`) and the program say the same: its operations are the routes,
//! and

pub mod checks;
mod errors;
mod examples;

use std::collections::HashMap;
use std::sync::LazyLock;

use cued::http::router::{Access, Route};
use cued::http::routes::ROUTES;
use jsonschema::Validator;
use serde_json::Map;

use crate::support::*;

/// The routes of the API. The files of the page change with each build and are nothing to build upon.
fn routes() -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().filter(|route| route.access != Access::Asset)
}

fn operation(route: &Route) -> &'static Operation {
    let is = |it: &&Operation| {
        it.method.eq_ignore_ascii_case(route.method.as_str()) && it.path == route.path
    };
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
        let is = |route: &&Route| {
            it.method.eq_ignore_ascii_case(route.method.as_str()) && it.path == route.path
        };
        assert_eq!(routes().filter(is).count(), 1, "there is no route {} {}", it.method, it.path);
    }
}

#[test]
fn an_operation_has_the_access_the_body_limit_and_the_parameters_of_its_route() {
    let mut ids = BTreeSet::new();
    for route in routes() {
        let it = operation(route);
        assert!(ids.insert(it.id), "{} appears twice", it.id);
        let needs_key = route.access.needs_caller();
        let security = if needs_key { json!([{"bearer": []}, {"session": []}]) } else { json!([]) };
        assert_eq!(it.json["security"], security, "{}", it.id);
        let may_fail = needs_key || route.access == Access::Page || it.id == "signIn";
        assert_eq!(it.response(401).is_some(), may_fail, "{}", it.id);
        assert_eq!(it.response(429).is_some(), !route.access.is_unmetered(), "{}", it.id);
        let limit = it.json["x-body-limit"].as_u64().unwrap_or(0);
        assert_eq!(limit, route.body_limit as u64, "{}", it.id);
        assert!(
            route.body_limit > 0 || it.json["requestBody"].is_null(),
            "{} takes no body",
            it.id
        );
        let parts = route.path.split('/');
        let in_path: BTreeSet<&str> =
            parts.filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
        let described = it.parameters("path").map(|it| it.text("name"));
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
            fields
                .iter()
                .filter(|(name, _)| !is_data(name))
                .for_each(|(_, it)| examples(it, found));
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
        let response =
            client.call(&it.method.to_ascii_uppercase(), &path(it), &headers, b"").unwrap();
        if it.json["security"] == json!([]) {
            assert!(![401, 405].contains(&response.status), "{}: {}", it.id, response.status);
            continue;
        }
        if it.path.starts_with("/v1/admin/") {
            // For everybody but an operator there is no such path.
            response.expect_error(404, "not_found");
            continue;
        }
        assert_eq!(
            response.expect_error(401, "invalid_api_key")["detail"],
            json!(null),
            "{}",
            it.id
        );
        assert_eq!(response.header("www-authenticate"), Some("Bearer"), "{}", it.id);
    }
}

#[test]
fn a_path_parameter_that_is_no_text_names_nothing() {
    let (_server, user) = Server::with_user(&["--dev", "--limits", "off"]);
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
    let head = client.bare("HEAD", PATH);
    assert_eq!((head.status, head.header("etag")), (200, served.header("etag")));
}

const TEXT: &str = include_str!("../../../src/http/openapi.json");

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

pub static DOCUMENT: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(TEXT).unwrap());

/// The document with `unevaluatedProperties: false` in every schema of an object: for responses.
pub static CLOSED: LazyLock<Value> = LazyLock::new(|| closed(&DOCUMENT));

pub static OPERATIONS: LazyLock<Vec<Operation>> = LazyLock::new(|| {
    let of_path = |(path, item): (&'static String, &'static Value)| {
        METHODS.iter().filter_map(move |method| {
            let id = item.get(method)?.text("operationId");
            Some(Operation {
                id,
                method,
                path,
                json: &item[*method],
                closed: &CLOSED["paths"][path][*method],
            })
        })
    };
    DOCUMENT["paths"].as_object().unwrap().iter().flat_map(of_path).collect()
});

/// Compiled validators by the address of their schema, which never moves.
type Validators = Mutex<HashMap<usize, Arc<Validator>>>;

static VALIDATORS: LazyLock<Validators> = LazyLock::new(Validators::default);

pub struct Operation {
    pub id: &'static str,
    /// In lower case.
    pub method: &'static str,
    pub path: &'static str,
    pub json: &'static Value,
    /// The same part of [`CLOSED`].
    closed: &'static Value,
}

impl Operation {
    /// The operation of a request; a literal path wins over one with parameters, as in the router.
    pub fn find(method: &str, path: &str) -> Option<&'static Self> {
        let method = if method == "HEAD" { "get".to_owned() } else { method.to_ascii_lowercase() };
        let candidates =
            OPERATIONS.iter().filter(|it| it.method == method && matches(it.path, path));
        candidates.min_by_key(|it| it.path.matches('{').count())
    }

    /// The documented response to a status, or to its class such as `4XX`.
    pub fn response(&self, status: u16) -> Option<&'static Value> {
        let responses = &self.closed["responses"];
        let keys = [status.to_string(), format!("{}XX", status / 100)];
        keys.iter().find_map(|key| Some(resolved(&CLOSED, responses.get(key)?)))
    }

    /// The parameters in a part of the request.
    pub fn parameters(&self, part: &'static str) -> impl Iterator<Item = &'static Value> {
        let all = self.json["parameters"].as_array().into_iter().flatten();
        all.map(|parameter| resolved(&DOCUMENT, parameter)).filter(move |it| it["in"] == part)
    }
}

fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<_>, Vec<_>) =
        (pattern.split('/').collect(), path.split('/').collect());
    let fits = |(expected, given): (&&str, &&str)| {
        if expected.starts_with('{') { !given.is_empty() } else { expected == given }
    };
    pattern.len() == path.len() && pattern.iter().zip(&path).all(fits)
}

/// Follows a `$ref` into `root`.
pub fn resolved(root: &'static Value, value: &'static Value) -> &'static Value {
    match value["$ref"].as_str() {
        Some(name) => {
            root.pointer(name.trim_start_matches('#')).unwrap_or_else(|| panic!("no {name}"))
        }
        None => value,
    }
}

/// The validator of a schema in `root`, which is [`DOCUMENT`] or [`CLOSED`]. Compiled once.
fn validator(root: &'static Value, schema: &'static Value) -> Arc<Validator> {
    let is_closed = std::ptr::eq(root, &raw const *CLOSED);
    let key = (&raw const *schema).addr();
    if let Some(known) = VALIDATORS.lock().unwrap().get(&key) {
        return Arc::clone(known);
    }
    let mut used = serde_json::Map::new();
    add_components(root, schema, &mut used);
    let mut whole = json!({"components": {"schemas": used}, "allOf": [schema]});
    if is_closed {
        // The branch of an `allOf` cannot see what the others have evaluated.
        whole["unevaluatedProperties"] = whole["allOf"][0]["unevaluatedProperties"].take();
        let branch = whole["allOf"][0].as_object_mut().unwrap();
        branch.remove("unevaluatedProperties");
        if whole["unevaluatedProperties"].is_null() {
            whole.as_object_mut().unwrap().remove("unevaluatedProperties");
        }
    }
    let options = jsonschema::options()
        .with_draft(jsonschema::Draft::Draft202012)
        .should_validate_formats(true);
    let built = Arc::new(options.build(&whole).unwrap_or_else(|error| panic!("{schema}: {error}")));
    VALIDATORS.lock().unwrap().insert(key, Arc::clone(&built));
    built
}

/// Adds the components that a schema refers to. With all of them each validator would take a tenth of a second.
fn add_components(root: &Value, schema: &Value, used: &mut serde_json::Map<String, Value>) {
    let name = schema["$ref"].as_str().and_then(|it| it.strip_prefix("#/components/schemas/"));
    if let Some(name) = name.filter(|name| !used.contains_key(*name)) {
        let component = &root["components"]["schemas"][name];
        used.insert(name.to_owned(), component.clone());
        add_components(root, component, used);
    }
    match schema {
        Value::Object(fields) => fields.values().for_each(|it| add_components(root, it, used)),
        Value::Array(items) => items.iter().for_each(|it| add_components(root, it, used)),
        _ => {}
    }
}

/// The faults of a value.
pub fn faults(root: &'static Value, schema: &'static Value, value: &Value) -> Vec<String> {
    let validator = validator(root, schema);
    if validator.is_valid(value) {
        return Vec::new();
    }
    let fault = |error: jsonschema::ValidationError<'_>| {
        format!("{} at {:?}", error, error.instance_path())
    };
    validator.iter_errors(value).map(fault).collect()
}

/// The names of the components that other schemas extend by `allOf`.
fn bases(value: &Value, found: &mut BTreeSet<String>) {
    for branch in value["allOf"].as_array().into_iter().flatten() {
        found.extend(
            branch["$ref"].as_str().and_then(|name| name.rsplit('/').next()).map(str::to_owned),
        );
    }
    match value {
        Value::Object(fields) => fields.values().for_each(|field| bases(field, found)),
        Value::Array(items) => items.iter().for_each(|item| bases(item, found)),
        _ => {}
    }
}

fn closed(document: &Value) -> Value {
    let mut all = BTreeSet::new();
    bases(document, &mut all);
    let mut document = document.clone();
    for (name, schema) in document["components"]["schemas"].as_object_mut().unwrap() {
        close(schema, all.contains(name));
    }
    for response in document["components"]["responses"].as_object_mut().unwrap().values_mut() {
        close_response(response);
    }
    for item in document["paths"].as_object_mut().unwrap().values_mut() {
        for operation in item.as_object_mut().unwrap().values_mut() {
            operation["responses"].as_object_mut().unwrap().values_mut().for_each(close_response);
        }
    }
    document
}

fn close_response(response: &mut Value) {
    for content in response
        .get_mut("content")
        .and_then(Value::as_object_mut)
        .into_iter()
        .flat_map(Map::values_mut)
    {
        close(&mut content["schema"], false);
    }
}

/// Refuses other fields than the named ones, in this schema and all below it. A part of an `allOf` stays open.
fn close(schema: &mut Value, is_part: bool) {
    let Some(fields) = schema.as_object_mut() else { return };
    let names_fields = is_object(fields.get("type")) && fields.contains_key("properties");
    let is_open = !fields.contains_key("additionalProperties");
    for (name, below) in fields.iter_mut() {
        match (name.as_str(), below) {
            ("properties", Value::Object(properties)) => {
                properties.values_mut().for_each(|it| close(it, false))
            }
            ("items" | "additionalProperties", below) => close(below, false),
            ("anyOf" | "oneOf", Value::Array(choices)) => {
                choices.iter_mut().for_each(|it| close(it, false))
            }
            ("allOf", Value::Array(parts)) => parts.iter_mut().for_each(|it| close(it, true)),
            _ => {}
        }
    }
    if !is_part && is_open && (names_fields || fields.contains_key("allOf")) {
        fields.insert("unevaluatedProperties".to_owned(), false.into());
    }
}

fn is_object(kind: Option<&Value>) -> bool {
    match kind {
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        Some(kind) => kind == "object",
        None => false,
    }
}
