//! Compiles `malloc.c` into the program, and shortens the API description that the program contains.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=src/malloc.c");
    // Linked as a whole, because nothing refers to its constructor.
    cc::Build::new().file("src/malloc.c").link_lib_modifier("+whole-archive").compile("malloc_settings");
    shorten_json("src/http/openapi.json", "openapi.json")
}

/// Writes a JSON file without its line breaks and indentation to the output folder. A JSON text contains no line break
/// outside of its structure.
fn shorten_json(from: &str, to: &str) -> io::Result<()> {
    println!("cargo::rerun-if-changed={from}");
    let folder = env::var("OUT_DIR").map_err(io::Error::other)?;
    let short: String = fs::read_to_string(from)?.lines().map(str::trim_start).collect();
    fs::write(Path::new(&folder).join(to), short)
}
