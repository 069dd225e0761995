//! `cued docs`, without a server and a file.

use cued::http::docs::PAGES;

use crate::support::*;

fn docs(topic: &[&str]) -> ClientRun {
    ClientHome::without_server().run(&[&["docs"], topic].concat())
}

fn text(topic: &str) -> String {
    let run = docs(&[topic]);
    assert_eq!(run.code, 0, "{topic}: {}", run.stderr);
    run.stdout
}

#[test]
fn the_pages_are_listed_by_their_kind() {
    let run = docs(&[]);
    assert_eq!(run.code, 0);
    for page in PAGES.iter().filter(|page| !page.kind.is_empty()) {
        let line = format!("\n  {} ", page.path);
        assert_eq!(run.stdout.matches(&line).count(), 1, "{line}");
        assert_contains(&run.stdout, &[page.kind]);
    }
    assert!(run.stdout.lines().all(|line| line.chars().count() <= 80), "{}", run.stdout);
}

#[test]
fn a_program_gets_every_page_as_it_is_written() {
    for page in PAGES.iter().filter(|page| !page.kind.is_empty()) {
        let printed = text(page.path);
        let source = page.markdown().unwrap();
        assert_eq!(printed.trim_end(), source.trim_end(), "{}", page.path);
        assert!(printed.starts_with(&format!("# {}\n\n", page.title)), "{}: {printed}", page.path);
        let is_of_repository =
            |line: &str| line.starts_with("<!--") || line.starts_with("<picture");
        assert!(!printed.lines().any(is_of_repository), "{}", page.path);
        // Whole seconds have no fraction.
        assert!(!printed.contains(".000"), "{}", page.path);
    }
}

#[test]
fn a_terminal_gets_the_paragraphs_in_its_width_and_all_else_as_it_is() {
    let home = ClientHome::without_server().env("CUED_COLUMNS", "80");
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    for page in PAGES.iter().filter(|page| !page.kind.is_empty()) {
        let printed = home.ok(&["docs", page.path]);
        let source = page.markdown().unwrap();
        assert_eq!(words(&printed), words(&source), "{}", page.path);
        let mut is_code = false;
        for line in printed.lines() {
            let is_fence = line.trim_start().starts_with("```");
            let stays = is_code || is_fence || line.starts_with(['#', '|']);
            is_code ^= is_fence;
            match stays {
                true => assert!(source.lines().any(|it| it == line), "{}: {line}", page.path),
                // A longer word is copied.
                false => assert!(
                    line.chars().count() <= 80 || words(line).len() < 3,
                    "{}: {line}",
                    page.path
                ),
            }
        }
    }
    let printed = home.ok(&["docs", "schedules"]);
    assert_contains(
        &printed,
        &["\n- `every` with a number is elapsed time; without a number it follows the clock.\n"],
    );
}

#[test]
fn a_topic_is_a_page_an_error_code_a_url_or_a_word_of_a_heading() {
    let whole = text("reference/errors");
    assert_eq!(text("errors"), whole);
    let code = text("invalid_schedule");
    assert!(
        code.starts_with("## invalid_schedule\n\n`400` ") && code.lines().count() < 15,
        "{code}"
    );
    for url in [
        "/docs/reference/errors#invalid_schedule",
        "https://x.example/cued/docs/reference/errors#invalid_schedule",
    ] {
        assert_eq!(text(url), code);
    }
    assert!(text("schedules#in-words").starts_with("## In words\n"));
    assert_contains(
        &text("daylight"),
        &["reference/schedules  cron expressions, phrases, time zones, daylight saving"],
    );
}

#[test]
fn the_target_of_a_link_of_a_page_is_a_topic() {
    assert!(text("webhooks").contains("(notifications.md)"));
    assert_eq!(text("notifications.md"), text("notifications"));
    assert_eq!(text("../reference/schedules.md#in-words"), text("schedules#in-words"));
}

#[test]
fn a_part_of_the_name_of_a_page_lists_it_before_headings() {
    for (word, page) in [
        ("webhook", "webhooks"),
        ("worker", "workers"),
        ("retry", "webhooks"),
        ("backup", "how-to/backups"),
        ("proxies", "how-to/proxy"),
        ("raspberry", "tutorials/raspberry-pi"),
    ] {
        let found = text(word);
        assert!(found.starts_with(&format!("{page} ")), "{word}: {found}");
    }
    let found = text("retry");
    assert!(found.contains("\nreference/deliveries#retries "), "headings too: {found}");
}

#[test]
fn a_word_of_no_heading_lists_the_pages_whose_text_has_it() {
    for (words, page) in [
        (&["docker"][..], "install"),
        (&["dst"], "reference/schedules"),
        (&["timezone"], "reference/schedules"),
        (&["ephemeral"], "tutorials/test-clock"),
        (&["password"], "how-to/mail"),
        (&["https"], "how-to/proxy"),
        (&["410"], "reference/deliveries"),
        (&["environment"], "client"),
        (&["quiet"], "notifications"),
        (&["exit", "codes"], "files"),
    ] {
        let run = docs(words);
        assert_eq!(run.code, 0, "{words:?}: {}", run.stderr);
        assert!(
            format!("\n{}", run.stdout).contains(&format!("\n{page} ")),
            "{words:?}: {}",
            run.stdout
        );
    }
    assert!(text("overlap").lines().all(|line| !line.contains('#')), "no heading has it");
}
