//! Gets a key for a person who has an email address (contract §3.7), or none on a development server.
//!
//! The server mails a link, or writes it to its log. The person confirms on the page behind it, and the next poll has
//! the key. A server without mail that admits new users hands out the key of a new account at once (contract §3.2).

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use url::Url;

use crate::cli::client::commands::sign_in::open;
use crate::cli::client::context::{Context, ask, can_ask, nothing_entered, prompt};
use crate::cli::error::{CliError, Result, bad_email, failed};
use crate::cli::output::print_note;
use crate::cli::output::table::text_of;
use crate::client::request::ApiRequest;
use crate::domain::account::credentials::Email;

/// A login that is not confirmed yet.
struct PendingLogin<'a> {
    context: &'a Context,
    /// What the server says of itself, and of the login.
    server: &'a Value,
    login: Value,
    /// The person has given an address, here or on the page.
    is_mailed: bool,
    /// The server did not answer the last poll.
    is_lost: bool,
}

/// Signs in by email. Asks for a missing `email` at a terminal.
pub fn sign_in(context: &Context, email: Option<&str>, may_open: bool) -> Result<String> {
    let server = context.fetch(&ApiRequest::get("/v1/info").anonymous())?.value()?;
    let list = |name: &str| server[name].as_array().into_iter().flatten().filter_map(Value::as_str);
    // A development server names the addresses of its accounts to its own machine.
    let accounts: Vec<&str> = list("accounts").collect();
    let is_first = |email: &str| accounts.first().is_some_and(|first| is_same(first, email));
    if email.is_none_or(is_first) && list("sign_in").any(|way| way == "dev") {
        return sign_in_dev(context);
    }
    let email = match email {
        Some(email) => Some(email.to_owned()),
        None if server["mail"] == "log" && can_ask() => {
            Some(ask("Email address: ")?.ok_or_else(nothing_entered)?)
        }
        None => None,
    };
    // Before anything is asked about it.
    if let Some(email) = &email {
        Email::parse(email).map_err(|error| bad_email(email, error))?;
    }
    let admits = server["mail"] == "log" && server["registration"] != "closed";
    if admits && let Some(email) = &email {
        confirm_another(context, &accounts, email)?;
        if let Some(key) = register(context, email)? {
            return Ok(key);
        }
    }
    let answer = context.send(&ApiRequest::post("/v1/auth/device-code").anonymous())?;
    let login = answer.value()?;
    let mut pending =
        PendingLogin { context, server: &server, login, is_mailed: false, is_lost: false };
    match &email {
        Some(email) => pending.submit(email)?,
        None => pending.show_page(may_open && can_ask())?,
    }
    pending.wait()
}

/// Makes a key of the account that the page of a development server enters, by a session that ends at once.
fn sign_in_dev(context: &Context) -> Result<String> {
    let begin = ApiRequest::post("/v1/auth/session").json(json!({ "dev": true })).anonymous();
    let session = context.send(&begin)?;
    let cookie = session
        .header("set-cookie")
        .and_then(|cookie| cookie.split(';').next())
        .unwrap_or_default();
    let with_cookie = |request: ApiRequest| {
        // As a page of the server, which alone may use its cookie.
        let request =
            request.header("cookie", cookie).header("origin", context.target.url.as_str());
        context.fetch(&request.anonymous())
    };
    let key = with_cookie(ApiRequest::post("/v1/auth/keys").json(json!({ "name": "cued login" })));
    // The key counts; a session that could not be ended ends by itself.
    drop(with_cookie(ApiRequest::delete("/v1/auth/session")));
    Ok(text_of(&key?.value()?, "api_key"))
}

fn is_same(known: &str, email: &str) -> bool {
    known.eq_ignore_ascii_case(email.trim())
}

/// Asks before a mistyped address makes a second account.
fn confirm_another(context: &Context, accounts: &[&str], email: &str) -> Result {
    let is_known = accounts.iter().any(|known| is_same(known, email));
    let Some(first) = accounts.first().filter(|_| !is_known) else { return Ok(()) };
    context.confirm(&format!(
        "{email} is new on this server; its first account is {first}. Create another one?"
    ))
}

/// Adds an account; `None` if the address has one, or the server admits no more.
fn register(context: &Context, email: &str) -> Result<Option<String>> {
    let request = ApiRequest::post("/v1/auth/register").json(json!({ "email": email })).anonymous();
    match context.send(&request) {
        Err(error) if ["duplicate_email", "registration_disabled"].contains(&error.code()) => {
            Ok(None)
        }
        answer => {
            let value = answer?.value()?;
            print_note(&format!("Created an account for {email}."))?;
            Ok(value["api_key"].as_str().map(str::to_owned))
        }
    }
}

