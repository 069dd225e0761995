//! The input of commands besides their flags: values of arguments, files, standard input, texts in an editor.

pub mod editor;
pub mod values;
pub mod yaml;
