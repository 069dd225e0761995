//! Joins modules that are always loaded together: fewer requests, and texts that compress better side by side.
//!
//! A module is a function in its bundle, which returns what the module exports. So a bundle has no names in common but
//! those of its modules, and the sources stay plain modules that a browser can load. What a module must keep to:
//! - its imports are its first lines, one each, as `import { … } from "…";` or `import * as … from "…";`,
//! - it exports constants, functions and classes where it declares them, one a line,
//! - modules do not import each other in a circle.

use std::collections::{BTreeMap, BTreeSet};

/// A module and what it imports.
pub struct Module {
    /// Without comments and indentation.
    pub text: String,
    pub imports: Vec<Import>,
}

/// A module that another one imports.
pub struct Import {
    /// Below the folder of the page.
    pub path: String,
    /// Loaded before the importing module runs.
    pub is_static: bool,
}

/// The modules by their paths.
pub type Modules = BTreeMap<String, Module>;

/// The bundles of all modules.
pub struct Bundles<'a> {
    modules: &'a Modules,
    /// Whether a module stays a file of its own, as it was published.
    is_alone: fn(&str) -> bool,
    /// The path of the bundle of each module that is in one.
    homes: BTreeMap<&'a str, &'a str>,
}

impl<'a> Bundles<'a> {
    /// Puts modules into one bundle that the same entries need. An entry is `main` or a module that is imported later.
    /// What `main` needs is there already, whatever else needs it.
    ///
    /// # Errors
    /// If modules import each other in a circle, or nothing imports one.
    pub fn new(modules: &'a Modules, main: &'a str, is_alone: fn(&str) -> bool) -> Result<Self, String> {
        let later = modules.values().flat_map(|module| &module.imports).filter(|import| !import.is_static);
        let entries: BTreeSet<&str> = later.map(|import| import.path.as_str()).chain([main]).collect();
        let mut needed_by = BTreeMap::<&str, BTreeSet<&str>>::new();
        for entry in &entries {
            for path in needs(modules, entry)? {
                needed_by.entry(path).or_default().insert(entry);
            }
        }
        if let Some(unused) = modules.keys().find(|path| !needed_by.contains_key(path.as_str())) {
            return Err(format!("nothing imports {unused:?}"));
        }
        let mut groups = BTreeMap::<BTreeSet<&str>, Vec<&str>>::new();
        for (path, mut entries) in needed_by {
            if is_alone(path) {
                continue;
            }
            if entries.contains(main) {
                entries = BTreeSet::from([main]);
            }
            groups.entry(entries).or_default().push(path);
        }
        let mut homes = BTreeMap::new();
        for group in groups.values() {
            let home = group.iter().find(|path| entries.contains(*path)).or(group.first());
            homes.extend(group.iter().filter_map(|path| Some((*path, *home?))));
        }
        Ok(Self { modules, is_alone, homes })
    }

