//! A request of an operation in four forms: `curl`, `cued`, Python and JavaScript. They use the server and the key of
//! the environment and nothing that has to be installed, and a test runs each as it stands.

use crate::api_reference::json::Json;
use crate::api_reference::schema::Schemas;

/// Columns of a line of JSON in an example.
const WIDTH: usize = 76;

/// Optional headers that an example shows. The others matter for few requests.
const SHOWN_HEADERS: [&str; 2] = ["X-Worker-Id", "Stripe-Signature"];

/// The operation that refuses a body without a content type, so that no form of another site can reach it.
const WITH_CONTENT_TYPE: &str = "signIn";
const CONTENT_TYPE: (&str, &str) = ("Content-Type", "application/json");

#[derive(Clone, Copy, PartialEq)]
enum Answer {
    Json,
    Nothing,
    /// For browsers: only `curl` shows it.
    Html,
    File,
    Stream,
}

struct Request<'a> {
    method: String,
    /// With the examples of the parameters.
    path: String,
    query: Option<(&'a str, &'a str)>,
    headers: Vec<(&'a str, &'a str)>,
    body: Option<&'a Json>,
    needs_key: bool,
    answer: Answer,
    /// The command of the program for this operation, if it has one.
    command: &'a str,
}

/// The examples of an operation as blocks of Markdown.
pub fn blocks(schemas: &Schemas, method: &str, path: &str, operation: &Json) -> String {
    let request = request(schemas, method, path, operation);
    let mut text = block("sh", &curl(&request));
    if let Some(command) = cued(&request) {
        text += &block("sh", &command);
    }
    if request.answer != Answer::Html {
        text += &block("python", &python(&request));
        text += &block("js", &javascript(&request));
    }
    text
}

fn block(language: &str, code: &str) -> String {
    format!("```{language}\n{code}\n```\n\n")
}

fn request<'a>(
    schemas: &Schemas<'a>,
    method: &str,
    path: &str,
    operation: &'a Json,
) -> Request<'a> {
    let parameters: Vec<&Json> =
        operation.get("parameters").list().iter().map(|it| schemas.resolved(it)).collect();
    let of = |place: &'static str| parameters.iter().filter(move |it| it.get("in").text() == place);
    let mut path = path.to_owned();
    for parameter in of("path") {
        let name = format!("{{{}}}", parameter.get("name").text());
        path = path.replace(&name, parameter.get("example").text());
    }
    let query = of("query").map(|it| shown(it)).find(|(_, example)| !example.is_empty());
    let headers = of("header").map(|it| shown(it)).filter(|(name, _)| SHOWN_HEADERS.contains(name));
    let content_type =
        (operation.get("operationId").text() == WITH_CONTENT_TYPE).then_some(CONTENT_TYPE);
    let content = operation.get("requestBody").get("content").fields().first();
    let responses = operation.get("responses").fields();
    let success = responses.iter().find(|(status, _)| status.starts_with('2'));
    let answer = success.and_then(|(_, response)| {
        schemas.resolved(response).get("content").fields().first().map(|(name, _)| name.as_str())
    });
    Request {
        method: method.to_ascii_uppercase(),
        path,
        query,
        headers: headers.chain(content_type).collect(),
        body: content.and_then(|(_, content)| example(content)),
        needs_key: !operation.get("security").list().is_empty(),
        answer: match answer {
            None => Answer::Nothing,
            Some("application/json") => Answer::Json,
            Some("text/event-stream") => Answer::Stream,
            Some(html) if html.starts_with("text/html") => Answer::Html,
            Some(_) => Answer::File,
        },
        command: operation.get("x-cued").text(),
    }
}

/// The name and the example of a parameter.
fn shown(parameter: &Json) -> (&str, &str) {
    (parameter.get("name").text(), parameter.get("example").text())
}

/// The example of a body, or the first of several.
fn example(content: &Json) -> Option<&Json> {
    let first = content.get("examples").fields().first().map(|(_, example)| example.get("value"));
    first.or(Some(content.get("example"))).filter(|example| **example != Json::Null)
}

impl Request<'_> {
    fn target(&self) -> String {
        let query = self.query.map(|(name, value)| format!("?{name}={value}"));
        format!("{}{}", self.path, query.unwrap_or_default())
    }

    /// The name of the file that a download becomes.
    fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

fn curl(request: &Request) -> String {
    let method = match (request.method.as_str(), request.body) {
        ("GET", _) | ("POST", Some(_)) => String::new(),
        (method, _) => format!("-X {method} "),
    };
    let options = match request.answer {
        Answer::Stream => "-N ",
        Answer::File => "-O ",
        _ => "",
    };
    let mut lines = vec![format!("curl {options}{method}\"$CUED_URL{}\"", request.target())];
    if request.needs_key {
        lines.push("-H \"Authorization: Bearer $CUED_API_KEY\"".to_owned());
    }
    lines.extend(request.headers.iter().map(|(name, value)| format!("-H \"{name}: {value}\"")));
    lines.extend(request.body.map(|body| match request.answer {
        Answer::Html => format!("-d '{}'", form(body)),
        _ => format!("-d {}", quoted(&layout(body, &JSON, 2))),
    }));
    lines.join(" \\\n  ")
}

fn form(body: &Json) -> String {
    let fields = body.fields().iter().map(|(name, value)| format!("{name}={}", value.text()));
    fields.collect::<Vec<_>>().join("&")
}

