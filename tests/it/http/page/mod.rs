//! The page for browsers: how it is served, and rules for its files.

mod files;
mod served;
