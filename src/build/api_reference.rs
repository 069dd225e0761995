//! The reference of the API as pages of Markdown, from its description (`src/http/openapi.json`): one page of all
//! operations, and one for each group of tags.
//!
//! The heading of an operation has its `operationId` as the anchor. An operation with the extension `x-cued` has that
//! command as an example; the others have a request by `cued api`.

#[path = "api_reference/examples.rs"]
mod examples;
#[path = "api_reference/json.rs"]
mod json;
#[path = "api_reference/schema.rs"]
mod schema;

use std::collections::BTreeMap;
use std::io;

use crate::api_reference::examples::{blocks, functions};
use crate::api_reference::json::Json;
use crate::api_reference::schema::{Field, Schemas, with_commas};

/// An error that this share of the operations may answer, in percent, is described once for all of them.
const COMMON_PERCENT: usize = 30;

/// The pages: name, title and tags. Similar tags share a page, which compresses to two thirds of their own ones.
const PAGES: [(&str, &str, &[&str]); 5] = [
    ("cues", "API: cues", &["cues"]),
    ("executions", "API: executions and workers", &["executions", "workers"]),
    ("alerts", "API: alerts and channels", &["alerts", "channels"]),
    ("account", "API: account", &["account", "device login", "billing"]),
    (
        "server",
        "API: server",
        &["figures", "events", "echo", "operation", "administration", "test clock", "pages"],
    ),
];

struct Operation<'a> {
    method: &'a str,
    path: &'a str,
    json: &'a Json,
}

/// The paths of the pages, and their texts.
pub fn pages(openapi: &str) -> io::Result<Vec<(String, String)>> {
    let document = Json::parse(openapi)?;
    let schemas = Schemas { document: &document };
    let operations: Vec<Operation> = document
        .get("paths")
        .fields()
        .iter()
        .flat_map(|(path, methods)| {
            methods.fields().iter().map(move |(method, json)| Operation { method, path, json })
        })
        .collect();
    let common = common(&schemas, &operations);
    let mut pages = vec![("reference/api".to_owned(), index(&schemas, &common)?)];
    for (name, title, tags) in PAGES {
        let mut page =
            Page { schemas: &schemas, common: &common, lists: Vec::new(), bodies: Vec::new() };
        let mut text = format!("# {title}\n\n{} {EXAMPLES}", about(&document, tags));
        for operation in tags.iter().flat_map(|tag| of_tag(&operations, tag)) {
            text += &page.section(operation);
        }
        pages.push((format!("reference/api/{name}"), text));
    }
    Ok(pages)
}

fn of_tag<'a>(
    operations: &'a [Operation],
    tag: &'a str,
) -> impl Iterator<Item = &'a Operation<'a>> {
    operations.iter().filter(move |it| it.json.get("tags").texts().any(|known| known == tag))
}

/// The descriptions of some tags.
fn about(document: &Json, tags: &[&str]) -> String {
    let all =
        document.get("tags").list().iter().filter(|tag| tags.contains(&tag.get("name").text()));
    all.map(|tag| tag.get("description").text()).collect::<Vec<_>>().join(" ")
}

/// The page about all operations.
/// Errors: if a tag is on no page.
fn index(schemas: &Schemas, common: &[(&str, &str)]) -> io::Result<String> {
    let mut text = [INTRODUCTION, &functions(), OPERATIONS].concat();
    for (page, title, tags) in PAGES {
        text += &format!("- [{title}](api/{page}.md): {}\n", about(schemas.document, tags));
    }
    let of_pages = |name: &str| PAGES.iter().any(|(.., tags)| tags.contains(&name));
    let tags = schemas.document.get("tags").list().iter().map(|tag| tag.get("name").text());
    if let Some(name) = tags.into_iter().find(|name| !of_pages(name)) {
        return Err(io::Error::other(format!("PAGES has no page for the tag {name:?}")));
    }
    text.push('\n');
    text += COMMON_ERRORS;
    for (status, code) in common {
        text += &format!("| {status} | [`{code}`](errors.md#{code}) |\n");
    }
    Ok(text)
}