/// A word for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// None for what the program has no command for.
fn cued(request: &Request) -> Option<String> {
    if !request.command.is_empty() || matches!(request.answer, Answer::Html | Answer::Stream) {
        return Some(request.command.to_owned()).filter(|command| !command.is_empty());
    }
    let path = request.path.strip_prefix("/v1/").unwrap_or(request.path.trim_start_matches('/'));
    let mut text = format!("cued api {} {path}", request.method);
    if let Some((name, value)) = request.query {
        text += &format!(" -f {name}={value}");
    }
    // The command sets the content type itself.
    for (name, value) in request.headers.iter().filter(|header| **header != CONTENT_TYPE) {
        text += &format!(" -H '{name}: {value}'");
    }
    if let Some(body) = request.body {
        text += &format!(" -d {}", quoted(&layout(body, &JSON, text.chars().count() + 5)));
    }
    if request.answer == Answer::File {
        text += &format!(" > {}", request.file_name());
    }
    Some(text)
}

/// The function that the examples in Python call.
const PYTHON_CALL: &str = include_str!("call.py");

/// The function that the examples in JavaScript call.
const JAVASCRIPT_CALL: &str = include_str!("call.js");

/// What stands before the examples of a page: a function for each of two languages.
pub fn functions() -> String {
    block("python", PYTHON_CALL.trim_end()) + &block("js", JAVASCRIPT_CALL.trim_end())
}

fn python(request: &Request) -> String {
    let after = match request.answer {
        Answer::File => {
            format!("    open(\"{}\", \"wb\").write(response.read())", request.file_name())
        }
        Answer::Stream => {
            "    for line in response:\n        print(line.decode(), end=\"\")".to_owned()
        }
        Answer::Nothing => return call(request, &PYTHON),
        Answer::Json | Answer::Html => return format!("print({})", call(request, &PYTHON)),
    };
    format!(
        "import os, urllib.request\n\nrequest = urllib.request.Request(\n    \
         os.environ[\"CUED_URL\"] + \"{}\",\n    \
         headers={{\"Authorization\": \"Bearer \" + os.environ[\"CUED_API_KEY\"]}})\n\
         with urllib.request.urlopen(request) as response:\n{after}",
        request.target()
    )
}

fn javascript(request: &Request) -> String {
    let after = match request.answer {
        Answer::File => format!(
            "const {{ writeFile }} = await import(\"node:fs/promises\");\n\
             await writeFile(\"{}\", response.body);",
            request.file_name()
        ),
        Answer::Stream => "const text = response.body.pipeThrough(new TextDecoderStream());\n\
                           for await (const part of text) process.stdout.write(part);"
            .to_owned(),
        Answer::Nothing => return format!("await {};", call(request, &JSON)),
        Answer::Json | Answer::Html => {
            return format!("console.log(await {});", call(request, &JSON));
        }
    };
    format!(
        "const response = await fetch(process.env.CUED_URL + \"{}\", {{\n  \
         headers: {{ \"Authorization\": \"Bearer \" + process.env.CUED_API_KEY }},\n}});\n{after}",
        request.target()
    )
}

/// A call of [`functions`], which both languages write in the same way but for their words.
fn call(request: &Request, words: &Words) -> String {
    let mut text = format!("call(\"{}\", \"{}\"", request.method, request.target());
    // The functions set the content type themselves.
    let headers = request.headers.iter().filter(|header| **header != CONTENT_TYPE);
    let headers: Vec<String> =
        headers.map(|(name, value)| format!("\"{name}\": \"{value}\"")).collect();
    match request.body {
        Some(body) => {
            text += &format!(", {}", layout(body, words, text.chars().count() + "print(".len()))
        }
        None if headers.is_empty() => {}
        None => text += &format!(", {}", words[0]),
    }
    if !headers.is_empty() {
        text += &format!(", {{{}}}", headers.join(", "));
    }
    text + ")"
}

/// The words of a language for null, true and false.
type Words = [&'static str; 3];

const JSON: Words = ["null", "true", "false"];
const PYTHON: Words = ["None", "True", "False"];

/// A value on one line if it fits, else with a line for each of its fields.
fn layout(value: &Json, words: &Words, indent: usize) -> String {
    let line = one_line(value, words);
    // An indent beyond a few columns is that of the line of a command, which the lines after it have not.
    let margin = if indent > 8 { 0 } else { indent };
    if indent + line.chars().count() <= WIDTH {
        return line;
    }
    let inner = |value: &Json| layout(value, words, margin + 2);
    let (open, items, close): (_, Vec<String>, _) = match value {
        Json::Object(fields) => {
            let field = |(name, value): &(String, Json)| format!("\"{name}\": {}", inner(value));
            ('{', fields.iter().map(field).collect(), '}')
        }
        Json::List(items) => ('[', items.iter().map(inner).collect(), ']'),
        _ => return line,
    };
    let (pad, end) = (" ".repeat(margin + 2), " ".repeat(margin));
    format!("{open}\n{pad}{}\n{end}{close}", items.join(&format!(",\n{pad}")))
}

fn one_line(value: &Json, words: &Words) -> String {
    let [null, yes, no] = words;
    match value {
        Json::Null => (*null).to_owned(),
        Json::Bool(is) => (if *is { yes } else { no }).to_string(),
        Json::Number(number) => number.clone(),
        Json::Text(text) => format!("{text:?}"),
        Json::List(items) => {
            let items: Vec<String> = items.iter().map(|item| one_line(item, words)).collect();
            format!("[{}]", items.join(", "))
        }
        Json::Object(fields) => {
            let field =
                |(name, value): &(String, Json)| format!("\"{name}\": {}", one_line(value, words));
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
    }
}
