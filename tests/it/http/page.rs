//! The browser page as it is served, and the size of its files.

use std::sync::LazyLock;

use cued::domain::account::credentials::sha256;
use cued::domain::channel::services::{SERVICES, Setting, SettingKind};
use cued::domain::cue_fields::{PLAIN_FIELDS, PageTexts, Values};
use cued::http::assets::inflate;
use cued::http::assets::{BUILD, FILES, INDEX, SCREENS};

use crate::http::docs;
use crate::support::*;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/http/page");

/// Compressed bytes of all screens. A screen is loaded when it is first shown.
const MAX_TOTAL: usize = 160 << 10;
const MAX_INDEX: usize = 2 << 10;
const MAX_STYLE: usize = 7 << 10;
/// Bytes of the bodies of a first visit: no more than a picture.
const MAX_FIRST_VISIT: usize = 60 << 10;

/// Requests of a first visit to a screen, with those to the API.
const MAX_REQUESTS: usize = 45;
/// Those of a first visit by who is signed out, and by a new account.
const MAX_SIGNED_OUT: usize = 28;
const MAX_NEW_ACCOUNT: usize = 42;
/// The user, the server, the overview, the events, the unread alerts, and those of the screen itself.
const API_REQUESTS: usize = 10;

const MAX_FILE_LINES: usize = 350;
const MAX_STYLE_LINES: usize = 410;
const MAX_FOLDER_FILES: usize = 15;

/// What the policy of the page forbids, or what would turn a text into markup or a program. An address of another site
/// would be a request to it, or a reader's click on it; `LINKS` alone has such links.
const BANNED: &str = "style= | http: | https: | innerHTML | outerHTML | insertAdjacentHTML | document.write | unsafeHTML | \
    unsafeSVG | eval( | new Function | javascript: | <script>";

/// The file with links to the documentation of the services of channels, where a reader finds a URL or a token. The page
/// loads nothing from there. A click opens a new tab, and `noreferrer` does not tell the site where the reader comes from.
const LINKS: &str = "screens/channels/services.js";

/// A name, not an address: nothing loads it.
const SVG: &str = "http://www.w3.org/2000/svg";

fn index() -> String {
    String::from_utf8(inflate(INDEX).unwrap().to_vec()).unwrap()
}

/// Files that the index preloads for each screen, besides those that it names.
fn preloads() -> BTreeMap<String, BTreeSet<String>> {
    let index = index();
    let list = index.split("data-screens=\"").nth(1).unwrap().split('"').next().unwrap();
    let screens = list.split_terminator(';').map(|entry| entry.split_once(':').unwrap());
    screens
        .map(|(name, files)| (name.to_owned(), files.split(' ').map(str::to_owned).collect()))
        .collect()
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
static TEXTS: LazyLock<BTreeMap<&str, String>> = LazyLock::new(|| {
    let text = |gzip| String::from_utf8(inflate(gzip).unwrap().to_vec()).unwrap();
    FILES.iter().map(|file| (file.path, text(file.gzip))).collect()
});

/// The modules that each file imports at once, and those that it imports at once or later.
static IMPORTS: LazyLock<BTreeMap<&str, [BTreeSet<String>; 2]>> = LazyLock::new(|| {
    let modules = |path: &str, text: &str| -> BTreeSet<String> {
        named_by(path, text).into_iter().filter(|it| it.ends_with(".js")).collect()
    };
    let imports = |(path, text): (&&'static str, &String)| {
        (*path, [modules(path, &text.replace("import(\"", "import(")), modules(path, text)])
    };
    TEXTS.iter().map(imports).collect()
});

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
    let (mut reached, mut waiting) = (BTreeSet::new(), first.into_iter().collect::<Vec<_>>());
    while let Some(path) = waiting.pop() {
        let imports = IMPORTS.get(path.as_str()).unwrap_or_else(|| panic!("{path} is missing"));
        if reached.insert(path) {
            waiting.extend(imports[usize::from(also_later)].iter().cloned());
        }
    }
    reached
}

