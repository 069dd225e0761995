//! Embeds the documentation, `src/docs/**/*.md`, as HTML.
//!
//! `index.md` is the only list of pages. A page that it does not list fails the build, as does a link that leads nowhere,
//! also one of the README and of `.github`.
//!
//! Each page is a gzip file of its own. All links are relative, so that the pages work below the path of a proxy.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

use crate::markdown::{
    Destination, Documents, Entry, are_listed, broken_links, entries, headings, target, title,
    to_html, unlisted,
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

/// Other places of the repository whose links are checked.
const ALSO_CHECKED: [&str; 3] = ["README.md", ".github", CONTRACT];

/// For people who work on the program. Pages say what users need of it.
const CONTRACT: &str = "src/docs/reference.md";

/// The most slashes of a page's path, and one.
const DEPTHS: usize = 4;

/// Files that are no part of a published package are looked for only in the repository.
const ONLY_IN_REPOSITORY: &str = "tests";

const SEARCH: &str = "search";

/// A page as HTML.
struct Page {
    /// Below `/docs/`; empty for the index.
    path: String,
    title: String,
    kind: &'static str,
    line: String,
    article: String,
}

/// Writes `docs_files.rs`: the build, the pages and the other files.
pub fn embed(page_build: &str) -> io::Result<()> {
    for place in [FOLDER, ASSETS, PAGE_STYLE].iter().chain(&ALSO_CHECKED) {
        println!("cargo::rerun-if-changed={place}");
    }
    let mut documents = Documents::new();
    read(Path::new(FOLDER.trim_end_matches('/')), &mut documents)?;
    documents.remove(CONTRACT);
    let list = check(&documents)?;
    let mut pages = pages(&documents, &list)?;
    pages.push(search(&documents, &list));
    let style = style()?;
    let script = fs::read_to_string(format!("{ASSETS}/docs.js"))?;
    let template = fs::read_to_string(format!("{ASSETS}/page.html"))?;
    let texts = pages.iter().flat_map(|page| [page.path.as_str(), &page.title, &page.article]);
    let build = fingerprint(texts.chain([page_build, &style, &script, &template]));
    let template = template.replace("{{build}}", &build).replace("{{page_build}}", page_build);
    write_files(
        &build,
        &pages,
        &Template::new(&template, &list)?,
        [("docs.css", &style), ("docs.js", &script)],
    )
}

/// Reads the Markdown files of a folder and of those in it, or one file.
fn read(place: &Path, documents: &mut Documents) -> io::Result<()> {
    if place.is_dir() {
        for entry in fs::read_dir(place)? {
            read(&entry?.path(), documents)?;
        }
    } else if place.extension().is_some_and(|ending| ending == "md") {
        documents.insert(place.to_string_lossy().into_owned(), fs::read_to_string(place)?);
    }
    Ok(())
}

/// The entries of the index, if every page is listed and every link leads somewhere.
fn check(pages: &Documents) -> io::Result<Vec<Entry>> {
    let index = pages.get(INDEX).ok_or_else(|| problem(format!("{INDEX} is missing")))?;
    let list = entries(INDEX, index).map_err(problem)?;
    let mut all = pages.clone();
    for place in ALSO_CHECKED.iter().filter(|place| Path::new(place).exists()) {
        read(Path::new(place), &mut all)?;
    }
    let is_repository = Path::new(ONLY_IN_REPOSITORY).exists();
    let exists =
        |file: &str| !file.starts_with(FOLDER) && (!is_repository || Path::new(file).exists());
    let mut faults = broken_links(&all, &exists);
    faults.extend(unlisted(INDEX, FOLDER, pages, &list));
    for fault in &faults {
        println!("cargo::error={fault}");
    }
    if faults.is_empty() {
        Ok(list)
    } else {
        Err(problem("the documentation has faults".to_owned()))
    }
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
        Some((target, _)) if !target.starts_with(FOLDER) || target == CONTRACT => {
            Destination::File(target)
        }
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
    let (line, kind_name) = (entry.line.clone(), entry.kind);
    Ok(Page {
        path: path.to_owned(),
        title,
        kind: kind_name,
        line,
        article: format!("{kind}{article}"),
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
    Page {
        path: SEARCH.to_owned(),
        title: "Search".to_owned(),
        kind: "",
        line: String::new(),
        article,
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

/// What stands before and after the text of a page.
struct Template {
    before_title: String,
    /// With `{{up}}` for the way to the root.
    navigation: String,
    end: String,
}

impl Template {
    fn new(template: &str, list: &[Entry]) -> io::Result<Self> {
        let missing =
            || problem(format!("{ASSETS}/page.html needs {{{{title}}}} and then {{{{article}}}}"));
        let (before_title, rest) = template.split_once("{{title}}").ok_or_else(missing)?;
        let (middle, end) = rest.split_once("{{article}}").ok_or_else(missing)?;
        Ok(Self {
            before_title: before_title.to_owned(),
            navigation: middle.replace("{{pages}}", &navigation(list, UP)),
            end: end.to_owned(),
        })
    }
}

fn navigation(list: &[Entry], up: &str) -> String {
    let kinds: BTreeSet<&str> = list.iter().map(|entry| entry.kind).collect();
    let in_order = crate::markdown::KINDS.iter().filter(|kind| kinds.contains(**kind));
    let mut html = String::new();
    for kind in in_order {
        html += &format!("<p>{kind}</p>\n<ul>\n");
        for entry in list.iter().filter(|entry| entry.kind == *kind) {
            let (url, title) = (url_of(path_of(&entry.file)), escaped(&entry.title));
            html += &format!("<li><a href=\"{up}{url}\">{title}</a></li>\n");
        }
        html += "</ul>\n";
    }
    html
}

fn write_files(
    build: &str,
    pages: &[Page],
    template: &Template,
    files: [(&str, &String); 2],
) -> io::Result<()> {
    let mut table =
        format!("pub const BUILD: &str = {build:?};\npub static PAGES: &[DocsPage] = &[\n");
    for page in pages {
        table += &entry_of(page, depth_of(&page.path), template)?;
    }
    table += "];\npub static NOT_FOUND: &[DocsPage] = &[\n";
    for depth in 0..DEPTHS {
        let article = "<h1>There is no such page</h1>\n<p>Choose one of the list, or search the headings.</p>\n";
        let (path, title) = (format!("not-found-{depth}"), "There is no such page".to_owned());
        let page = Page { path, title, kind: "", line: String::new(), article: article.to_owned() };
        table += &entry_of(&page, depth, template)?;
    }
    table += "];\npub static FILES: &[(&str, &[u8])] = &[\n";
    for (name, text) in files {
        write(&format!("{name}.gz"), &gzip(text.as_bytes()))?;
        table += &format!("({name:?}, {}),\n", included(&format!("{name}.gz")));
    }
    table += "];\n";
    write("docs_files.rs", table.as_bytes())
}

fn entry_of(page: &Page, depth: usize, template: &Template) -> io::Result<String> {
    let name = format!("docs-{}.html.gz", page.path.replace('/', "-"));
    let article = format!("{}{}", page.article, template.end);
    let (before_title, title_html) = (&template.before_title, escaped(&page.title));
    let navigation = template.navigation.replace(UP, &"../".repeat(depth));
    let html = [before_title, &title_html, &navigation, &article].map(String::as_str).concat();
    write(&name, &gzip(html.as_bytes()))?;
    let (path, title, kind, line) = (&page.path, &page.title, page.kind, &page.line);
    Ok(format!(
        "DocsPage {{ path: {path:?}, title: {title:?}, kind: {kind:?}, line: {line:?}, gzip: {}, \
         article_length: {} }},\n",
        included(&name),
        article.len()
    ))
}

fn included(name: &str) -> String {
    format!("include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}\"))")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
