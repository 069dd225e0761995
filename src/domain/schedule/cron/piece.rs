//! A part of a cron expression that knows its place, so that an error can point at it.

/// A part of the text, and the byte at which it begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) text: &'a str,
    start: usize,
}

impl<'a> Piece<'a> {
    pub(super) fn whole(text: &'a str) -> Self {
        Self { text, start: 0 }
    }

    /// The words between ASCII whitespace.
    pub(super) fn words(self) -> impl Iterator<Item = Self> {
        self.split(|char| char.is_ascii_whitespace()).filter(|word| !word.text.is_empty())
    }

    /// The parts between separators, which must be ASCII.
    pub(super) fn split(self, is_separator: fn(char) -> bool) -> impl Iterator<Item = Self> {
        let mut start = self.start;
        self.text.split(is_separator).map(move |text| {
            let piece = Self { text, start };
            start += text.len() + 1;
            piece
        })
    }

    /// The parts before and after the first separator, which must be ASCII.
    pub(super) fn split_once(self, separator: char) -> Option<(Self, Self)> {
        let (first, second) = self.text.split_once(separator)?;
        let start = self.start + first.len() + 1;
        Some((Self { text: first, start: self.start }, Self { text: second, start }))
    }

    /// The bytes of the expression, half open. Empty where something is missing.
    pub(super) fn span(self) -> (usize, usize) {
        (self.start, self.start + self.text.len())
    }
}
