//! Embeds the page (`src/http/page`): every file once, compressed, under a name that changes with each build.
//!
//! Scripts and styles lose their comments and indentation, and modules that are always loaded together become one file
//! (`bundle.rs`). The template library stays as it was published.
//!
//! `index.html` has three placeholders: `{{build}}`, the build, `{{preload}}`, the links by which a browser loads all
//! that every screen needs at once, and `{{screens}}`, what each screen needs beyond them: `theme.js` preloads it for
//! the screen of the address. An import is a path in double quotes that begins with `./` or `../`, right after `from`,
//! `import` or `import(`; only the last one is followed later, by the page itself.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use crate::bundle::{Bundles, Import, Module, Modules, resolve};
use crate::script::{short_script, short_style};
use crate::{gzip, write};

const FOLDER: &str = "src/http/page";

/// Served as `/`.
const INDEX: &str = "index.html";

/// For programs and readers of the repository.
const NOT_SERVED: [&str; 2] = ["package.json", "lit/VENDORED"];

/// Runs before the first paint, as a plain script.
const EARLY_SCRIPT: &str = "theme.js";

/// The module that starts the page.
const MAIN: &str = "app/main.js";

/// The template library. A test compares it with what was published.
const LIBRARY: &str = "lit/";

/// The files by their paths below the folder.
type Files = BTreeMap<String, Vec<u8>>;

/// Writes `page_files.rs`: the build, the index and a table of the other files.
///
/// # Errors
/// If a file refers to one that is missing, or has a name without a known content type.
pub fn embed() -> io::Result<()> {
    println!("cargo::rerun-if-changed={FOLDER}");
    let mut files = Files::new();
    read(Path::new(FOLDER), "", &mut files)?;
    let modules = take_modules(&mut files)?;
    shorten(&mut files)?;
    let bundles = Bundles::new(&modules, MAIN, |path| path.starts_with(LIBRARY)).map_err(problem)?;
    let index = files.remove(INDEX).ok_or_else(|| problem(format!("{FOLDER}/{INDEX} is missing")))?;
    let index = with_preloads(&text(INDEX, &index)?, &bundles)?;
    for (path, bundle) in bundles.texts().map_err(problem)? {
        files.insert(path.to_owned(), bundle.into_bytes());
    }
    for (path, module) in modules.iter().filter(|(path, _)| path.starts_with(LIBRARY)) {
        files.insert(path.clone(), module.text.clone().into_bytes());
    }
    check_index(&index, &files)?;
    let build = build_of(&index, &files);
    let index = index.replace("{{build}}", &build);

    let mut table = format!("pub const BUILD: &str = \"{build}\";\n");
    write("page-index.gz", &gzip(index.as_bytes()))?;
    writeln!(table, "pub static INDEX: &[u8] = {};", include_bytes("page-index.gz"))
        .map_err(io::Error::other)?;
    table.push_str("pub static FILES: &[PageFile] = &[\n");
    for (number, (path, content)) in files.iter().enumerate() {
        let (name, content_type) = (format!("page-{number}.gz"), content_type(path)?);
        write(&name, &gzip(content))?;
        let gzip = include_bytes(&name);
        let row =
            writeln!(table, "PageFile {{ path: {path:?}, content_type: {content_type:?}, gzip: {gzip} }},");
        row.map_err(io::Error::other)?;
    }
    table.push_str("];\n");
    write("page_files.rs", table.as_bytes())
}

fn include_bytes(name: &str) -> String {
    format!("include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}\"))")
}

/// Reads the files of a folder and of those in it. Hidden ones belong to editors.
fn read(folder: &Path, prefix: &str, files: &mut Files) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().into_string().map_err(|name| problem(format!("{name:?} is no text")))?;
        let path = format!("{prefix}{name}");
        if name.starts_with('.') || NOT_SERVED.contains(&path.as_str()) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            read(&entry.path(), &format!("{path}/"), files)?;
        } else {
            files.insert(path, fs::read(entry.path())?);
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
        "LICENSE" => "text/plain; charset=utf-8",
        _ => {
            return Err(problem(format!(
                "{FOLDER}/{path} has no content type; add one in src/build/page.rs"
            )));
        }
    })
}

