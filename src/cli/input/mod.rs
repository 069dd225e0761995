//! The input of commands besides their flags: values of arguments, variables of the environment, files, standard input.

pub mod values;
pub mod variables;
pub mod yaml;
