//! The examples of the help, a table for all commands.

use clap::Command;

/// Examples, a text for each command. At a long line a backslash, so that a copy is one command.
pub const EXAMPLES: &[&str] = &[
    "cued serve --dev --limits off\ncued serve --db /var/lib/cued/cued.db --public-url https://cue.example.com",
    "cued user add me@example.com --db /var/lib/cued/cued.db",
    "cued user list --db /var/lib/cued/cued.db",
    "cued user set-plan me@example.com pro",
    "cued user link me@example.com --public-url https://cue.example.com",
    "cued user disable me@example.com",
    "cued user enable me@example.com",
    "cued user set-operator me@example.com on",
    "cued key add me@example.com --name laptop",
    "cued key list me@example.com",
    "cued key revoke 0198c0de-7a10-7c3e-9d52-1f0a6b3c4d5e",
    "cued billing list --all",
    "cued billing approve 0f6b1c9e-2a47-4a0e-9a55-7c1d2e3f4a5b",
    "cued billing decline 0f6b1c9e-2a47-4a0e-9a55-7c1d2e3f4a5b",
    "cued backup /var/backups/cued --keep 7 --db /var/lib/cued/cued.db",
    "cued check /var/lib/cued/cued.db",
    "cued restore /var/backups/cued/cued.db --db /var/lib/cued/cued.db --replace",
    "cued promote --db /var/lib/cued/cued.db",
    "cued clock accept --db /var/lib/cued/cued.db",
    "crontab -l | cued import crontab -\n\
         cued import crontab --system --namespace nas /etc/crontab /etc/cron.d/*",
    "cued completions bash > ~/.local/share/bash-completion/completions/cued",
    "cued docs\ncued docs schedules\ncued docs invalid_schedule",
    "cued man cue add | man -l -",
    "cued help cue add",
    "cued login\ncued login cue.example.com --profile work\ncued login --key - < key.txt",
    "cued logout --profile work",
    "cued open --no-browser",
    "cued cue list --failing --sort next_run",
    "cued cue show nightly",
    "cued cue add --name nightly --cron 'every day at 2:00' \\\n  --url https://example.com/hook --or-update",
    "cued cue edit nightly",
    "cued cue set nightly --cron '0 3 * * *' --retry 3:30s,5m\n\
         cued cue set nightly payload.full=true callback.headers.X-Old=null",
    "cued cue pause nightly weekly",
    "cued cue resume --all --tag nas",
    "cued cue rm nightly",
    "cued cue fire nightly --payload '{\"full\": true}' --wait",
    "cued cue test nightly\n\
         cued cue test --url https://example.com/hook \\\n  --payload '{\"hello\": \"world\"}' -o wide",
    "cued cue next nightly -n 3",
    "cued cue missed nightly",
    "cued run list --cue nightly --failed --since 1d",
    "cued run show 0198c0de",
    "cued run attempts 0198c0de --body",
    "cued run request 0198c0de",
    "cued run replay 0198c0de\ncued run replay --failed --since 1h --cue nightly",
    "cued run retry 0198c0de",
    "cued run cancel 0198c0de",
    "cued run verify 0198c0de --invalid --reason 'the report is empty'",
    "cued run wait 0198c0de --timeout 5m",
    "cued preview 'every weekday at 9' --tz Berlin -n 3",
    "cued tail --failed --since 1h --body",
    "cued work --task report --jobs 2 -- ./report.sh weekly",
    "cued worker list",
    "cued worker rm nas-report",
    "cued flow list",
    "cued alert list --cue nightly --since 7d",
    "cued channel show 'ntfy backups'",
    "cued channel add ntfy --url https://ntfy.sh/backups \\\n  --quiet-hours 22:00-07:00 --timezone Berlin\n\
         cued channel add slack --url - --event failed --event recovered\n\
         cued channel add telegram --bot-token @token.txt --chat-id -1001234567890",
    "cued channel set 'ntfy backups' --event failed --no-quiet-hours",
    "cued channel test 'ntfy backups'",
    "cued channel rm 'ntfy backups'",
    "cued apply -f cues.yaml\ncued apply -f cues.yaml --prune -y",
    "cued diff -f cues.yaml --prune --exit-code",
    "cued export --namespace home > cues.yaml",
    "cued account keys add laptop",
    "cued account keys revoke laptop",
    "cued account sessions rm --others",
    "cued account secret show --alert",
    "cued account secret regenerate --alert",
    "cued api GET cues -f limit=5\n\
         cued api POST /v1/cues/cue_4f8k2m9x1q7z/fire\n\
         cued api PATCH cues/cue_4f8k2m9x1q7z -d '{\"description\": \"nightly\"}'",
    "cued health --local",
    "cued sink --script 500,timeout,429:5,200",
];

