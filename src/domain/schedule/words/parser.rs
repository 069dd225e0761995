//! The parts of a text about a schedule: spans of time, times of day, days.

use jiff::civil::{Date, Time, Weekday};

use crate::domain::schedule::words::{EXAMPLES, WordsError};

/// A part of the text, in characters, half open.
pub type Span = (usize, usize);

const WEEKDAYS: [&str; 7] =
    ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

const MONTHS: &str = "jan feb mar apr may jun jul aug sep oct nov dec";

const UNITS: &str = "s sec secs second seconds m min mins minute minutes h hr hrs hour hours d day days w wk wks week weeks";

const A_TIME: &str = "a time such as 9:00, 18:30 or 6 pm";

/// A word in lower case, or a comma or a plus sign, and its place.
#[derive(Debug)]
struct Token {
    word: String,
    span: Span,
}

/// A time of day, or a minute of each hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    pub hour: Option<i8>,
    pub minute: i8,
    pub span: Span,
}

impl Clock {
    pub fn time(&self) -> Result<Time, WordsError> {
        let time = self.hour.and_then(|hour| Time::new(hour, self.minute, 0, 0).ok());
        time.ok_or_else(|| WordsError {
            message: "a minute without an hour is for `hourly`; write a time such as 9:15"
                .to_owned(),
            span: self.span,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Days {
    Minutes,
    Hours,
    All,
    /// Values of a field of cron: Sunday is 0.
    OfWeek(Vec<i8>),
    OfMonth(Vec<i8>),
    /// The last day, or the last one of a weekday.
    LastOfMonth(Span, Option<i8>),
    Date(Date),
    /// Days after today.
    Ahead(i64),
    Next(Weekday),
}

pub struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    at: usize,
}

impl<'a> Parser<'a> {
    pub fn new(text: &'a str) -> Self {
        let mut tokens: Vec<Token> = Vec::new();
        let mut is_inside = false;
        for (place, char) in text.chars().enumerate() {
            if char.is_whitespace() {
                is_inside = false;
                continue;
            }
            let is_mark = char == ',' || (char == '+' && !is_inside);
            let letter = char.to_ascii_lowercase();
            match tokens.last_mut().filter(|_| is_inside && !is_mark) {
                Some(token) => {
                    token.word.push(letter);
                    token.span.1 = place + 1;
                }
                None => tokens.push(Token { word: letter.to_string(), span: (place, place + 1) }),
            }
            is_inside = !is_mark;
        }
        Self { text, tokens, at: 0 }
    }

    pub fn is_at_end(&self) -> bool {
        self.at >= self.tokens.len()
    }

    pub fn whole(&self) -> Span {
        (0, self.text.chars().count())
    }

    /// Passes over the word if it is the next one.
    pub fn take(&mut self, word: &str) -> bool {
        let is_next = self.word() == word;
        self.at += usize::from(is_next);
        is_next
    }

    pub fn take_every(&mut self) -> bool {
        ["every", "each", "@every"].into_iter().any(|word| self.take(word))
    }

    /// The next word; empty at the end.
    fn word(&self) -> &str {
        self.word_after(0)
    }

    fn word_after(&self, words: usize) -> &str {
        self.tokens.get(self.at + words).map_or("", |token| &token.word)
    }

    /// The place of the next word, an empty one at the end.
    fn place(&self) -> Span {
        let end = self.whole().1;
        self.tokens.get(self.at).map_or((end, end), |token| token.span)
    }

    /// From the given word to the one before the next.
    fn span_from(&self, first: usize) -> Span {
        let last = self.at.saturating_sub(1).max(first);
        let place = |index: usize| self.tokens.get(index).map_or(self.place(), |token| token.span);
        (place(first).0, place(last).1)
    }

    /// The error of a text that does not go on as it should.
    pub fn unexpected(&self, expected: &str) -> WordsError {
        let (from, to) = self.place();
        let word: String = self.text.chars().skip(from).take((to - from).min(40)).collect();
        let problem = match word.as_str() {
            "" if self.text.trim().is_empty() => format!("enter {expected}"),
            "" => format!("add {expected} at the end"),
            word => format!("`{word}` is not understood here: expected {expected}"),
        };
        WordsError { message: format!("{problem}; {EXAMPLES}"), span: (from, to) }
    }

    /// The error of a word after a whole schedule.
    pub fn left_over(&self) -> WordsError {
        let (from, to) = self.place();
        let quoted = |from: usize, to: usize| {
            let text: String = self.text.chars().skip(from).take((to - from).min(40)).collect();
            text.trim().to_owned()
        };
        let message = format!(
            "`{}` is not understood after `{}`; {EXAMPLES}",
            quoted(from, to),
            quoted(0, from)
        );
        WordsError { message, span: (from, to) }
    }

    /// A span of elapsed time: `5m`, `20 min`, `1 hour 30 minutes`, `PT5M`.
    pub fn span(&mut self) -> Result<Option<(String, Span)>, WordsError> {
        let (first, begin) = (self.word().to_owned(), self.at);
        let is_iso = first.starts_with('p') && first.bytes().any(|byte| byte.is_ascii_digit());
        if !is_iso && !is_amount(&first) {
            return Ok(None);
        }
        self.at += 1;
        while !is_iso && (is_amount(self.word()) || is_unit(self.word())) {
            self.at += 1;
        }
        let words: Vec<&str> =
            self.tokens[begin..self.at].iter().map(|token| token.word.as_str()).collect();
        if words.last().is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_digit())) {
            return Err(self.unexpected("a unit such as min, hours or days"));
        }
        let text = if is_iso { first.to_ascii_uppercase() } else { words.join(" ") };
        Ok(Some((text, self.span_from(begin))))
    }

    /// Times of day; none if the text goes on with something else.
    pub fn times(&mut self) -> Result<Vec<Clock>, WordsError> {
        let has_at = self.take("at");
        let mut times = Vec::new();
        loop {
            let begin = self.at;
            let goes_on = times.is_empty() || self.take_and();
            match self.clock(has_at)? {
                Some(time) if goes_on => times.push(time),
                _ => {
                    self.at = begin;
                    break;
                }
            }
        }
        if has_at && times.is_empty() { Err(self.unexpected(A_TIME)) } else { Ok(times) }
    }

    /// Passes over what stands between two parts of a list.
    fn take_and(&mut self) -> bool {
        let has_comma = self.take(",");
        self.take("and") || has_comma
    }

    /// `9:00`, `9am`, `6:30 pm`, `:15`, `noon`; and `9` if a time is sure to follow.
    fn clock(&mut self, is_sure: bool) -> Result<Option<Clock>, WordsError> {
        let (word, begin) = (self.word().to_owned(), self.at);
        let named = match word.as_str() {
            "noon" => Some(12),
            "midnight" => Some(0),
            _ => None,
        };
        if named.is_some() {
            self.at += 1;
            return Ok(Some(Clock { hour: named, minute: 0, span: self.span_from(begin) }));
        }
        let suffix =
            |half: &'static str| word.strip_suffix(half).map(|digits| (digits, Some(half)));
        let (digits, mut half) =
            suffix("am").or_else(|| suffix("pm")).unwrap_or((word.as_str(), None));
        if !digits.starts_with(|char: char| char.is_ascii_digit() || char == ':') {
            return Ok(None);
        }
        self.at += 1;
        if half.is_none() {
            half = ["am", "pm"].into_iter().find(|half| self.take(half));
        }
        let (hour, minute) = match digits.split_once(':') {
            Some(("", minute)) if half.is_none() => (None, minute),
            Some((hour, minute)) => (Some(hour), minute),
            None if half.is_some()
                || (is_sure && digits.bytes().all(|byte| byte.is_ascii_digit())) =>
            {
                (Some(digits), "00")
            }
            None => {
                self.at = begin;
                return Ok(None);
            }
        };
        let span = self.span_from(begin);
        let minute =
            number(minute).filter(|minute| *minute < 60 && digits_after_colon(digits) == 2);
        let hour = hour.map(|hour| hour_of_day(hour, half));
        match (hour, minute) {
            (None, Some(minute)) => Ok(Some(Clock { hour: None, minute, span })),
            (Some(Some(hour)), Some(minute)) => Ok(Some(Clock { hour: Some(hour), minute, span })),
            _ => {
                let message = format!(
                    "`{word}` is not a time of day; write it as 9:00, 18:30, 9am or 6:30 pm"
                );
                Err(WordsError { message, span })
            }
        }
    }

    /// The days of a schedule; `None` if the text goes on with something else.
    pub fn days(&mut self, is_every: bool) -> Result<Option<Days>, WordsError> {
        let begin = self.at;
        let has_on = self.take("on");
        self.take("the");
        let word = self.word().to_owned();
        let found = match (word.as_str(), is_every) {
            ("day", true) | ("daily", false) => Days::All,
            ("minute", true) => Days::Minutes,
            ("hour", true) | ("hourly", false) => Days::Hours,
            ("weekday" | "weekdays", _) => Days::OfWeek(vec![1, 2, 3, 4, 5]),
            ("weekend" | "weekends", _) => Days::OfWeek(vec![0, 6]),
            ("today", false) => Days::Ahead(0),
            ("tomorrow", false) => Days::Ahead(1),
            ("week", true) | ("weekly", false) => return self.weekly().map(Some),
            ("month", true) | ("monthly", false) => return self.monthly().map(Some),
            ("last", _) => return Ok(Some(self.last_day())),
            _ if !is_every && is_date(&word) => Days::Date(self.date(&word)?),
            _ => {
                if let Some(days) = self.days_of_month()? {
                    return Ok(Some(Days::OfMonth(days)));
                }
                let (days, recurs) = self.days_of_week()?;
                match days.as_slice() {
                    [] if has_on => return Err(self.unexpected("a day such as monday or 1st")),
                    [] => {
                        self.at = begin;
                        return Ok(None);
                    }
                    [day] if !recurs && !is_every => {
                        return Ok(Weekday::from_sunday_zero_offset(*day).ok().map(Days::Next));
                    }
                    _ => return Ok(Some(Days::OfWeek(days))),
                }
            }
        };
        self.at += 1;
        Ok(Some(found))
    }

    /// Without a day on Sundays, as `@weekly`.
    fn weekly(&mut self) -> Result<Days, WordsError> {
        self.at += 1;
        let has_on = self.take("on");
        match self.days_of_week()?.0 {
            days if !days.is_empty() => Ok(Days::OfWeek(days)),
            _ if has_on => Err(self.unexpected("a weekday such as monday")),
            _ => Ok(Days::OfWeek(vec![0])),
        }
    }

    /// Without a day on the 1st, as `@monthly`.
    fn monthly(&mut self) -> Result<Days, WordsError> {
        self.at += 1;
        let has_on = self.take("on") | self.take("the");
        if self.word() == "last" {
            return Ok(self.last_day());
        }
        match self.days_of_month()? {
            Some(days) => Ok(Days::OfMonth(days)),
            None if has_on => Err(self.unexpected("a day such as 1st or 15th")),
            None => Ok(Days::OfMonth(vec![1])),
        }
    }

    /// `last day of the month`, `last friday`, which no cron can say.
    fn last_day(&mut self) -> Days {
        let begin = self.at;
        self.at += 1;
        let weekday = weekday_name(self.word());
        if self.word() == "day" || weekday.is_some() {
            self.at += 1;
        }
        if self.take("of") {
            while ["the", "every", "each", "month"].contains(&self.word()) {
                self.at += 1;
            }
        }
        Days::LastOfMonth(self.span_from(begin), weekday)
    }

    fn date(&self, word: &str) -> Result<Date, WordsError> {
        let message =
            || format!("`{word}` is a date that does not exist; an example is 2030-01-31");
        word.parse().map_err(|_| WordsError { message: message(), span: self.place() })
    }

    /// `1st`, `1st and 15th of the month`.
    fn days_of_month(&mut self) -> Result<Option<Vec<i8>>, WordsError> {
        let mut days = Vec::new();
        loop {
            let begin = self.at;
            let goes_on = days.is_empty() || self.take_and();
            self.take("the");
            match ordinal(self.word()) {
                Some(day) if goes_on => days.push(day),
                _ => {
                    self.at = begin;
                    break;
                }
            }
            self.at += 1;
        }
        if days.is_empty() {
            return Ok(None);
        }
        // `every 2nd day` is no day of a month.
        if self.take("day") && self.word() != "of" {
            return Err(self.unexpected("`of the month`"));
        }
        if self.take("of") {
            let _is_named = self.take("the") || self.take("every") || self.take("each");
            if !self.take("month") {
                return Err(self.unexpected("`the month`"));
            }
        }
        Ok(Some(days))
    }

    /// `mon`, `mondays and fridays`, `mon-fri`, `monday to friday`, and whether that is more than a single day.
    fn days_of_week(&mut self) -> Result<(Vec<i8>, bool), WordsError> {
        let (mut days, mut recurs) = (Vec::new(), false);
        loop {
            let begin = self.at;
            let goes_on = days.is_empty() || self.take_and();
            let word = self.word().to_owned();
            let (first, last) = word
                .split_once('-')
                .map_or((word.as_str(), None), |(first, last)| (first, Some(last)));
            let Some(first_day) = weekday_name(first).filter(|_| goes_on) else {
                self.at = begin;
                break;
            };
            let mut last_day = last.map(weekday_name);
            if last_day == Some(None) {
                return Err(self.unexpected("weekdays such as mon-fri"));
            }
            self.at += 1;
            if last.is_none() && (self.take("to") || self.take("through")) {
                last_day = Some(weekday_name(self.word()));
                if last_day == Some(None) {
                    return Err(self.unexpected("a weekday such as friday"));
                }
                self.at += 1;
            }
            recurs |= last_day.is_some() || first.len() > 3 && first.ends_with("days");
            let last_day = last_day.flatten().unwrap_or(first_day);
            // Around the end of the week: sat-mon.
            let length = (last_day - first_day).rem_euclid(7);
            days.extend((0..=length).map(|ahead| (first_day + ahead) % 7));
        }
        recurs |= days.len() > 1;
        Ok((days, recurs))
    }
}

fn is_amount(word: &str) -> bool {
    let is_clock = word.contains(':') || word.ends_with("am") || word.ends_with("pm");
    word.starts_with(|char: char| char.is_ascii_digit())
        && !is_clock
        && !is_date(word)
        && ordinal(word).is_none()
}

fn is_unit(word: &str) -> bool {
    UNITS.split(' ').any(|unit| unit == word)
}

/// Returns whether the word has the form `2030-01-31`.
pub fn is_date(word: &str) -> bool {
    let fits = |(place, byte): (usize, u8)| {
        if [4, 7].contains(&place) { byte == b'-' } else { byte.is_ascii_digit() }
    };
    word.len() == 10 && word.bytes().enumerate().all(fits)
}

/// Digits, at most two of them.
fn number(text: &str) -> Option<i8> {
    let is_number = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// The digits of a minute; two where there is none.
fn digits_after_colon(text: &str) -> usize {
    text.split_once(':').map_or(2, |(_, minute)| minute.len())
}

/// `half` is `am`, `pm` or none.
fn hour_of_day(text: &str, half: Option<&str>) -> Option<i8> {
    let hour = number(text)?;
    match half {
        None => Some(hour).filter(|hour| *hour < 24),
        Some(half) => {
            let hour = Some(hour).filter(|hour| (1..=12).contains(hour))? % 12;
            Some(if half == "pm" { hour + 12 } else { hour })
        }
    }
}

/// A day of a month: `1st`, `22nd`, `first`.
fn ordinal(word: &str) -> Option<i8> {
    if word == "first" {
        return Some(1);
    }
    let digits =
        ["st", "nd", "rd", "th"].into_iter().find_map(|ending| word.strip_suffix(ending))?;
    number(digits).filter(|day| (1..=31).contains(day))
}

/// A weekday as cron counts it, from Sunday as 0: `mon`, `tues`, `wednesday`, `fridays`.
pub fn weekday_name(word: &str) -> Option<i8> {
    let is = |name: &str| name.starts_with(word) || word.strip_suffix('s') == Some(name);
    let index = WEEKDAYS.iter().position(|name| word.len() >= 3 && is(name))?;
    i8::try_from(index).ok()
}

/// Returns whether the word is the short name of a month.
pub fn is_month(word: &str) -> bool {
    MONTHS.split(' ').any(|month| month == word)
}
