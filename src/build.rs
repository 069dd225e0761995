//! Compiles `malloc.c` into the program, and shortens the API description that the program contains.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=src/malloc.c");
    // Linked as a whole, because nothing refers to its constructor.
    cc::Build::new().file("src/malloc.c").link_lib_modifier("+whole-archive").compile("malloc_settings");
    shorten_json("src/http/openapi.json", "openapi.json")
}

/// Writes a JSON file without the blanks between its tokens to the output folder.
fn shorten_json(from: &str, to: &str) -> io::Result<()> {
    println!("cargo::rerun-if-changed={from}");
    let folder = env::var("OUT_DIR").map_err(io::Error::other)?;
    let (mut is_string, mut is_escaped) = (false, false);
    let mut is_kept = |char: &char| {
        let is_kept = is_string || !char.is_ascii_whitespace();
        is_string ^= *char == '"' && !is_escaped;
        is_escaped = is_string && *char == '\\' && !is_escaped;
        is_kept
    };
    let short: String = fs::read_to_string(from)?.chars().filter(|char| is_kept(char)).collect();
    fs::write(Path::new(&folder).join(to), short)
}
