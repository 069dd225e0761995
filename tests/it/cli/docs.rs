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
fn every_page_is_printed_as_plain_text() {
    for page in PAGES.iter().filter(|page| !page.kind.is_empty()) {
        let printed = text(page.path);
        assert!(printed.starts_with(&format!("# {}\n\n", page.title)), "{}: {printed}", page.path);
        // Code may have markup and two empty lines of its own.
        let html = page.article().unwrap();
        for (markup, own) in [
            ("</", "&lt;/"),
            ("&lt;", "&amp;lt;"),
            ("&amp;", "&amp;amp;"),
            ("href=", "href=&quot;"),
            ("\u{1b}", "\u{1b}"),
            ("\n\n\n", "\n\n\n"),
        ] {
            let (found, own) = (printed.matches(markup).count(), html.matches(own).count());
            assert_eq!(found, own, "{markup:?} in {}", page.path);
        }
        assert!(!printed.contains("On this page"), "{}", page.path);
        // Whole seconds have no fraction.
        assert!(!printed.contains(".000"), "{}", page.path);
        // Code is as wide as it is.
        for line in printed.lines().filter(|line| !line.starts_with("    ") && line.contains(' ')) {
            assert!(line.chars().count() <= 80, "{}: {line}", page.path);
        }
    }
}

#[test]
fn a_page_keeps_its_headings_lists_code_and_tables() {
    let schedules = text("schedules");
    for part in [
        "\n## In words\n\n",
        "\n- The time may stand before or after the days. Without one it is midnight.\n",
        "| `0 9 * * 1-5`, `@daily`                    | a cron expression, as it is     |\n",
        "\n    $ cued cue add --name report --cron 'every weekday at 9'",
    ] {
        assert_contains(&schedules, &[part]);
    }
    let is_text = |line: &&str| !line.starts_with("    ");
    let widest = schedules.lines().filter(is_text).map(|line| line.chars().count()).max();
    assert!(widest.is_some_and(|columns| (60..=80).contains(&columns)), "{widest:?}");
    assert_contains(
        &text("webhooks"),
        &["(`examples/receiver.py`)", "(https://www.standardwebhooks.com)"],
    );
}

#[test]
fn the_pages_that_a_text_links_to_are_named_below_it() {
    let see_also = "\nSee also (`cued docs TOPIC`): ";
    assert!(text("invalid_schedule").ends_with(&format!("{see_also}schedules\n")));
    let retries = text("retries");
    let (_, topics) = retries.split_once(see_also).unwrap();
    assert_eq!(
        topics.split_whitespace().collect::<Vec<_>>().join(" "),
        "deliveries, outage, channels, events"
    );
    for topic in topics.split(',') {
        assert!(text(topic.trim()).starts_with("# "), "{topic}");
    }
    assert!(!text("webhook_secret").contains("See also"), "a list of pages has no links");
    assert!(!text("already_claimed").contains("See also"), "nor has a text without any");
}

#[test]
fn a_part_of_the_name_of_a_page_lists_it_before_headings() {
    for (word, page) in [
        ("webhook", "webhooks"),
        ("worker", "workers"),
        ("schedule", "schedules"),
        ("retry", "retries"),
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
        (&["dst"], "schedules"),
        (&["timezone"], "schedules"),
        (&["ephemeral"], "tutorials/test-clock"),
        (&["password"], "how-to/mail"),
        (&["https"], "how-to/proxy"),
        (&["410"], "reference/deliveries"),
        (&["environment"], "client"),
        (&["quiet"], "channels"),
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
