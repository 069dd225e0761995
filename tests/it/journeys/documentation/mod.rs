//! Every block of every page below `src/docs`, run or checked by its language:
//!
//! | Info string | Check |
//! |---|---|
//! | `sh` | runs in the one bash of its page, beside a server, a key and a sink |
//! | `python`, `javascript` | runs as a file at its place among the `sh` blocks, and exits with 0 |
//! | `python`, `javascript` and `kit` | is a file of `examples/testing`, whose tests `tests/kit` runs |
//! | any program and `receiver` | accepts a signed delivery at 127.0.0.1:9000, and rejects forged ones |
//! | `console`, `sh elsewhere` (as root, on another machine) | its commands of `cued` exist, with their flags |
//! | `yaml`, `json` | parses; a file of cues is also compared with a server |
//! | a word of [`TEXTS`] | none |

mod blocks;
mod commands;
mod receivers;

use std::fs::File;
use std::os::unix::process::CommandExt as _;

use clap::CommandFactory as _;
use cued::cli::Cli;
use rustix::process::{Pid, Signal, kill_process_group};
use saphyr_parser::Parser;

use crate::journeys::documentation::blocks::{Block, Page, pages};
use crate::support::*;

/// Languages of blocks that nothing here can check.
const TEXTS: [&str; 11] = [
    "text",
    "nginx",
    "apache",
    "caddy",
    "caddyfile",
    "ini",
    "toml",
    "http",
    "crontab",
    "promql",
    "html",
];

/// The flags of the server of a page, where they are not [`DEV_UNLIMITED`].
const FLAGS: [(&str, &[&str]); 2] = [
    ("accounts.md", &["--limits", "off", "--backup-dir", FOLDER]),
    (
        "tutorials/test-clock.md",
        &["--dev", "--limits", "off", "--test-clock", "2030-01-01T00:00:00Z"],
    ),
];

/// Stands for the folder of the page.
const FOLDER: &str = "FOLDER";

/// Pages that run at a time: they mostly wait for programs to start.
const AT_A_TIME: usize = 3;

/// The end of a page that waits for ever. A page takes a few seconds, and more on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(100);

fn is_there(program: &str) -> bool {
    let version = if program == "go" || program == "openssl" { "version" } else { "--version" };
    let mut command = Command::new(program);
    command.arg(version).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

#[test]
fn every_page_runs_as_it_is_written() {
    let (pages, faults) = (Mutex::new(pages().into_iter()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(page) = next(&pages) {
                    let found = session_fault(&page);
                    faults.lock().unwrap().extend(found);
                }
            });
        }
    });
    let faults = faults.into_inner().unwrap();
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

fn next<T>(of: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    of.lock().unwrap().next()
}

#[test]
fn every_receiver_accepts_signed_deliveries_only() {
    let pages = pages();
    let receivers: Vec<(&Page, &Block)> = pages
        .iter()
        .flat_map(|page| page.blocks.iter().map(move |block| (page, block)))
        .filter(|(_, block)| block.is_receiver())
        .collect();
    assert!(receivers.len() >= 6, "{}", receivers.len());
    for (page, block) in receivers {
        if let Some(fault) = receivers::fault(block) {
            panic!("src/docs/{}:{}: {fault}", page.name, block.line);
        }
    }
}

