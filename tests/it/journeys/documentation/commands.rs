//! The commands that the test cannot run: they need root or another machine. Those of `cued` must exist, with their flags.

use clap::CommandFactory as _;
use clap::error::ErrorKind;
use cued::cli::Cli;

/// Checks the lines of a terminal, with prompts and output; returns what is wrong.
pub fn console_faults(text: &str) -> Vec<String> {
    let text = text.replace("\\\n", " ");
    let with_prompt =
        text.lines().filter_map(|line| line.strip_prefix("$ ").or(line.strip_prefix("# ")));
    faults(with_prompt)
}

/// Checks the lines of a script; returns what is wrong.
pub fn script_faults(text: &str) -> Vec<String> {
    faults(text.replace("\\\n", " ").lines())
}

fn faults<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut found = Vec::new();
    for line in lines {
        for words in simple_commands(line) {
            if let Some(error) = fault(&words) {
                found.push(format!("{line}: {error}"));
            }
        }
    }
    found
}

/// Why a command of `cued` is not understood; none for other programs.
fn fault(words: &[String]) -> Option<String> {
    let start = words.iter().position(|word| ends_in_cued(word))?;
    // `sudo -u cued cued …`: the program is the last of the two.
    let start =
        if words.get(start + 1).is_some_and(|word| ends_in_cued(word)) { start + 1 } else { start };
    let runs_it = |word: &String| {
        ["sudo", "-u", "cued", "docker", "exec", "-it", "env", "time", "exec"]
            .contains(&word.as_str())
            || word.contains('=')
    };
    if !words[..start].iter().all(runs_it) {
        return None;
    }
    let error = Cli::command().try_get_matches_from(&words[start..]).err()?;
    let is_shown = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    (!is_shown).then(|| error.to_string())
}

fn ends_in_cued(word: &str) -> bool {
    word == "cued" || word.ends_with("/cued")
}

/// The words of each simple command of a line of a shell: enough of its grammar for documentation.
fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let mut characters = line.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '\'' | '"' => {
                let inner: String = characters.by_ref().take_while(|next| *next != c).collect();
                word.get_or_insert_default().push_str(&inner);
            }
            '$' if characters.peek() == Some(&'(') => {
                let inner: String = characters.by_ref().take_while(|next| *next != ')').collect();
                word.get_or_insert_default().push_str(&format!("${inner})"));
            }
            '#' if word.is_none() => break,
            // The rest names a file or another descriptor.
            '<' | '>' => {
                words.extend(word.take().filter(|word| word != "2"));
                while characters.next_if(|next| ['<', '>', '&', ' '].contains(next)).is_some() {}
                while characters.next_if(|next| !next.is_whitespace()).is_some() {}
            }
            '|' | '&' | ';' => {
                words.extend(word.take());
                commands.push(std::mem::take(&mut words));
            }
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    commands.push(words);
    commands.retain(|words| !words.is_empty());
    commands
}

#[test]
fn commands_with_unknown_flags_are_found_behind_other_programs() {
    for right in [
        "$ cued cue list --json | head -1   # two",
        "$ sudo -u cued cued user add me@example.com --db /var/lib/cued/cued.db",
        "$ CUED_URL=http://pi.lan cued run list 2>/dev/null && cued whoami > file",
        "$ cued cue add --name a --cron '0 3 * * *' \\\n    --url \"http://pi.lan/$(hostname)\"",
        "$ grep cued --nothing file",
        "cued --nothing is output",
        "$ cued work --help",
    ] {
        assert_eq!(console_faults(right), Vec::<String>::new());
    }
    for wrong in [
        "$ cued --nothing",
        "$ true; cued cue list --nothing",
        "$ sudo cued nothing",
        "$ docker exec cued /cued health --nothing",
        "$ cued whoami | cued nothing",
    ] {
        assert_eq!(console_faults(wrong).len(), 1, "{wrong}");
    }
    assert_eq!(script_faults("cued whoami\ncued nothing\n").len(), 1);
}
