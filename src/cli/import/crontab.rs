//! A crontab as jobs, as crontab(5) of Vixie cron and cronie describes it. It reads no files and knows no zone of a
//! machine.

use std::collections::BTreeMap;

use crate::domain::schedule::Zone;
use crate::domain::schedule::cron::CronExpr;

const BLANKS: [char; 2] = [' ', '\t'];

/// A line with a schedule and a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Five fields with a blank between them, or a macro such as `@daily`.
    pub schedule: String,
    /// The user whose rights the command has, in a crontab of the system.
    pub user: Option<String>,
    pub command: String,
    /// What the command reads from standard input; empty for most.
    pub input: String,
    /// The comment directly above the line.
    pub description: String,
    /// The variables that are set above the line.
    pub variables: BTreeMap<String, String>,
    /// What it means less than in a crontab.
    pub differences: Vec<&'static str>,
}

/// What a person has to know about a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// It is no line of a crontab, so that nothing is imported.
    Fault(String),
    /// It is a job that no cue can do.
    Skipped(String),
    /// It means less than in a crontab.
    Differs(String),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Crontab {
    pub jobs: Vec<Job>,
    /// With the number of the line, from 1.
    pub notes: Vec<(usize, Note)>,
}

/// Reads a crontab: of a user, or of the system, where each line names the user of its command.
pub fn parse(text: &str, is_system: bool) -> Crontab {
    let mut crontab = Crontab::default();
    let mut variables = BTreeMap::new();
    let mut comments: Vec<&str> = Vec::new();
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim_start_matches(BLANKS).trim_end_matches('\r');
        let above = std::mem::take(&mut comments);
        if let Some(comment) = line.strip_prefix('#') {
            let is_kept = !is_unrelated(comment, is_system);
            comments = above.into_iter().filter(|_| is_kept).collect();
            comments.extend(is_kept.then(|| comment.trim_matches('#').trim()));
        } else if let Some(variable) = variable(line) {
            match variable {
                Ok((name, value)) => {
                    crontab.notes.extend(difference(&name, &value).map(|note| (index + 1, note)));
                    variables.insert(name, value);
                }
                Err(fault) => crontab.notes.push((index + 1, Note::Fault(fault))),
            }
        } else if !line.trim_end_matches(BLANKS).is_empty() {
            match job(line, is_system) {
                Ok(job) => {
                    let description = above.join("\n").trim().to_owned();
                    let differences =
                        job.differences.iter().map(|text| Note::Differs((*text).to_owned()));
                    crontab.notes.extend(differences.map(|note| (index + 1, note)));
                    crontab.jobs.push(Job { description, variables: variables.clone(), ..job });
                }
                Err(note) => crontab.notes.push((index + 1, note)),
            }
        }
    }
    crontab
}

/// Whether a comment does not describe the line below it: it is a job that is switched off, or the heading of the fields,
/// which `crontab -e` and Debian's /etc/crontab come with.
fn is_unrelated(comment: &str, is_system: bool) -> bool {
    let comment = comment.trim();
    comment.contains("dom mon dow") || job(comment, is_system).is_ok()
}

/// The name and the value of a line that sets a variable, or what is wrong with it; `None` for another line.
fn variable(line: &str) -> Option<Result<(String, String), String>> {
    let (name, rest) = match line.chars().next().filter(|first| is_quote(*first)) {
        Some(quote) => line[1..].split_once(quote)?,
        None => line.split_at(line.find([' ', '\t', '='])?),
    };
    let value = rest.trim_start_matches(BLANKS).strip_prefix('=')?.trim_matches(BLANKS);
    if name.is_empty() || name.contains('=') {
        return Some(Err(
            "the name of a variable stands before the =, as in PATH=/usr/bin".to_owned()
        ));
    }
    let value = match value.chars().next().filter(|first| is_quote(*first)) {
        None => Ok(value),
        Some(quote) => match value[1..].split_once(quote) {
            Some((text, "")) => Ok(text),
            Some(_) => {
                Err(format!("there is text after the second {quote}; put all of the value into it"))
            }
            None => Err(format!("the value begins with {quote}, and lacks one at its end")),
        },
    };
    let value = value.and_then(|value| match name {
        _ if line.contains('\0') => Err("remove the NUL character".to_owned()),
        // A colon in front is permitted in TZ.
        "CRON_TZ" if !value.is_empty() => match Zone::find(value.trim_start_matches(':')) {
            Ok(zone) => Ok(zone.name().to_owned()),
            Err(unknown) => Err(format!("CRON_TZ: {unknown}")),
        },
        _ => Ok(value.to_owned()),
    });
    Some(value.map(|value| (name.to_owned(), value)))
}

