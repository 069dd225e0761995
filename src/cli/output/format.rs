//! The values of `--output` and `--color`.

use clap::ValueEnum;

/// The form in which results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// Columns of text
    #[default]
    Table,
    /// More columns
    Wide,
    /// The JSON of the server unchanged
    Json,
    /// One line of JSON per object
    Jsonl,
    Yaml,
    /// One id per line
    Id,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    Auto,
    Always,
    Never,
}

impl Format {
    /// The output is no table: it has nothing but the answer.
    pub fn is_for_programs(self) -> bool {
        !matches!(self, Self::Table | Self::Wide)
    }

    /// The output is read by a program, and errors are JSON too.
    pub fn is_json(self) -> bool {
        matches!(self, Self::Json | Self::Jsonl)
    }
}