#[test]
fn every_block_that_does_not_run_is_right_in_itself() {
    let mut faults = Vec::new();
    for page in pages() {
        for block in &page.blocks {
            let found = static_faults(block);
            faults.extend(
                found.iter().map(|fault| format!("src/docs/{}:{}: {fault}", page.name, block.line)),
            );
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn static_faults(block: &Block) -> Vec<String> {
    let text = block.text.as_str();
    let parsed = match (block.language.as_str(), block.marker.as_str()) {
        ("console", "") => return commands::console_faults(text),
        ("sh", "elsewhere") => return commands::script_faults(text),
        ("json", "") => serde_json::from_str::<Value>(text).err().map(|error| error.to_string()),
        ("yaml", "") => yaml_fault(text),
        ("python", "kit") => kit_fault("python/test_month_end.py", text),
        ("javascript", "kit") => kit_fault("node/month-end.test.mjs", text),
        ("sh" | "python" | "javascript", "" | "receiver") | ("go" | "rust" | "php", "receiver") => {
            None
        }
        (language, "") if TEXTS.contains(&language) => None,
        (language, marker) => Some(format!("no test knows what to do with `{language} {marker}`")),
    };
    parsed.into_iter().collect()
}

/// A test for a test runner that these tests do without.
fn kit_fault(file: &str, text: &str) -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/testing");
    let is_same = fs::read_to_string(folder.join(file)).unwrap() == text;
    (!is_same).then(|| format!("it is not the same as examples/testing/{file}"))
}

/// Home Assistant and others have tags of their own, so only the syntax is checked.
fn yaml_fault(text: &str) -> Option<String> {
    let error = Parser::new_from_str(text).find_map(Result::err)?;
    Some(format!("{}:{}: {}", error.marker().line(), error.marker().col() + 1, error.info()))
}

/// Whether a block of YAML is a file of cues for `cued diff`.
fn has_cues(block: &Block) -> bool {
    block.language == "yaml"
        && block.text.lines().any(|line| line.starts_with("cues:"))
        && Cli::command().find_subcommand("diff").is_some()
}

/// Runs what a page shows, from its first block to its last one; returns the first failure.
fn session_fault(page: &Page) -> Option<String> {
    let flags =
        FLAGS.iter().find(|(name, _)| *name == page.name).map_or(DEV_UNLIMITED, |(_, flags)| flags);
    let programs = TempDir::new().unwrap();
    let home = ClientHome::new();
    let script = script(page, programs.path());
    if script.is_empty() {
        return None;
    }
    let folder = home.folder();
    let flags: Vec<&str> = flags
        .iter()
        .map(|flag| if *flag == FOLDER { folder.to_str().unwrap() } else { flag })
        .collect();
    let server = Server::start_on(&folder.join("cued.db"), &flags);
    let user = server.client().register("me@example.com");
    let home =
        home.env("CUED_URL", server.url()).env("CUED_API_KEY", user.key()).env("KEY", user.key());
    // A refused request is a failure, as it is for a reader.
    fs::write(home.folder().join(".curlrc"), "fail\nshow-error\n").unwrap();
    let sink = Sink::start(&home, &[]);
    let sink_addr = sink.addr.to_string();
    // What it prints is read, so that it never waits.
    let Sink { child: _sink, mut stdout, .. } = sink;
    thread::spawn(move || drop(std::io::copy(&mut stdout, &mut std::io::sink())));
    let real = |text: &str| {
        let server_addr = server.addr().to_string();
        let text =
            text.replace("localhost:8000", &server_addr).replace("127.0.0.1:8000", &server_addr);
        text.replace("localhost:9000", &sink_addr).replace("127.0.0.1:9000", &sink_addr)
    };
    for program in fs::read_dir(programs.path()).unwrap() {
        let path = program.unwrap().path();
        fs::write(&path, real(&fs::read_to_string(&path).unwrap())).unwrap();
    }
    let fault = bash(&home, &real(&script), programs.path());
    // Its file is in the folder of `home`.
    drop(server);
    let line = fs::read_to_string(programs.path().join("line")).unwrap_or_default();
    fault.map(|log| format!("src/docs/{}:{}: {log}", page.name, line.trim()))
}

/// The script of a page, which notes the line of each block before it begins. Programs are files in `folder`.
fn script(page: &Page, folder: &Path) -> String {
    let mut script = String::new();
    for block in page.blocks.iter().filter(|block| !block.is_run_elsewhere()) {
        let Block { line, text, .. } = block;
        let is_module = text.lines().any(|line| line.starts_with("import "));
        let (program, end) = match block.language.as_str() {
            "sh" => ("", ""),
            "python" => ("python3", "py"),
            "javascript" => ("node", if is_module { "mjs" } else { "js" }),
            _ if has_cues(block) => ("cued diff -f", "yaml"),
            _ => continue,
        };
        script.push_str(&format!("echo {line} > {}/line\n", folder.display()));
        if program.is_empty() {
            script.push_str(text);
        } else if program.starts_with("cued") || is_there(program) {
            let path = folder.join(format!("block_{line}.{end}"));
            fs::write(&path, text).unwrap();
            script.push_str(&format!("{}{program} {}\n", variables(block), path.display()));
        } else {
            skip(&format!("{}:{line} is not tried: there is no {program}", page.name));
        }
    }
    script
}

/// Assignments of the variables that a file of cues takes from the environment.
fn variables(block: &Block) -> String {
    let names = block.text.split("${").skip(1).filter_map(|rest| rest.split('}').next());
    let names = names.filter(|_| block.language == "yaml");
    names.map(|name| format!("{name}=x ")).collect()
}

/// Runs a script with all that it starts; returns the end of its output if it fails.
fn bash(home: &ClientHome, script: &str, folder: &Path) -> Option<String> {
    let bin = Path::new(env!("CARGO_BIN_EXE_cued")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let place = folder.join("log");
    let log = File::create(&place).unwrap();
    // The options of the shell that all tests have are stricter than those of a person: a missing variable fails too.
    let mut bash = home.shell(script);
    bash.env("PATH", path).stderr(log.try_clone().unwrap()).stdout(log);
    let (mut running, begun) = (Running::start(bash), Instant::now());
    let is_success = until("the page ends", || match running.0.0.try_wait().unwrap() {
        Some(status) => Some(status.success()),
        None => (begun.elapsed() > TIME_LIMIT).then_some(false),
    });
    drop(running);
    let text = fs::read_to_string(&place).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    (!is_success).then(|| {
        format!(
            "after {:?}:\n{}",
            begun.elapsed(),
            lines[lines.len().saturating_sub(40)..].join("\n")
        )
    })
}

/// A command with all that it starts, which is killed on drop.
struct Running(Process);

impl Running {
    fn start(mut command: Command) -> Self {
        Self(Process(command.process_group(0).spawn().unwrap()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let group = i32::try_from(self.0.0.id()).ok().and_then(Pid::from_raw).unwrap();
        // All of it may have ended.
        kill_process_group(group, Signal::KILL).unwrap_or_default();
    }
}
