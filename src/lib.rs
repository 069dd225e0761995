//! `cued`, the cue daemon: a scheduled-callback service in one binary on one SQLite file.
//!
//! # Modules
//!
//! Each module has one subject, and a file in it answers one question.
//!
//! - `main.rs` parses the command line, runs the command and returns its exit code.
//! - `cli` has the commands, in the folders `server`, `database` and `client`; the flags of `cued serve` are the whole
//!   configuration of a server. Most commands of a client are rows of a table (`client/command.rs`).
//! - `api` names the fields and the words of the API, for the server and for its clients. Plain fields of a cue are
//!   rows of `domain/cue_fields.rs`.
//! - `client` makes the requests of the commands that use a server: its address and key, retries, errors.
//! - `worker` is `cued work`: it claims executions, runs a command for each and reports its outcome.
//! - `config` holds the settings of a server and their defaults.
//! - `server` assembles the program: it opens the store, starts the engine, opens the port, and stops them in reverse.
//! - `app` is the state that all modules share: store, clock, notifiers, statistics, settings.
//! - `events` keeps the live events of the last moments in memory, and the place of each stream in them.
//! - `clock` is the only reader of the time and the only sleeper; `Notifier` wakes threads and tasks.
//! - `domain` holds the rules: pure functions and types without I/O, clock or SQL; `now` is an argument. Daylight
//!   saving is in `schedule/mod.rs`, the delay before a retry in `execution/attempt.rs`, blocked addresses in
//!   `webhook/address_policy.rs`.
//! - `store` holds all SQL: one writer thread with group commit, reader threads, one folder per aggregate.
//! - `service` is what changes rows, whoever asks: requests of users and workers, a due cue, an ended execution, plan
//!   limits.
//! - `engine` is what the program does by itself: fire cues, deliver, retry, release expired claims, send
//!   notifications.
//! - `billing` is one interface with two implementations, the operator (manual) and Stripe.
//! - `mail` sends mail over SMTP or writes it to the log; login mails have a queue.
//! - `http` turns requests into calls of `service` and results into responses; `http/routes.rs` is the routing table.
//! - `metrics` has the counters and histograms and writes them for Prometheus.
//! - `system` is about the machine and the process: `cores` counts the processors, `locks` has locks without poisoning,
//!   `panics` turns a panic into an error, `random` is the only source of randomness, `signals` waits for the signals
//!   that ask the process to end, `systemd` reports readiness, liveness and stopping to the service manager.
//! - `logging` starts the log on standard error.
//! - `build.rs` compiles `build/malloc.c`, the settings of the C library's allocator, and compresses the description of
//!   the API, the time zones, the page (`build/page.rs`, from `http/page`) and the documentation (`build/docs.rs`, from
//!   `docs`) that the program contains.
//! - `error` is the error type of service, engine and store.
//!
//! # Dependencies
//!
//! `http` and `engine` use `service`, that uses `store`, and all use `domain`, which uses no other module.
//! `tests/it/architecture.rs` states what each module may use.
//!
//! # Machines with 32 bits
//!
//! `cued` runs on 32-bit Arm. Its unit tests run there too (`.github/packaging/arm-tests.sh`).
//!
//! - `usize` counts only what is in memory. Sizes of files, keys, timestamps and counters have 64 bits. A number from
//!   outside becomes a `usize` by `try_from`.
//! - SQLite reads a file of any size in pages, and maps only its index of the write-ahead log.
//! - Instants have 64 bits. With a C library that has 64-bit time (glibc 2.34 or later, musl 1.2), the program runs
//!   past 2038. SQLite's own functions of time have 32 bits there, and no statement uses them.
//!
//! # Glossary
//!
//! References of the form `contract §n` lead to `.github/CONTRACT.md`.
//!
//! - **Cue**: a scheduled job of a user: a schedule, a payload, and a callback URL or worker task (contract §4.1).
//! - **Execution**: one run of a cue, with its payload, state and result (contract §5.1).
//! - **Run**: an instant at which a cue is due or was fired by request; it becomes an execution, or is missed.
//! - **Fire**: to create the execution of a due run and advance the cue to its next run (contract §4.11).
//! - **Attempt**: one delivery of an execution to its callback URL, or one claim of it by a worker.
//! - **Delivery**: sending an execution as a signed HTTP request to its callback URL, with retries (contract §6).
//! - **Destination**: the host and port of a callback URL, or its flow. Each has a share of the delivery threads (contract
//!   §11.4).
//! - **Flow**: the callbacks of an account with one key, whose attempts together keep within limits (contract §4.16).
//! - **Fair share**: the number of delivery threads (slots) that an account, and a destination of it, may hold at a
//!   time (contract §11.4).
//! - **Claim**: the exclusive right of a worker to an execution (contract §7.2).
//! - **Lease**: the time for which a claim is valid without a renewal, 900 seconds (contract §7.3).
//! - **Heartbeat**: a worker's request that renews a lease, or that announces the worker itself (contract §7.3, §7.4).
//! - **Outcome**: the reported result of an execution, success or failure (contract §5.5).
//! - **Evidence**: data about the effect of an execution, such as an external id or an artifact (contract §5.6).
//! - **Verdict**: a user's decision, by request, that a reported outcome is valid or not (contract §5.7).
//! - **Missed run**: a due run without an execution, because the server was down, held or stopped, the clock jumped forward,
//!   or an earlier execution was not finished (contract §4.12).
//! - **Catch-up**: the runs that fire after such a gap: none, the latest, or up to 100 (contract §4.12).
//! - **Hold**: the state of a restored copy, which fires and sends nothing until `cued promote` (contract §1.6).
//! - **Outbox**: the table of notifications that are stored with a failure and sent after its commit (contract §6.8).
//! - **Notification**: a mail or signed POST about a failed execution or an alert (contract §6.8).
//! - **Alert**: a stored record of a condition that a user should know of, such as repeated failures (contract §6.9).
//! - **Event**: a change that an account's streams show at once (contract §8.13). It is stored nowhere.
//! - **Stream**: a response without an end, `GET /v1/events`, that carries events (contract §8.13).
//! - **Burst**: the event that counts those that were too many to be sent one by one (contract §8.13).
//! - **Session**: the credential of a browser, a cookie in place of an API key (contract §3.11).
//! - **One-time link**: an address of the page that begins one session, within five minutes (contract §3.11).
//! - **Test call**: a request as a delivery sends it, made at once to try a callback, and stored nowhere (contract §6.11).
//! - **Test clock**: a clock that stands still and is advanced by request, for tests of schedules (contract §10).
//! - **Group commit**: the writer thread runs all waiting writes in one transaction, each in its own savepoint.
#![forbid(unsafe_code)]

pub mod api;
pub mod app;
pub mod billing;
pub mod cli;
pub mod client;
pub mod clock;
pub mod config;
pub mod domain;
pub mod engine;
pub mod error;
pub mod events;
pub mod http;
pub mod logging;
pub mod mail;
pub mod metrics;
pub mod server;
pub mod service;
pub mod store;
pub mod system;
pub mod worker;