/// Takes the modules out of the files.
fn take_modules(files: &mut Files) -> io::Result<Modules> {
    let is_module = |path: &str| path.ends_with(".js") && path != EARLY_SCRIPT;
    let (scripts, others): (Files, Files) =
        std::mem::take(files).into_iter().partition(|(path, _)| is_module(path));
    *files = others;
    let mut modules = Modules::new();
    for (path, content) in scripts {
        let text = text(&path, &content)?;
        let imports = imports(&path, &text);
        let text =
            if path.starts_with(LIBRARY) { text } else { short_script(&text).map_err(in_file(&path))? };
        modules.insert(path, Module { text, imports });
    }
    let imports =
        modules.iter().flat_map(|(path, module)| module.imports.iter().map(move |it| (path, &it.path)));
    if let Some((path, missing)) = imports.into_iter().find(|(_, import)| !modules.contains_key(*import)) {
        return Err(problem(format!("{FOLDER}/{path} imports {missing:?}, which is missing")));
    }
    Ok(modules)
}

/// Shortens the scripts and styles that are no modules.
fn shorten(files: &mut Files) -> io::Result<()> {
    for (path, content) in files {
        let short = match path.rsplit('.').next() {
            Some("css") => short_style,
            Some("js") => short_script,
            _ => continue,
        };
        *content = short(&text(path, content)?).map_err(in_file(path))?.into_bytes();
    }
    Ok(())
}

fn in_file(path: &str) -> impl Fn(String) -> io::Error {
    move |fault| problem(format!("{FOLDER}/{path}: {fault}"))
}

/// Puts what is preloaded into the index: `NAME:FILE FILE;` for each screen.
fn with_preloads(index: &str, bundles: &Bundles) -> io::Result<String> {
    let first = bundles.files_of(MAIN).map_err(problem)?;
    let links: Vec<String> = first
        .iter()
        .map(|path| format!("<link rel=\"modulepreload\" href=\"ui/{{{{build}}}}/{path}\">"))
        .collect();
    let mut screens = String::new();
    for path in bundles.screens() {
        let files = bundles.files_of(path).map_err(problem)?;
        let more: Vec<&str> = files.difference(&first).copied().collect();
        let name = path.trim_start_matches("screens/").trim_end_matches(".js");
        write!(screens, "{name}:{};", more.join(" ")).map_err(io::Error::other)?;
    }
    Ok(index.replace("{{preload}}", &links.join("\n")).replace("{{screens}}", &screens))
}

/// # Errors
/// If the index refers to a missing file.
fn check_index(index: &str, files: &Files) -> io::Result<()> {
    for reference in index.split("ui/{{build}}/").skip(1) {
        let path = reference.split(['"', '\'', ' ', '>']).next().unwrap_or_default();
        if !files.contains_key(path) {
            return Err(problem(format!("{FOLDER}/{INDEX} refers to {path:?}, which is missing")));
        }
    }
    Ok(())
}

fn imports(importer: &str, text: &str) -> Vec<Import> {
    let starts = text.match_indices("\".").map(|(start, _)| start);
    let found = starts.filter_map(|start| {
        let reference = text[start + 1..].split('"').next()?;
        let before = text[..start].trim_end();
        let is_static = before.ends_with("from") || before.ends_with("import");
        let is_path = reference.starts_with("./") || reference.starts_with("../");
        let path = resolve(importer, reference);
        (is_path && (is_static || before.ends_with("import("))).then_some(Import { path, is_static })
    });
    found.collect()
}

/// The first 48 bits of the FNV-1a hash of all files, as 12 hexadecimal digits.
fn build_of(index: &str, files: &Files) -> String {
    let rest = files.iter().flat_map(|(path, content)| [path.as_bytes(), content.as_slice()]);
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for part in std::iter::once(index.as_bytes()).chain(rest) {
        // The length separates each part from the next one.
        for byte in part.len().to_le_bytes().iter().chain(part) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    format!("{:012x}", hash >> 16)
}

fn text(path: &str, content: &[u8]) -> io::Result<String> {
    String::from_utf8(content.to_vec()).map_err(|_| problem(format!("{FOLDER}/{path} is no UTF-8 text")))
}

fn problem(text: String) -> io::Error {
    io::Error::other(text)
}
