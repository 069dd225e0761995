//! Fields of a JSON schema as rows of a table.

use crate::api_reference::json::Json;

/// The schemas of a document, which refer to each other.
pub struct Schemas<'a> {
    pub document: &'a Json,
}

/// A row of a table of fields.
#[derive(Clone, PartialEq)]
pub struct Field {
    /// With dots for the objects around it.
    pub name: String,
    pub is_required: bool,
    /// The type and its limits.
    pub kind: String,
    pub description: String,
}

/// What null means in most fields, which the page of the API says once, and what stays of the sentence.
const USUAL: [(&str, &str); 5] = [
    ("; null for none.", "."),
    ("; null for no limit.", "."),
    ("; null for the default.", "."),
    ("Null for none.", ""),
    ("Null for the defaults.", ""),
];

impl Field {
    /// The name of the outermost object around it, or its own.
    pub fn top(&self) -> &str {
        self.name.split(['.', '[']).next().unwrap_or_default()
    }
}

impl<'a> Schemas<'a> {
    /// The value itself, or the one that its `$ref` names.
    pub fn resolved(&self, value: &'a Json) -> &'a Json {
        let Some(path) = value.get("$ref").text().strip_prefix("#/") else { return value };
        self.resolved(path.split('/').fold(self.document, |value, name| value.get(name)))
    }

    /// The schema of the items of a list.
    pub fn items(&self, schema: &'a Json) -> Option<&'a Json> {
        self.parts(schema)
            .into_iter()
            .map(|part| part.get("items"))
            .find(|items| **items != Json::Null)
    }

    /// The schema and those that it is made of, without references and null.
    pub fn parts(&self, schema: &'a Json) -> Vec<&'a Json> {
        let schema = self.resolved(schema);
        let inner =
            ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|word| schema.get(word).list());
        let inner = inner.filter(|part| part.get("type").text() != "null");
        [schema].into_iter().chain(inner.flat_map(|part| self.parts(part))).collect()
    }

    pub fn fields(&self, schema: &'a Json) -> Vec<Field> {
        let mut found = Vec::new();
        self.collect(schema, "", &mut found);
        found
    }

    fn collect(&self, schema: &'a Json, prefix: &str, found: &mut Vec<Field>) {
        let schema = self.resolved(schema);
        if schema.has("discriminator") {
            return self.collect_variants(schema, prefix, found);
        }
        for part in self.parts(schema) {
            for (name, value) in part.get("properties").fields() {
                let full = format!("{prefix}{name}");
                match found.iter_mut().find(|field| field.name == full) {
                    // One of several forms of an object only excludes the field.
                    Some(known) if known.description.is_empty() => {
                        known.kind = self.kind(value);
                        known.description = self.description(value);
                    }
                    Some(_) => continue,
                    None => found.push(Field {
                        is_required: self.requires(schema, name),
                        kind: self.kind(value),
                        description: self.description(value),
                        name: full.clone(),
                    }),
                }
                self.collect_inner(value, &full, found);
            }
        }
    }

    /// Whether an object of this schema has the field in each of its forms.
    fn requires(&self, schema: &'a Json, name: &str) -> bool {
        let schema = self.resolved(schema);
        let forms: Vec<&Json> = ["anyOf", "oneOf"]
            .into_iter()
            .flat_map(|word| schema.get(word).list())
            .filter(|form| form.get("type").text() != "null")
            .collect();
        schema.get("required").texts().any(|required| required == name)
            || schema.get("allOf").list().iter().any(|part| self.requires(part, name))
            || (!forms.is_empty() && forms.iter().all(|form| self.requires(form, name)))
    }

    /// The fields of an object in a field, or of those in a list.
    fn collect_inner(&self, value: &'a Json, name: &str, found: &mut Vec<Field>) {
        let (value, prefix) = match self.items(value) {
            Some(items) => (items, format!("{name}[].")),
            None => (value, format!("{name}.")),
        };
        self.collect(value, &prefix, found);
    }

    /// The fields of several kinds of an object, each once, with the kinds that have it unless all have.
    fn collect_variants(&self, schema: &'a Json, prefix: &str, found: &mut Vec<Field>) {
        let key = schema.get("discriminator").get("propertyName").text();
        let mut rows: Vec<(Field, Vec<String>)> = Vec::new();
        let variants = schema.get("oneOf").list();
        let mut kinds = Vec::new();
        for variant in variants {
            let mut fields = Vec::new();
            self.collect(variant, prefix, &mut fields);
            let kind = fields.iter().find(|field| field.name.strip_prefix(prefix) == Some(key));
            let kind = kind.map(|field| field.kind.clone()).unwrap_or_default();
            for field in
                fields.into_iter().filter(|field| field.name.strip_prefix(prefix) != Some(key))
            {
                match rows.iter_mut().find(|(known, _)| *known == field) {
                    Some((_, kinds)) => kinds.push(kind.clone()),
                    None => rows.push((field, vec![kind.clone()])),
                }
            }
            kinds.push(kind);
        }
        found.push(Field {
            name: format!("{prefix}{key}"),
            is_required: true,
            kind: kinds.join(", "),
            description: "Its kind.".to_owned(),
        });
        for (mut field, kinds) in rows {
            if kinds.len() < variants.len() {
                field.description = format!("Only for {}. {}", kinds.join(", "), field.description);
            }
            found.push(field);
        }
    }

    fn description(&self, schema: &'a Json) -> String {
        let own = schema.get("description").text();
        let text =
            if own.is_empty() { self.resolved(schema).get("description").text() } else { own };
        USUAL.iter().fold(text.to_owned(), |text, (usual, rest)| text.replace(usual, rest))
    }

    /// The type of a value and its limits: `string, at most 255 characters`.
    pub fn kind(&self, schema: &'a Json) -> String {
        let parts = self.parts(schema);
        let mut kinds: Vec<String> = Vec::new();
        for kind in parts.iter().filter_map(|part| self.own_kind(part)) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        let mut text = if kinds.is_empty() { "any JSON".to_owned() } else { kinds.join(" or ") };
        for limit in parts.iter().flat_map(|part| limits(part)) {
            text.push_str(", ");
            text.push_str(&limit);
        }
        text
    }

    /// The type that this part of a schema states.
    fn own_kind(&self, part: &'a Json) -> Option<String> {
        let code = |value: &Json| (*value != Json::Null).then(|| format!("`{}`", plain(value)));
        if part.has("const") {
            return code(part.get("const"));
        }
        if part.has("enum") {
            return Some(
                part.get("enum").list().iter().filter_map(code).collect::<Vec<_>>().join(", "),
            );
        }
        let own = part.get("type");
        let names: Vec<&str> =
            own.texts().chain([own.text()]).filter(|name| !matches!(*name, "" | "null")).collect();
        let is_instant = part.get("format").text() == "date-time"
            || part.get("description").text().starts_with("An RFC 3339");
        match names.as_slice() {
            [] => None,
            ["string"] if is_instant => Some("instant".to_owned()),
            ["array"] if part.has("items") => {
                Some(format!("list of {}", self.kind(part.get("items"))))
            }
            ["array"] => Some("list".to_owned()),
            names => Some(names.join(" or ")),
        }
    }
}

/// A value without the quotes of a text.
fn plain(value: &Json) -> String {
    match value {
        Json::Bool(is) => is.to_string(),
        value => value.text().to_owned(),
    }
}

fn limits(part: &Json) -> Vec<String> {
    let number =
        |name: &str| Some(part.get(name).text()).filter(|text| !text.is_empty()).map(with_commas);
    let mut limits = Vec::new();
    match (number("minimum"), number("maximum")) {
        (Some(least), Some(most)) => limits.push(format!("{least} to {most}")),
        (Some(least), None) if least != "0" => limits.push(format!("at least {least}")),
        (None, Some(most)) => limits.push(format!("at most {most}")),
        _ => {}
    }
    limits.extend(number("maxLength").map(|most| format!("at most {most} characters")));
    limits.extend(number("maxItems").map(|most| format!("at most {most} items")));
    if part.has("default") {
        limits.push(format!("default `{}`", plain(part.get("default"))));
    }
    limits
}

/// `1048576` as `1,048,576`.
pub fn with_commas(number: &str) -> String {
    let mut text = String::new();
    for (index, digit) in number.chars().enumerate() {
        if index > 0 && (number.len() - index).is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
