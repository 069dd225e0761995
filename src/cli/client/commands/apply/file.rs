//! The files of `cued apply` and `cued diff`: what they want, or all that is wrong with them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use jiff::Timestamp;
use serde::Deserialize;

use crate::cli::client::commands::apply::channels;
use crate::cli::client::commands::apply::environment::{expand, has_unset_variable};
use crate::cli::client::commands::apply::faults::{At, Faults};
use crate::cli::client::commands::apply::fields::FieldReader;
use crate::cli::error::{CliError, usage};
use crate::cli::input;
use crate::cli::input::placed::{Entry, Place, Placed};
use crate::cli::input::yaml::read_with_places;
use crate::cli::nearest::did_you_mean;
use crate::domain::cue::slug::{NAMESPACE_RULE, SLUG_RULE, Slug, is_namespace};
use crate::domain::secret::MASK;

/// Of a slug in a file with a namespace.
const NAME_RULE: &str = "in a namespace, use 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter or a \
    digit";

const SECTIONS: [&str; 4] = ["namespace", "defaults", "cues", "channels"];

/// What the files want.
#[derive(Debug, Default)]
pub struct Wanted {
    pub objects: Vec<Object>,
    pub namespaces: Vec<Namespace>,
    /// Where the first file begins.
    pub start: Option<At>,
    /// Where the files have short forms of fields.
    pub short: BTreeSet<At>,
    /// The first file without a namespace, whose cues nothing can be pruned around.
    pub without_namespace: Option<String>,
}

/// The namespace of a file. Without a name it is that of a file that has none.
#[derive(Debug, Clone, Default)]
pub struct Namespace {
    pub name: String,
    /// A variable of the environment is a part of it.
    is_hidden: bool,
}

impl Namespace {
    fn slug(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}/{key}", self.name) }
    }

    /// The slug as it may be printed.
    pub fn shown(&self, key: &str) -> String {
        if self.is_hidden { format!("{MASK}/{key}") } else { self.slug(key) }
    }
}

/// Channels are written and shown before cues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Channel,
    Cue,
}

impl Kind {
    pub fn word(self) -> &'static str {
        if self == Self::Cue { "cue" } else { "channel" }
    }
}

/// A cue or a channel of a file.
#[derive(Debug)]
pub struct Object {
    pub kind: Kind,
    /// Of a cue.
    pub namespace: Namespace,
    /// The name of a channel; of a cue the name in the namespace, or the whole slug.
    pub key: String,
    /// Of its key.
    pub at: At,
    /// As the API takes it.
    pub body: Placed,
    /// No fault was found in it so far.
    pub is_valid: bool,
}

/// Reads the files, `-` from standard input, of a folder those in it. No request is made.
pub fn read(paths: &[&str], now: Timestamp) -> Result<(Wanted, Faults), CliError> {
    if paths.iter().filter(|path| **path == "-").count() > 1 {
        return Err(usage("-f -: standard input can be read once; name it once"));
    }
    let (mut files, mut texts) = (Vec::new(), Vec::new());
    for path in paths {
        files.extend(files_of(path)?);
    }
    for path in &files {
        texts.push(match path.as_str() {
            "-" => input::text("-f", "-")?,
            path => input::text("-f", &format!("@{path}"))?,
        });
    }
    let (mut wanted, mut faults, mut short) =
        (Wanted::default(), Faults::default(), BTreeSet::new());
    for (number, (path, text)) in files.iter().zip(&texts).enumerate() {
        let file = if path == "-" { "stdin" } else { path };
        let at = At { number, file: Arc::from(file), place: Place::START };
        wanted.start.get_or_insert_with(|| at.clone());
        let fields = FieldReader { at, now, faults: &mut faults, short: &mut short };
        FileReader { fields, wanted: &mut wanted }.read(text);
    }
    wanted.short = short;
    check_unique(&wanted, &mut faults);
    Ok((wanted, faults))
}

/// The file with this path, or those of a folder in the order of their names.
fn files_of(path: &str) -> Result<Vec<String>, CliError> {
    if path == "-" || !Path::new(path).is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let cannot = |error: io::Error| usage(format!("-f: cannot read {path}: {error}"));
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(cannot)? {
        let name = entry.map_err(cannot)?.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.')
            && [".yaml", ".yml", ".json"].iter().any(|end| name.ends_with(end))
        {
            files.push(Path::new(path).join(name).display().to_string());
        }
    }
    if files.is_empty() {
        return Err(usage(format!("-f: the folder {path} has no file *.yaml, *.yml or *.json")));
    }
    files.sort();
    Ok(files)
}