fn is_quote(char: char) -> bool {
    matches!(char, '"' | '\'')
}

fn difference(name: &str, value: &str) -> Option<Note> {
    let text = match name {
        "MAILTO" if !value.is_empty() => {
            "failures are mailed to your account, not to MAILTO".to_owned()
        }
        "RANDOM_DELAY" => "RANDOM_DELAY is not used; set schedule.jitter_seconds".to_owned(),
        _ => return None,
    };
    Some(Note::Differs(text))
}

/// The first word of a text, and the rest after the blanks.
fn word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(BLANKS).unwrap_or((text, ""));
    (word, rest.trim_start_matches(BLANKS))
}

fn job(line: &str, is_system: bool) -> Result<Job, Note> {
    // For cronie it means that the command is not logged.
    let line = line.strip_prefix('-').unwrap_or(line);
    let fault = |text: &str| Err(Note::Fault(text.to_owned()));
    if !line.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '*' | '@' | '~')) {
        return fault("expected five fields and a command, NAME=VALUE, or a comment after #");
    }
    if is_of_anacron(line) {
        return fault("this is a line of an anacrontab; write a time, as in `0 3 * * * COMMAND`");
    }
    let (schedule, rest) = timing(line);
    if schedule.eq_ignore_ascii_case("@reboot") {
        let text = "@reboot: a cue has no time for it; keep the line, or use a systemd unit";
        return Err(Note::Skipped(text.to_owned()));
    }
    let cron = CronExpr::parse(&schedule).map_err(|error| Note::Fault(error.to_string()))?;
    let (user, command) = if is_system { word(rest) } else { ("", rest) };
    if is_system && !is_user(user) {
        return fault("expected a user after the fields; leave out --system for `crontab -l`");
    }
    if command.trim_end_matches(BLANKS).is_empty() {
        return fault("the command is missing; comment the line out if it has none");
    }
    if !is_system && word(command).0 == "root" {
        return fault("`root` is no command; add --system for a file with a column of users");
    }
    if command.contains('\0') {
        return fault("remove the NUL character");
    }
    if !cron.ever_matches() {
        return Err(Note::Skipped(
            "no date has this day and month, so that it never runs".to_owned(),
        ));
    }
    let (flags, command) = without_flags(command);
    let (command, input) = split_input(command);
    let user = is_system.then(|| user.to_owned());
    let differences = [
        flags.then_some("-n, -q and -s are left out: no success is mailed, `overlap` is skip"),
        ends_quietly(&command)
            .then_some("the run fails if the part before && does; write if …; then …; fi"),
    ];
    let differences = differences.into_iter().flatten().collect();
    let (description, variables) = (String::new(), BTreeMap::new());
    Ok(Job { schedule, user, command, input, description, variables, differences })
}

/// `1 5 cron.daily COMMAND` and `@monthly 45 cron.monthly COMMAND`: a period, a delay in minutes and a name.
fn is_of_anacron(line: &str) -> bool {
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let (period, rest) = word(line);
    let (delay, rest) = word(rest);
    let has_name = word(rest).0.starts_with(|first: char| first.is_ascii_alphabetic());
    is_number(delay) && has_name && (is_number(period) || period.starts_with('@'))
}

