//! `cued cue edit`, previews, and YAML.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use cued::cli::input::yaml;
use cued::cli::output::yaml::document;
use cued::domain::json;

use crate::cli::client::sign_in::at_terminal;
use crate::support::*;

struct EditSession {
    user: Client,
    home: ClientHome,
    _server: Server,
}

impl EditSession {
    /// `script` edits the file `$1`. Temporary files are in the home folder.
    fn with(script: &str) -> Self {
        let (server, user) = Server::with_clock_and_user("2030-01-01T00:00:00Z");
        let home = ClientHome::signed_in(&server, &user);
        let editor = home.folder().join("editor.sh");
        fs::write(&editor, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&editor, fs::Permissions::from_mode(0o700)).unwrap();
        let folder = home.folder();
        let home = home.env("EDITOR", editor).env("TMPDIR", folder);
        Self { user, home, _server: server }
    }

    fn add_cue(&self) -> String {
        let cue = json!({
            "name": "n", "description": "d", "schedule": {"type": "recurring", "cron": "0 9 * * *"},
            "callback": {"url": "http://127.0.0.1:9/", "headers": {"X-A": "1"}},
            "payload": {"big": 1, "text": "a\u{1b}: b"},
        });
        self.user.create(&cue)["id"].as_str().unwrap().to_owned()
    }

    fn cue(&self, id: &str) -> Value {
        self.user.get(&format!("/v1/cues/{id}")).expect(200)
    }

    /// The files that are left of edited texts.
    fn kept(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.home.folder()).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")).collect()
    }
}

#[test]
fn the_editor_shows_the_cue_and_its_changes_are_sent() {
    let editing = EditSession::with(
        r#"cp "$1" seen; sed -i 's/^  cron: .*/  cron: "0 3 * * *"/; /^description/d; s/  big: 1/  big: 12345678901234567890123/' "$1""#,
    );
    let id = editing.add_cue();
    let changed = editing.home.ok(&["cue", "edit", "n"]);
    let expected = format!(
        "changed n ({id}): description, payload, schedule; next run 2030-01-01 03:00:00+00:00\n"
    );
    assert_eq!(changed, expected);
    let seen = fs::read_to_string(editing.home.folder().join("seen")).unwrap();
    let fields: Vec<&str> = seen.lines().filter(|line| !line.starts_with([' ', '#'])).collect();
    let expected = "'name: \"n\"' 'slug: null' 'description: d' 'tags: []' schedule: callback: payload: retry: on_failure: verification: \
         'overlap: allow' 'max_age_seconds: null' 'outcome_deadline_seconds: null'";
    assert_eq!(fields, words(expected), "{seen}");
    assert_contains(&seen, &["  cron: \"0 9 * * *\"\n  timezone: UTC\n  catch_up: latest\n"]);
    let cue = editing.cue(&id);
    assert_eq!(cue["schedule"]["cron"], "0 3 * * *");
    assert_eq!(cue["description"], json!(null));
    assert_eq!(
        cue["payload"].to_string(),
        r#"{"big":12345678901234567890123,"text":"a\u001b: b"}"#
    );
    assert_eq!(editing.kept(), Vec::<PathBuf>::new());
}

#[test]
fn a_text_without_changes_sends_nothing() {
    for script in ["true", "echo '# only a comment' > \"$1\""] {
        let editing = EditSession::with(script);
        let id = editing.add_cue();
        let before = editing.cue(&id);
        let run = editing.home.run(&["cue", "edit", &id]);
        assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{run:?}");
        assert!(run.stderr.contains("nothing was changed"), "{run:?}");
        assert_eq!(editing.cue(&id), before);
        assert_eq!(editing.kept(), Vec::<PathBuf>::new());
    }
}

