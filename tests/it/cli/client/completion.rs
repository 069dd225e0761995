//! `cued completions` in the shells, and the names that they show.

use crate::cli::client::{add, start};
use crate::support::*;

/// The script of a shell.
fn script(home: &ClientHome, shell: &str) -> String {
    let file = home.folder().join(shell);
    std::fs::write(&file, home.ok(&["completions", shell])).unwrap();
    file.to_str().unwrap().to_owned()
}

/// What a line of a shell prints in the environment of a home; `None` where there is no such shell.
fn shell(home: &ClientHome, program: &str, flags: &[&str], line: &str) -> Option<Vec<String>> {
    if Command::new(program).arg("--version").output().is_err() {
        skip(&format!("there is no {program}"));
        return None;
    }
    let mut shell = Command::new(program);
    for (name, value) in
        home.command(&[]).get_envs().filter_map(|(name, value)| Some((name, value?)))
    {
        shell.env(name, value);
    }
    let output = shell.args(flags).args(["-c", line]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{program}: {output:?}");
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

#[test]
fn the_shells_complete_commands_flags_and_names() {
    let (_server, _user, home) = start();
    add(&home, "weekly report");
    add(&home, "weekend");
    let cued = env!("CARGO_BIN_EXE_cued");
    let bash = |words: &str, last: usize| {
        let line = format!(
            "source {}; COMP_WORDS=({words}) COMP_CWORD={last}; _cued {cued}; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            script(&home, "bash")
        );
        shell(&home, "bash", &["--norc"], &line).unwrap()
    };
    assert_eq!(bash("cued whoami --js", 2), ["--json"]);
    assert_eq!(bash("cued cue list --output = js", 5), ["json", "jsonl"]);
    assert_eq!(named(&|| bash("cued cue show week", 3)), ["weekend", "weekly\\ report"]);
    assert_eq!(named(&|| bash("cued cue show 'weekly\\ r'", 3)), ["weekly\\ report"]);
    let zsh = format!(
        "compdef() {{ : }}; compadd() {{ print -rl -- $values }}; source {}; words=({cued} cue show week); CURRENT=4; _cued",
        script(&home, "zsh")
    );
    if shell(&home, "zsh", &["-f"], "").is_some() {
        let words = named(&|| shell(&home, "zsh", &["-f"], &zsh).unwrap());
        assert_eq!(words, ["weekend", "weekly report"]);
    }
    let fish = format!(
        "source {}; alias cued {cued}; complete -C 'cued cue show week'",
        script(&home, "fish")
    );
    if shell(&home, "fish", &["--no-config"], "").is_some() {
        let words = named(&|| shell(&home, "fish", &["--no-config"], &fish).unwrap());
        assert_eq!(words, ["weekend\tactive", "weekly report\tactive"]);
    }
}

/// The names of a completion, which gives up when a busy machine takes long to answer.
fn named(complete: &dyn Fn() -> Vec<String>) -> Vec<String> {
    until("an answer", || Some(complete()).filter(|names| !names.concat().is_empty()))
}

#[test]
fn a_script_is_small() {
    let home = ClientHome::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = home.ok(&["completions", shell]);
        assert!(script.len() < 2_000 && script.contains("complete"), "{script}");
    }
    home.fails(&["completions", "tcsh"], 2);
}

#[test]
fn names_come_from_the_server_and_the_profile_of_the_line() {
    let (server, user, home) = start();
    for name in ["twin", "twin", "other"] {
        add(&home, name);
    }
    let complete = |home: &ClientHome, line: &str| {
        let words: Vec<&str> = ["complete", "--"].into_iter().chain(line.split(' ')).collect();
        let run = home.run(&words);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{line}: {run:?}");
        run.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let answered = |home: &ClientHome, line: &str| named(&|| complete(home, line));
    assert_eq!(answered(&home, "cue show o"), ["other\tactive"]);
    // A name of two cues is one candidate: the command answers with the choice.
    let mut all = answered(&home, "run list --cue ");
    all.sort();
    assert_eq!(all, ["other\tactive", "twin\tseveral have this name"]);
    assert_eq!(answered(&home, "cue show tw"), ["twin\tseveral have this name"]);
    assert_eq!(answered(&home, "channel show F"), ["Failure emails\tactive"]);

    let stored = ClientHome::new();
    stored.store(&json!({"current": null, "profiles": {
        "home": {"url": server.url(), "api_key": user.key()}, "hotel": {"url": "http://127.0.0.1:1", "api_key": "cue_sk_x"},
    }}));
    let [one, two] = [("home", server.url()), ("hotel", "http://127.0.0.1:1".to_owned())]
        .map(|(name, url)| format!("{name}\t{url}"));
    assert_eq!(complete(&stored, "cue list --profile ho"), [one, two]);
    assert_eq!(answered(&stored, "cue show --profile home o"), ["other\tactive"]);
    assert_eq!(answered(&stored, "--profile home cue show o"), ["other\tactive"]);
    assert!(complete(&stored, "cue show --profile hotel o").is_empty(), "nothing listens there");
    assert!(complete(&stored, "cue show o").is_empty(), "nobody is signed in");

    let silent = Receiver::with(Reaction::Hang);
    let slow = ClientHome::new().env("CUED_URL", silent.url()).env("CUED_API_KEY", "cue_sk_x");
    assert!(complete(&slow, "cue show o").is_empty(), "it gives up");
}
