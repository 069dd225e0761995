//! Changes of the fields of a cue: as a text in an editor, or one by one.

pub mod edit;
pub mod editor;
pub mod set;
