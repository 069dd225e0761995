//! The signs of a line, as far as the locale can show them.

/// The signs of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Glyphs {
    pub success: &'static str,
    pub retry: &'static str,
    pub failure: &'static str,
    pub attention: &'static str,
    pub other: &'static str,
}

impl Glyphs {
    pub const UNICODE: Self =
        Self { success: "●", retry: "↻", failure: "✕", attention: "!", other: "·" };
    pub const ASCII: Self = Self { success: "+", retry: "~", failure: "x", attention: "!", other: "-" };

    /// The signs that the locale of the environment can show.
    #[must_use]
    pub fn of_locale(env: &dyn Fn(&str) -> Option<String>) -> Self {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(env).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        if locale.contains("utf-8") || locale.contains("utf8") { Self::UNICODE } else { Self::ASCII }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locale_without_utf_8_gets_ascii() {
        let of = |set: &[(&str, &str)]| {
            let value =
                |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            Glyphs::of_locale(&value)
        };
        assert_eq!(of(&[]), Glyphs::ASCII);
        assert_eq!(of(&[("LANG", "de_DE.UTF-8")]), Glyphs::UNICODE);
        assert_eq!(of(&[("LANG", "de_DE.UTF-8"), ("LC_ALL", "C")]), Glyphs::ASCII);
        assert_eq!(of(&[("LANG", "C"), ("LC_CTYPE", "C.utf8")]), Glyphs::UNICODE);
    }
}
