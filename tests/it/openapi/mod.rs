//! The description of the API (`src/http/openapi.json`) and the program say the same.
//!
//! - `table`: its operations are the routes.
//! - `checks`: every response that the client of the tests receives fits it, and so does every accepted request.
//! - `coverage`: every response in it was received by some test.
//! - `enums`: its lists of words are those of the program.
//! - `words`: its error codes are those of the program, and its examples are valid.
//! - `refusals`: operations require a key if it says so.
//! - `served`: the program serves it.

pub mod checks;
mod coverage;
mod document;
mod enums;
mod recorded;
mod refusals;
mod served;
mod table;
mod words;