#[test]
fn the_page_is_small() {
    // The page does not load the licence.
    let total =
        INDEX.len() + FILES.iter().map(|file| file.gzip.len()).sum::<usize>() - size("lit/LICENSE");
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

/// The requests of a visit and the bytes of their bodies as they are sent: what the index names, what is preloaded for a
/// screen, what it loads later, and what it asks of the API.
fn visit(client: &Client, screen: &str, later: &str, api: &[&str]) -> (usize, usize) {
    let (first, preloads) = (named_by_index(), preloads());
    let later =
        (!later.is_empty()).then(|| reached([later.to_owned()], false)).into_iter().flatten();
    let files: BTreeSet<String> =
        first.into_iter().chain(preloads[screen].clone()).chain(later).collect();
    let paths =
        files.iter().map(|path| address(path)).chain(api.iter().map(|&path| path.to_owned()));
    let paths: Vec<String> = paths.chain(["/".to_owned()]).collect();
    let body = |path: &String| client.get_with(path, &[("Accept-Encoding", "gzip")]).body.len();
    (paths.len(), paths.iter().map(body).sum())
}

/// As a browser counts them, but for the head of each response (`tests/browser/page/trials/speed.py` compares it with one).
#[test]
fn a_first_visit_signed_out_or_of_a_new_account_is_at_most_60_kib() {
    let server = Server::start(&[]);
    let (requests, bytes) = visit(&server.client(), "sign_in", "", &["/v1/info"]);
    assert!(
        bytes <= MAX_FIRST_VISIT && requests <= MAX_SIGNED_OUT,
        "signed out: {bytes} bytes in {requests}"
    );
    let api = ["auth/me", "info", "overview", "alerts?limit=1", "flows", "executions?limit=6"];
    let mut api: Vec<String> = api.iter().map(|path| format!("/v1/{path}")).collect();
    api.push("/health".to_owned());
    let api: Vec<&str> = api.iter().map(String::as_str).collect();
    let (requests, bytes) =
        visit(&server.user(), "overview", "screens/overview/first_cue.js", &api);
    // The stream of the events has no end.
    let requests = requests + 1;
    assert!(
        bytes <= MAX_FIRST_VISIT && requests <= MAX_NEW_ACCOUNT,
        "new: {bytes} bytes in {requests}"
    );
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
fn the_plain_fields_of_the_page_are_those_of_the_table() {
    let fields = PLAIN_FIELDS.iter().map(|field| {
        let mut row = format!("  {{ name: {:?}", field.name);
        row += &match field.values {
            Values::Minutes(_) => ", unit: \"minutes\"".to_owned(),
            Values::Seconds(_) => ", unit: \"seconds\"".to_owned(),
            Values::Words(known) => {
                format!(", words: {:?}", known.iter().map(|(word, ..)| word).collect::<Vec<_>>())
            }
        };
        if let Some((only, _)) = field.only {
            row += &format!(", only: {:?}", only.as_str());
        }
        row + " },\n"
    });
    let texts = PLAIN_FIELDS.iter().map(|field| {
        let PageTexts { label, help, fact: (fact, text) } = &field.page;
        let mut row = format!("  {}: {{ ask: {label:?}, fact: [{fact:?}, {text:?}]", field.name);
        if !help.is_empty() {
            row += &format!(",\n    help: {help:?}");
        }
        if let Values::Words(known) = field.values {
            let choices = known.iter().map(|(word, _, text)| format!("{word}: {text:?}"));
            row += &format!(
                ",\n    choices: {{ __proto__: null, {} }}",
                choices.collect::<Vec<_>>().join(", ")
            );
        }
        row + " },\n"
    });
    const WRITTEN: [&str; 2] = ["app/words.js", "parts/cue_field_texts.js"];
    let [words, about] = WRITTEN;
    assert_written(words, "export const PLAIN_FIELDS = [\n", fields.collect(), "];\n");
    let begin = "export const TEXTS = {\n  __proto__: null,\n";
    assert_written(about, begin, texts.collect(), "};\n");
    for (path, text) in sources().iter().filter(|(path, _)| !WRITTEN.contains(&path.as_str())) {
        // A word such as `overlap` names other things too.
        let names = PLAIN_FIELDS.iter().map(|field| field.name).filter(|name| name.contains('_'));
        let found: Vec<&str> = names.filter(|name| text.contains(name)).collect();
        assert_eq!(found, [""; 0], "{path}");
    }
}

#[test]
fn the_settings_of_channels_on_the_page_are_those_of_the_services() {
    let row = |setting: &Setting| {
        let mut more = match setting.kind {
            SettingKind::Url | SettingKind::SecretUrl => vec!["type: \"url\"".to_owned()],
            SettingKind::Address => vec!["type: \"email\"".to_owned()],
            SettingKind::Number(_) => vec!["choices: PRIORITIES".to_owned()],
            SettingKind::Secret | SettingKind::Text => Vec::new(),
        };
        let texts = [("placeholder", setting.example), ("help", setting.help)];
        let texts = texts.iter().filter(|(_, text)| !text.is_empty());
        more.extend(texts.map(|(name, text)| format!("{name}: {text:?}")));
        // A choice shows that it may be left.
        let is_told = setting.is_required || matches!(setting.kind, SettingKind::Number(_));
        let (first, rest) = setting.label.split_at(1);
        let optional = if is_told { "" } else { " (optional)" };
        let label = format!("{}{rest}{optional}", first.to_uppercase());
        let more =
            if more.is_empty() { String::new() } else { format!(", {{ {} }}", more.join(", ")) };
        format!("    [{:?}, {label:?}{more}],\n", setting.name)
    };
    let rows = SERVICES.iter().map(|service| {
        let rows: String = service.settings.iter().map(row).collect();
        format!("  {}: [\n{rows}  ],\n", service.channel_type.as_str())
    });
    let begin = "export const SETTINGS = {\n  __proto__: null,\n";
    assert_written(LINKS, begin, rows.collect(), "};\n");
}

/// Compares the rest of a module behind `begin`, and writes it if it differs.
fn assert_written(module: &str, begin: &str, rows: String, end: &str) {
    let file = Path::new(FOLDER).join(module);
    let text = fs::read_to_string(&file).unwrap();
    let (own, _) = text.split_once(begin.lines().next().unwrap()).unwrap();
    let wanted = format!("{own}{begin}{rows}{end}");
    if text != wanted {
        fs::write(file, wanted).unwrap();
        panic!("{module} differed from the table, and is written now: build again");
    }
}

#[test]
fn files_are_served_as_they_are_written() {
    let sources = sources();
    for (path, text) in TEXTS.iter() {
        assert!(sources[*path] == *text, "{path}");
    }
}

#[test]
fn every_file_of_the_page_is_used() {
    let mut used = reached(named_by_index(), true);
    let manifest: serde_json::Value = serde_json::from_str(&TEXTS["manifest.webmanifest"]).unwrap();
    let icons = manifest.list("icons").iter();
    used.extend(icons.map(|icon| resolved("manifest.webmanifest", icon.text("src"))));
    // For readers.
    used.insert("lit/LICENSE".to_owned());
    let served: BTreeSet<String> = FILES.iter().map(|file| file.path.to_owned()).collect();
    assert_eq!(used, served, "a file is unused, or one is missing");
}

#[test]
fn no_module_of_the_page_leads_back_to_itself() {
    let in_circle = |path: &&&str| reached(IMPORTS[**path][1].clone(), true).contains(**path);
    let modules = IMPORTS.keys().filter(|path| path.ends_with(".js"));
    assert_eq!(modules.filter(in_circle).collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[test]
fn no_file_of_the_page_has_a_banned_text() {
    let all = sources()
        .into_iter()
        .filter(|(path, _)| !path.starts_with("lit/") && !path.ends_with(".svg"));
    let mut found = Vec::new();
    for (path, text) in all {
        for (line, number) in text.replace(SVG, "").lines().zip(1..) {
            let is_link = |banned: &&str| path == LINKS && *banned == "https:";
            let banned =
                BANNED.split(" | ").filter(|banned| line.contains(banned) && !is_link(banned));
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
    let texts = &*TEXTS;
    let vendored = texts.iter().filter_map(|(path, text)| Some((path.strip_prefix("lit/")?, text)));
    let hex =
        |bytes: &[u8]| sha256(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
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

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types lit-html";

fn address(path: &str) -> String {
    format!("/ui/{BUILD}/{path}")
}

/// The paths of all that is served without a key to be kept by a browser.
fn paths() -> impl Iterator<Item = String> {
    let files = FILES.iter().map(|file| address(file.path));
    files.chain(["/".to_owned(), "/openapi.json".to_owned()]).chain(docs::paths())
}

/// The headers of every HTML page, beside the policy of its contents.
pub const PAGE_HEADERS: [(&str, &str); 8] = [
    ("content-type", "text/html; charset=utf-8"),
    ("cache-control", "no-cache"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("x-frame-options", "DENY"),
    ("cross-origin-opener-policy", "same-origin"),
    ("permissions-policy", "camera=(), microphone=(), geolocation=()"),
    ("vary", "accept-encoding"),
];

#[test]
fn the_page_is_served_with_its_headers() {
    let server = Server::start(&[]);
    for headers in
        [&[][..], &[("Accept", "application/json")], &[("Accept", "text/html,*/*;q=0.8")]]
    {
        let page = server.client().get_with("/", headers);
        assert_eq!(page.status, 200, "{}", page.text());
        for (name, value) in [("content-security-policy", POLICY)].into_iter().chain(PAGE_HEADERS) {
            assert_eq!(page.header(name), Some(value), "{name}");
        }
        assert!(page.text().contains(&address("app/main.js")[1..]) && !page.text().contains("{{"));
    }
}

#[test]
fn every_file_of_the_page_is_served_for_ever() {
    let server = Server::start(&[]);
    for file in FILES {
        let served = server.client().get(&address(file.path));
        assert_eq!((served.status, served.header("content-type")), (200, Some(file.content_type)));
        assert_eq!(served.body, inflate(file.gzip).unwrap().to_vec(), "{}", file.path);
        for (name, value) in [
            ("cache-control", "public, max-age=31536000, immutable"),
            ("x-content-type-options", "nosniff"),
            ("cross-origin-resource-policy", "same-origin"),
            ("vary", "accept-encoding"),
        ] {
            assert_eq!(served.header(name), Some(value), "{name} of {}", file.path);
        }
    }
    for (path, content_type) in [
        ("app/main.js", "text/javascript; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
        ("manifest.webmanifest", "application/manifest+json"),
        ("lit/LICENSE", "text/plain; charset=utf-8"),
    ] {
        let served = server.client().get(&address(path));
        assert_eq!(served.header("content-type"), Some(content_type), "{path}");
    }
}

#[test]
fn a_copy_is_confirmed_by_its_tag() {
    let server = Server::start(&[]);
    let client = server.client();
    for path in paths() {
        let first = client.get(&path);
        let etag = first.header("etag").unwrap().to_owned();
        for tag in [etag.clone(), format!("W/{etag}"), format!("\"x\", {etag}"), "*".to_owned()] {
            let known = client.get_with(&path, &[("If-None-Match", &tag)]);
            assert_eq!((known.status, known.body.len()), (304, 0), "{path} {tag}");
            assert_eq!(known.header("etag"), Some(etag.as_str()));
            for name in ["cache-control", "vary", "content-security-policy"] {
                assert_eq!(known.header(name), first.header(name), "{name} of {path}");
            }
        }
        assert_eq!(client.get_with(&path, &[("If-None-Match", "\"x\"")]).body, first.body);
    }
}

#[test]
fn a_head_has_the_headers_of_the_get() {
    let server = Server::start(&[]);
    let client = server.client();
    for path in paths() {
        for headers in [&[][..], &[("Accept-Encoding", "gzip")]] {
            let (head, full) = (
                client.call("HEAD", &path, headers, b"").unwrap(),
                client.get_with(&path, headers),
            );
            assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
            for name in words(
                "content-length content-type content-encoding content-security-policy etag cache-control",
            ) {
                assert_eq!(head.header(name), full.header(name), "{name} of {path}");
            }
        }
    }
}

#[test]
fn a_client_gets_gzip_only_if_it_accepts_it() {
    let server = Server::start(&[]);
    let client = server.client();
    for path in paths() {
        let plain = client.get(&path);
        let gzip = client.get_with(&path, &[("Accept-Encoding", "deflate, gzip;q=0.5, br")]);
        assert_eq!(plain.header("content-encoding"), None);
        assert_eq!(gzip.header("content-encoding"), Some("gzip"));
        assert_eq!(gzip.unzipped(), plain.body, "{path}");
        assert_eq!(gzip.header("etag").unwrap(), format!("W/{}", plain.header("etag").unwrap()));
        for refusing in ["gzip;q=0", "identity", "br, gzip; q=0.0", "*;q=0"] {
            let answer = client.get_with(&path, &[("Accept-Encoding", refusing)]);
            assert!(answer.body == plain.body, "{path} is compressed for {refusing}");
        }
    }
}

#[test]
fn other_builds_and_odd_paths_are_not_found() {
    let server = Server::start(DEV_UNLIMITED);
    let client = server.client();
    let odd = "/ui /ui/ // /index.html /favicon.ico /ui/000000000000/app/main.js";
    let unknown = "index.html package.json lit/VENDORED app app/ app/main.js/ app//main.js /app/main.js app%2Fmain.js \
        app%2fmain.js ../app/main.js app/../app.css lit/../app/main.js %2e%2e/app/main.js lit/%2e%2e/app.css \
        ..%2f..%2fCargo.toml app/main.js%00 app/%FF App/main.js lit/directives/deep/repeat.js";
    let builds = [
        format!("/ui/{}/app/main.js", BUILD.to_uppercase() + "0"),
        format!("/ui/{BUILD}"),
        address(""),
    ];
    let odd = words(odd).into_iter().map(str::to_owned);
    let unknown = words(unknown).into_iter().map(address);
    for path in odd.chain(builds).chain(unknown) {
        client.get(&path).expect_error(404, "not_found");
    }
    let wrong = client.bare("POST", "/");
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("GET, HEAD")));
    client.call("GET", "/", &[], b"{}").unwrap().expect_error(400, "invalid_request");
}

#[test]
fn a_browser_that_asks_for_the_path_of_a_screen_gets_to_the_page() {
    let server = Server::start(&[]);
    let client = server.client();
    let off = Server::start(&["--page", "off"]);
    let html = [("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")];
    for (path, address) in [
        ("/cues", "./#/cues"),
        ("/cues/", "./../#/cues/"),
        ("/cues/cue_x/edit", "./../../#/cues/cue_x/edit"),
        ("/runs?status=failed&tag=a,b", "./#/runs?status=failed&tag=a,b"),
        ("/account/keys", "./../#/account/keys"),
    ] {
        let answer = client.get_with(path, &html);
        assert_eq!((answer.status, answer.header("location")), (303, Some(address)), "{path}");
        assert_eq!(client.call("HEAD", path, &html, b"").unwrap().status, 303);
        client.get(path).expect_error(404, "not_found");
        client.call("POST", path, &html, b"").unwrap().expect_error(404, "not_found");
        off.client().get_with(path, &html).expect_error(404, "not_found");
    }
    for path in ["/nowhere", "//cues", "/cuesx", "/v1/nowhere"] {
        client.get_with(path, &html).expect_error(404, "not_found");
    }
    let router = &TEXTS["app/router.js"];
    let words = router
        .split(": /^")
        .skip(1)
        .map(|rest| rest.split(|c: char| !c.is_ascii_lowercase()).next().unwrap());
    let screens: BTreeSet<&str> = words.filter(|word| !["", "enter"].contains(word)).collect();
    assert_eq!(screens, BTreeSet::from(SCREENS));
}

#[test]
fn the_page_can_be_switched_off() {
    for flags in [&["--page", "off"][..], &["--page=on"], &[]] {
        let server = Server::start(flags);
        let client = server.client();
        let is_off = flags.contains(&"off");
        for path in ["/".to_owned(), address("app/main.js")] {
            let response = client.get(&path);
            if is_off {
                let body = response.expect_error(404, "not_found");
                // The response is that of any unknown path.
                assert_eq!(body, client.get("/nowhere").expect_error(404, "not_found"));
            } else {
                assert_eq!(response.status, 200, "{path}");
            }
        }
        assert_eq!(client.read("/v1/info")["build"], BUILD);
    }
}

#[test]
fn the_page_counts_in_no_rate_window() {
    let (api, user) = Api::with_user("ann");
    // One more than the requests of a minute.
    for _ in 0..61 {
        assert_eq!(user.get("/").status, 200);
        assert_eq!(user.bare("HEAD", "/openapi.json").status, 200);
        assert_eq!(user.get(&address("app/main.js")).status, 200);
        user.get("/ui/0/x.js").expect_error(404, "not_found");
    }
    assert_eq!(user.get("/v1/auth/keys").header("x-ratelimit-remaining"), Some("59"));
    let guest = Client::new(api.addr());
    assert_eq!(guest.get("/v1/info").header("x-ratelimit-remaining"), Some("59"));
}
