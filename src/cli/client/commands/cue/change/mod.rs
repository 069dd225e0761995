//! Changes of the fields of a cue: as a text in an editor, or one by one.

pub mod document;
pub mod edit;
mod paths;
pub mod session;
pub mod set;
