//! TLS of callbacks and of mail: authorities of the operator, and servers that must not be trusted.

use std::io::{self, BufReader, Read, Write};
use std::sync::atomic::AtomicU32;

use cued::mail::queue::LoginMailer;
use cued::mail::{Mail, MailTransport, Smtp};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tempfile::NamedTempFile;

use crate::support::*;

/// A server's side of a TLS connection.
pub type TlsStream = StreamOwned<ServerConnection, TcpStream>;

pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // A name of its own: certificates name their issuer, and the name distinguishes authorities.
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let name = format!("authority {}", NUMBER.fetch_add(1, Ordering::Relaxed));
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// The certificate of the authority, as `--callback-ca` reads it.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A server with a valid certificate for this name.
    pub fn server(&self, name: &str) -> Arc<ServerConfig> {
        self.server_until(name, 2100)
    }

    /// A server with a certificate that expires with the beginning of a year.
    pub fn server_until(&self, name: &str, year: i32) -> Arc<ServerConfig> {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        config_of(certificate.der().clone(), key.serialize_der())
    }
}

/// The key need not be that of the certificate, which a client checks first.
fn config_of(certificate: CertificateDer<'static>, key: Vec<u8>) -> Arc<ServerConfig> {
    let provider = default_provider();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key));
    let key = provider.key_provider.load_private_key(key).unwrap();
    let resolver = SingleCertAndKey::from(CertifiedKey::new(vec![certificate], key));
    let config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(resolver));
    Arc::new(config)
}

/// The handshake takes place with the first byte that is read or written.
pub fn secure(stream: TcpStream, config: &Arc<ServerConfig>) -> TlsStream {
    StreamOwned::new(ServerConnection::new(Arc::clone(config)).unwrap(), stream)
}

/// Answers every request with 200, one per connection. Its threads end with the test process.
struct HttpsReceiver {
    addr: SocketAddr,
    bodies: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl HttpsReceiver {
    fn start(config: Arc<ServerConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let bodies = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let received = Arc::clone(&bodies);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut reader = BufReader::new(secure(stream, &config));
                // A client that does not trust the certificate ends the handshake.
                let Ok(Some((_, headers))) = read_head(&mut reader) else { continue };
                let length =
                    header(&headers, "content-length").map_or(0, |length| length.parse().unwrap());
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                received.lock().unwrap().push(body);
                let response = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                reader.get_mut().write_all(response).unwrap();
                reader.get_mut().conn.send_close_notify();
                reader.get_mut().flush().unwrap();
            }
        });
        Self { addr, bodies }
    }

    fn count(&self) -> usize {
        self.bodies.lock().unwrap().len()
    }
}

/// A server with `flags`, and the execution of a cue that it delivers to `https://localhost`.
fn deliver(flags: &[&str], receiver: &HttpsReceiver) -> Value {
    let (_server, user) = Server::with_user(&[DEV_UNLIMITED, &["--test-clock"], flags].concat());
    let cue = user.create(&json!({
        "name": "secure", "schedule": {"type": "recurring", "cron": "* * * * *"}, "payload": {"a": 1},
        "callback": {"url": format!("https://localhost:{}/", receiver.addr.port())}, "retry": {"max_attempts": 1},
    }));
    user.advance("PT1M");
    user.only_execution(id(&cue))
}

/// The file of `--callback-ca`.
fn file_of(authorities: &[&Authority]) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    let text: Vec<String> = authorities.iter().map(|authority| authority.pem()).collect();
    fs::write(file.path(), text.concat()).unwrap();
    file
}

#[test]
fn a_receiver_with_a_certificate_of_the_callback_ca_is_reached() {
    let (own, other) = (Authority::new(), Authority::new());
    // Several authorities in one file, in any order.
    let file = file_of(&[&other, &own]);
    let receiver = HttpsReceiver::start(own.server("localhost"));
    let execution = deliver(&["--callback-ca", file.path().to_str().unwrap()], &receiver);
    assert_has(&execution, json!({"status": "success", "http_status": 200}));
    assert_eq!(*receiver.bodies.lock().unwrap(), [b"{\"a\": 1}"]);
}

