//! `cued docs` of every page, without a server and a file. What a topic may be is in `transcripts/docs.md`.

use cued::http::docs::PAGES;

use crate::support::*;

#[test]
fn the_pages_are_listed_by_their_kind() {
    let list = ClientHome::without_server().ok(&["docs"]);
    for page in PAGES.iter().filter(|page| !page.kind.is_empty()) {
        let line = format!("\n  {} ", page.path);
        assert_eq!(list.matches(&line).count(), 1, "{line}");
        assert_contains(&list, &[page.kind]);
    }
    assert!(list.lines().all(|line| line.chars().count() <= 80), "{list}");
}

#[test]
fn a_program_gets_every_page_as_it_is_written() {
    for page in PAGES.iter().filter(|page| !page.kind.is_empty()) {
        let printed = ClientHome::without_server().ok(&["docs", page.path]);
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
