//! Device login: the flow, its mails, its pages, and whose an address is.

mod addresses;
pub mod flow;
mod mails;
mod pages;
