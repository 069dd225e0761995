//! Device login: the flow, its mails, its pages.

pub mod flow;
mod mails;
mod pages;
