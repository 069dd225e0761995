//! The scripts of a release (`.github/packaging`) and the gate (`.ci/test`), as far as they can be tried without a build.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use serde_json::Value;

const SCRIPTS: &str = ".github/packaging";

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap()
}

/// A script of the repository, run in a folder of its own: it must not depend on where it is called from.
fn run(script: &str, arguments: &[&str], settings: &[(&str, &str)]) -> Output {
    let elsewhere = tempfile::tempdir().unwrap();
    let mut command = Command::new(path(SCRIPTS).join(script));
    command.args(arguments).envs(settings.iter().copied()).env("PYTHONDONTWRITEBYTECODE", "1");
    command.current_dir(elsewhere.path()).output().unwrap()
}

fn program(name: &str) -> PathBuf {
    let folders = env::var_os("PATH").unwrap();
    env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.exists()).unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

#[test]
fn a_target_that_is_unknown_is_refused_with_those_that_are_known() {
    let output = run("build.sh", &["x86_64-unknown-linux-gnu", "sparc-sun-solaris"], &[]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let known = [
        "sparc-sun-solaris",
        "x86_64-unknown-linux-gnu",
        "aarch64-unknown-linux-gnu",
        "armv7-unknown-linux-gnueabihf",
        "x86_64-unknown-linux-static",
    ];
    known
        .iter()
        .for_each(|name| assert!(said(&output).contains(name), "{name}: {}", said(&output)));
}

#[test]
fn a_release_without_a_tool_is_refused_before_anything_is_built() {
    let tools = tempfile::tempdir().unwrap();
    for name in ["bash", "dirname", "uname"] {
        symlink(program(name), tools.path().join(name)).unwrap();
    }
    for name in ["cargo", "git", "cc", "dpkg-deb"] {
        symlink(program("false"), tools.path().join(name)).unwrap();
    }
    // It is asked for pip.
    symlink(program("true"), tools.path().join("python3")).unwrap();
    let output = Command::new(program("bash"))
        .arg(path(SCRIPTS).join("build.sh"))
        .arg("aarch64-unknown-linux-gnu")
        .env("PATH", tools.path())
        .env("CUED_RELEASE", "1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(
        said(&output).contains("rpmbuild is missing: apt-get install rpm"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_tag_that_differs_from_the_manifest_is_refused() {
    let version = env!("CARGO_PKG_VERSION");
    let notes = run("release-notes.sh", &[&format!("v{version}")], &[]);
    assert!(notes.status.success(), "{}", said(&notes));
    assert!(said(&notes).contains("### Added"), "{}", said(&notes));

    let other = run("release-notes.sh", &["v99.0.0"], &[]);
    assert_eq!(other.status.code(), Some(1), "{}", said(&other));
    assert!(
        said(&other)
            .contains(&format!("the tag is v99.0.0 and the manifest has version {version}")),
        "{}",
        said(&other)
    );
}

#[test]
fn the_list_of_components_is_the_same_each_time_and_leaves_out_tests() {
    let [first, second] =
        [(); 2].map(|()| run("build/sbom.py", &[], &[("SOURCE_DATE_EPOCH", "1700000000")]));
    assert!(first.status.success(), "{}", said(&first));
    assert_eq!(said(&first), said(&second));
    let list: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!(list["bomFormat"].as_str(), Some("CycloneDX"));
    assert_eq!(list["specVersion"].as_str(), Some("1.5"));
    assert_eq!(list["metadata"]["timestamp"], "2023-11-14T22:13:20Z");
    let components = list["components"].as_array().unwrap();
    let named = |name: &str| components.iter().find(|component| component["name"] == name);
    assert!(named("proptest").is_none(), "a dependency of tests is no part of the program");
    let sqlite = named("libsqlite3-sys").unwrap();
    assert_eq!(sqlite["licenses"][0]["expression"], "MIT");
    assert_eq!(sqlite["hashes"][0]["content"].as_str().unwrap().len(), 64, "{sqlite}");
}

/// All logic is in the scripts, where it can be tried without the forge.
#[test]
fn the_workflows_are_short_and_call_scripts_that_exist() {
    for workflow in ["release.yml", "ci.yml"] {
        let text = text(&format!(".github/workflows/{workflow}"));
        assert!(text.lines().count() <= 60, "{workflow} has {} lines", text.lines().count());
        let words =
            text.split_whitespace().filter(|word| word.starts_with(SCRIPTS) || *word == ".ci/run");
        let called: Vec<&str> = words.collect();
        assert!(!called.is_empty(), "{workflow} calls nothing");
        for script in called.into_iter().filter(|word| !word.ends_with(',')) {
            let script = path(script);
            let mode = fs::metadata(&script)
                .unwrap_or_else(|error| panic!("{}: {error}", script.display()));
            assert!(mode.permissions().mode() & 0o111 != 0, "{} cannot be run", script.display());
        }
    }
}

/// The end of a test run whose target is `--test it`.
fn failed(names: &[&str], result: &str) -> String {
    let names: String = names.iter().map(|name| format!("    {name}\n")).collect();
    format!(
        "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\nfailures:\n    forged\n\n\nfailures:\n{names}\n\
         test result: {result}\n\nerror: test failed, to rerun pass `--test it`\n"
    )
}

#[test]
fn the_gate_repeats_a_failed_test_once_and_fails_for_all_else() {
    let list = "error: 1 target failed:\n    `--test it`\n";
    let flaky = failed(&["m::flaky", "flaky"], "FAILED. 3 passed; 2 failed; 1 ignored");
    let crash = "error: test failed, to rerun pass `--lib`\n\nCaused by:\n  process didn't exit successfully: `/x` (signal: 6)\n";
    let doc = format!(
        "{flaky}{}",
        flaky.replace("test failed", "doctest failed").replace("--test it", "--doc")
    );
    let two = |other: &str| format!("error: 2 targets failed:\n    `--test it`\n    `{other}`\n");
    let late = "\nCaused by:\n  process didn't exit successfully: `/x` (signal: 11)\n";
    for (name, output, passes) in [
        ("two flaky tests", format!("{flaky}{list}"), true),
        ("one fails again", format!("{}{list}", flaky.replace(" m::flaky", " m::broken")), false),
        ("a crash", format!("{flaky}running 2 tests\n{crash}{}", two("--lib")), false),
        ("a crash at the end", format!("{flaky}{late}{list}"), false),
        ("an example", format!("{doc}{}", two("--doc")), false),
        ("a list that is cut", format!("{}{list}", flaky.replace("2 failed", "3 failed")), false),
        (
            "the build",
            "error: could not compile `cued` (lib) due to 1 previous error\n".to_owned(),
            false,
        ),
        ("a run that is cut", flaky.clone(), false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (cargo, found) = (folder.path().join("cargo"), folder.path().join("flaky"));
        let script = "#!/bin/sh\ncase \"$*\" in\n*broken) exit 101;;\n*'--test it -- --exact '*) echo 'test result: ok. \
                      1 passed; 0 failed';;\n*) cat \"${0%/*}/output\"; exit 101;;\nesac\n";
        fs::write(&cargo, script).unwrap();
        fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.path().join("output"), &output).unwrap();
        let path = format!("{}:{}", folder.path().display(), env::var("PATH").unwrap());
        let ran =
            Command::new(self::path(".ci/test")).arg(&found).env("PATH", path).output().unwrap();
        assert_eq!(ran.status.code(), Some(if passes { 0 } else { 101 }), "{name}: {}", said(&ran));
        assert!(said(&ran).starts_with(&output), "{name}: {}", said(&ran));
        if passes {
            assert_eq!(fs::read_to_string(found).unwrap(), "FLAKY m::flaky\nFLAKY flaky\n");
        }
    }
}
