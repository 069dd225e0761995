//! Enums whose variants are words of the API, of a column or of a flag.

/// Declares an enum and the word of each of its variants: `pub enum State { Active = "active", Ended = "ended" }`.
/// Generates `ALL` and `WORDS` in the order of the declaration, in which a validation error lists the choices, and the
/// conversions `as_str` and `parse`.
macro_rules! word_enum {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $name:ident {
            $($(#[$variant_attribute:meta])* $variant:ident = $word:literal),+ $(,)?
        }
    ) => {
        $(#[$attribute])*
        $visibility enum $name {
            $($(#[$variant_attribute])* $variant),+
        }

        impl $name {
            /// Every variant, in the order of the declaration.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// The words of [`Self::ALL`], in the same order.
            pub const WORDS: [&'static str; [$($word),+].len()] = [$($word),+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }

            /// The variant of `word`, compared byte for byte; `None` for any other text.
            pub fn parse(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

pub(crate) use word_enum;

#[cfg(test)]
mod tests {
    word_enum! {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Mode {
            Open = "open",
            HalfOpen = "half_open",
        }
    }

    #[test]
    fn a_variant_and_its_word_convert_into_each_other() {
        assert_eq!((Mode::WORDS, Mode::ALL.map(Mode::as_str)), (["open", "half_open"], Mode::WORDS));
        assert_eq!(Mode::WORDS.map(Mode::parse), Mode::ALL.map(Some));
        assert_eq!(["", "Open", "open ", "half-open"].map(Mode::parse), [None; 4]);
    }
}
