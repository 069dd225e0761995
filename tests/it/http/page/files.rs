//! Rules for the files of the page: their size, their texts, and that each is used.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use cued::domain::account::credentials::sha256;
use cued::http::pages::assets::{BUILD, FILES, INDEX};
use cued::http::response::inflate;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/http/page");

/// Compressed bytes of all screens, each of which is loaded when it is first shown.
const MAX_TOTAL: usize = 125 << 10;
const MAX_INDEX: usize = 2 << 10;
const MAX_STYLE: usize = 7 << 10;
/// Compressed bytes of a first visit to a screen, whichever it is: no more than a picture.
const MAX_FIRST_VISIT: usize = 60 << 10;

/// Requests of a first visit to a screen, with those to the API.
const MAX_REQUESTS: usize = 45;
/// The user, the server, the overview, the events, and those of the screen itself.
const API_REQUESTS: usize = 8;

const MAX_FILE_LINES: usize = 350;
const MAX_STYLE_LINES: usize = 400;
const MAX_FOLDER_FILES: usize = 12;

/// What the policy of the page forbids, or what would turn a text into markup or a program. An address of another site
/// would be a request to it, or a reader's click on it.
const BANNED: [&str; 13] = [
    "style=",
    "http:",
    "https:",
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "unsafeHTML",
    "unsafeSVG",
    "eval(",
    "new Function",
    "javascript:",
    "<script>",
];

/// A name, not an address: nothing loads it.
const SVG: &str = "http://www.w3.org/2000/svg";

fn index() -> String {
    String::from_utf8(inflate(INDEX).unwrap().to_vec()).unwrap()
}

/// What the index tells to load for each screen besides the files that it names.
fn preloads() -> BTreeMap<String, BTreeSet<String>> {
    let index = index();
    let list = index.split("data-screens=\"").nth(1).unwrap().split('"').next().unwrap();
    let screens = list.split_terminator(';').map(|entry| entry.split_once(':').unwrap());
    screens.map(|(name, files)| (name.to_owned(), files.split(' ').map(str::to_owned).collect())).collect()
}

/// The sources of the page by their paths, as they are written.
fn sources() -> BTreeMap<String, String> {
    fn read(folder: &Path, sources: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read(&path, sources);
            } else {
                let name = path.strip_prefix(FOLDER).unwrap().to_str().unwrap().to_owned();
                sources.insert(name, fs::read_to_string(path).unwrap());
            }
        }
    }
    let mut sources = BTreeMap::new();
    read(Path::new(FOLDER), &mut sources);
    sources
}

/// The texts of all served files by their paths.
fn texts() -> BTreeMap<&'static str, String> {
    let text = |gzip| String::from_utf8(inflate(gzip).unwrap().to_vec()).unwrap();
    FILES.iter().map(|file| (file.path, text(file.gzip))).collect()
}

fn size(path: &str) -> usize {
    FILES.iter().find(|file| file.path == path).unwrap().gzip.len()
}

/// The files that the index names.
fn named_by_index() -> BTreeSet<String> {
    let (index, start) = (index(), format!("\"ui/{BUILD}/"));
    index.split(&start).skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
}

/// The paths in double quotes that a file names, relative to its own folder.
fn named_by(path: &str, text: &str) -> Vec<String> {
    let quoted = text.split('"').filter(|part| part.starts_with("./") || part.starts_with("../"));
    quoted.map(|reference| resolved(path, reference)).collect()
}

