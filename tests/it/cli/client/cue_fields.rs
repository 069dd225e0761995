//! Each field of a cue, in every place that has it: `tests/data/cue-fields.json` lists all of them, the parts of objects
//! included, each with a value that is not the default. The page's test reads the same list.

use std::collections::HashMap;

use cued::api::cue_names::{FIELDS, field_paths, parts_of};

use crate::cli::client::{start, stored};
use crate::support::*;

const LIST: &str = include_str!("../../../data/cue-fields.json");

struct Row {
    field: String,
    value: Value,
    /// The field can be removed with `null`.
    is_nullable: bool,
    /// The flags of `cue add` that set the value; some fields have none.
    flags: Option<String>,
    /// A cue with the value, and the same cue without it.
    cue: Value,
    without: Value,
    /// What gives another value, for a field that can be changed, and that value.
    other: Option<(Value, Value)>,
}

fn rows() -> Vec<Row> {
    let list: Value = serde_json::from_str(LIST).unwrap();
    let row = |row: &Value| {
        let field = row.text("field").to_owned();
        let beside = merged(&list["base"], &row["with"]);
        let other =
            |other: &Value| (merged(&at_path(&field, other), &row["with_other"]), other.clone());
        Row {
            value: row["value"].clone(),
            is_nullable: row["nullable"] == true,
            flags: row["flags"].as_str().map(str::to_owned),
            cue: merged(&beside, &at_path(&field, &row["value"])),
            without: if row["replaces"] == true { list["base"].clone() } else { beside },
            other: row.get("other").map(other),
            field,
        }
    };
    list.list("fields").iter().map(row).collect()
}

/// `{"a": {"b": value}}` for `a.b`.
fn at_path(field: &str, value: &Value) -> Value {
    field.rsplit('.').fold(value.clone(), |value, name| json!({ name: value }))
}

fn value_at<'a>(cue: &'a Value, field: &str) -> &'a Value {
    field.split('.').fold(cue, |part, name| &part[name])
}

/// The JSON merge patch of RFC 7396, where a patch of `null` is none.
fn merged(target: &Value, patch: &Value) -> Value {
    let Value::Object(parts) = patch else {
        return if patch.is_null() { target.clone() } else { patch.clone() };
    };
    let mut result = target.as_object().cloned().unwrap_or_default();
    for (name, part) in parts {
        let before = result.remove(name).unwrap_or_default();
        if !part.is_null() {
            result.insert(name.clone(), merged(&before, part));
        }
    }
    result.into()
}

/// The same with the parts, where `null` is a value.
fn with_parts(target: &Value, parts: &Value) -> Value {
    let Value::Object(parts) = parts else { return parts.clone() };
    let mut result = target.as_object().cloned().unwrap_or_default();
    for (name, part) in parts {
        let before = result.remove(name).unwrap_or_default();
        result.insert(name.clone(), with_parts(&before, part));
    }
    result.into()
}

