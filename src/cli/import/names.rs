//! The names of cues and tasks that a crontab has none for: made from the programs of the commands.

use std::collections::BTreeSet;

use crate::domain::cue::slug::take_unused;

/// Characters of a name. A slug has at most 63 (contract §4.17), and a number may follow.
const MAX_NAME: usize = 48;

/// Commands in front of the one that does the work. What they do ends at a semicolon, `&&`, `||` or `|`.
const PREPARATIONS: &str = "cd test [ [[ export sleep . source umask ulimit set trap";
/// Commands that start the command after them.
const STARTERS: &str =
    "env exec nice ionice nohup setsid time timeout sudo chronic flock systemd-cat command";
/// Programs that are named by what they run.
const INTERPRETERS: &str = "sh bash dash zsh python python3 perl ruby node php run-parts";
const EXTENSIONS: [&str; 6] = [".sh", ".py", ".pl", ".rb", ".js", ".php"];

/// A name for each command, in order. The same commands in the same order always have the same names.
pub fn names<'a>(commands: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut taken = BTreeSet::new();
    commands.map(|command| take_unused(slug(program(command)), &mut taken)).collect()
}

/// The file name of the program that does the work; empty if the command has none.
fn program(command: &str) -> &str {
    let is_one_of = |list: &str, word: &str| list.split(' ').any(|known| known == word);
    let (mut interpreter, mut is_preparing, mut has_argument) = ("", false, false);
    for raw in command.split_whitespace() {
        if is_preparing {
            is_preparing = !(raw.ends_with(';') || matches!(raw, "&&" | "||" | "|"));
            continue;
        }
        let word = raw.trim_matches(|char| "(){};!\"'`".contains(char));
        let name = word.rsplit('/').next().unwrap_or(word);
        // `sudo -u NAME` and `flock FILE`.
        has_argument |= word == "-u" || name == "flock";
        let is_option =
            name.is_empty() || word.starts_with('-') || word.contains('=') || is_time(word);
        if is_option || is_one_of(STARTERS, name) {
            continue;
        }
        match () {
            () if is_one_of(PREPARATIONS, name) => is_preparing = !raw.ends_with(';'),
            () if is_one_of(INTERPRETERS, name) => interpreter = name,
            () if has_argument => has_argument = false,
            () => return name,
        }
    }
    interpreter
}

/// A number, with a unit or none.
fn is_time(word: &str) -> bool {
    let number = word.trim_end_matches(|char: char| "smhd".contains(char));
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

pub fn slug(program: &str) -> String {
    let program = program.to_ascii_lowercase();
    let stem =
        EXTENSIONS.iter().find_map(|extension| program.strip_suffix(extension)).unwrap_or(&program);
    let is_kept = |char: char| char.is_ascii_alphanumeric() || "._-".contains(char);
    let slug: String = stem.chars().map(|char| if is_kept(char) { char } else { '-' }).collect();
    let slug = slug.trim_matches(|char: char| !char.is_ascii_alphanumeric());
    match slug.get(..slug.len().min(MAX_NAME)).unwrap_or(slug) {
        "" => "job".to_owned(),
        slug => slug.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::domain::cue::slug::Slug;

    use super::*;

    #[test]
    fn a_command_is_named_by_its_program() {
        let long = format!("/bin/{}", "x".repeat(100));
        for (command, name) in [
            ("/usr/local/bin/backup.sh --full", "backup"),
            ("backup >> /var/log/x 2>&1", "backup"),
            ("cd / && run-parts --report /etc/cron.hourly", "cron.hourly"),
            (
                "test -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }",
                "cron.daily",
            ),
            ("[ -x /bin/x ] && /bin/x", "x"),
            ("cd /srv; ./Report.PY", "report"),
            ("LANG=C nice -n 19 ionice -c3 /opt/scrub", "scrub"),
            ("/usr/bin/flock -n /tmp/lock sudo -u anna timeout 10m rsync a b", "rsync"),
            ("php /var/www/artisan schedule:run", "artisan"),
            ("sh -c 'cd /x && make all'", "make"),
            ("python3 -m report", "report"),
            ("bash", "bash"),
            ("7z a x", "7z"),
            ("(sleep 5; curl http://a/?b=c)", "curl"),
            ("größe.sh", "gr--e"),
            ("\"$HOME/bin/x y\"", "x"),
            ("A=b", "job"),
            ("''", "job"),
            (&long, &long[5..53]),
        ] {
            assert_eq!(names([command].into_iter()), [name], "{command}");
            assert!(Slug::parse(name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_name_that_is_used_gets_a_number() {
        let commands = ["a-2", "a x", "/bin/a", "a", "b"];
        assert_eq!(names(commands.into_iter()), ["a-2", "a", "a-3", "a-4", "b"]);
    }
}
