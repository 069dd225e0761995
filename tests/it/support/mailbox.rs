//! A mail server on loopback: enough of RFC 5321 to receive mails, and to refuse them on request.

use std::io::{self, BufRead, BufReader, Write};
use std::iter;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::support::*;

/// For [`Mailbox::refuse`].
pub const SILENCE: &str = "";

/// The responses to the next messages, instead of an acceptance.
type Refusals = Arc<Mutex<Vec<&'static str>>>;

/// The server. Its threads end with the test process.
pub struct Mailbox {
    addr: SocketAddr,
    mails: Receiver<Received>,
    refusals: Refusals,
    hanging: Arc<AtomicUsize>,
}

/// A received mail.
#[derive(Debug, Clone)]
pub struct Received {
    /// User and password of `AUTH PLAIN`.
    pub login: Option<(String, String)>,
    pub from: String,
    pub to: String,
    /// Headers and text.
    pub message: String,
}

impl Mailbox {
    pub fn open() -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    /// A mail server on an existing port: clients that connected earlier get their greeting now.
    pub fn on(listener: TcpListener) -> Self {
        let addr = listener.local_addr().unwrap();
        let (received, mails) = channel();
        let refusals = Refusals::default();
        let script = Arc::clone(&refusals);
        let hanging = Arc::<AtomicUsize>::default();
        let hung = Arc::clone(&hanging);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (received, script, hung) =
                    (received.clone(), Arc::clone(&script), Arc::clone(&hung));
                // A client that disconnects early has sent no mail.
                thread::spawn(move || drop(converse(stream, &received, &script, &hung)));
            }
        });
        Self { addr, mails, refusals, hanging }
    }

    pub fn url(&self) -> String {
        format!("smtp://{}", self.addr)
    }

    /// The same URL with a user and a password.
    pub fn url_for(&self, login: &str) -> String {
        format!("smtp://{login}@{}", self.addr)
    }

    /// Sets the responses to the next messages, in order. [`SILENCE`] sends none until the client disconnects.
    pub fn refuse(&self, responses: &[&'static str]) {
        self.refusals.lock().unwrap().extend(responses);
    }

    /// The number of messages without a response so far.
    pub fn hanging(&self) -> usize {
        self.hanging.load(Ordering::SeqCst)
    }

    /// The next mail, which must come.
    #[track_caller]
    pub fn next(&self) -> Received {
        self.mails.recv_timeout(HANG_TIMEOUT).expect("a mail")
    }

    /// The next mail that has a link, which must come.
    #[track_caller]
    pub fn next_with_link(&self) -> Received {
        loop {
            let mail = self.next();
            if mail.has_link() {
                return mail;
            }
        }
    }

    /// The mails that have arrived since the last call, until none comes.
    pub fn all(&self) -> Vec<Received> {
        let next = || self.mails.recv_timeout(Duration::from_millis(100)).ok();
        iter::from_fn(next).collect()
    }

    /// Returns whether no further mail has arrived.
    pub fn is_empty(&self) -> bool {
        self.mails.recv_timeout(Duration::from_millis(100)).is_err()
    }
}

impl Received {
    fn link_line(&self) -> Option<&str> {
        self.message.lines().find(|line| line.starts_with("http://"))
    }

    fn has_link(&self) -> bool {
        self.link_line().is_some()
    }

    /// The path and query of the link in the mail.
    #[track_caller]
    pub fn link(&self) -> String {
        let line = self.link_line().expect("a link");
        line[line.find("/v1/").unwrap()..].to_owned()
    }

    /// The token in that link.
    #[track_caller]
    pub fn token(&self) -> String {
        let link = self.link();
        let (_, rest) = link.split_once("token=").unwrap();
        rest.split('&').next().unwrap().to_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let headers = self.message.split("\n\n").next().unwrap();
        headers.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

fn converse(
    stream: TcpStream,
    received: &Sender<Received>,
    refusals: &Refusals,
    hanging: &AtomicUsize,
) -> io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let mut out = stream;
    let mut mail =
        Received { login: None, from: String::new(), to: String::new(), message: String::new() };
    write!(out, "220 mailbox\r\n")?;
    while let Some(line) = lines.next().transpose()? {
        let (verb, rest) = line.split_once([' ', ':']).unwrap_or((&line, ""));
        match verb.to_ascii_uppercase().as_str() {
            "EHLO" => write!(out, "250-mailbox\r\n250-AUTH PLAIN\r\n250 8BITMIME\r\n")?,
            "AUTH" => {
                mail.login = Some(plain_login(rest));
                write!(out, "235 welcome\r\n")?;
            }
            "MAIL" => {
                rest.clone_into(&mut mail.from);
                write!(out, "250 ok\r\n")?;
            }
            "RCPT" => {
                rest.clone_into(&mut mail.to);
                write!(out, "250 ok\r\n")?;
            }
            "DATA" => {
                write!(out, "354 go on\r\n")?;
                mail.message.clear();
                for line in lines.by_ref() {
                    let line = line?;
                    if line == "." {
                        break;
                    }
                    mail.message.push_str(line.strip_prefix('.').unwrap_or(&line));
                    mail.message.push('\n');
                }
                let mut refusals = refusals.lock().unwrap();
                if refusals.is_empty() {
                    // The test may have ended.
                    drop(received.send(mail.clone()));
                    write!(out, "250 accepted\r\n")?;
                } else {
                    // A server that repeats the message in its response is the worst case for the log of its client.
                    let text = mail.message.replace(['\r', '\n'], " ");
                    let response = refusals.remove(0);
                    drop(refusals);
                    if response == SILENCE {
                        hanging.fetch_add(1, Ordering::SeqCst);
                        lines.by_ref().for_each(drop);
                        hanging.fetch_sub(1, Ordering::SeqCst);
                        return Ok(());
                    }
                    write!(out, "{response} {text}\r\n")?;
                }
            }
            "QUIT" => {
                write!(out, "221 bye\r\n")?;
                return Ok(());
            }
            _ => write!(out, "250 ok\r\n")?,
        }
    }
    Ok(())
}

fn plain_login(rest: &str) -> (String, String) {
    use base64::Engine as _;
    let encoded = rest.strip_prefix("PLAIN ").unwrap();
    let decoded = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap();
    let text = String::from_utf8(decoded).unwrap();
    let mut parts = text.split('\0').skip(1).map(str::to_owned);
    (parts.next().unwrap(), parts.next().unwrap())
}