/// Whether a command has flags of cron in front, as crontabs of OpenBSD and FreeBSD, and the command without them.
fn without_flags(command: &str) -> (bool, &str) {
    let (mut has_flags, mut command) = (false, command);
    while let (flag, rest) = word(command)
        && flag
            .strip_prefix('-')
            .is_some_and(|flag| !flag.is_empty() && flag.bytes().all(|it| b"nqs".contains(&it)))
        && !rest.is_empty()
    {
        (has_flags, command) = (true, rest);
    }
    (has_flags, command)
}

/// `[ -x /bin/x ] && /bin/x` ends with 1 where there is nothing to do. What only prepares, as `cd`, is expected to work.
fn ends_quietly(command: &str) -> bool {
    let check =
        command.split_once("&&").map(|(check, _)| check).filter(|check| !check.contains("||"));
    let prepares = |check: &str| {
        ["cd", "export", ".", "source", "umask", "ulimit", "sleep"].contains(&word(check).0)
    };
    check.is_some_and(|check| !prepares(check.trim_start_matches(['(', '{', ' '])))
}

/// The schedule at the beginning of a line, and the rest.
fn timing(line: &str) -> (String, &str) {
    let count = if line.starts_with('@') { 1 } else { 5 };
    let (mut fields, mut rest) = (Vec::new(), line);
    for _ in 0..count {
        let (field, others) = word(rest);
        fields.push(field);
        rest = others;
    }
    (fields.join(" ").trim_end().to_owned(), rest)
}

/// Whether a text may be the name of a user. It becomes a part of the name of a file.
fn is_user(text: &str) -> bool {
    let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_')
        && text.bytes().all(is_inside)
}