    /// The files that are loaded with a module, its own among them.
    ///
    /// # Errors
    /// If modules import each other in a circle.
    pub fn files_of(&self, path: &str) -> Result<BTreeSet<&'a str>, String> {
        let needed = needs(self.modules, path)?;
        Ok(needed.into_iter().map(|path| self.homes.get(path).copied().unwrap_or(path)).collect())
    }

    /// The modules of the screens, each named as its screen.
    pub fn screens(&self) -> impl Iterator<Item = &'a str> {
        let is_screen = |path: &&str| folder(path) == "screens";
        self.modules.keys().map(String::as_str).filter(is_screen)
    }

    /// The texts of the bundles by their paths.
    ///
    /// # Errors
    /// If a module does not keep to the rules above, or imports what another does not export.
    pub fn texts(&self) -> Result<BTreeMap<&'a str, String>, String> {
        let homes: BTreeSet<&str> = self.homes.values().copied().collect();
        homes.into_iter().map(|home| Ok((home, self.text(home)?))).collect()
    }

    fn text(&self, home: &str) -> Result<String, String> {
        let mut members = Vec::new();
        for path in self.homes.iter().filter(|(_, its)| **its == home).map(|(path, _)| *path) {
            for needed in needs(self.modules, path)? {
                if self.homes.get(needed) == Some(&home) && !members.contains(&needed) {
                    members.push(needed);
                }
            }
        }
        let (mut outside, mut all) = (BTreeSet::new(), String::new());
        for path in &members {
            let function = self.function(path, home).map_err(|problem| format!("{path}: {problem}"))?;
            all.push_str(&function);
            let imports = self.modules.get(*path).into_iter().flat_map(|module| &module.imports);
            let from = imports.filter(|import| import.is_static).map(|import| import.path.as_str());
            outside.extend(from.filter(|from| self.homes.get(from) != Some(&home)));
        }
        let (mut head, mut from_bundles) = (String::new(), BTreeMap::<&str, Vec<String>>::new());
        for path in outside {
            let name = name_of(path);
            match self.homes.get(path) {
                Some(file) => from_bundles.entry(file).or_default().push(name),
                None => head.push_str(&format!("import*as {name} from\"{}\";", relative(home, path))),
            }
        }
        for (file, names) in from_bundles {
            head.push_str(&format!("import{{{}}}from\"{}\";", names.join(","), relative(home, file)));
        }
        let names: Vec<String> = members.iter().map(|path| name_of(path)).collect();
        Ok(format!("{head}\n{all}export{{{}}};\n", names.join(",")))
    }

    /// A module as a function that returns what it exports.
    fn function(&self, path: &str, home: &str) -> Result<String, String> {
        let module = self.module(path)?;
        let (mut text, mut exports, mut imported) = (String::new(), Vec::new(), 0);
        let mut is_head = true;
        for line in module.text.lines() {
            is_head &= line.is_empty() || is_import(line);
            if is_head && !line.is_empty() {
                text.push_str(&self.import(path, line)?);
                imported += 1;
            } else if let Some(declaration) = line.strip_prefix("export ") {
                exports.push(declared(declaration).ok_or_else(|| format!("cannot export: {line}"))?);
                text.push_str(declaration);
            } else {
                text.push_str(line);
            }
            text.push('\n');
        }
        if imported != module.imports.iter().filter(|import| import.is_static).count() {
            return Err("the imports must be its first lines, one each".to_owned());
        }
        if text.contains("import.meta") && folder(path) != folder(home) {
            return Err(format!("import.meta is that of {home}, in another folder"));
        }
        for later in module.imports.iter().filter(|import| !import.is_static) {
            let file = self.homes.get(later.path.as_str()).copied().unwrap_or(&later.path);
            let (before, name) = (relative(path, &later.path), name_of(&later.path));
            let after = format!("import(\"{}\").then(all=>all.{name})", relative(home, file));
            let before = format!("import(\"{before}\")");
            if !text.contains(&before) {
                return Err(format!("write it as {before}"));
            }
            text = text.replace(&before, &after);
        }
        Ok(format!("const {}=(()=>{{\n{text}return{{{}}};\n}})();\n", name_of(path), exports.join(",")))
    }

    /// An import as a constant.
    fn import(&self, importer: &str, line: &str) -> Result<String, String> {
        let wrong = || format!("cannot import: {line}");
        let rest = line.strip_prefix("import").and_then(|rest| rest.strip_suffix("\";")).ok_or_else(wrong)?;
        let (names, reference) = rest.split_once("from \"").ok_or_else(wrong)?;
        let path = resolve(importer, reference);
        let all = name_of(&path);
        if let Some(name) = names.trim_end().strip_prefix("*as ") {
            return Ok(format!("const {name}={all};"));
        }
        let names = names.strip_prefix('{').and_then(|names| names.strip_suffix('}')).ok_or_else(wrong)?;
        if !(self.is_alone)(&path) {
            let exports = self.module(&path)?.text.lines().filter_map(|line| line.strip_prefix("export "));
            let exports: Vec<&str> = exports.filter_map(declared).collect();
            let mut wanted = names.split(',').filter_map(|name| name.split(' ').next());
            if let Some(missing) = wanted.find(|name| !exports.contains(name)) {
                return Err(format!("{path} does not export {missing}"));
            }
        }
        Ok(format!("const{{{}}}={all};", names.replace(" as ", ":")))
    }

    fn module(&self, path: &str) -> Result<&'a Module, String> {
        self.modules.get(path).ok_or_else(|| format!("{path} is missing"))
    }
}

/// All that a module needs before it can run, itself last.
fn needs<'a>(modules: &'a Modules, path: &str) -> Result<Vec<&'a str>, String> {
    fn visit<'a>(
        modules: &'a Modules,
        path: &str,
        above: &mut Vec<&'a str>,
        found: &mut Vec<&'a str>,
    ) -> Result<(), String> {
        if found.contains(&path) {
            return Ok(());
        }
        let (path, module) = modules.get_key_value(path).ok_or_else(|| format!("{path} is missing"))?;
        if above.contains(&path.as_str()) {
            return Err(format!("{path} imports itself by way of {above:?}"));
        }
        above.push(path);
        for import in module.imports.iter().filter(|import| import.is_static) {
            visit(modules, &import.path, above, found)?;
        }
        above.pop();
        found.push(path);
        Ok(())
    }
    let mut found = Vec::new();
    visit(modules, path, &mut Vec::new(), &mut found)?;
    Ok(found)
}

fn is_import(line: &str) -> bool {
    line.starts_with("import{") || line.starts_with("import*")
}

/// The name that a declaration gives. A variable would not change for those that import it.
fn declared(declaration: &str) -> Option<&str> {
    let declaration = declaration.strip_prefix("async").map_or(declaration, str::trim_start);
    let starts = ["const ", "function*", "function ", "class "];
    let rest = starts.iter().find_map(|start| declaration.strip_prefix(start))?;
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '$';
    let name = rest.split(|char| !is_part(char)).next()?;
    (!name.is_empty()).then_some(name)
}

fn name_of(path: &str) -> String {
    let plain = path.trim_end_matches(".js");
    let letters = plain.chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '_' });
    std::iter::once('$').chain(letters).collect()
}

fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The path that `reference` names in the file `importer`. One that leaves the folder of the page names nothing.
pub fn resolve(importer: &str, reference: &str) -> String {
    let mut parts: Vec<&str> = importer.split('/').collect();
    parts.pop();
    for part in reference.split('/') {
        match part {
            "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// What names the file `path` in the file `importer`.
fn relative(importer: &str, path: &str) -> String {
    let (from, to) = (folder(importer), folder(path));
    let (from, mut to): (Vec<&str>, Vec<&str>) =
        (from.split('/').collect(), to.split('/').filter(|part| !part.is_empty()).collect());
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    to.drain(..common);
    let ups = "../".repeat(from.len() - common);
    let file = path.rsplit('/').next().unwrap_or(path);
    let start = if ups.is_empty() { "./" } else { &ups };
    to.push(file);
    format!("{start}{}", to.join("/"))
}
