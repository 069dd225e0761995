//! What to do about a text that is no YAML: the mistakes that people make, found in the text around the place where the
//! parser has stopped. Its own words name rules of YAML, which few people know.

use crate::cli::input::placed::Place;

/// Characters that begin no value without quotes.
const RESERVED: [char; 5] = ['*', '@', '&', '%', '`'];

/// The place of the fault, and what to do about it. The parser has stopped at `at`, for the reason `info`.
pub fn explained(text: &str, at: Place, info: &str) -> (Place, String) {
    let lines: Vec<Vec<char>> = text.lines().map(|line| line.chars().collect()).collect();
    let source = Source { lines: &lines, at };
    let found = source
        .tab(info)
        .or_else(|| source.reserved())
        .or_else(|| source.comment_without_a_blank())
        .or_else(|| source.open_quote(info))
        .or_else(|| source.open_bracket(info))
        .or_else(|| source.key_without_a_blank())
        .or_else(|| source.second_colon())
        .or_else(|| source.indentation());
    found.unwrap_or_else(|| (at, format!("this is not YAML: {info}")))
}

struct Source<'a> {
    lines: &'a [Vec<char>],
    /// Where the parser has stopped.
    at: Place,
}

type Found = Option<(Place, String)>;

impl Source<'_> {
    /// The line with this number, from 1; empty beyond the end.
    fn line(&self, number: usize) -> &[char] {
        number
            .checked_sub(1)
            .and_then(|index| self.lines.get(index))
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    fn stopped_in(&self) -> &[char] {
        self.line(self.at.line)
    }

    /// The line of the stop, and the nearest one above that has text.
    fn near(&self) -> impl Iterator<Item = usize> {
        let above =
            (1..self.at.line).rev().find(|number| indentation(self.line(*number)).is_some());
        [Some(self.at.line), above].into_iter().flatten()
    }

    fn tab(&self, info: &str) -> Found {
        // A text goes on in the next line.
        let below = info.contains(" tab").then_some(self.at.line + 1);
        self.near().chain(below).find_map(|line| {
            let blanks = self.line(line).iter().take_while(|char| matches!(char, ' ' | '\t'));
            let column = blanks.into_iter().position(|char| *char == '\t')? + 1;
            Some((Place { line, column }, "indent with spaces, not tabs".to_owned()))
        })
    }

    fn reserved(&self) -> Found {
        let first =
            self.stopped_in().get(self.at.column - 1).filter(|char| RESERVED.contains(char))?;
        let example = match first {
            '*' => "as in \"*/5 * * * *\"".to_owned(),
            '@' => "as in \"@daily\"".to_owned(),
            first => format!("because it begins with {first}"),
        };
        Some((self.at, format!("put the value in quotes, {example}")))
    }

    /// `[#a]`
    fn comment_without_a_blank(&self) -> Found {
        let rest = self.stopped_in().get(self.at.column - 1..)?;
        rest.first().filter(|char| **char == '#')?;
        let is_end = |char: &&char| !matches!(**char, ' ' | ',' | ']' | '}');
        let word: String = rest.iter().take_while(is_end).collect();
        Some((self.at, format!("put \"{word}\" in quotes; without them # begins a comment")))
    }

    fn open_quote(&self, info: &str) -> Found {
        let is_open = info.contains("quoted scalar")
            && (info.contains("end of stream") || info.contains("indentation"));
        is_open.then(|| (self.at, "a quote is not closed".to_owned()))
    }

    fn open_bracket(&self, info: &str) -> Found {
        let place = info.contains("flow").then(|| open_bracket(self.lines)).flatten()?;
        Some((place, "a brace or bracket is not closed".to_owned()))
    }

    /// `key:'x'`
    fn key_without_a_blank(&self) -> Found {
        self.near().find_map(|line| {
            let chars = self.line(line);
            let begin = chars.iter().position(|char| !matches!(char, ' ' | '-'))?;
            let is_of_key =
                |char: &char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '.');
            let colon = begin + chars[begin..].iter().take_while(|char| is_of_key(char)).count();
            let is_key = chars[begin].is_ascii_alphabetic() && chars.get(colon) == Some(&':');
            // `http://`
            let is_close =
                chars.get(colon + 1).is_some_and(|next| !matches!(next, ' ' | '\t' | '/'));
            let place = Place { line, column: colon + 2 };
            (is_key && is_close).then(|| (place, "write a space after the colon".to_owned()))
        })
    }

    /// `description: nightly: backup`
    fn second_colon(&self) -> Found {
        let (before, after) = self.stopped_in().split_at_checked(self.at.column - 1)?;
        let is_second =
            after.first() == Some(&':') && before.windows(2).any(|two| two == [':', ' ']);
        is_second.then(|| (self.at, "put the text in quotes: it has a colon".to_owned()))
    }

    /// A line that is neither in the column of a line around it, nor the first below a key.
    fn indentation(&self) -> Found {
        let own = indentation(self.stopped_in())?;
        let mut above = (1..self.at.line).rev().map(|number| self.line(number));
        let last = above.find(|line| indentation(line).is_some())?;
        let is_below = last.iter().rev().find(|char| !char.is_whitespace()) == Some(&':');
        let is_deeper = indentation(last).is_some_and(|above| own > above);
        let fits = above.chain([last]).any(|line| indentation(line) == Some(own));
        let reason =
            "this line is in the column of no line above; indent the fields of an object alike";
        let place = Place { line: self.at.line, column: own + 1 };
        let is_first = is_deeper && is_below;
        (!fits && !is_first).then(|| (place, reason.to_owned()))
    }
}