/// The same cue or the same channel in two files, or twice by the namespaces of two files.
fn check_unique(wanted: &Wanted, faults: &mut Faults) {
    let mut seen: BTreeMap<(Kind, String), &At> = BTreeMap::new();
    for Object { kind, namespace, key, at, .. } in &wanted.objects {
        let name = (*kind, namespace.slug(key));
        if let Some(first) = seen.get(&name) {
            let (kind, shown) = (kind.word(), namespace.shown(key));
            let reason = format!("the {kind} {shown} is also at {first}; remove one of the two");
            faults.add(at.clone(), reason);
        } else {
            seen.insert(name, at);
        }
    }
}

struct FileReader<'a> {
    fields: FieldReader<'a>,
    wanted: &'a mut Wanted,
}

impl FileReader<'_> {
    fn fault(&mut self, place: Place, reason: impl Into<String>) {
        self.fields.fault_at(place, reason);
    }

    fn read(&mut self, text: &str) {
        let mut document = match read_with_places(text) {
            Ok(document) => document,
            Err(fault) => return self.fault(fault.place, fault.reason),
        };
        if !document.is_object() {
            return self.fault(document.place, "expected a mapping with the key `cues:`");
        }
        expand(&mut document, &self.fields.at, self.fields.faults);
        for entry in document.entries() {
            if !SECTIONS.contains(&entry.key.as_str()) {
                let otherwise = format!("a file has {}", SECTIONS.join(", "));
                let advice = did_you_mean(&entry.key, SECTIONS, otherwise);
                self.fault(entry.place, format!("there is no section {:?}; {advice}", entry.key));
            }
        }
        let namespace = self.namespace(&document);
        match self.wanted.namespaces.iter_mut().find(|known| known.name == namespace.name) {
            // In another file it may be no variable.
            Some(known) => known.is_hidden |= namespace.is_hidden,
            None => self.wanted.namespaces.push(namespace.clone()),
        }
        let defaults = self.defaults(&document);
        for cue in self.section(&document, "cues") {
            self.cue(&cue, &namespace, &defaults);
        }
        for channel in self.section(&document, "channels") {
            let found = self.fields.faults.count();
            if let Some(body) = channels::read(&channel, &self.fields.at, self.fields.faults) {
                self.add(Kind::Channel, &channel, Namespace::default(), body, found);
            }
        }
    }

    /// Adds an object. `found` is the number of faults before it was read.
    fn add(&mut self, kind: Kind, entry: &Entry, namespace: Namespace, body: Placed, found: usize) {
        let is_valid = self.fields.faults.count() == found && !has_unset_variable(&body);
        let (key, at) = (entry.key.clone(), self.fields.at.in_file(entry.place));
        self.wanted.objects.push(Object { kind, namespace, key, at, body, is_valid });
    }

    fn namespace(&mut self, document: &Placed) -> Namespace {
        let Some(given) = document.get("namespace").filter(|given| !given.is_null()) else {
            self.wanted.without_namespace.get_or_insert_with(|| self.fields.at.file.to_string());
            return Namespace::default();
        };
        let Some(name) = given.as_str().filter(|name| is_namespace(name)) else {
            self.fault(given.place, format!("namespace: {NAMESPACE_RULE}"));
            return Namespace::default();
        };
        Namespace { name: name.to_owned(), is_hidden: given.has_variable }
    }

    fn defaults(&mut self, document: &Placed) -> Placed {
        let Some(given) = document.get("defaults").filter(|given| !given.is_null()) else {
            return Placed::object(document.place);
        };
        if !given.is_object() {
            self.fault(
                given.place,
                "the defaults are an object of fields, such as `timezone: Europe/Berlin`",
            );
            return Placed::object(given.place);
        }
        self.fields.normalized(given)
    }

    /// The entries of a section, which may be left out or empty.
    fn section(&mut self, document: &Placed, name: &str) -> Vec<Entry> {
        match document.get(name) {
            Some(section) if !section.is_object() && !section.is_null() => {
                self.fault(
                    section.place,
                    format!("{name} is an object with a key for each of them"),
                );
                Vec::new()
            }
            section => section.map(|section| section.entries().to_vec()).unwrap_or_default(),
        }
    }

    fn cue(&mut self, entry: &Entry, namespace: &Namespace, defaults: &Placed) {
        let (key, has_none) = (&entry.key, namespace.name.is_empty());
        if if has_none { Slug::parse(key).is_none() } else { !is_namespace(key) } {
            let rule = if has_none { SLUG_RULE } else { NAME_RULE };
            return self.fault(entry.place, format!("{key:?} is no slug: {rule}"));
        }
        if !entry.value.is_object() {
            let example = "such as `schedule: \"0 3 * * *\"`";
            return self
                .fault(entry.value.place, format!("{key} is an object of fields, {example}"));
        }
        let found = self.fields.faults.count();
        let body = self.fields.body(entry, defaults);
        self.add(Kind::Cue, entry, namespace.clone(), body, found);
    }
}
