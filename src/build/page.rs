//! Embeds the page (`src/http/page`): every file as it is written, compressed, under a path that changes with each
//! build.
//!
//! `index.html` has three placeholders: `{{build}}`, the build, `{{preload}}`, a link for each module that every screen
//! needs, and `{{screens}}`, the modules that each screen needs beyond them: `theme.js` preloads those of the address.
//! So a browser asks for all modules at once, and not for one after the import of another. An import is a path in
//! double quotes that begins with `./` or `../`, right after `from`, `import` or `import(`. The last form is not
//! preloaded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

use crate::markdown::resolve;
use crate::{fingerprint, gzip, problem, write};

const FOLDER: &str = "src/http/page";

/// Served as `/`.
const INDEX: &str = "index.html";

/// For programs and readers of the repository.
const NOT_SERVED: [&str; 2] = ["package.json", "lit/VENDORED"];

/// The module that starts the page.
const MAIN: &str = "app/main.js";

/// The folder of the modules that are each named as their screen.
const SCREENS: &str = "screens/";

/// The texts by their paths below the folder.
type Files = BTreeMap<String, String>;

/// Writes `page_files.rs`: the build, the index and a table of the other files. Returns the build.
/// Errors: if a file refers to one that is missing, or has a name without a known content type.
pub fn embed() -> io::Result<String> {
    println!("cargo::rerun-if-changed={FOLDER}");
    let mut files = Files::new();
    read(Path::new(FOLDER), "", &mut files)?;
    let index =
        files.remove(INDEX).ok_or_else(|| problem(format!("{FOLDER}/{INDEX} is missing")))?;
    let index = with_preloads(&index, &files)?;
    if let Some(missing) =
        quoted_after(&index, "ui/{{build}}/").find(|path| !files.contains_key(*path))
    {
        return Err(problem(format!("{FOLDER}/{INDEX} refers to {missing:?}, which is missing")));
    }
    let rest = files.iter().flat_map(|(path, content)| [path.as_str(), content.as_str()]);
    let build = fingerprint(std::iter::once(index.as_str()).chain(rest));
    write("page-index.gz", &gzip(index.replace("{{build}}", &build).as_bytes()))?;
    let included = |name: &str| format!("include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}\"))");
    let mut table = format!("pub const BUILD: &str = \"{build}\";\n");
    table += &format!("pub static INDEX: &[u8] = {};\n", included("page-index.gz"));
    table.push_str("pub static FILES: &[PageFile] = &[\n");
    for (number, (path, content)) in files.iter().enumerate() {
        let (name, content_type) = (format!("page-{number}.gz"), content_type(path)?);
        write(&name, &gzip(content.as_bytes()))?;
        let gzip = included(&name);
        table += &format!(
            "PageFile {{ path: {path:?}, content_type: {content_type:?}, gzip: {gzip} }},\n"
        );
    }
    table.push_str("];\n");
    write("page_files.rs", table.as_bytes())?;
    Ok(build)
}

/// Reads the files of a folder and of those in it. Hidden ones belong to editors.
fn read(folder: &Path, prefix: &str, files: &mut Files) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry
            .file_name()
            .into_string()
            .map_err(|name| problem(format!("{name:?} is no text")))?;
        let path = format!("{prefix}{name}");
        if name.starts_with('.') || NOT_SERVED.contains(&path.as_str()) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            read(&entry.path(), &format!("{path}/"), files)?;
        } else {
            files.insert(path, fs::read_to_string(entry.path())?);
        }
    }
    Ok(())
}

fn content_type(path: &str) -> io::Result<&'static str> {
    let name = path.rsplit('/').next().unwrap_or(path);
    Ok(match name.rsplit('.').next().unwrap_or(name) {
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "svg" => "image/svg+xml",
        "webmanifest" => "application/manifest+json",
        "LICENSE" | "txt" => "text/plain; charset=utf-8",
        _ => {
            return Err(problem(format!(
                "{FOLDER}/{path} has no content type; add one in src/build/page.rs"
            )));
        }
    })
}

/// Puts what is preloaded into the index: `NAME:FILE FILE;` for each screen.
fn with_preloads(index: &str, files: &Files) -> io::Result<String> {
    let mut first = BTreeSet::new();
    need(files, MAIN, &mut first)?;
    let link =
        |path: &String| format!("<link rel=\"modulepreload\" href=\"ui/{{{{build}}}}/{path}\">\n");
    let mut screens = String::new();
    for path in files.keys() {
        let Some(name) = path.strip_prefix(SCREENS).and_then(|name| name.strip_suffix(".js"))
        else {
            continue;
        };
        if !name.contains('/') {
            let mut needed = BTreeSet::new();
            need(files, path, &mut needed)?;
            let more: Vec<&str> = needed.difference(&first).map(String::as_str).collect();
            screens += &format!("{name}:{};", more.join(" "));
        }
    }
    Ok(index
        .replace("{{preload}}\n", &first.iter().map(link).collect::<String>())
        .replace("{{screens}}", &screens))
}

/// Adds a module and all its static imports.
fn need(files: &Files, path: &str, needed: &mut BTreeSet<String>) -> io::Result<()> {
    let Some(text) = files.get(path) else {
        return Err(problem(format!("{FOLDER}/{path} is missing")));
    };
    if !needed.insert(path.to_owned()) {
        return Ok(());
    }
    for (start, quote) in text.match_indices("\".") {
        let reference = text[start + quote.len() - 1..].split('"').next().unwrap_or_default();
        let before = text[..start].trim_end();
        let imported = resolve(path, reference);
        let is_static = before.ends_with("from") || before.ends_with("import");
        if is_static {
            need(files, &imported, needed)?;
        } else if before.ends_with("import(") && !files.contains_key(&imported) {
            return Err(problem(format!("{FOLDER}/{path} imports {imported:?}, which is missing")));
        }
    }
    Ok(())
}

/// The text between each `start` and the end of its attribute.
fn quoted_after<'a>(text: &'a str, start: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(start).skip(1).filter_map(|rest| rest.split(['"', '\'', ' ', '>']).next())
}