/// A certificate of version 1 for 100 years, made with `openssl x509 -req -signkey`.
const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBIzCBywIUccDmTnPDajz0wd8fxgbvtF+RhLUwCgYIKoZIzj0EAwIwFDESMBAG
A1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyODA0NDUyM1oYDzIxMjYxMTA0MDQ0NTIz
WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AAQN8f7l+ZNBsIaZe1rv0sX7etykvJCggRCn2R0qgcqF8GlsuUakb4DgyoQGKr/F
Jfv0AJovHZGUhIfzeoUddUc2MAoGCCqGSM49BAMCA0cAMEQCIE0IHQ+lwU/QwNtn
pN7zKnLebY6VG0iVk8FxY+vBYGz+AiBvAZju+b14ljaEtqIlOT4LAbniBhjlN25f
cxC3RXymFQ==
-----END CERTIFICATE-----";

#[test]
fn a_certificate_that_its_owner_signed_is_its_own_authority_if_it_can_serve() {
    for (is_ca, status, words) in [
        (IsCa::NoCa, "success", ""),
        (IsCa::Ca(BasicConstraints::Unconstrained), "failed", "is that of a certificate authority"),
    ] {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.is_ca = is_ca;
        let key = KeyPair::generate().unwrap();
        let own = params.self_signed(&key).unwrap();
        serve_and_expect(
            &own.pem(),
            config_of(own.der().clone(), key.serialize_der()),
            status,
            words,
        );
    }
    let certificate = CertificateDer::from_pem_slice(VERSION_1.as_bytes()).unwrap();
    let config = config_of(certificate, KeyPair::generate().unwrap().serialize_der());
    serve_and_expect(VERSION_1, config, "failed", "is not of version 3");
}

fn serve_and_expect(pem: &str, config: Arc<ServerConfig>, status: &str, words: &str) {
    let file = NamedTempFile::new().unwrap();
    fs::write(file.path(), pem).unwrap();
    let receiver = HttpsReceiver::start(config);
    let execution = deliver(&["--callback-ca", file.path().to_str().unwrap()], &receiver);
    assert_eq!(execution["status"], status, "{execution}");
    let message = execution["error_message"].as_str().unwrap_or_default();
    assert_contains(message, &[words]);
    assert_eq!(message.contains("`openssl req -x509 "), status == "failed", "{message}");
}

#[test]
fn without_the_callback_ca_its_receiver_gets_no_request() {
    let (own, other) = (Authority::new(), Authority::new());
    let file = file_of(&[&other]);
    let receiver = HttpsReceiver::start(own.server("localhost"));
    for flags in [&[][..], &["--callback-ca", file.path().to_str().unwrap()]] {
        let execution = deliver(flags, &receiver);
        let message = execution.text("error_message");
        assert_eq!(execution["status"], "failed");
        assert_contains(message, &["issuer that is not trusted", "--callback-ca"]);
    }
    assert_eq!(receiver.count(), 0);
}

#[test]
fn a_certificate_for_another_name_or_time_is_refused() {
    let own = Authority::new();
    let file = file_of(&[&own]);
    for (config, says) in [
        (own.server("other.example"), "not valid for name"),
        (own.server_until("localhost", 2020), "expired"),
    ] {
        let receiver = HttpsReceiver::start(config);
        let execution = deliver(&["--callback-ca", file.path().to_str().unwrap()], &receiver);
        let message = execution.text("error_message");
        assert!(
            message.starts_with("no encrypted connection") && message.contains(says),
            "{message}"
        );
        assert_eq!((&execution["status"], receiver.count()), (&json!("failed"), 0));
    }
}