const INTRODUCTION: &str = "# API\n\n\
    Requests and answers are JSON over HTTP. The examples read two environment variables:\n\n\
    ```sh\nexport CUED_URL=http://127.0.0.1:8000\nexport CUED_API_KEY=cue_sk_…\n```\n\n\
    The key goes into the header `Authorization: Bearer KEY`. `cued` stops with an error at a status of 400 or more; \
    `curl` does not.\n\n\
    An error is `{\"error\": {\"code\", \"message\", \"status\"}}`: see [Errors](errors.md). A field that may be left \
    out may also be null: unless its text says otherwise, that is its default, or nothing. A body has at most 2,097,152 \
    bytes unless the operation says otherwise. `GET /openapi.json` has the same with all types of answers, for Postman \
    and generators of clients.\n\n\
    ## Python and JavaScript {#call}\n\n\
    The examples call one of these functions, which need no packages. Node.js has to be 18 or later.\n\n";

const OPERATIONS: &str = "## Operations\n\nEach page lists its own.\n\n";

const EXAMPLES: &str =
    "The examples use a [function](../api.md#call) `call` and [two variables](../api.md).\n\n";

const COMMON_ERRORS: &str = "## Common errors\n\n\
    Operations answer these too, where they apply:\n\n| Status | Code |\n|---|---|\n";

fn line(operation: &Operation) -> String {
    format!("{} {}", operation.method.to_ascii_uppercase(), operation.path)
}

