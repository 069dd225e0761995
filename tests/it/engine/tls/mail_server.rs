//! A mail server with TLS from the start, with STARTTLS, or without either.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::ServerConfig;

use super::authority::secure;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// TLS from the first byte.
    Implicit,
    StartTls,
    Plain,
}

/// The server. Its threads end with the test process.
pub struct TlsMailServer {
    addr: SocketAddr,
    config: Arc<Mutex<Arc<ServerConfig>>>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    connections: usize,
    /// The verbs of all commands, each with whether TLS protected it.
    commands: Vec<(String, bool)>,
    mails: Vec<String>,
}

impl TlsMailServer {
    pub fn start(security: Security, config: Arc<ServerConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (config, seen) = (Arc::new(Mutex::new(config)), Arc::<Mutex<Seen>>::default());
        let (current, log) = (Arc::clone(&config), Arc::clone(&seen));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let config = Arc::clone(&current.lock().unwrap());
                // A client that does not trust the certificate ends the handshake.
                drop(serve(stream, security, &config, &log));
                log.lock().unwrap().connections += 1;
            }
        });
        Self { addr, config, seen }
    }

    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// Uses another certificate from the next connection on.
    pub fn use_config(&self, config: Arc<ServerConfig>) {
        *self.config.lock().unwrap() = config;
    }

    /// The number of connections that have ended.
    pub fn connections(&self) -> usize {
        self.seen.lock().unwrap().connections
    }

    /// The verbs that came with (`true`) or without TLS.
    pub fn verbs(&self, is_secure: bool) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        seen.commands
            .iter()
            .filter(|(_, secure)| *secure == is_secure)
            .map(|(verb, _)| verb.clone())
            .collect()
    }

    pub fn mails(&self) -> Vec<String> {
        self.seen.lock().unwrap().mails.clone()
    }
}

fn serve(
    mut stream: TcpStream,
    security: Security,
    config: &Arc<ServerConfig>,
    seen: &Mutex<Seen>,
) -> io::Result<()> {
    if security == Security::Implicit {
        let mut stream = secure(stream, config);
        stream.write_all(b"220 mail\r\n")?;
        return converse(&mut stream, "", true, seen).map(drop);
    }
    let offer = if security == Security::StartTls { "250-STARTTLS\r\n" } else { "" };
    stream.write_all(b"220 mail\r\n")?;
    if converse(&mut stream, offer, false, seen)? {
        converse(&mut secure(stream, config), "", true, seen)?;
    }
    Ok(())
}

/// Returns whether the client asked for STARTTLS.
fn converse(
    stream: &mut (impl Read + Write),
    offer: &str,
    is_secure: bool,
    seen: &Mutex<Seen>,
) -> io::Result<bool> {
    while let Some(line) = read_line(stream)? {
        let verb = line.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
        seen.lock().unwrap().commands.push((verb.clone(), is_secure));
        match verb.as_str() {
            "EHLO" => write!(stream, "250-mail\r\n{offer}250-AUTH PLAIN\r\n250 8BITMIME\r\n")?,
            "STARTTLS" => {
                write!(stream, "220 go on\r\n")?;
                return Ok(true);
            }
            "AUTH" => write!(stream, "235 welcome\r\n")?,
            "DATA" => {
                write!(stream, "354 go on\r\n")?;
                let mut mail = String::new();
                while let Some(line) = read_line(stream)?.filter(|line| line != ".") {
                    mail.push_str(&line);
                    mail.push('\n');
                }
                seen.lock().unwrap().mails.push(mail);
                write!(stream, "250 accepted\r\n")?;
            }
            "QUIT" => {
                write!(stream, "221 bye\r\n")?;
                return Ok(false);
            }
            _ => write!(stream, "250 ok\r\n")?,
        }
        stream.flush()?;
    }
    Ok(false)
}

/// Byte by byte: what follows a command may be the start of a handshake.
fn read_line(stream: &mut impl Read) -> io::Result<Option<String>> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    loop {
        if stream.read(&mut byte)? == 0 {
            return Ok(None);
        }
        if byte == *b"\n" {
            return Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned()));
        }
        line.push(byte[0]);
    }
}