#[test]
fn a_callback_ca_that_cannot_be_read_ends_the_start() {
    let file = NamedTempFile::new().unwrap();
    fs::write(file.path(), "no certificate").unwrap();
    for path in [file.path().to_str().unwrap(), "/nonexistent/ca.pem"] {
        let output = cued(&["serve", "--ephemeral", "--callback-ca", path]).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{stderr}");
        assert!(stderr.contains("--callback-ca") || stderr.contains(path), "{stderr}");
    }
}

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
    seen: Arc<Mutex<MailLog>>,
}

#[derive(Default)]
struct MailLog {
    connections: usize,
    /// The verbs of all commands, each with whether TLS protected it.
    commands: Vec<(String, bool)>,
    mails: Vec<String>,
}

impl TlsMailServer {
    pub fn start(security: Security, config: Arc<ServerConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (config, seen) = (Arc::new(Mutex::new(config)), Arc::<Mutex<MailLog>>::default());
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
    seen: &Mutex<MailLog>,
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
    seen: &Mutex<MailLog>,
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

const LOGIN: &str = "post:hunter2@";

/// A route to the mail server by the name `localhost`, with the rules of a server elsewhere.
fn route(
    scheme: &str,
    login: &str,
    server: &TlsMailServer,
    authority: &Authority,
) -> MailTransport {
    route_to(&format!("{scheme}://{login}localhost:{}", server.port()), authority)
}

fn route_to(url: &str, authority: &Authority) -> MailTransport {
    let pem = authority.pem();
    let smtp = Smtp::with_authority(url, "cued@example.com", Some(pem.as_bytes()));
    MailTransport::Smtp(Box::new(smtp.unwrap()))
}

fn mail() -> Mail {
    Mail {
        to: "ann@example.com".to_owned().into(),
        subject: "Sign in".to_owned().into(),
        text: "The link of this mail".to_owned().into(),
        log_line: String::new().into(),
        at: "2030-01-01T00:00:00Z".parse().unwrap(),
        log_only: false,
    }
}

#[test]
fn smtps_sends_nothing_outside_tls() {
    let authority = Authority::new();
    let server = TlsMailServer::start(Security::Implicit, authority.server("localhost"));
    route("smtps", LOGIN, &server, &authority).send(&mail()).unwrap();
    assert_eq!(server.verbs(false), [""; 0]);
    assert!(server.verbs(true).contains(&"AUTH".to_owned()), "{:?}", server.verbs(true));
    assert!(server.mails()[0].contains("The link of this mail"));
}

#[test]
fn starttls_comes_before_the_login_and_the_mail() {
    let authority = Authority::new();
    for login in [LOGIN, ""] {
        let server = TlsMailServer::start(Security::StartTls, authority.server("localhost"));
        route("smtp", login, &server, &authority).send(&mail()).unwrap();
        assert_eq!(server.verbs(false), ["EHLO", "STARTTLS"], "{login}");
        let secure = server.verbs(true);
        assert_eq!(secure.contains(&"AUTH".to_owned()), !login.is_empty(), "{secure:?}");
        assert!(secure.contains(&"DATA".to_owned()) && server.mails().len() == 1);
    }
}

#[test]
fn a_server_without_starttls_gets_no_password() {
    let authority = Authority::new();
    let server = TlsMailServer::start(Security::Plain, authority.server("localhost"));
    let error = route("smtp", LOGIN, &server, &authority).send(&mail()).unwrap_err();
    assert!(error.is_transient, "the operator can correct it while the mail waits: {error}");
    assert!(error.to_string().contains("STARTTLS"), "{error}");
    let sent = server.verbs(false);
    assert!(!sent.iter().any(|verb| ["AUTH", "MAIL", "DATA"].contains(&verb.as_str())), "{sent:?}");
}

#[test]
fn a_server_without_starttls_gets_a_mail_only_where_the_url_says_so() {
    let authority = Authority::new();
    let server = TlsMailServer::start(Security::Plain, authority.server("localhost"));
    let error = route("smtp", "", &server, &authority).send(&mail()).unwrap_err();
    assert!(error.is_transient && error.to_string().contains("STARTTLS"), "{error}");
    assert_eq!(server.mails().len(), 0);
    let url = format!("smtp://localhost:{}?tls=none", server.port());
    route_to(&url, &authority).send(&mail()).unwrap();
    assert_eq!(server.mails().len(), 1);
}

#[test]
fn the_log_says_whether_mail_is_sent_over_tls() {
    for (url, tls) in [
        ("smtps://mail.example.com", Some("implicit")),
        ("smtp://mail.example.com", Some("starttls")),
        ("smtp://mail.example.com?tls=none", Some("none")),
        ("smtp://127.0.0.1", None),
    ] {
        let server = Server::start(
            &[DEV_UNLIMITED, &["--smtp-url", url, "--mail-from", "a@example.com"]].concat(),
        );
        let log = server.log();
        let line = log.lines().find(|line| line.contains("mail is sent by SMTP"));
        assert_eq!(line.and_then(|line| line.split('"').nth(1)), tls, "{url}: {log}");
    }
}

#[test]
fn a_wrong_certificate_gets_neither_password_nor_mail() {
    let (own, other) = (Authority::new(), Authority::new());
    for (scheme, security) in [("smtps", Security::Implicit), ("smtp", Security::StartTls)] {
        for (config, says) in [
            (other.server("localhost"), "UnknownIssuer"),
            (own.server("other.example"), "not valid for name"),
            (own.server_until("localhost", 2020), "expired"),
        ] {
            for login in [LOGIN, ""] {
                let server = TlsMailServer::start(security, config.clone());
                let error = route(scheme, login, &server, &own).send(&mail()).unwrap_err();
                assert!(error.is_transient, "{error}");
                let text = error.to_string();
                assert!(text.contains("certificate") && text.contains(says), "{scheme}: {text}");
                let sent = [server.verbs(false), server.verbs(true)].concat();
                assert!(
                    !sent.iter().any(|verb| ["AUTH", "MAIL", "DATA"].contains(&verb.as_str())),
                    "{sent:?}"
                );
            }
        }
    }
}

#[test]
fn a_mail_stays_in_the_queue_until_the_certificate_is_right() {
    let (own, other) = (Authority::new(), Authority::new());
    let server = TlsMailServer::start(Security::Implicit, other.server("localhost"));
    let mailer = LoginMailer::start(route("smtps", LOGIN, &server, &own)).unwrap();
    mailer.enqueue(Some(mail()));
    until("the first attempt ends", || (server.connections() > 0).then_some(()));
    server.use_config(own.server("localhost"));
    // The queue tries every mail once more when it stops, or the first retry comes before.
    mailer.stop(Duration::from_secs(10));
    assert_eq!(server.mails().len(), 1);
}

#[test]
fn the_log_says_why_a_mail_server_is_not_trusted() {
    let authority = Authority::new();
    let mail = TlsMailServer::start(Security::Implicit, authority.server("localhost"));
    let url = format!("smtps://{LOGIN}localhost:{}", mail.port());
    let server = Server::start(
        &[DEV_UNLIMITED, &["--smtp-url", &url, "--mail-from", "cued@example.com"]].concat(),
    );
    let client = server.client();
    let code = client.post("/v1/auth/device-code", &json!({})).expect(201)["device_code"].clone();
    client
        .post(
            "/v1/auth/device-code/submit-email",
            &json!({"device_code": code, "email": "ann@example.com"}),
        )
        .expect(200);
    let line = until("the failure is logged", || {
        server.log().lines().find(|line| line.contains("will be retried")).map(str::to_owned)
    });
    assert!(line.contains("certificate") && line.contains("UnknownIssuer"), "{line}");
    assert!(!line.contains("hunter2") && !line.contains("ann@"), "{line}");
    assert!(!mail.verbs(true).contains(&"AUTH".to_owned()));
}