/// What the sections of a page share.
struct Page<'a> {
    schemas: &'a Schemas<'a>,
    common: &'a [(&'a str, &'a str)],
    /// The fields of answers and of the objects in them, with the operation that lists them.
    lists: Vec<(Vec<String>, &'a str)>,
    /// The fields of bodies.
    bodies: Vec<(Vec<Field>, &'a str)>,
}

impl<'a> Page<'a> {
    fn section(&mut self, operation: &'a Operation) -> String {
        let (schemas, json) = (self.schemas, operation.json);
        let id = json.get("operationId").text();
        let mut text =
            format!("## {} {{#{id}}}\n\n`{}`\n\n", json.get("summary").text(), line(operation));
        text += json.get("description").text();
        text += if json.get("security").list().is_empty() { " Needs no key.\n\n" } else { "\n\n" };
        text += &blocks(schemas, operation.method, operation.path, json);
        text += &parameters(schemas, json);
        text += &self.body(json, id);
        text + &self.answers(json, id) + &self.events(json)
    }

    /// A paragraph for each answer, and one for the errors.
    fn answers(&mut self, operation: &'a Json, id: &'a str) -> String {
        let errors = errors(self.schemas, operation);
        let mut answers: Vec<(&Json, Vec<String>)> = Vec::new();
        let mut refusals: Vec<String> = Vec::new();
        for (status, response) in operation.get("responses").fields() {
            let response = self.schemas.resolved(response);
            let of_status: Vec<_> = errors.iter().filter(|error| error.0 == status).collect();
            if of_status.is_empty() {
                match answers.iter_mut().find(|(known, _)| *known == response) {
                    Some((_, statuses)) => statuses.push(format!("`{status}`")),
                    None => answers.push((response, vec![format!("`{status}`")])),
                }
                continue;
            }
            let own = of_status.into_iter().filter(|error| !self.common.contains(error));
            let codes: Vec<String> =
                own.map(|(_, code)| format!("[`{code}`](../errors.md#{code})")).collect();
            if !codes.is_empty() {
                refusals.push(format!("{status} {}", codes.join(", ")));
            }
        }
        let mut text = String::new();
        for (response, statuses) in answers {
            let meaning = response.get("description").text();
            text += &format!("{} {meaning}{}\n\n", statuses.join(", "), self.content(response, id));
        }
        if !refusals.is_empty() {
            text += &format!("Errors: {}\n\n", refusals.join(", "));
        }
        text
    }

    /// The fields of a successful answer, also those of the objects in its lists.
    fn content(&mut self, response: &'a Json, id: &'a str) -> String {
        let Some((_, content)) = response.get("content").fields().first() else {
            return String::new();
        };
        let fields = self.fields(content.get("schema"));
        let mut texts = Vec::new();
        for (name, value) in &fields {
            let inner =
                self.schemas.items(value).map(|items| self.fields(items)).unwrap_or_default();
            texts.push(match inner.is_empty() {
                true => format!("`{name}`"),
                false => format!("`{name}` (each with {})", self.listed(names(&inner), id)),
            });
        }
        if texts.is_empty() {
            String::new()
        } else {
            format!(" Fields: {}", self.listed(texts, id))
        }
    }

    /// The fields of an object, each once.
    fn fields(&self, schema: &'a Json) -> Vec<(&'a str, &'a Json)> {
        let mut found: Vec<(&str, &Json)> = Vec::new();
        for part in self.schemas.parts(schema) {
            for (name, value) in part.get("properties").fields() {
                if !found.iter().any(|(known, _)| known == name) {
                    found.push((name, value));
                }
            }
        }
        found
    }

    /// The types of the events of a stream, by the fields of their data.
    fn events(&self, operation: &'a Json) -> String {
        let mut types: Vec<(String, Vec<String>)> = Vec::new();
        for (name, schema) in operation.get("x-events").fields() {
            let (name, fields) = (format!("`{name}`"), names(&self.fields(schema)).join(", "));
            match types.iter_mut().find(|(known, _)| *known == fields) {
                Some((_, names)) => names.push(name),
                None => types.push((fields, vec![name])),
            }
        }
        if types.is_empty() {
            return String::new();
        }
        let mut text = "| Event | Fields of its data |\n|---|---|\n".to_owned();
        for (fields, names) in types {
            text += &format!("| {} | {fields} |\n", names.join(", "));
        }
        text + "\n"
    }

    /// A list of fields, or what it has more and less than one that the page has already.
    fn listed(&mut self, fields: Vec<String>, id: &'a str) -> String {
        let whole = fields.join(", ");
        let shorter = self.lists.iter().map(|(known, first)| {
            let less: Vec<&str> = missing(known, &fields);
            let more = missing(&fields, known);
            let part = |word: &str, names: &[&str]| match names {
                [] => String::new(),
                names => format!(" {word} {}", names.join(", ")),
            };
            format!("those of [{first}](#{first}){}{}", part("without", &less), part("and", &more))
        });
        let shorter = shorter.min_by_key(String::len).filter(|text| text.len() < whole.len());
        self.lists.push((fields, id));
        shorter.unwrap_or(whole)
    }

    /// The fields of a body: all of them, or those that differ from a body that the page has already.
    fn body(&mut self, operation: &'a Json, id: &'a str) -> String {
        let Some((_, content)) = operation.get("requestBody").get("content").fields().first()
        else {
            return String::new();
        };
        let fields = self.schemas.fields(content.get("schema"));
        let limit = with_commas(operation.get("x-body-limit").text());
        let equal = |known: &[Field]| fields.iter().filter(|field| known.contains(field)).count();
        let similar = self.bodies.iter().rev().max_by_key(|(known, _)| equal(known));
        let mut text = String::new();
        if let Some((known, first)) = similar.filter(|(known, _)| equal(known) >= MANY_FIELDS) {
            let less = grouped(known, |row| !fields.iter().any(|field| field.name == row.name));
            let same = grouped(known, |row| fields.contains(row));
            text += &match less.len() < same.len() {
                true if less.is_empty() => {
                    format!("The body has the fields of [{first}](#{first})")
                }
                true => format!(
                    "The body has the fields of [{first}](#{first}) without {}",
                    less.join(", ")
                ),
                false => format!("The body has {} as [{first}](#{first})", same.join(", ")),
            };
            let rows: Vec<Field> =
                fields.iter().filter(|it| !known.contains(it)).cloned().collect();
            text += &match rows.is_empty() {
                true => ".\n\n".to_owned(),
                false => format!(", with these changes:\n\n{}", table("Field of the body", &rows)),
            };
        } else if !fields.is_empty() {
            text += &table("Field of the body", &fields);
        }
        if limit != USUAL_LIMIT {
            text += &format!("The body has at most {limit} bytes.\n\n");
        }
        self.bodies.push((fields, id));
        text
    }
}

/// The names of some fields of a body: of an object alone if all that is in it is among them, with `.*` if it is not itself.
fn grouped(fields: &[Field], is_among: impl Fn(&Field) -> bool) -> Vec<String> {
    let among = fields.iter().filter(|field| is_among(field));
    let name = |field: &Field| {
        let top = field.top();
        let mut of = fields.iter().filter(|other| other.top() == top);
        let mut inner = of.clone().filter(|other| other.name != top);
        match (of.all(&is_among), inner.all(&is_among)) {
            (true, _) => top.to_owned(),
            (false, true) => format!("{top}.*"),
            (false, false) => field.name.clone(),
        }
    };
    let mut names: Vec<String> = among.map(|field| format!("`{}`", name(field))).collect();
    names.dedup();
    names
}

/// Rows of a table that are not repeated.
const MANY_FIELDS: usize = 4;

/// Bytes of the body of most operations.
const USUAL_LIMIT: &str = "2,097,152";

fn missing<'a>(from: &'a [String], others: &[String]) -> Vec<&'a str> {
    from.iter().filter(|name| !others.contains(name)).map(String::as_str).collect()
}

