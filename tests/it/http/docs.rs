//! The documentation as it is served, the size of its files, and the check of its links.

#[path = "../../../src/build/markdown.rs"]
mod markdown;

use cued::http::assets::{self, inflate};
use cued::http::docs::{BUILD, DocsPage, FILES, PAGES};
use markdown::{Documents, KINDS, broken_links, entries, unlisted};

use crate::http::page::PAGE_HEADERS;
use crate::support::*;

/// Compressed bytes of all pages: 183 KB as HTML, of which 60 are the navigation, and 111 KB as they are written.
const MAX_SIZE: usize = 320 << 10;
const MAX_SCRIPT: usize = 2 << 10;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; form-action 'self'; \
    base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

fn path_of(page: &DocsPage) -> String {
    format!("/docs/{}", page.path).trim_end_matches('/').to_owned()
}

/// The paths of all that is served below `/docs`.
pub fn paths() -> impl Iterator<Item = String> {
    let files = ["docs.css", "docs.js"].map(|name| format!("/docs/{BUILD}/{name}"));
    PAGES.iter().map(path_of).chain(files)
}

fn html(page: &DocsPage) -> String {
    String::from_utf8(inflate(page.gzip).unwrap().to_vec()).unwrap()
}

fn source(file: &str) -> String {
    inflate(FILES.iter().find(|(name, _)| *name == file).unwrap().1)
        .map(|it| it.to_vec())
        .map(text)
        .unwrap()
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// The values of an attribute.
fn values<'a>(html: &'a str, attribute: &str) -> Vec<&'a str> {
    html.split(&format!(" {attribute}=\""))
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect()
}

#[test]
fn all_of_the_documentation_is_small() {
    let size: usize = PAGES.iter().map(|page| page.gzip.len() + page.source.len()).sum();
    assert!(size <= MAX_SIZE, "{size} bytes of gzip, more than {MAX_SIZE}");
    assert!(source("docs.js").len() <= MAX_SCRIPT, "docs.js has {} bytes", source("docs.js").len());
}

#[test]
fn every_page_is_served_with_its_headers() {
    let server = Server::start(&[]);
    for page in PAGES {
        let served = server.client().get(&path_of(page));
        assert_eq!((served.status, served.text()), (200, html(page)), "{}", page.path);
        for (name, value) in [("content-security-policy", POLICY)].into_iter().chain(PAGE_HEADERS) {
            assert_eq!(served.header(name), Some(value), "{name} of {}", page.path);
        }
    }
    for (name, content_type) in
        [("docs.css", "text/css; charset=utf-8"), ("docs.js", "text/javascript; charset=utf-8")]
    {
        let served = server.client().get(&format!("/docs/{BUILD}/{name}"));
        assert_eq!((served.status, served.text()), (200, source(name)));
        assert_eq!(served.header("content-type"), Some(content_type));
        assert_eq!(served.header("cache-control"), Some("public, max-age=31536000, immutable"));
        assert_eq!(served.header("cross-origin-resource-policy"), Some("same-origin"));
    }
}

#[test]
fn every_link_of_a_page_leads_somewhere_also_below_the_path_of_a_proxy() {
    let ids = |path: &str| {
        let page = DocsPage::named(path).unwrap_or_else(|| panic!("there is no page {path:?}"));
        let html = html(page);
        values(&html, "id").into_iter().map(str::to_owned).collect::<BTreeSet<String>>()
    };
    let files: Vec<String> = FILES.iter().map(|(name, _)| format!("docs/{BUILD}/{name}")).collect();
    for page in PAGES {
        let html = html(page);
        let links =
            ["href", "src", "action"].into_iter().flat_map(|attribute| values(&html, attribute));
        for link in links.filter(|link| !link.contains("://")) {
            assert!(!link.starts_with('/'), "{} has the absolute link {link}", page.path);
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let here = path_of(page);
            let target = resolved(&format!("proxy{here}"), path);
            let target =
                target.strip_prefix("proxy/").unwrap_or_else(|| panic!("{link} leaves the server"));
            match target.strip_prefix("docs") {
                _ if files.iter().any(|file| file == target) || target.is_empty() => {}
                None => assert_eq!(target, format!("ui/{}/icon.svg", assets::BUILD), "{link}"),
                Some(path) => {
                    let ids = ids(path.trim_start_matches('/'));
                    assert!(anchor.is_empty() || ids.contains(anchor), "{} has {link}", page.path);
                }
            }
        }
    }
}