/// The command, up to the first `%`, and its input: there each `%` is a newline. After a backslash a `%` is one.
fn split_input(text: &str) -> (String, String) {
    let (mut command, mut chars) = (String::new(), text.chars());
    while let Some(char) = chars.next().filter(|char| *char != '%') {
        match if char == '\\' { chars.next() } else { None } {
            Some('%') => command.push('%'),
            other => command.extend([char].into_iter().chain(other)),
        }
    }
    // A text of a crontab has no NUL.
    let mut input = chars.as_str().replace("\\%", "\0").replace('%', "\n").replace('\0', "%");
    if !input.is_empty() && !input.ends_with('\n') {
        input.push('\n');
    }
    (command.trim_end_matches(BLANKS).to_owned(), input)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn faults(text: &str, is_system: bool) -> String {
        let notes = parse(text, is_system).notes.into_iter();
        let lines = notes.map(|(line, note)| match note {
            Note::Fault(text) => format!("{line}: {text}"),
            Note::Skipped(text) => format!("{line}: skipped: {text}"),
            Note::Differs(text) => format!("{line}: differs: {text}"),
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The only job of a text without notes.
    #[track_caller]
    fn only(text: &str, is_system: bool) -> Job {
        let crontab = parse(text, is_system);
        assert_eq!((crontab.jobs.len(), &crontab.notes[..]), (1, &[][..]), "{text:?}");
        crontab.jobs.into_iter().next().unwrap()
    }

    #[test]
    fn a_line_is_a_schedule_and_a_command_in_every_form() {
        for (line, schedule, command) in [
            ("0 3 * * * backup", "0 3 * * *", "backup"),
            ("  17 *\t* * *\t \tbackup -f  x \t", "17 * * * *", "backup -f  x"),
            ("*/5 0-6,22 1-7/2 jan,Mar MON-fri x", "*/5 0-6,22 1-7/2 jan,Mar MON-fri", "x"),
            ("0 0 1 * 7 x", "0 0 1 * 7", "x"),
            ("@daily x", "@daily", "x"),
            ("@HOURLY\tx", "@HOURLY", "x"),
            ("-*/15 * * * * x", "*/15 * * * *", "x"),
            ("0 3 * * * A=b x # no comment", "0 3 * * *", "A=b x # no comment"),
            ("0 3 * * * x\r\n\r\n", "0 3 * * *", "x"),
            ("\u{feff}0 3 * * * x\r", "0 3 * * *", "x"),
        ] {
            let job = only(line, false);
            assert_eq!(
                (job.schedule.as_str(), job.command.as_str()),
                (schedule, command),
                "{line:?}"
            );
            assert_eq!((job.user, job.input.as_str()), (None, ""), "{line:?}");
        }
        for (line, user, command) in [
            ("17 *\t* * *\troot\tcd / && run-parts x", "root", "cd / && run-parts x"),
            ("@daily www-data x", "www-data", "x"),
            ("-0 3 * * * _apt.2 x", "_apt.2", "x"),
        ] {
            let job = only(line, true);
            assert_eq!(
                (job.user.as_deref(), job.command.as_str()),
                (Some(user), command),
                "{line:?}"
            );
        }
    }

    #[test]
    fn what_a_line_means_less_is_said_and_flags_of_cron_are_left_out() {
        for (command, left, note) in [
            ("-n x -n", "x -n", "-n, -q and -s are left out"),
            ("-qs -n x", "x", "-n, -q and -s are left out"),
            (
                "[ -x /bin/x ] && /bin/x",
                "[ -x /bin/x ] && /bin/x",
                "the run fails if the part before && does",
            ),
            ("-x y", "-x y", ""),
            ("-n", "-n", ""),
            ("(cd /x && make)", "(cd /x && make)", ""),
            ("test -x a || { cd / && b; }", "test -x a || { cd / && b; }", ""),
        ] {
            for (line, is_system) in [("0 3 * * * ", false), ("0 3 * * * root ", true)] {
                let crontab = parse(&format!("{line}{command}"), is_system);
                assert_eq!(crontab.jobs[0].command, left);
                let notes: Vec<_> = crontab.notes.into_iter().map(|(_, note)| note).collect();
                match (&notes[..], note) {
                    ([], "") => {}
                    ([Note::Differs(text)], note) => {
                        assert!(!note.is_empty() && text.starts_with(note), "{text}")
                    }
                    other => panic!("{command}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn the_first_percent_sign_ends_the_command_and_the_others_are_newlines() {
        for (text, command, input) in [
            ("x", "x", ""),
            ("x%", "x", ""),
            ("x %a", "x", "a\n"),
            ("x%a%%b%", "x", "a\n\nb\n"),
            ("date +\\%F", "date +%F", ""),
            ("date +\\%F%50\\% of%it", "date +%F", "50% of\nit\n"),
            ("x\\\\%a", "x\\\\", "a\n"),
            ("x\\n\\", "x\\n\\", ""),
        ] {
            assert_eq!(split_input(text), (command.to_owned(), input.to_owned()), "{text}");
        }
    }

    #[test]
    fn variables_apply_to_the_lines_after_them() {
        let text = "0 1 * * * a\nA = 1 \n'B C'=\" x \"\n0 2 * * * b\nA=\nMAILTO=\"\"\n\
                    CRON_TZ=:europe/berlin\nD=x # y\nE='a\"b'\n0 3 * * * c";
        let crontab = parse(text, false);
        let variables = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        let [a, b, c] = &crontab.jobs[..] else { panic!("{crontab:?}") };
        assert_eq!(a.variables, BTreeMap::new());
        assert_eq!(b.variables, variables(&[("A", "1"), ("B C", " x ")]));
        let zone = ("CRON_TZ", "Europe/Berlin");
        let all = [("A", ""), ("B C", " x "), ("MAILTO", ""), zone, ("D", "x # y"), ("E", "a\"b")];
        assert_eq!(c.variables, variables(&all));
        assert_eq!(crontab.notes, []);
    }

    #[test]
    fn the_comment_directly_above_describes_a_line() {
        for (text, description) in [
            ("# one\n#two#\n0 3 * * * x", "one\ntwo"),
            ("### Backup ###\n#\n0 3 * * * x", "Backup"),
            ("# far\n\n0 3 * * * x", ""),
            ("# of the variable\nA=1\n0 3 * * * x", ""),
            ("# above\n#0 5 * * * old\n0 3 * * * x", ""),
            ("#0 5 * * * old\n# new\n0 3 * * * x", "new"),
            ("# m h  dom mon dow   command\n0 3 * * * x", ""),
        ] {
            assert_eq!(only(text, false).description, description, "{text}");
        }
        let debian = "# Example of job definition:\n# .---------------- minute (0 - 59)\n# |  |  |  |  |\n\
                      # *  *  *  *  * user-name command to be executed\n17 *\t* * *\troot\tx";
        assert_eq!(only(debian, true).description, "");
    }

    #[test]
    fn a_fault_has_its_line_and_what_to_do() {
        for (text, is_system, fault) in [
            ("\n61 * * * * x", false, "2: minute: 61 is out of range 0-59"),
            (
                "0 3 * * x",
                false,
                "1: day-of-week: `x` is not valid here; write a number 0-7 or a name sun-sat",
            ),
            ("0 3 *", false, "1: expression: it has 3 fields, a cron has five"),
            (
                "0 0~6 * * * x",
                false,
                "1: expression: ~ is a random value in the crontabs of cronie and OpenBSD",
            ),
            ("~ * * * * x", false, "1: expression: ~ is a random value"),
            (
                "1 5 cron.daily run-parts x",
                false,
                "1: this is a line of an anacrontab; write a time",
            ),
            ("@monthly 45 cron.monthly nice x", false, "1: this is a line of an anacrontab"),
            (
                "@every_minute x",
                false,
                "1: expression: `@every_minute` is not a macro; use @hourly",
            ),
            ("@daily", false, "1: the command is missing"),
            ("0 3 * * * \t", false, "1: the command is missing"),
            ("0 3 * * * root x", false, "1: `root` is no command; add --system"),
            ("0 3 * * * a\0b", false, "1: remove the NUL"),
            ("A=a\0b", false, "1: remove the NUL"),
            (
                "hello world",
                false,
                "1: expected five fields and a command, NAME=VALUE, or a comment",
            ),
            ("=x", false, "1: the name of a variable stands before the ="),
            ("A=\"x", false, "1: the value begins with \", and lacks one"),
            ("A='x' y", false, "1: there is text after the second '"),
            (
                "CRON_TZ=Mars/Olympus",
                false,
                "1: CRON_TZ: `Mars/Olympus` is not a time zone; use an IANA name",
            ),
            ("0 3 * * * root", true, "1: the command is missing"),
            ("0 3 * * *", true, "1: expected a user after the fields; leave out --system"),
            ("0 3 * * * /bin/x y", true, "1: expected a user after the fields; leave out --system"),
            ("0 3 * * * ../x y", true, "1: expected a user after the fields; leave out --system"),
            (
                "@reboot x",
                false,
                "1: skipped: @reboot: a cue has no time for it; keep the line, or use a",
            ),
            ("0 0 30 2 * x", false, "1: skipped: no date has this day and month"),
            ("MAILTO=me@example.com", false, "1: differs: failures are mailed to your account"),
            ("RANDOM_DELAY=5", false, "1: differs: RANDOM_DELAY is not used"),
        ] {
            let found = faults(text, is_system);
            assert!(found.starts_with(fault), "{text}: {found}");
            assert!(
                !found.contains('\n') && parse(text, is_system).jobs.is_empty(),
                "{text}: {found}"
            );
        }
        let all = faults("0 25 * * * x\n@reboot y\nz\n", false);
        assert_eq!(all.lines().count(), 3, "{all}");
    }

    proptest! {
        #[test]
        fn no_line_is_left_out_in_silence(line in "[0-9*@#AZ=%'\"\\\\ \t/,a-]{0,24}", is_system: bool) {
            let begin = line.trim_start_matches(BLANKS);
            let crontab = parse(&line, is_system);
            let notes = crontab.notes.iter().filter(|(_, note)| !matches!(note, Note::Differs(_)));
            let is_other = begin.is_empty() || begin.starts_with('#') || matches!(variable(begin), Some(Ok(_)));
            prop_assert_eq!(crontab.jobs.len() + notes.count(), usize::from(!is_other), "{:?}", line);
        }
    }
}
