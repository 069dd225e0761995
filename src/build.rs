//! Compiles `malloc.c` into the program. Linked as a whole, because nothing refers to its constructor.

fn main() {
    println!("cargo::rerun-if-changed=src/malloc.c");
    cc::Build::new().file("src/malloc.c").link_lib_modifier("+whole-archive").compile("malloc_settings");
}
