//! Keys of rows: the numbers that SQLite gives, with a type each for those of users, cues and
//! executions, so that one is not passed for another.
//! The default, 0, is the key of no row.

use std::fmt::{self, Display, Formatter};

macro_rules! row_keys {
    ($($name:ident),+ $(,)?) => {
        $(#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(i64);

        impl $name {
            pub const fn new(number: i64) -> Self {
                Self(number)
            }

            pub const fn number(self) -> i64 {
                self.0
            }

            /// To read the rows from this one on with a statement that reads those after a key.
            pub const fn previous(self) -> Self {
                Self(self.0 - 1)
            }
        }

        impl Display for $name {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        })+
    };
}

row_keys!(UserKey, CueKey, ExecutionKey);
