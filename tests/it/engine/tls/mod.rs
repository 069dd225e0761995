//! Connections over TLS to real TLS servers with certificates made by the test: deliveries with `--callback-ca`, and mail
//! over TLS and STARTTLS.

mod authority;
mod callbacks;
mod mail;
mod mail_server;
