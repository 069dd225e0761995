//! Embeds the documentation, `src/docs/**/*.md`: as HTML for browsers, and as it is written for `cued docs`.
//!
//! `index.md` is the only list of pages. All links are relative, so that the pages work below the path of a proxy.

use std::path::Path;
use std::{fs, io};

use crate::markdown::{
    Destination, Documents, Entry, Heading, KINDS, are_listed, entries, headings, target, title,
    to_html, without_pictures,
};
use crate::{fingerprint, gzip, problem, write};

const FOLDER: &str = "src/docs/";
const INDEX: &str = "src/docs/index.md";

/// Template, style sheet and script.
const ASSETS: &str = "src/http/docs";

/// The style sheet whose first rules, the colours and fonts, the documentation shares.
const PAGE_STYLE: &str = "src/http/page/app.css";
/// The first rule of the page that is of the page only.
const END_OF_TOKENS: &str = ":root[data-density";

/// The most slashes of a page's path, and one.
const DEPTHS: usize = 4;

const SEARCH: &str = "search";

/// A page.
struct Page {
    /// Below `/docs/`; empty for the index.
    path: String,
    title: String,
    kind: &'static str,
    line: String,
    /// Its HTML.
    article: String,
    /// Empty for a page that no file has.
    markdown: String,
}

/// Writes `docs_files.rs`: the build, the pages and the other files.
pub fn embed(page_build: &str) -> io::Result<()> {
    for place in [FOLDER, ASSETS, PAGE_STYLE] {
        println!("cargo::rerun-if-changed={place}");
    }
    let mut documents = Documents::new();
    read(Path::new(FOLDER), &mut documents)?;
    let index = documents.get(INDEX).ok_or_else(|| problem(format!("{INDEX} is missing")))?;
    let list = entries(INDEX, index).map_err(problem)?;
    let mut pages = pages(&documents, &list)?;
    pages.push(search(&documents, &list));
    let style = style()?;
    let script = fs::read_to_string(format!("{ASSETS}/docs.js"))?;
    let template = fs::read_to_string(format!("{ASSETS}/page.html"))?;
    let texts = pages.iter().flat_map(|page| [page.path.as_str(), &page.title, &page.article]);
    let build = fingerprint(texts.chain([page_build, &style, &script, &template]));
    let template = template
        .replace("{{build}}", &build)
        .replace("{{page_build}}", page_build)
        .replace("{{pages}}", &navigation(&list));
    write_files(&build, &pages, &template, [("docs.css", &style), ("docs.js", &script)])
}

/// Reads the Markdown files of a folder and of those in it.
fn read(folder: &Path, documents: &mut Documents) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let place = entry?.path();
        if place.is_dir() {
            read(&place, documents)?;
        } else if place.extension().is_some_and(|ending| ending == "md") {
            let text = without_pictures(&fs::read_to_string(&place)?);
            documents.insert(place.to_string_lossy().into_owned(), text);
        }
    }
    Ok(())
}

/// `how-to/mail` of `src/docs/how-to/mail.md`, and nothing of the index.
fn path_of(file: &str) -> &str {
    let path = file.strip_prefix(FOLDER).and_then(|path| path.strip_suffix(".md")).unwrap_or(file);
    if file == INDEX { "" } else { path }
}

/// The number of `../` from a page to the root of the server.
fn depth_of(path: &str) -> usize {
    if path.is_empty() { 0 } else { 1 + path.matches('/').count() }
}

/// The URL of a page, as seen from the root.
fn url_of(path: &str) -> String {
    if path.is_empty() { "docs".to_owned() } else { format!("docs/{path}") }
}

fn pages(documents: &Documents, list: &[Entry]) -> io::Result<Vec<Page>> {
    let home = Entry {
        kind: "",
        title: title(&documents[INDEX]).unwrap_or_default(),
        file: INDEX.to_owned(),
        line: String::new(),
    };
    std::iter::once(&home).chain(list).map(|entry| page(entry, &documents[&entry.file])).collect()
}

fn page(entry: &Entry, text: &str) -> io::Result<Page> {
    let (file, path) = (&entry.file, path_of(&entry.file));
    if depth_of(path) >= DEPTHS || path == SEARCH {
        return Err(problem(format!("{file} needs another path: at most {} folders", DEPTHS - 2)));
    }
    let title =
        title(text).ok_or_else(|| problem(format!("{file} must begin with its title: # Title")))?;
    let up = "../".repeat(depth_of(path));
    let destination = |link: &str| match target(file, link) {
        None => Destination::Url(link.to_owned()),
        Some((target, _)) if !target.starts_with(FOLDER) => Destination::File(target),
        Some((target, Some(anchor))) if target == *file => Destination::Url(format!("#{anchor}")),
        Some((target, anchor)) => {
            let anchor = anchor.map(|anchor| format!("#{anchor}")).unwrap_or_default();
            Destination::Url(format!("{up}{}{anchor}", url_of(path_of(&target))))
        }
    };
    let html = to_html(text, &destination).map_err(|fault| problem(format!("{file}: {fault}")))?;
    let contents = if path.is_empty() { String::new() } else { contents(text) };
    let article = html.replacen("</h1>\n", &format!("</h1>\n{contents}"), 1);
    let kind = if entry.kind.is_empty() {
        String::new()
    } else {
        format!("<p class=\"kind\">{}</p>\n", entry.kind)
    };
    Ok(Page {
        path: path.to_owned(),
        title,
        kind: entry.kind,
        line: entry.line.clone(),
        article: format!("{kind}{article}"),
        markdown: text.to_owned(),
    })
}

