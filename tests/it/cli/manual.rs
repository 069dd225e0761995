//! The manual pages and the transcripts of the documentation.

use trycmd::TestCases;

use crate::support::*;

fn cued(args: &[&str]) -> (String, String, Option<i32>) {
    let output = Command::new(env!("CARGO_BIN_EXE_cued")).args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code())
}

#[test]
fn the_help_lists_the_commands_in_three_groups() {
    let (help, _, code) = cued(&["--help"]);
    assert_eq!(code, Some(0));
    for group in ["\nServer:\n", "\nDatabase file:\n", "\nClient of a server:\n"] {
        assert!(help.contains(group), "{help}");
    }
    assert_eq!(cued(&[]).2, Some(2), "without a command");
    let (_, message, code) = cued(&["nonsense"]);
    assert_eq!(code, Some(2));
    assert!(message.contains("unrecognized subcommand 'nonsense'"), "{message}");
}

#[test]
fn each_command_has_a_manual_page() {
    let (page, _, code) = cued(&["man"]);
    assert_eq!(code, Some(0));
    assert!(page.contains(".TH cued 1") && page.contains("cued\\-whoami(1)"), "{page}");
    assert!(cued(&["man", "key", "add"]).0.contains("EMAIL"));
    let (_, message, code) = cued(&["man", "nonsense"]);
    assert_eq!((message.as_str(), code), ("cued: there is no command `cued nonsense`\n", Some(2)));
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man/man1");
    assert_eq!(cued(&["man", "--dir", pages.to_str().unwrap()]).2, Some(0));
    for page in ["cued.1", "cued-whoami.1", "cued-key-add.1"] {
        assert!(pages.join(page).exists(), "{page}");
    }
    for page in pages.read_dir().unwrap() {
        let page = page.unwrap().path();
        let text = fs::read_to_string(&page).unwrap();
        // After the name of an option there is its meaning.
        for option in text.split("\n.TP\n").skip(1) {
            let meaning = option.lines().nth(1).unwrap_or_default();
            assert!(
                !meaning.is_empty() && !meaning.starts_with('.'),
                "{}: {option}",
                page.display()
            );
        }
    }
    let page = cued(&["man", "cue", "add"]).0;
    let synopsis = page.lines().find(|line| line.starts_with("\\fBcued cue add")).unwrap();
    assert!(synopsis.contains("<\\fB\\-\\-name\\fR|\\fB\\-\\-edit\\fR>"), "required: {synopsis}");
}

#[test]
fn a_manual_page_replaces_a_link_and_not_its_target() {
    let folder = TempDir::new().unwrap();
    let (pages, precious) = (folder.path().join("man"), folder.path().join("precious"));
    fs::create_dir(&pages).unwrap();
    fs::write(&precious, "kept").unwrap();
    for name in ["cued.1", "cued-serve.1"] {
        std::os::unix::fs::symlink(&precious, pages.join(name)).unwrap();
    }
    assert_eq!(cued(&["man", "--dir", pages.to_str().unwrap()]).2, Some(0));
    assert_eq!(fs::read_to_string(&precious).unwrap(), "kept");
    for page in pages.read_dir().unwrap().map(Result::unwrap) {
        let name = page.file_name().into_string().unwrap();
        assert!(page.file_type().unwrap().is_file() && name.ends_with(".1"), "{name}");
    }
}

/// The time of the server, which stands still.
const TIME: &str = "2030-01-01T00:00:00Z";

/// Transcripts that run at a time, each beside a server of its own.
const AT_A_TIME: usize = 4;

#[test]
fn the_outputs_of_the_documentation_are_those_of_the_program() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/cli/transcripts");
    let files: Vec<PathBuf> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!files.is_empty(), "there are no transcripts");
    let left = Mutex::new(files);
    let next = || left.lock().unwrap().pop();
    // The others run although one differs.
    let differs = |file: &PathBuf| std::panic::catch_unwind(|| run_transcript(file)).is_err();
    let run = || std::iter::from_fn(next).filter(differs).collect::<Vec<_>>();
    let others = thread::scope(|scope| {
        let threads = [(); AT_A_TIME].map(|()| scope.spawn(run));
        threads.map(|thread| thread.join().unwrap()).concat()
    });
    assert!(others.is_empty(), "these transcripts differ: {others:?}");
}

/// Runs the commands of a transcript in a folder with its files: the blocks with a name, as in ```` ```yaml cues.yaml ````.
fn run_transcript(file: &Path) {
    // `width_60.md` is at a terminal of 60 columns, `pipe.md` in a pipe.
    let name = file.file_stem().unwrap().to_str().unwrap();
    let columns = name.strip_prefix("width_").unwrap_or(if name == "pipe" { "" } else { "80" });
    let server = Server::with_test_clock(TIME);
    let user = server.client().register("me@example.com");
    let home = TempDir::new().unwrap();
    let text = fs::read_to_string(file).unwrap();
    for block in text.split("\n```").skip(1).step_by(2) {
        let (info, content) = block.split_once('\n').unwrap();
        if let Some((_, name)) = info.split_once(' ') {
            fs::write(home.path().join(name), format!("{content}\n")).unwrap();
        }
    }
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/cli/bin");
    let cases = TestCases::new();
    cases
        .register_bins(["cued", "sh"].map(|name| (name, programs.join(name))))
        .env("PROGRAM", env!("CARGO_BIN_EXE_cued"))
        .env("CUED_URL", server.url())
        .env("CUED_API_KEY", user.key())
        .env("HOME", home.path().to_str().unwrap())
        .env("XDG_CONFIG_HOME", "")
        .env("TZ", "UTC")
        .env("LC_ALL", "C.UTF-8")
        .env("CUED_COLUMNS", columns)
        .case(file);
    cases.timeout(HANG_TIMEOUT).insert_var("[SERVER]", server.url()).unwrap();
    cases.run();
}