fn names(fields: &[(&str, &Json)]) -> Vec<String> {
    fields.iter().map(|(name, _)| format!("`{name}`")).collect()
}

/// A text as a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn parameters(schemas: &Schemas, operation: &Json) -> String {
    // `{cue_id}` in the path says as much.
    let is_plain_id = |it: &&Json| {
        it.get("in").text() == "path"
            && it.get("description").text().starts_with("The id of a")
            && {
                let kind = schemas.kind(it.get("schema"));
                kind == "string" && !it.get("description").text().contains(',')
            }
    };
    let list = operation.get("parameters").list().iter().map(|it| schemas.resolved(it));
    let list: Vec<&Json> = list.filter(|it| !is_plain_id(it)).collect();
    if list.is_empty() {
        return String::new();
    }
    let mut text = "| Parameter | Type | Meaning |\n|---|---|---|\n".to_owned();
    for parameter in list {
        let place = match parameter.get("in").text() {
            "query" => "",
            "path" => ", in the path",
            _ => ", a header",
        };
        let kind = schemas.kind(parameter.get("schema"));
        let (name, meaning) = (parameter.get("name").text(), parameter.get("description").text());
        text += &format!("| `{name}`{place} | {} | {} |\n", cell(&kind), cell(meaning));
    }
    text + "\n"
}

fn table(title: &str, fields: &[Field]) -> String {
    let mut text = format!("| {title} | Type | Meaning |\n|---|---|---|\n");
    for field in fields {
        let needed = if field.is_required { ", required" } else { "" };
        text += &format!(
            "| `{}`{needed} | {} | {} |\n",
            field.name,
            cell(&field.kind),
            cell(&field.description)
        );
    }
    text + "\n"
}

/// The errors of an operation, as statuses and codes.
fn errors<'a>(schemas: &Schemas<'a>, operation: &'a Json) -> Vec<(&'a str, &'a str)> {
    let mut found = Vec::new();
    for (status, response) in operation.get("responses").fields() {
        let content = schemas.resolved(response).get("content").get("application/json");
        for part in schemas.parts(content.get("schema")) {
            let code = part.get("properties").get("error").get("properties").get("code");
            let codes = code.get("enum").texts().chain([code.get("const").text()]);
            found.extend(codes.filter(|code| !code.is_empty()).map(|code| (status.as_str(), code)));
        }
    }
    found
}

/// The errors of most operations.
fn common<'a>(schemas: &Schemas<'a>, operations: &[Operation<'a>]) -> Vec<(&'a str, &'a str)> {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for operation in operations {
        for error in errors(schemas, operation.json) {
            *counts.entry(error).or_default() += 1;
        }
    }
    counts.retain(|_, count| *count * 100 >= operations.len() * COMMON_PERCENT);
    counts.into_keys().collect()
}