/// The list of the sections of a page, if it has one.
fn contents(text: &str) -> String {
    let headings = headings(text);
    if !are_listed(&headings) {
        return String::new();
    }
    let sections: Vec<String> = headings
        .iter()
        .filter(|heading| heading.level == 2)
        .map(|heading| {
            format!("<li><a href=\"#{}\">{}</a></li>\n", heading.anchor, escaped(&heading.text))
        })
        .collect();
    let start = "<nav class=\"contents\" aria-label=\"On this page\"><details><summary>On this page</summary>\n<ul>\n";
    format!("{start}{}</ul></details></nav>\n", sections.concat())
}

/// The headings of all pages, which the script filters.
fn search(documents: &Documents, list: &[Entry]) -> Page {
    let mut article =
        "<h1>Search</h1>\n<p id=\"found\" role=\"status\">All headings of all pages.</p>\n\
        <div id=\"headings\">\n"
            .to_owned();
    for entry in list {
        let url = format!("../{}", url_of(path_of(&entry.file)));
        let text = &documents[&entry.file];
        let title = title(text).unwrap_or_default();
        article += &format!("<h2><a href=\"{url}\">{}</a></h2>\n<ul>\n", escaped(&title));
        for heading in headings(text).iter().filter(|heading| heading.level > 1) {
            let text = escaped(&heading.text);
            article += &format!("<li><a href=\"{url}#{}\">{text}</a></li>\n", heading.anchor);
        }
        article += "</ul>\n";
    }
    article += "</div>\n";
    unlisted_page(SEARCH, "Search", &article)
}

/// A page that is made for browsers alone.
fn unlisted_page(path: &str, title: &str, article: &str) -> Page {
    Page {
        path: path.to_owned(),
        title: title.to_owned(),
        kind: "",
        line: String::new(),
        article: article.to_owned(),
        markdown: String::new(),
    }
}

/// The tokens of the page, and the rules of the documentation.
fn style() -> io::Result<String> {
    let page = fs::read_to_string(PAGE_STYLE)?;
    let (tokens, _) = page.split_once(END_OF_TOKENS).ok_or_else(|| {
        problem(format!("{PAGE_STYLE} has no {END_OF_TOKENS:?} after its colours"))
    })?;
    Ok(format!("{tokens}{}", fs::read_to_string(format!("{ASSETS}/docs.css"))?))
}

/// Stands for `../` for each level of a page.
const UP: &str = "{{up}}";

/// The links to all pages, by their kinds.
fn navigation(list: &[Entry]) -> String {
    let mut html = String::new();
    for kind in KINDS.into_iter().filter(|kind| list.iter().any(|entry| entry.kind == *kind)) {
        html += &format!("<p>{kind}</p>\n<ul>\n");
        for entry in list.iter().filter(|entry| entry.kind == kind) {
            let (url, title) = (url_of(path_of(&entry.file)), escaped(&entry.title));
            html += &format!("<li><a href=\"{UP}{url}\">{title}</a></li>\n");
        }
        html += "</ul>\n";
    }
    html
}

fn write_files(
    build: &str,
    pages: &[Page],
    template: &str,
    files: [(&str, &String); 2],
) -> io::Result<()> {
    let mut table =
        format!("pub const BUILD: &str = {build:?};\npub static PAGES: &[DocsPage] = &[\n");
    for page in pages {
        table += &entry_of(page, depth_of(&page.path), template)?;
    }
    table += "];\n/// By their depth.\npub static NOT_FOUND: &[DocsPage] = &[\n";
    for depth in 0..DEPTHS {
        let article = "<h1>There is no such page</h1>\n<p>Choose one of the list, or search the headings.</p>\n";
        let page = unlisted_page(&format!("not-found-{depth}"), "There is no such page", article);
        table += &entry_of(&page, depth, template)?;
    }
    table += "];\npub static FILES: &[(&str, &[u8])] = &[\n";
    for (name, text) in files {
        table += &format!("({name:?}, {}),\n", embedded(&format!("{name}.gz"), text)?);
    }
    table += "];\n";
    write("docs_files.rs", table.as_bytes())
}

/// Compresses a text into a file. Returns the expression that has its bytes.
fn embedded(name: &str, text: &str) -> io::Result<String> {
    write(name, &gzip(text.as_bytes()))?;
    Ok(format!("include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}\"))"))
}

fn entry_of(page: &Page, depth: usize, template: &str) -> io::Result<String> {
    let html =
        template.replace(UP, &"../".repeat(depth)).replace("{{title}}", &escaped(&page.title));
    let html = html.replace("{{article}}", &page.article);
    let Page { path, title, kind, line, markdown, .. } = page;
    let name = path.replace('/', "-");
    let gzip = embedded(&format!("docs-{name}.html.gz"), &html)?;
    let source = embedded(&format!("docs-{name}.md.gz"), markdown)?;
    let section = |heading: Heading| {
        let Heading { level, anchor, text, start } = heading;
        format!(
            "DocsSection {{ level: {level}, anchor: {anchor:?}, text: {text:?}, start: {start} }},"
        )
    };
    let sections: String = headings(markdown).into_iter().map(section).collect();
    Ok(format!(
        "DocsPage {{ path: {path:?}, title: {title:?}, kind: {kind:?}, line: {line:?}, gzip: {gzip}, \
         source: {source}, sections: &[{sections}] }},\n"
    ))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