/// What a browser makes of a relative URL; a path that ends with a slash is that of a folder.
fn resolved(base: &str, path: &str) -> String {
    if path.is_empty() {
        return base.to_owned();
    }
    let mut parts: Vec<&str> = base.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn a_page_is_well_formed_and_has_no_inline_script_or_style() {
    for page in PAGES {
        let html = html(page);
        assert!(html.starts_with("<!doctype html>\n<html lang=\"en\">"), "{}", page.path);
        let title = page.title.replace('&', "&amp;").replace('"', "&quot;");
        assert_eq!(
            html.matches(&format!("<title>{title} · cued</title>")).count(),
            1,
            "{}",
            page.path
        );
        assert_eq!(html.matches("<h1>").count(), 1, "{}", page.path);
        assert_eq!(html.matches("<main").count(), 1, "{}", page.path);
        for banned in
            words("<style ' style=' <script> ' onclick' javascript: <img <iframe {{build {{page")
        {
            assert!(!html.contains(banned), "{} has {banned}", page.path);
        }
        assert_eq!(html.matches("<script").count(), 1, "{}", page.path);
        for element in words("table ul ol li pre code p section details nav main") {
            let begun = html.matches(&format!("<{element}>")).count()
                + html.matches(&format!("<{element} ")).count();
            assert_eq!(
                begun,
                html.matches(&format!("</{element}>")).count(),
                "{element} of {}",
                page.path
            );
        }
        let ids = values(&html, "id");
        assert_eq!(
            ids.len(),
            ids.iter().collect::<BTreeSet<_>>().len(),
            "{} has an id twice",
            page.path
        );
    }
    assert!(!source("docs.js").contains("innerHTML") && !source("docs.css").contains("url("));
    assert!(source("docs.css").contains("prefers") || source("docs.css").contains("light-dark("));
}

#[test]
fn the_home_page_and_the_navigation_list_every_page_by_its_kind() {
    let home = html(DocsPage::named("").unwrap());
    let listed: Vec<&DocsPage> = PAGES.iter().filter(|page| !page.kind.is_empty()).collect();
    assert!(listed.len() > 10 && listed.iter().all(|page| KINDS.contains(&page.kind)));
    for page in &listed {
        let link = format!("href=\"docs/{}\"", page.path);
        assert_eq!(home.matches(&link).count(), 2, "{link} in the navigation and in the text");
        assert!(!page.line.is_empty(), "{} has no line in the index", page.path);
    }
    let search = html(DocsPage::named("search").unwrap());
    for page in &listed {
        for id in page.sections.iter().filter(|it| it.level > 1).map(|it| it.anchor) {
            let link = format!("href=\"../docs/{}#{id}\"", page.path);
            assert!(search.contains(&link), "the search has no {link}");
        }
    }
}

#[test]
fn an_unknown_page_is_a_page_for_browsers_and_an_error_for_programs() {
    let server = Server::start(&["--dev"]);
    let client = server.client();
    for path in
        words("/docs/nope /docs/how-to/nope /docs/reference/api/nope /docs/index /docs/workers.md")
    {
        for accept in [&[][..], &[("Accept", "text/html,*/*;q=0.8")], &[("If-None-Match", "*")]] {
            let page = client.get_with(path, accept);
            assert_eq!(page.status, 404, "{path}");
            assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"), "{path}");
            assert_eq!(page.header("etag"), None);
            assert_eq!(page.header("content-security-policy"), Some(POLICY));
            let up = "../".repeat(path.matches('/').count() - 1);
            assert_contains(
                &page.text(),
                &[&format!("href=\"{up}docs/workers\""), "There is no such page"],
            );
        }
        client.get_with(path, &[("Accept", "application/json")]).expect_error(404, "not_found");
    }
    for path in ["/docs%2Fworkers", "/docs/a/b/c/d", "/docs//workers"] {
        client.get(path).expect_error(404, "not_found");
    }
    let encoded =
        "/docs/reference%2Ferrors /docs/000000000000/docs.css /docs/%FF /docs/x/..%2f..%2fREADME";
    for path in words(encoded) {
        assert_eq!(client.get(path).status, 404, "{path}");
    }
    let home = client.get("/docs/");
    assert_eq!(home.status, 308, "also below the path of a proxy");
    assert_eq!(home.header("location"), Some("../docs"), "also below the path of a proxy");
    let wrong = client.bare("POST", "/docs");
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("GET, HEAD")));
}