/// The command with the examples of all commands in it, after the first paragraph of their long help.
pub fn with_examples(command: Command) -> Command {
    extend(command, "")
}

/// The examples of the command with these words after `cued`.
pub fn examples_of(path: &str) -> Option<&'static str> {
    let is_own = |text: &&&str| {
        let line = text.split_once("cued ").and_then(|(_, line)| line.strip_prefix(path));
        line.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\n']))
    };
    EXAMPLES.iter().find(is_own).copied()
}

fn extend(command: Command, path: &str) -> Command {
    let command = command.mut_subcommands(|command| {
        let path = format!("{path} {}", command.get_name()).trim_start().to_owned();
        extend(command, &path)
    });
    let Some(examples) = examples_of(path).filter(|_| !command.has_subcommands()) else {
        return command;
    };
    let about = command
        .get_long_about()
        .or(command.get_about())
        .map(ToString::to_string)
        .unwrap_or_default();
    let (first, rest) = about.split_once("\n\n").unwrap_or((&about, ""));
    let title = if examples.contains("\ncued ") { "Examples" } else { "Example" };
    let text = format!("{first}\n\n{title}:\n  {}\n\n{rest}", examples.replace('\n', "\n  "));
    command.long_about(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use crate::cli::Cli;

    use super::*;

    /// The words of a line for a shell with single quotes only, up to a redirection or a pipe.
    fn words_of(line: &str) -> Vec<String> {
        let line = [" < ", " > ", " | "]
            .iter()
            .fold(line, |line, sign| line.split(sign).next().unwrap_or(line));
        let parts = line.split('\'').enumerate();
        let words = parts.flat_map(|(number, part)| match number % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        words.collect()
    }

    #[test]
    fn each_example_is_accepted_by_its_command_and_fits_80_columns() {
        for examples in EXAMPLES {
            let first = examples.split_once("cued ").map(|(_, line)| words_of(line)).unwrap();
            let mut command = Cli::command();
            let own = first.iter().take_while(|word| {
                let found = command.find_subcommand(word).cloned();
                found.map(|found| command = found).is_some()
            });
            let name = own.cloned().collect::<Vec<_>>().join(" ");
            assert!(examples.lines().all(|line| line.chars().count() <= 78), "{examples}");
            for line in examples.replace(" \\\n", "").lines() {
                // Another program may write what the command reads.
                let line = line
                    .split_once("| ")
                    .filter(|_| !line.starts_with("cued"))
                    .map_or(line, |it| it.1);
                assert!(line.starts_with(&format!("cued {name}")), "{line}");
                let parsed = Cli::command().try_get_matches_from(words_of(line));
                assert!(parsed.is_ok(), "{line}: {:?}", parsed.err());
                let id = words_of(line)
                    .into_iter()
                    .find(|word| word.starts_with("key_") || word.starts_with("req_"));
                assert_eq!(id, None, "an id of this kind is a UUID");
            }
        }
    }

    fn missing(command: &Command, path: &str, found: &mut Vec<String>) {
        for command in command.get_subcommands() {
            let path = format!("{path} {}", command.get_name()).trim_start().to_owned();
            missing(command, &path, found);
            let is_leaf = command.get_subcommands().next().is_none();
            let takes_values = command.get_positionals().next().is_some();
            if is_leaf && takes_values && path != "complete" && examples_of(&path).is_none() {
                found.push(path);
            }
        }
    }

    #[test]
    fn each_command_with_an_argument_has_an_example_before_the_rest_of_its_help() {
        let mut found = Vec::new();
        missing(&Cli::command(), "", &mut found);
        assert!(found.is_empty(), "{found:?}");
        let work = with_examples(Cli::command());
        let work =
            work.find_subcommand("work").and_then(Command::get_long_about).unwrap().to_string();
        assert!(
            work.starts_with(
                "Start a command for each run of a task\n\nExample:\n  cued work --task"
            ),
            "{work}"
        );
    }
}
