//! A server behind TLS whose certificate no public authority has issued.

use std::io::{self, BufReader, Read as _, Write as _};

use rustls::ServerConfig;

use crate::engine::tls::{Authority, secure};
use crate::support::*;

/// The base URL of a server through a proxy with this certificate. Its threads end with the test process.
fn behind_tls(server: &Server, config: Arc<ServerConfig>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, target) = (listener.local_addr().unwrap().port(), server.addr());
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let config = Arc::clone(&config);
            // A client that does not trust the certificate ends the handshake.
            thread::spawn(move || drop(forward(stream, &config, target)));
        }
    });
    format!("https://localhost:{port}")
}

/// Forwards one request.
fn forward(stream: TcpStream, config: &Arc<ServerConfig>, target: SocketAddr) -> io::Result<()> {
    let mut reader = BufReader::new(secure(stream, config));
    let Some((first, headers)) = read_head(&mut reader)? else { return Ok(()) };
    let length = header(&headers, "content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut server = TcpStream::connect(target)?;
    let lines: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    server.write_all(format!("{first}\r\nConnection: close\r\n{lines}\r\n").as_bytes())?;
    server.write_all(&body)?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer)?;
    let client = reader.get_mut();
    client.write_all(&answer)?;
    client.conn.send_close_notify();
    client.flush()
}

#[test]
fn the_authority_comes_from_login_the_environment_or_the_system() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    let authority = Authority::new();
    let url = behind_tls(&server, authority.server("localhost"));
    let home = ClientHome::new();
    let file = home.folder().join("home-ca.pem");
    fs::write(&file, authority.pem()).unwrap();
    let path = file.to_str().unwrap();
    let login = |more: &[&str]| {
        home.run_with_stdin(&[&["login", url.as_str(), "--key", "-"], more].concat(), user.key())
    };

    let refused = login(&[]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("an issuer that is not trusted"), "{refused:?}");
    assert!(refused.stderr.contains("named with --ca"), "{refused:?}");

    // The file is kept with the profile, by its whole path.
    let done = login(&["--ca", "home-ca.pem"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(home.stored()["profiles"]["default"]["ca"], path);
    fs::create_dir(home.folder().join("elsewhere")).unwrap();
    let elsewhere =
        home.command(&["whoami"]).current_dir(home.folder().join("elsewhere")).output().unwrap();
    assert!(elsewhere.status.success(), "{elsewhere:?}");
    assert!(home.ok(&["whoami", "--curl"]).contains(&format!("--cacert {path}")));
    // Not with another server, nor after another key for the same one.
    assert!(
        !home.ok(&["whoami", "--curl", "--url", "https://cue.example.com"]).contains("--cacert")
    );
    assert_eq!(login(&[]).code, 0);
    assert_eq!(home.stored()["profiles"]["default"]["ca"], path);

    for variable in ["CUED_CA", "SSL_CERT_FILE"] {
        let home = ClientHome::new()
            .env("CUED_URL", &url)
            .env("CUED_API_KEY", user.key())
            .env(variable, path);
        home.ok(&["whoami"]);
    }
    let missing =
        ClientHome::new().env("CUED_URL", &url).env("CUED_CA", "/nonexistent").run(&["whoami"]);
    assert!(
        missing.code == 2 && missing.stderr.contains("cannot read /nonexistent"),
        "{missing:?}"
    );
}
