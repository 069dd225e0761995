//! One field of a cron expression: parses its text to a set of values; errors name the field.

use crate::domain::schedule::cron::CronError;

pub(super) struct CronField {
    pub(super) name: &'static str,
    /// The smallest and the greatest number that may be written.
    pub(super) range: (u8, u8),
    /// The number of values before a range wraps.
    pub(super) size: u8,
    /// Three-letter names, in the order of the values.
    pub(super) names: &'static [&'static str],
    /// True if `?` may stand for `*`.
    pub(super) question: bool,
}

/// The five fields in their order.
pub(super) const FIELDS: [CronField; 5] = [
    CronField { name: "minute", range: (0, 59), size: 60, names: &[], question: false },
    CronField { name: "hour", range: (0, 23), size: 24, names: &[], question: false },
    CronField { name: "day-of-month", range: (1, 31), size: 31, names: &[], question: true },
    CronField {
        name: "month",
        range: (1, 12),
        size: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
        question: false,
    },
    // 7 is accepted for Sunday: values are taken modulo the size.
    CronField {
        name: "day-of-week",
        range: (0, 7),
        size: 7,
        names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
        question: true,
    },
];

impl CronField {
    /// The values that the text names, as a bit set: bit n is the value n, Sunday is 0.
    pub(super) fn parse(&self, field: Token<'_>) -> Result<u64, CronError> {
        if self.question && field.text == "?" {
            return Ok(self.every(0, self.size - 1, 1));
        }
        let mut set = 0;
        for item in field.split(|char| char == ',') {
            set |= self.item(item)?;
        }
        Ok(set)
    }

    fn item(&self, item: Token<'_>) -> Result<u64, CronError> {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, Some(self.step(step)?)),
            None => (item, None),
        };
        let last = self.size - 1;
        let (first, last) = match (range.text, range.split_once('-')) {
            ("*", _) => (0, last),
            (_, Some((first, end))) => (self.value(first)?, self.value(end)?),
            // An extension: `a/n` means `a-max/n`. crontab(5) has steps after ranges only.
            (_, None) if step.is_some() => (self.value(range)?, last),
            (_, None) => (self.value(range)?, self.value(range)?),
        };
        Ok(self.every(first, last, step.unwrap_or(1)))
    }

    /// Every `step`th value from `first` to `last`, both relative to the smallest value of the field; wraps at the
    /// end.
    fn every(&self, first: u8, last: u8, step: u8) -> u64 {
        let length = if first <= last { last - first } else { last + self.size - first };
        (0..=length)
            .step_by(usize::from(step))
            .map(|distance| 1 << (self.range.0 + (first + distance) % self.size))
            .fold(0, |set, bit: u64| set | bit)
    }

    /// A number or name, relative to the smallest value of the field.
    fn value(&self, value: Token<'_>) -> Result<u8, CronError> {
        let (least, greatest) = self.range;
        if let Some(index) = self.names.iter().position(|name| name.eq_ignore_ascii_case(value.text)) {
            return Ok(u8::try_from(index).unwrap_or(greatest));
        }
        let Some(number) = self.number(value)? else {
            return Err(self.unknown(value));
        };
        if (least..=greatest).contains(&number) {
            return Ok(number - least);
        }
        Err(self.error(value, format!("{} is out of range {least}-{greatest}", shown(value.text))))
    }

    fn step(&self, step: Token<'_>) -> Result<u8, CronError> {
        let size = self.size;
        let problem = match self.number(step)? {
            Some(step) if (1..=size).contains(&step) => return Ok(step),
            Some(0) => format!("a step of 0 never moves; use 1-{size}"),
            Some(_) => format!(
                "the step {} is larger than the field, which has {size} values; use 1-{size}",
                shown(step.text)
            ),
            None => format!("`{}` is not a step; write a number 1-{size} after /", shown(step.text)),
        };
        Err(self.error(step, problem))
    }

    /// Parses digits; numbers above `u8::MAX` saturate. `None` for any other text.
    fn number(&self, number: Token<'_>) -> Result<Option<u8>, CronError> {
        let text = number.text;
        if text.is_empty() {
            let problem = "a value is missing; write one on each side of every `,`, `-` and `/`";
            return Err(self.error(number, problem.to_owned()));
        }
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(None);
        }
        Ok(Some(text.parse().unwrap_or(u8::MAX)))
    }

    fn unknown(&self, value: Token<'_>) -> CronError {
        let (least, greatest) = self.range;
        let numbers = format!("{least}-{greatest}");
        let wanted = match self.names {
            [first, .., last] => format!("a number {numbers} or a name {first}-{last}"),
            _ => format!("a number {numbers}"),
        };
        let text = shown(value.text);
        if text.contains(['L', 'l', 'W', 'w', '#']) && self.question {
            return self
                .error(value, format!("`{text}`: L, W and # are not part of crontab(5); write {wanted}"));
        }
        self.error(value, format!("`{text}` is not valid here; write {wanted}"))
    }

    fn error(&self, part: Token<'_>, message: String) -> CronError {
        CronError { field: self.name, message, span: part.span() }
    }
}

/// A user's text, truncated for an error message.
pub(super) fn shown(text: &str) -> String {
    const MAX_CHARS: usize = 40;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A part of a cron expression that knows its place, so that an error can point at it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    start: usize,
}

impl<'a> Token<'a> {
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
            let token = Self { text, start };
            start += text.len() + 1;
            token
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