fn resolved(path: &str, reference: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in reference.split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// All that is loaded from `first` on, by static imports or by any.
fn reached(first: impl IntoIterator<Item = String>, also_later: bool) -> BTreeSet<String> {
    let (texts, mut reached) = (texts(), BTreeSet::new());
    let mut waiting: Vec<String> = first.into_iter().collect();
    while let Some(path) = waiting.pop() {
        let text = texts.get(path.as_str()).unwrap_or_else(|| panic!("{path} is missing"));
        let text = if also_later { text.clone() } else { text.replace("import(\"", "import(") };
        let named = named_by(&path, &text).into_iter().filter(|it| it.ends_with(".js"));
        if reached.insert(path.clone()) {
            waiting.extend(named);
        }
    }
    reached
}

#[test]
fn the_page_is_small() {
    // Nobody loads the licence with the page.
    let total = INDEX.len() + FILES.iter().map(|file| file.gzip.len()).sum::<usize>() - size("lit/LICENSE");
    assert!(total <= MAX_TOTAL, "{total} bytes of gzip, more than {MAX_TOTAL}");
    assert!(INDEX.len() <= MAX_INDEX, "index.html: {} bytes of gzip", INDEX.len());
    assert!(size("app.css") <= MAX_STYLE, "app.css: {} bytes of gzip", size("app.css"));
}

#[test]
fn a_first_visit_to_any_screen_takes_few_requests_and_bytes() {
    let first = named_by_index();
    for (screen, files) in preloads() {
        let files: BTreeSet<&String> = first.iter().chain(&files).collect();
        let bytes = INDEX.len() + files.iter().map(|path| size(path)).sum::<usize>();
        assert!(bytes <= MAX_FIRST_VISIT, "{screen}: {bytes} bytes of gzip, {files:?}");
        let requests = 1 + files.len() + API_REQUESTS;
        assert!(requests <= MAX_REQUESTS, "{screen}: {requests} requests, {files:?}");
    }
}

#[test]
fn nothing_is_loaded_late_for_a_first_screen_and_nothing_for_another_one() {
    let is_module = |path: &String| path.ends_with(".js") && path != "theme.js";
    let first: BTreeSet<String> = named_by_index().into_iter().filter(is_module).collect();
    assert_eq!(first, reached(["app/main.js".to_owned()], false));
    for module in &first {
        let link = format!("<link rel=\"modulepreload\" href=\"ui/{BUILD}/{module}\">");
        assert_eq!(index().matches(&link).count(), 1, "{module}");
    }
    let preloads = preloads();
    for (screen, files) in &preloads {
        let needed = reached([format!("screens/{screen}.js")], false);
        let needed: BTreeSet<String> = needed.difference(&first).cloned().collect();
        assert_eq!(files, &needed, "{screen}");
    }
    let screens = sources().into_keys().filter_map(|path| {
        let name = path.strip_prefix("screens/")?.strip_suffix(".js")?.to_owned();
        (!name.contains('/')).then_some(name)
    });
    assert_eq!(preloads.into_keys().collect::<Vec<_>>(), screens.collect::<Vec<_>>());
}

#[test]
fn files_are_served_as_they_are_written() {
    let sources = sources();
    for (path, text) in texts() {
        assert!(sources[path] == text, "{path}");
    }
}

#[test]
fn every_file_of_the_page_is_used() {
    let mut used = reached(named_by_index(), true);
    let manifest: serde_json::Value = serde_json::from_str(&texts()["manifest.webmanifest"]).unwrap();
    let icons = manifest["icons"].as_array().unwrap().iter();
    used.extend(icons.map(|icon| resolved("manifest.webmanifest", icon["src"].as_str().unwrap())));
    // For readers, and the texts that the screen of the keys fetches by their language.
    used.insert("lit/LICENSE".to_owned());
    used.extend(FILES.iter().map(|file| file.path.to_owned()).filter(|path| path.starts_with("verify/")));
    let served: BTreeSet<String> = FILES.iter().map(|file| file.path.to_owned()).collect();
    assert_eq!(used, served, "a file is unused, or one is missing");
}

#[test]
fn no_file_of_the_page_has_a_banned_text() {
    let all = sources().into_iter().filter(|(path, _)| !path.starts_with("lit/") && !path.ends_with(".svg"));
    let mut found = Vec::new();
    for (path, text) in all {
        for (line, number) in text.replace(SVG, "").lines().zip(1..) {
            let banned = BANNED.iter().filter(|banned| line.contains(**banned));
            found.extend(banned.map(|banned| format!("{path}:{number} has {banned:?}")));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_file_of_the_page_fits_one_sitting_and_a_folder_one_screen() {
    let mut folders = BTreeMap::<String, usize>::new();
    for (path, text) in sources() {
        let lines = text.lines().count();
        let most = if path.ends_with(".css") { MAX_STYLE_LINES } else { MAX_FILE_LINES };
        assert!(lines <= most || path.starts_with("lit/"), "{path} has {lines} lines");
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        *folders.entry(folder.to_owned()).or_default() += 1;
    }
    for (folder, files) in folders {
        assert!(files <= MAX_FOLDER_FILES, "page/{folder} has {files} files");
    }
}

/// The files are compared on the disk too: a tool that changes line ends would change both the file and the page.
#[test]
fn the_template_library_is_as_published() {
    let list = fs::read_to_string(format!("{FOLDER}/lit/VENDORED")).unwrap();
    let mut lines = list.lines();
    assert_eq!(lines.next(), Some("lit-html 3.3.3 BSD-3-Clause (npm)"));
    let listed: BTreeMap<&str, &str> =
        lines.map(|line| line.split_once("  ").unwrap()).map(|(a, b)| (b, a)).collect();
    let texts = texts();
    let vendored = texts.iter().filter_map(|(path, text)| Some((path.strip_prefix("lit/")?, text)));
    let hex = |bytes: &[u8]| sha256(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut seen = BTreeSet::new();
    for (path, text) in vendored {
        seen.insert(path);
        let on_disk = fs::read(format!("{FOLDER}/lit/{path}")).unwrap();
        assert_eq!(listed.get(path), Some(&hex(text.as_bytes()).as_str()), "{path} as served");
        assert_eq!(listed.get(path), Some(&hex(&on_disk).as_str()), "{path} on the disk");
    }
    assert_eq!(seen, listed.keys().copied().collect(), "each file is listed");
    assert!(texts["lit/LICENSE"].contains("Redistribution and use in source and binary forms"));
}