impl PendingLogin<'_> {
    /// What the page of the server shows too.
    fn code(&self) -> String {
        text_of(&self.login, "user_code")
    }

    fn show_page(&self, may_open: bool) -> Result {
        let page = text_of(&self.login, "verification_url");
        let is_open = may_open && open::open(&page);
        let what =
            if is_open { "The browser opens this page" } else { "Open this page in a browser" };
        print_note(&format!("{what} and enter your email address:\n\n  {}\n", page))?;
        print_note(&format!("It shows the code {}.", self.code()))?;
        prompt("Or enter the address here: ").map(drop)
    }

    fn submit(&mut self, email: &str) -> Result {
        let body = json!({"device_code": self.login["device_code"], "email": email});
        let request = ApiRequest::post("/v1/auth/device-code/submit-email").json(body).anonymous();
        self.context.fetch(&request)?;
        self.is_mailed = true;
        self.announce_mail(email)
    }

    fn announce_mail(&self, recipient: &str) -> Result {
        let (code, server) = (self.code(), self.server);
        if server["mail"] == "log" {
            print_note(&format!(
                "This server sends no mail. If {recipient} has an account, its link is in the log of the server: ask its \
                 operator.\nOpen the link and confirm the code {code}.\n\
                 Or enter an API key: cued login {} --key -\n\
                 You make one on the page, where the link of the operator signs you in: cued user link EMAIL",
                self.context.target.url
            ))?;
        } else {
            print_note(&format!(
                "Open the link in the mail to {recipient} and confirm the code {code}."
            ))?;
        }
        if server["mail"] != "log" && server["registration"] != "open" {
            print_note(
                "An address without an account gets none, unless it is the server's first: ask the operator.",
            )?;
        }
        prompt("Or paste the link here: ").map(drop)
    }

    /// Polls until the login is approved or has expired, and takes what the person enters.
    fn wait(mut self) -> Result<String> {
        let clock = self.context.client.clock();
        let seconds = |name: &str| self.login[name].as_u64().unwrap_or_default();
        let interval = Duration::from_secs(seconds("interval").clamp(1, 60));
        let end = clock.monotonic() + Duration::from_secs(seconds("expires_in"));
        let mut next = clock.monotonic() + interval;
        let mut lines = can_ask().then(lines);
        while clock.monotonic() < end {
            let left = next.saturating_sub(clock.monotonic());
            if !left.is_zero() {
                match lines.as_ref().map(|lines| lines.recv_timeout(left)) {
                    Some(Ok(line)) => self.take(line.trim())?,
                    Some(Err(RecvTimeoutError::Timeout)) => {}
                    // The input has ended.
                    Some(Err(RecvTimeoutError::Disconnected)) => lines = None,
                    None => self.context.client.pause(left),
                }
                continue;
            }
            let pause = match self.poll() {
                Ok(Some(key)) => return Ok(key),
                Ok(None) => interval,
                Err(CliError::Client(error)) if error.status() == Some(429) => {
                    error.retry_after().unwrap_or(2 * interval)
                }
                // A server that restarts knows the login afterwards.
                Err(CliError::Client(error)) if error.exit_code() == 1 => {
                    if !std::mem::replace(&mut self.is_lost, true) {
                        print_note(&format!("{error}. Still waiting."))?;
                    }
                    interval
                }
                Err(error) => return Err(error),
            };
            next = clock.monotonic() + pause;
        }
        Err(expired())
    }

    fn poll(&mut self) -> Result<Option<String>> {
        let body = json!({"device_code": self.login["device_code"]});
        let request = ApiRequest::post("/v1/auth/device-code/poll").json(body).anonymous();
        let answer = self.context.client.send_once(&request)?.value()?;
        self.is_lost = false;
        match (answer["status"].as_str(), answer["api_key"].as_str()) {
            (_, Some(key)) => Ok(Some(key.to_owned())),
            (Some("claimed"), None) => Err(failed(
                "the key of this login was handed out, and its answer got lost: run `cued login` again",
            )),
            (Some("expired"), None) => Err(expired()),
            (Some("email_sent"), None) if !self.is_mailed => {
                self.is_mailed = true;
                self.announce_mail("that address").map(|()| None)
            }
            _ => Ok(None),
        }
    }

    /// Takes a line of the person: an address, or the link of the mail.
    fn take(&mut self, line: &str) -> Result {
        let result = match login_link(line) {
            Some((token, code)) if self.login["user_code"] == code => self.confirm(&token),
            Some(_) => return print_note("This link is of another login."),
            None if line.contains('@') => self.submit(line),
            None if line.is_empty() => return Ok(()),
            None => {
                return print_note(
                    "Paste the whole link, which begins with http, or enter an email address.",
                );
            }
        };
        match result {
            // The person can try again.
            Err(CliError::Client(error)) => print_note(&error.to_string()),
            result => result,
        }
    }

    fn confirm(&self, token: &str) -> Result {
        let fields = [("token", token), ("user_code", &*self.code())];
        let request = ApiRequest::post("/v1/auth/verify").form(&fields).anonymous();
        match self.context.fetch(&request) {
            // A page for people.
            Err(error) if matches!(error.status(), Some(400..500)) => {
                print_note("This link is not valid, or not any more; a newer mail replaces it.")
            }
            result => result.map(drop),
        }
    }
}

/// The lines that the person enters from now on, while the command does something else.
fn lines() -> Receiver<String> {
    let (sender, receiver) = sync_channel(1);
    thread::spawn(move || {
        io::stdin().lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    receiver
}

fn expired() -> CliError {
    failed("the login expired without a confirmation: run `cued login` again")
}

/// The token and the user code of the link in a line of text, such as a line of the server's log.
fn login_link(line: &str) -> Option<(String, String)> {
    let start = line.find("http://").or_else(|| line.find("https://"))?;
    let link = line[start..].split(|char: char| char.is_whitespace() || char == '"').next()?;
    let url = Url::parse(link).ok()?;
    let value = |name: &str| {
        url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    };
    Some((value("token")?, value("user_code")?))
}