impl EditSession {
    /// The editor renames the cue, and another client makes a request of it at the same time.
    fn beside(request: &str) -> (Self, String) {
        let curl =
            format!(r#"curl -s -o /dev/null -H "Authorization: Bearer $CUED_API_KEY" {request}"#);
        let Self { user, home, _server } =
            Self::with(&format!("sed -i 's/^name: .*/name: mine/' \"$1\"\n{curl}"));
        let editing = Self { user, home: ClientHome::new(), _server };
        let id = editing.add_cue();
        (Self { home: home.env("CUE", &id), ..editing }, id)
    }
}

#[test]
fn a_cue_that_was_changed_by_another_client_is_not_overwritten() {
    let (editing, id) =
        EditSession::beside(r#"-X PATCH "$CUED_URL/v1/cues/$CUE" -d '{"name": "theirs"}'"#);
    let error = editing.home.fails(&["cue", "edit", &id], 5);
    assert!(
        error.contains("was changed in the meantime; nothing was sent; the text is kept in "),
        "{error}"
    );
    assert_eq!(editing.cue(&id)["name"], "theirs");
    let kept = editing.kept();
    assert!(error.contains(kept[0].to_str().unwrap()), "{error}");
    assert!(fs::read_to_string(&kept[0]).unwrap().contains("name: mine"));
    assert_eq!(fs::metadata(&kept[0]).unwrap().permissions().mode() & 0o777, 0o600);
    // A run changes the times of a cue, and none of the fields that a person edits.
    let (editing, id) = EditSession::beside(r#"-X POST "$CUED_URL/v1/cues/$CUE/fire""#);
    editing.home.ok(&["cue", "edit", &id]);
    let cue = editing.cue(&id);
    assert_eq!((&cue["name"], &cue["run_count"]), (&json!("mine"), &json!(1)));
}

#[test]
fn a_text_that_cannot_be_read_is_kept_and_its_fault_has_a_place() {
    let editing = EditSession::with("printf 'name: x\\nname: y\\n' > \"$1\"");
    let id = editing.add_cue();
    let error = editing.home.fails(&["cue", "edit", &id], 2);
    let path = editing.kept().remove(0);
    let expected = format!(
        "cued: the text cannot be read: 2:1: the key \"name\" is repeated; the text is kept in {}\n",
        path.display()
    );
    assert_eq!(error, expected);
    assert_eq!(fs::read_to_string(path).unwrap(), "name: x\nname: y\n");
}

#[test]
fn a_text_that_the_server_refuses_is_kept() {
    let editing = EditSession::with(r#"sed -i 's/^  cron: .*/  cron: "0 9 * * 8"/' "$1""#);
    let id = editing.add_cue();
    let error = editing.home.fails(&["cue", "edit", &id], 5);
    assert!(error.contains("\n  0 9 * * 8\n          ^\nthe text is kept in "), "{error}");
    let json = editing.home.json_error(&["cue", "edit", &id], 5);
    assert_has(&json, json!({"code": "invalid_schedule", "field": "day-of-week"}));
    assert!(json["message"].as_str().unwrap().contains("the text is kept in "), "{json}");
    assert_eq!(editing.kept().len(), 2);
    assert_eq!(editing.cue(&id)["schedule"]["cron"], "0 9 * * *");
}

#[test]
fn an_unknown_field_has_the_nearest_name_and_the_kept_text_is_named() {
    let editing = EditSession::with("echo 'nmae: y' >> \"$1\"");
    let id = editing.add_cue();
    let error = editing.home.fails(&["cue", "edit", &id], 5);
    let path = editing.kept().remove(0);
    let fault = "there is no field \"nmae\"; did you mean \"name\"?";
    assert_eq!(error, format!("cued: {fault}; the text is kept in {}\n", path.display()));
    let Some((mut edit, mut keyboard)) = at_terminal(&editing.home, &format!("cue edit {id}"))
    else {
        return;
    };
    edit.until("Edit again? [Y/n] ");
    keyboard.write_all(b"n\n").unwrap();
    assert_eq!(edit.code(), 5);
    let output = edit.output();
    assert_eq!(output.matches(fault).count(), 1, "{output}");
    assert!(output.contains("cued: nothing was changed; the text is kept in /"), "{output}");
}

#[test]
fn a_failing_editor_changes_nothing() {
    let editing = EditSession::with("sed -i 's/^name: .*/name: x/' \"$1\"; exit 3");
    let id = editing.add_cue();
    assert!(editing.home.fails(&["cue", "edit", &id], 1).contains("failed; nothing was changed"));
    assert_eq!(editing.cue(&id)["name"], "n");
    let without = ClientHome::signed_in(&editing._server, &editing.user);
    assert!(without.fails(&["cue", "edit", &id], 2).contains("set VISUAL or EDITOR"));
}

#[test]
fn a_new_cue_is_edited_before_it_is_added() {
    let editing = EditSession::with(
        r#"cp "$1" seen; sed -i 's/^name: .*/name: from editor/; s/^  cron:.*/  at: 2030-05-01T10:00/' "$1""#,
    );
    let flags = ["--url", "http://127.0.0.1:9/x", "--tz", "Europe/Berlin"];
    let added = editing.home.json(&[&["cue", "add", "--edit"][..], &flags].concat());
    assert_eq!(added["name"], "from editor");
    assert_eq!(added["schedule"]["type"], "once");
    assert_eq!(added["next_run"], "2030-05-01T08:00:00+00:00");
    let seen = fs::read_to_string(editing.home.folder().join("seen")).unwrap();
    assert!(
        seen.starts_with("# A new cue.") && seen.contains("  timezone: Europe/Berlin\n"),
        "{seen}"
    );
    assert_contains(&seen, &["callback:\n  url: \"http://127.0.0.1:9/x\"\n  method: POST\n"]);
}

#[test]
fn an_empty_text_adds_no_cue() {
    let editing = EditSession::with(": > \"$1\"");
    let error = editing.home.fails(&["cue", "add", "--edit"], 2);
    assert!(error.starts_with("cued: the text is empty; no cue was added"), "{error}");
    assert_eq!(editing.user.get("/v1/cues").expect(200)["total"], 0);
}

#[test]
fn any_json_is_the_same_after_it_was_written_and_read_as_yaml() {
    let mut random = Random::new(12);
    for _ in 0..3_000 {
        let text = random_document(&mut random, 5);
        let expected = json::read(text.as_bytes()).unwrap().get().to_value();
        let written = document(&text).unwrap();
        let read =
            yaml::read(&written).unwrap_or_else(|error| panic!("{error} in {written:?} of {text}"));
        assert_eq!(read, expected, "{written:?}");
        match yaml::read(&text) {
            Ok(read) => assert_eq!(canonical(&read), canonical(&expected), "{text}"),
            Err(error) => assert!(error.ends_with("is repeated"), "{error} in {text}"),
        }
    }
}

/// Numbers in the form that the server stores.
fn canonical(value: &Value) -> String {
    json::read(value.to_string().as_bytes()).unwrap().into_string()
}

#[test]
fn texts_that_yaml_would_read_as_something_else_are_quoted() {
    for json in [
        r#"{"a":[],"b":{},"c":[[1,[2]],[{"x":1,"y":[{}]}]],"d":"","null":null,"~":"~"}"#,
        r##"["yes","no","1","1.5","- a","a: b","#c","é","\u0007","\u0085\u2028","\ufeff","a\nb","'","\"","\\"]"##,
        r#"[-0.5,1e-7,true,false,"0x1F",".inf","2030-01-01","<<","=","%a","@a","`a`","!a","&a","*a","|",">"]"#,
        "3",
        "\"\u{10ffff}\u{7f}\u{80}\u{9b}\u{202e}\u{fffe}\"",
    ] {
        let expected = json::read(json.as_bytes()).unwrap().get().to_value();
        let written = document(json).unwrap();
        assert_eq!(yaml::read(&written), Ok(expected), "{written}");
    }
    assert_eq!(
        document(r#"{"b":[{"x":1,"z":[2]},[3]],"a":{}}"#).unwrap(),
        "a: {}\nb:\n  - x: 1\n    z:\n      - 2\n  -\n    - 3\n"
    );
}