/// The blanks before the text of a line; `None` for one without text.
fn indentation(line: &[char]) -> Option<usize> {
    line.iter().position(|char| !char.is_whitespace()).filter(|first| line[*first] != '#')
}

/// The innermost brace or bracket without its end.
fn open_bracket(lines: &[Vec<char>]) -> Option<Place> {
    let mut open: Vec<Place> = Vec::new();
    let mut quote: Option<char> = None;
    for (index, line) in lines.iter().enumerate() {
        // Where a value may begin: a quote or a bracket inside of a word is a part of it.
        let (mut is_begin, mut before) = (true, ' ');
        let mut chars = line.iter().enumerate();
        while let Some((column, char)) = chars.next() {
            let place = Place { line: index + 1, column: column + 1 };
            match (quote, *char) {
                (Some('"'), '\\') => drop(chars.next()),
                (Some(end), char) if char == end => quote = None,
                (Some(_), _) => {}
                (None, '#') if before.is_whitespace() => break,
                (None, '"' | '\'') if is_begin => quote = Some(*char),
                (None, '{' | '[') if is_begin || !open.is_empty() => open.push(place),
                (None, '}' | ']') => drop(open.pop()),
                (None, _) => {}
            }
            is_begin = match char {
                '{' | '[' | ',' => !open.is_empty(),
                char if char.is_whitespace() => is_begin || matches!(before, ':' | '-'),
                _ => false,
            };
            before = *char;
        }
    }
    open.pop()
}

#[cfg(test)]
mod tests {
    use crate::cli::input::yaml::read;

    #[test]
    fn a_common_mistake_is_explained() {
        for (text, fault) in [
            ("a:\n\tb: 1", "2:1: indent with spaces, not tabs"),
            ("a:\n  b: 1\n \tc: 1", "3:2: indent with spaces, not tabs"),
            ("s: */5 * * * *", "1:4: put the value in quotes, as in \"*/5 * * * *\""),
            ("s: * * * * *", "1:4: put the value in quotes, as in \"*/5 * * * *\""),
            ("a: {s: */5 * * * *, b: 1}", "1:8: put the value in quotes, as in \"*/5 * * * *\""),
            ("s: @daily", "1:4: put the value in quotes, as in \"@daily\""),
            ("s: %x", "1:4: put the value in quotes, because it begins with %"),
            ("s: `x`", "1:4: put the value in quotes, because it begins with `"),
            ("s: & x", "1:4: put the value in quotes, because it begins with &"),
            ("a:\n  d: nightly: backup", "2:13: put the text in quotes: it has a colon"),
            ("a: {d: nightly: backup}", "1:15: put the text in quotes: it has a colon"),
            ("a:\n  b: 1\n  c:'x'\n", "3:5: write a space after the colon"),
            ("a:\n  b: 1\n  c:'x'\n  d: 2", "3:5: write a space after the colon"),
            ("a:\n  b:http://x\n  d: 2", "2:5: write a space after the colon"),
            ("a: [#b]", "1:5: put \"#b\" in quotes; without them # begins a comment"),
            ("a: {b: 1\nc: 1", "1:4: a brace or bracket is not closed"),
            ("a: it's {x}\nb: [1, {c: '}'}\n", "2:4: a brace or bracket is not closed"),
            ("{\"a\": {\"b\": \"\\\"}\"}", "1:1: a brace or bracket is not closed"),
            ("{\n\t\"a\": {\n\t\t\"b\": 1\n\t}\n", "1:1: a brace or bracket is not closed"),
            ("a: \"b\nc: 1", "1:4: a quote is not closed"),
            ("a:\n  b:\n    c: x\n   d: 1", "4:4: this line is in the column of no line above"),
            ("a:\n  b: x\n    c: 1", "3:5: this line is in the column of no line above"),
            ("a: 'b' c", "1:8: this is not YAML: "),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(fault), "{text}: {error}");
        }
    }
}
