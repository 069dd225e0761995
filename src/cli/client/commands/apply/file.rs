//! The files of `cued apply` and `cued diff`: what they want, or all that is wrong with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::cli::client::commands::apply::channels::{self, WantedChannel};
use crate::cli::client::commands::apply::environment::expand;
use crate::cli::client::commands::apply::faults::{At, Faults};
use crate::cli::client::commands::apply::fields::FieldReader;
use crate::cli::error::{CliError, usage};
use crate::cli::input;
use crate::cli::input::placed::{Entry, Place, Placed};
use crate::cli::input::yaml::read_with_places;
use crate::cli::nearest::did_you_mean;
use crate::domain::cue::slug::{NAMESPACE_RULE, SLUG_RULE, Slug, is_namespace};

/// Of a slug in a file with a namespace.
const NAME_RULE: &str = "in a namespace it should have 1 to 63 of a-z, 0-9, '.', '_' and '-', and begin with a letter or a \
    digit";

const SECTIONS: [&str; 4] = ["namespace", "defaults", "cues", "channels"];

/// What the files want.
#[derive(Debug, Default)]
pub struct Wanted {
    pub cues: Vec<WantedCue>,
    pub channels: Vec<WantedChannel>,
    pub namespaces: Vec<String>,
    /// Where the files have short forms of fields.
    pub short: BTreeSet<At>,
    /// The first file without a namespace, whose cues nothing can be pruned around.
    pub without_namespace: Option<String>,
}

#[derive(Debug)]
pub struct WantedCue {
    pub slug: String,
    /// Of its key.
    pub at: At,
    /// As the API takes it.
    pub body: Placed,
}

/// Reads the files, `-` from standard input. No request is made.
/// Errors: all faults of all files.
pub fn read(paths: &[&str], now: Timestamp) -> Result<Wanted, CliError> {
    if paths.iter().filter(|path| **path == "-").count() > 1 {
        return Err(usage("-f -: standard input can be read once; name it once"));
    }
    let mut texts = Vec::new();
    for path in paths {
        texts.push(match *path {
            "-" => input::text("-f", "-")?,
            path => input::text("-f", &format!("@{path}"))?,
        });
    }
    let (mut wanted, mut faults) = (Wanted::default(), Faults::default());
    for (number, (path, text)) in paths.iter().zip(&texts).enumerate() {
        let file = if *path == "-" { "stdin" } else { path };
        let at = At { number, file: Arc::from(file), place: Place::START };
        let mut reader = FileReader { at, now, faults: &mut faults, wanted: &mut wanted };
        reader.read(text);
    }
    check_unique(&wanted, &mut faults);
    faults.check().map(|()| wanted)
}

/// The same cue or the same channel in two files, or twice by the namespaces of two files.
fn check_unique(wanted: &Wanted, faults: &mut Faults) {
    let cues = wanted.cues.iter().map(|cue| ("cue", &cue.slug, &cue.at));
    let channels = wanted.channels.iter().map(|channel| ("channel", &channel.name, &channel.at));
    let mut seen: BTreeMap<(&str, &String), &At> = BTreeMap::new();
    for (kind, name, at) in cues.chain(channels) {
        if let Some(first) = seen.get(&(kind, name)) {
            faults.add(at.clone(), format!("the {kind} {name} is also at {first}; remove one of the two"));
        } else {
            seen.insert((kind, name), at);
        }
    }
}

struct FileReader<'a> {
    at: At,
    now: Timestamp,
    faults: &'a mut Faults,
    wanted: &'a mut Wanted,
}

impl FileReader<'_> {
    fn fault(&mut self, place: Place, reason: impl Into<String>) {
        self.faults.add(self.at.in_file(place), reason);
    }

    fn read(&mut self, text: &str) {
        let mut document = match read_with_places(text) {
            Ok(document) => document,
            Err(fault) => return self.fault(fault.place, fault.reason),
        };
        if !document.is_object() {
            return self.fault(document.place, "a file has a key `cues:` with a cue below each slug");
        }
        expand(&mut document, &self.at, self.faults);
        for entry in document.entries() {
            if !SECTIONS.contains(&entry.key.as_str()) {
                let otherwise = format!("a file has {}", SECTIONS.join(", "));
                let advice = did_you_mean(&entry.key, SECTIONS, otherwise);
                self.fault(entry.place, format!("there is no section {:?}; {advice}", entry.key));
            }
        }
        let namespace = self.namespace(&document);
        let defaults = self.defaults(&document);
        for cue in self.section(&document, "cues") {
            self.cue(&cue, namespace.as_deref(), &defaults);
        }
        for channel in self.section(&document, "channels") {
            self.wanted.channels.extend(channels::read(&channel, &self.at, self.faults));
        }
    }

    fn namespace(&mut self, document: &Placed) -> Option<String> {
        let Some(given) = document.get("namespace").filter(|given| !given.is_null()) else {
            self.wanted.without_namespace.get_or_insert_with(|| self.at.file.to_string());
            return None;
        };
        match given.as_str().filter(|name| is_namespace(name)) {
            Some(name) => {
                if !self.wanted.namespaces.iter().any(|known| known == name) {
                    self.wanted.namespaces.push(name.to_owned());
                }
                Some(name.to_owned())
            }
            None => {
                self.fault(given.place, NAMESPACE_RULE);
                None
            }
        }
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
        self.fields().normalized(given)
    }

    fn fields(&mut self) -> FieldReader<'_> {
        FieldReader { at: &self.at, now: self.now, faults: self.faults, short: &mut self.wanted.short }
    }

    /// The entries of a section, which may be left out or empty.
    fn section(&mut self, document: &Placed, name: &str) -> Vec<Entry> {
        match document.get(name) {
            Some(section) if !section.is_object() && !section.is_null() => {
                self.fault(section.place, format!("{name} is an object with a key for each of them"));
                Vec::new()
            }
            section => section.map(|section| section.entries().to_vec()).unwrap_or_default(),
        }
    }

    fn cue(&mut self, entry: &Entry, namespace: Option<&str>, defaults: &Placed) {
        let key = &entry.key;
        let slug = match namespace {
            Some(namespace) => format!("{namespace}/{key}"),
            None => key.clone(),
        };
        if namespace.map_or(Slug::parse(key).is_none(), |_| !is_namespace(key)) {
            let rule = if namespace.is_some() { NAME_RULE } else { SLUG_RULE };
            return self.fault(entry.place, format!("{key:?} is no slug; {rule}"));
        }
        if !entry.value.is_object() {
            let example = "such as `schedule: \"0 3 * * *\"`";
            return self.fault(entry.value.place, format!("{key} is an object of fields, {example}"));
        }
        let body = self.fields().body(entry, defaults);
        self.wanted.cues.push(WantedCue { slug, at: self.at.in_file(entry.place), body });
    }
}
