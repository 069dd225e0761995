//! The page for browsers: how it is served, how its files are made, and rules for them.

mod files;
mod served;