/// The fields that users set.
fn fields_of(cue: &Value) -> Value {
    FIELDS
        .iter()
        .map(|name| ((*name).to_owned(), cue[*name].clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

#[test]
fn the_list_has_every_field_and_its_default() {
    let list: Value = serde_json::from_str(LIST).unwrap();
    let (_server, user) = Server::with_user(&["--dev", "--limits", "off"]);
    assert_eq!(
        fields_of(&user.create(&list["base"])),
        with_parts(&list["defaults"], &list["base"])
    );
    // A flow is removed as a whole.
    let is_listed = |path: &&str| *path == "callback.flow" || parts_of(path).next().is_none();
    let fields: BTreeSet<String> = field_paths().filter(is_listed).map(str::to_owned).collect();
    let listed: Vec<String> = rows().into_iter().map(|row| row.field).collect();
    assert_eq!(listed.iter().cloned().collect::<BTreeSet<_>>(), fields);
    assert_eq!(listed.len(), listed.iter().collect::<BTreeSet<_>>().len());
}

/// A slug for the cue of a field.
fn slug_of(row: &Row) -> String {
    format!("f/{}", row.field.replace(['_', '.'], "-"))
}

fn find(user: &Client, slug: &str) -> Value {
    user.read(&format!("/v1/cues/slug:{}", slug.replace('/', "%2F")))
}

/// What `cue show` prints of a cue, without what only it has.
fn shown(home: &ClientHome, cue: &Value) -> String {
    let text = home.ok(&["cue", "show", id(cue)]);
    text.replace(cue.text("slug"), "SLUG").replace(id(cue), "ID")
}

#[test]
fn a_field_of_a_create_is_shown_listed_exported_and_applied() {
    let (server, user, home) = start();
    let (rows, mut plain) = (rows(), HashMap::new());
    for row in &rows {
        let create = |cue: &Value, slug: &str| user.create(&merged(&json!({"slug": slug}), cue));
        let cue = create(&row.cue, &slug_of(row));
        assert_eq!(value_at(&cue, &row.field), &row.value, "{}", row.field);
        assert!(!cue["warning"].to_string().contains("Ignored"), "{cue}");
        assert_eq!(fields_of(&stored(&user, id(&cue))), fields_of(&cue), "{}", row.field);
        if row.field != "slug" {
            let without = create(&row.without, "f/without");
            assert_ne!(value_at(&without, &row.field), &row.value, "{} has a default", row.field);
            let plain =
                plain.entry(row.without.to_string()).or_insert_with(|| shown(&home, &without));
            assert_ne!(shown(&home, &cue), *plain, "{} is in `cue show`", row.field);
            user.delete(&format!("/v1/cues/{}", id(&without)));
        }
    }
    let listed = user.read("/v1/cues?limit=100");
    let cues = listed.list("cues");
    assert_eq!(cues.len(), rows.len());
    let file = home.ok(&["export"]);
    let again = home.run_with_stdin(&["apply", "-f", "-"], &file);
    assert_eq!((again.code, again.stdout), (0, format!("= {} unchanged\n", rows.len())), "{file}");
    let other = server.user();
    let applied =
        ClientHome::signed_in(&server, &other).run_with_stdin(&["apply", "-f", "-"], &file);
    assert_eq!(applied.code, 0, "{applied:?}");
    for cue in cues {
        let cue = stored(&user, id(cue));
        assert_eq!(fields_of(&find(&other, cue.text("slug"))), fields_of(&cue), "{file}");
    }
}

#[test]
fn a_field_is_changed_and_reset_by_a_put() {
    let (_server, user, _home) = start();
    for row in rows() {
        let path = format!("/v1/cues/by-slug/{}", slug_of(&row));
        match row.field.as_str() {
            // The path of a PUT has it.
            "slug" => continue,
            "transport" => {
                user.put(&path, &row.without).expect(201);
                user.put(&path, &row.cue).expect(422);
                continue;
            }
            _ => {}
        }
        let default = user.put(&path, &row.without).expect(201);
        let dry = user.put(&format!("{path}?dry_run=true"), &row.cue).expect(200);
        let changed = user.put(&path, &row.cue).expect(200);
        let said = |answer: &Value| {
            (fields_of(answer), answer["changed"].clone(), answer["next_run"].clone())
        };
        assert_eq!(said(&dry), said(&changed), "{}", row.field);
        assert_eq!(value_at(&changed, &row.field), &row.value, "{}", row.field);
        let name = match row.field.as_str() {
            // The rule implies the type.
            "schedule.type" => "schedule.at",
            field if field.starts_with("callback.flow.") => "callback.flow",
            field => field,
        };
        assert!(changed.list("changed").contains(&name.into()), "{name}: {}", changed["changed"]);
        let again = user.put(&path, &row.cue).expect(200);
        assert_eq!(again["action"], "unchanged", "{}", row.field);
        assert_eq!(again["changed"], json!([]), "{}", row.field);
        let reset = user.put(&path, &row.without).expect(200);
        assert_eq!(reset["changed"], changed["changed"], "{}", row.field);
        assert_eq!(fields_of(&reset), fields_of(&default), "{}", row.field);
    }
}

#[test]
fn a_field_is_changed_alone_and_removed_by_a_patch() {
    let (_server, user, home) = start();
    for row in rows() {
        let cue = user.create(&merged(&json!({"slug": slug_of(&row)}), &row.cue));
        let path = format!("/v1/cues/{}", id(&cue));
        let Some((patch, other)) = &row.other else {
            user.patch(&path, &at_path(&row.field, &row.value)).expect(422);
            continue;
        };
        let name = row.field.split('.').next().unwrap();
        let same = user.patch(&path, &json!({ name: row.cue[name] })).expect(200);
        assert_eq!(fields_of(&same), fields_of(&cue), "{}", row.field);
        let changed = user.patch(&path, patch).expect(200);
        assert_eq!(value_at(&changed, &row.field), other, "{}", row.field);
        assert_eq!(fields_of(&stored(&user, id(&cue))), fields_of(&changed), "{}", row.field);
        let mut without = patch.clone();
        *row.field.split('.').fold(&mut without, |part, name| &mut part[name]) = Value::Null;
        let removed = user.patch(&path, &without);
        if row.is_nullable {
            let default = user.create(&row.without);
            assert_eq!(
                value_at(&removed.expect(200), &row.field),
                value_at(&default, &row.field),
                "{}",
                row.field
            );
        } else {
            assert!(matches!(removed.status, 200 | 422), "{}: {removed:?}", row.field);
            assert_eq!(fields_of(&stored(&user, id(&cue))), fields_of(&changed), "{}", row.field);
        }
        // The command sets any field by its name.
        let set = format!("{}={}", row.field, row.value);
        if !patch.as_object().unwrap().values().any(|part| part.get("cron").is_some()) {
            home.ok(&["cue", "set", id(&cue), &set]);
            assert_eq!(value_at(&stored(&user, id(&cue)), &row.field), &row.value, "{set}");
        }
    }
}

#[test]
fn a_field_is_set_by_flags() {
    let (_server, user, home) = start();
    for row in rows() {
        let Some(flags) = &row.flags else { continue };
        let flags: Vec<String> = flags.split(' ').map(|word| word.replace('\u{a0}', " ")).collect();
        let mut command = vec!["cue", "add", "-q"];
        let base: [(&str, &[&str]); 3] = [
            ("--name base", &["--name"]),
            ("--cron 0\u{a0}3\u{a0}*\u{a0}*\u{a0}*", &["--cron", "--at", "--every"]),
            ("--url http://127.0.0.1:9/a", &["--url", "--worker"]),
        ];
        let words: Vec<String> = base
            .iter()
            .filter(|(_, same)| !flags.iter().any(|flag| same.contains(&flag.as_str())))
            .flat_map(|(words, _)| words.split(' ').map(|word| word.replace('\u{a0}', " ")))
            .collect();
        command.extend(words.iter().chain(&flags).map(String::as_str));
        let added = home.ok(&command);
        assert_eq!(value_at(&stored(&user, added.trim()), &row.field), &row.value, "{command:?}");
    }
}
