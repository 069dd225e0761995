//! Takes the comments and the indentation from scripts and style sheets. Every line stays where it is, so that an error
//! in a browser names a line which can be found.

/// Words after which a `/` begins a regular expression.
const BEFORE_EXPRESSION: [&str; 12] =
    ["await", "case", "delete", "do", "else", "in", "instanceof", "of", "return", "throw", "typeof", "yield"];

/// A blank before or after one of these separates nothing. Two of `+`, `-` and `/` in a row have another meaning.
const SIGNS: &[u8] = b"{}()[],;:=?<>&|*";
/// In a style sheet most blanks mean something, such as that before a `:` or a `(`.
const STYLE_SIGNS: &[u8] = b"{};,";

/// A script without comments, indentation and blanks around signs. Strings, templates and regular expressions stay as they are.
///
/// A `/` after a `)` or a `}` is taken as a division: a regular expression stands there only as a statement.
///
/// # Errors
/// If a string, a template, a regular expression or a comment does not end.
pub fn short_script(text: &str) -> Result<String, String> {
    let mut reader = Reader { text: text.as_bytes(), at: 0, out: Vec::with_capacity(text.len()) };
    reader.skip_blanks();
    reader.code(false)?;
    reader.finish()
}

/// A style sheet without comments, indentation and blanks around signs.
///
/// # Errors
/// If a string or a comment does not end.
pub fn short_style(text: &str) -> Result<String, String> {
    let mut reader = Reader { text: text.as_bytes(), at: 0, out: Vec::with_capacity(text.len()) };
    reader.skip_blanks();
    while let Some(byte) = reader.next() {
        match byte {
            b'"' | b'\'' => reader.string()?,
            b'/' if reader.starts_with(b"/*") => reader.long_comment()?,
            b'\n' => reader.line_end(),
            b' ' | b'\t' => reader.blanks(STYLE_SIGNS),
            b':' => {
                reader.keep(1);
                reader.skip_blanks();
            }
            _ => reader.keep(1),
        }
    }
    reader.finish()
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    out: Vec<u8>,
}

impl Reader<'_> {
    fn next(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn starts_with(&self, text: &[u8]) -> bool {
        self.text[self.at..].starts_with(text)
    }

    fn keep(&mut self, bytes: usize) {
        let end = self.text.len().min(self.at + bytes);
        self.out.extend(&self.text[self.at..end]);
        self.at = end;
    }

    fn finish(self) -> Result<String, String> {
        String::from_utf8(self.out).map_err(|error| error.to_string())
    }

    fn endless(&self, what: &str) -> String {
        let line = 1 + self.text[..self.at].iter().filter(|byte| **byte == b'\n').count();
        format!("line {line}: {what} does not end")
    }

    /// Up to the end of the text, or to the `}` that ends an expression of a template.
    fn code(&mut self, is_in_template: bool) -> Result<(), String> {
        let mut depth = 0_u32;
        while let Some(byte) = self.next() {
            match byte {
                b'"' | b'\'' => self.string()?,
                b'`' => self.template()?,
                b'/' if self.starts_with(b"//") => self.comment(),
                b'/' if self.starts_with(b"/*") => self.long_comment()?,
                b'/' if self.is_expression_next() => self.regular_expression()?,
                b'\n' => self.line_end(),
                b' ' | b'\t' => self.blanks(SIGNS),
                b'}' if is_in_template && depth == 0 => return Ok(()),
                _ => {
                    depth = match byte {
                        b'{' => depth + 1,
                        b'}' => depth.saturating_sub(1),
                        _ => depth,
                    };
                    self.keep(1);
                }
            }
        }
        if is_in_template { Err(self.endless("a template")) } else { Ok(()) }
    }

    fn string(&mut self) -> Result<(), String> {
        let quote = self.next();
        self.keep(1);
        while let Some(byte) = self.character_of_line() {
            if Some(byte) == quote {
                return Ok(());
            }
        }
        Err(self.endless("a string"))
    }

    /// Keeps the next character of a line, or the backslash and what it escapes. `None` at the end of the line.
    fn character_of_line(&mut self) -> Option<u8> {
        let byte = self.next().filter(|byte| *byte != b'\n')?;
        self.keep(if byte == b'\\' { 2 } else { 1 });
        Some(byte)
    }

    fn template(&mut self) -> Result<(), String> {
        self.keep(1);
        while let Some(byte) = self.next() {
            match byte {
                b'\\' => self.keep(2),
                b'$' if self.starts_with(b"${") => {
                    self.keep(2);
                    self.code(true)?;
                    self.keep(1);
                }
                _ => self.keep(1),
            }
            if byte == b'`' {
                return Ok(());
            }
        }
        Err(self.endless("a template"))
    }

    fn regular_expression(&mut self) -> Result<(), String> {
        let mut is_class = false;
        self.keep(1);
        while let Some(byte) = self.character_of_line() {
            match byte {
                b'[' => is_class = true,
                b']' => is_class = false,
                b'/' if !is_class => return Ok(()),
                _ => {}
            }
        }
        Err(self.endless("a regular expression"))
    }

    /// Whether a `/` here begins a regular expression: an operand cannot stand before it.
    fn is_expression_next(&self) -> bool {
        let before = self.out.trim_ascii_end();
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..);
        let start = before.iter().rposition(|byte| !is_word(byte)).map_or(0, |at| at + 1);
        let word = &before[start..];
        if word.is_empty() {
            return !matches!(before.last(), Some(b')' | b']' | b'}' | b'"' | b'\'' | b'`'));
        }
        let is_member = start > 0 && before[start - 1] == b'.';
        !is_member && BEFORE_EXPRESSION.iter().any(|known| known.as_bytes() == word)
    }

    fn comment(&mut self) {
        while self.next().is_some_and(|byte| byte != b'\n') {
            self.at += 1;
        }
    }

    /// A space or the line ends in its place: it may separate two words.
    fn long_comment(&mut self) -> Result<(), String> {
        let rest = &self.text[self.at..];
        let length = rest.windows(2).skip(2).position(|two| two == b"*/").map(|at| at + 4);
        let comment = &rest[..length.ok_or_else(|| self.endless("a comment"))?];
        self.at += comment.len();
        match comment.iter().filter(|byte| **byte == b'\n').count() {
            0 => {
                if self.out.last().is_some_and(|byte| !is_blank(*byte)) {
                    self.out.push(b' ');
                }
                self.skip_blanks();
            }
            lines => {
                self.trim_line();
                self.out.extend(vec![b'\n'; lines]);
                self.skip_blanks();
            }
        }
        Ok(())
    }

    fn line_end(&mut self) {
        self.trim_line();
        self.keep(1);
        self.skip_blanks();
    }

    /// One blank, if it separates something.
    fn blanks(&mut self, signs: &[u8]) {
        self.skip_blanks();
        let is_sign = |byte: Option<u8>| byte.is_none_or(|byte| byte == b'\n' || signs.contains(&byte));
        if !is_sign(self.out.last().copied()) && !is_sign(self.next()) {
            self.out.push(b' ');
        }
    }

    /// Removes the blanks at the end of a line. None belongs to a string: its sign comes after them.
    fn trim_line(&mut self) {
        let end = self.out.iter().rposition(|byte| !is_blank(*byte)).map_or(0, |at| at + 1);
        self.out.truncate(end);
    }

    fn skip_blanks(&mut self) {
        while self.next().is_some_and(is_blank) {
            self.at += 1;
        }
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}