#[test]
fn the_documentation_is_switched_off_with_the_page_and_counts_in_no_rate_window() {
    let server = Server::start(&["--page", "off"]);
    let client = server.client();
    let unknown = client.get("/nowhere").expect_error(404, "not_found");
    for path in ["/docs".to_owned(), "/docs/workers".to_owned(), format!("/docs/{BUILD}/docs.css")]
    {
        assert_eq!(client.get(&path).expect_error(404, "not_found"), unknown, "{path}");
    }
    let server = Server::start(&[]);
    (0..100).for_each(|_| assert_eq!(server.client().get("/docs/workers").status, 200));
}

/// The codes of errors with a link.
const LINKED: &str = "cue_limit_exceeded cue_not_found execution_in_flight execution_limit_exceeded execution_not_found \
    forbidden_host idempotency_conflict invalid_api_key invalid_callback invalid_callback_url invalid_json \
    invalid_request invalid_schedule invalid_state invalid_timezone not_execution_owner outcome_already_reported \
    rate_limit_exceeded registration_disabled validation_error";

#[test]
fn frequent_errors_link_to_the_documentation_of_their_code() {
    let page = html(DocsPage::named("reference/errors").unwrap());
    for code in words(LINKED) {
        assert!(values(&page, "id").contains(&code), "the page has no {code}");
    }
    let url = |flags: &[&str]| {
        let server = Server::start(flags);
        let error = server.client().get("/v1/cues").expect_error(401, "invalid_api_key");
        error["error"]["docs_url"].as_str().map(str::to_owned)
    };
    let path = "/docs/reference/errors#invalid_api_key";
    assert_eq!(url(&[]).as_deref(), Some(path));
    assert_eq!(url(&["--page", "off"]), None);
    let public = url(&["--public-url", "https://cue.example.com/cued/"]);
    assert_eq!(public, Some(format!("https://cue.example.com/cued{path}")));
    let (_server, user) = Server::with_user(DEV_UNLIMITED);
    let cue = webhook_cue("a", "61 * * * *", "http://127.0.0.1:1");
    let error = user.post("/v1/cues", &cue).expect_error(400, "invalid_schedule");
    assert_eq!(error["error"]["docs_url"], "/docs/reference/errors#invalid_schedule");
    let rare = user.get("/nowhere").expect_error(404, "not_found");
    assert_eq!(rare["error"]["docs_url"], json!(null));
}

/// Reads the Markdown files of a folder and of those in it, or one file.
fn read(place: &str, documents: &mut Documents) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(place);
    if path.is_dir() {
        for entry in fs::read_dir(&path).unwrap() {
            read(&format!("{place}/{}", entry.unwrap().file_name().to_str().unwrap()), documents);
        }
    } else if place.ends_with(".md") {
        documents.insert(place.to_owned(), fs::read_to_string(path).unwrap());
    }
}

#[test]
fn every_page_is_listed_and_every_link_of_the_repository_leads_somewhere() {
    const INDEX: &str = "src/docs/index.md";
    let mut documents = Documents::new();
    for place in ["src/docs", "README.md", ".github"] {
        read(place, &mut documents);
    }
    let exists = |file: &str| {
        !file.starts_with("src/docs/") && Path::new(env!("CARGO_MANIFEST_DIR")).join(file).exists()
    };
    let list = entries(INDEX, &documents[INDEX]).unwrap();
    let mut faults = broken_links(&documents, &exists);
    faults.extend(unlisted(INDEX, "src/docs/", &documents, &list));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_tokens_of_the_page_are_those_of_the_documentation() {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http/page/app.css"))
            .unwrap();
    let (tokens, _) = page.split_once(":root[data-density").unwrap();
    assert!(source("docs.css").starts_with(tokens) && tokens.contains("data-theme=\"dark\""));
}
