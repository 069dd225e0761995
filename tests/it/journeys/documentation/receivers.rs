//! The receivers of the documentation: each accepts what `cued` signs, and rejects the rest.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::time::{SystemTime, UNIX_EPOCH};

use cued::domain::webhook::signature::{SigningSecrets, TOLERANCE, signature_headers};

use crate::journeys::documentation::blocks::Block;
use crate::journeys::documentation::{Running, is_there};
use crate::support::*;

/// Where the receivers of the pages listen.
const ADDRESS: &str = "127.0.0.1:9000";

/// Runs a receiver and sends it deliveries; returns what is wrong.
pub fn fault(block: &Block) -> Option<String> {
    let program = match block.language.as_str() {
        "python" => "python3",
        "javascript" => "node",
        "rust" => "cargo",
        "sh" => "openssl",
        other => other,
    };
    if !is_there(program) {
        skip(&format!("a receiver in {} is not tried: there is no {program}", block.language));
        return None;
    }
    let folder = TempDir::new().unwrap();
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let secret = user.read("/v1/auth/webhook-secret").text("webhook_secret").to_owned();
    let log = folder.path().join("log");
    let receiver = started(block, folder.path(), &secret, &log);
    let Ok((addr, _running)) = receiver else { return receiver.err() };
    let found = answer_fault(&user, &secret, addr);
    drop(server);
    found.map(|fault| format!("{fault}\n{}", fs::read_to_string(&log).unwrap_or_default()))
}

/// On a port below those that the system hands out: it stays free until the receiver takes it.
fn listener() -> TcpListener {
    let first = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    (first..32_000).find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok()).unwrap()
}

/// A receiver that listens, and its address.
fn started(
    block: &Block,
    folder: &Path,
    secret: &str,
    log: &Path,
) -> Result<(SocketAddr, Option<Running>), String> {
    let listener = listener();
    let addr = listener.local_addr().unwrap();
    let text = block.text.replace(ADDRESS, &addr.to_string());
    let text = text.replace("9000", &addr.port().to_string());
    let mut command = command(block, folder, &text)?;
    command
        .env("WEBHOOK_SECRET", secret)
        .current_dir(folder)
        .stderr(fs::File::create(log).unwrap());
    if block.language == "sh" {
        thread::spawn(move || serve_each(&listener, command));
        return Ok((addr, None));
    }
    // The port is free for the receiver.
    drop(listener);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut running = Running::start(command);
    let listens = until("the receiver listens", || {
        let ended = running.0.0.try_wait().unwrap().is_some();
        (TcpStream::connect(addr).is_ok() || ended).then_some(!ended)
    });
    if listens { Ok((addr, Some(running))) } else { Err(fs::read_to_string(log).unwrap()) }
}

/// The command that runs the program of a block.
fn command(block: &Block, folder: &Path, text: &str) -> Result<Command, String> {
    let file = |name: &str| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let run = |program: &str, arguments: &[&str], file: PathBuf| {
        let mut command = Command::new(program);
        command.args(arguments).arg(file);
        command
    };
    Ok(match block.language.as_str() {
        "python" => run("python3", &[], file("receiver.py")),
        "javascript" => run("node", &[], file("receiver.mjs")),
        "php" => {
            let address =
                text.lines().find_map(|line| line.split("php -S ").nth(1)?.split(' ').next());
            run("php", &["-S", address.ok_or("no `php -S ADDRESS` in it")?], file("receiver.php"))
        }
        "go" => {
            let mut go = run("go", &["run"], file("receiver.go"));
            go.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go"));
            go
        }
        "sh" => run("sh", &[], file("receiver.sh")),
        "rust" => Command::new(built(folder, text)?),
        other => return Err(format!("a receiver in {other} cannot be run")),
    })
}

/// Plays the program that starts a script for each connection, with the connection as its input and output.
fn serve_each(listener: &TcpListener, mut script: Command) {
    for stream in listener.incoming() {
        let stream = stream.unwrap();
        script.stdin(OwnedFd::from(stream.try_clone().unwrap())).stdout(OwnedFd::from(stream));
        drop(Process(script.spawn().unwrap()).0.wait());
        // Else this process would keep the connection open.
        script.stdin(Stdio::null()).stdout(Stdio::null());
    }
}

/// Compiles a program with `ring`, as a package of its own, from the sources that this package was built from.
fn built(folder: &Path, text: &str) -> Result<PathBuf, String> {
    let manifest = "[package]\nname = \"receiver\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
                    [dependencies]\nring = \"0.17\"\n[workspace]\n";
    fs::create_dir(folder.join("src")).unwrap();
    fs::write(folder.join("src/main.rs"), text).unwrap();
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("receiver");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--offline", "--target-dir"]).arg(&target).current_dir(folder);
    let output = cargo.output().unwrap();
    let place = target.join("debug/receiver");
    if output.status.success() {
        Ok(place)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Sends a delivery of the server, and forged ones; returns the first response that is wrong.
fn answer_fault(user: &Client, secret: &str, addr: SocketAddr) -> Option<String> {
    let payload = json!({"text": "grüße", "number": 1e16, "list": [0.1, null, {}]});
    let body = json!({"callback": {"url": format!("http://{addr}/hook")}, "payload": payload});
    let sent = user.post("/v1/callbacks/test", &body).expect(200);
    if !sent["http_status"].as_u64().is_some_and(|status| (200..300).contains(&status)) {
        return Some(format!("it does not accept a delivery: {sent}"));
    }
    let now =
        i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap();
    for (what, change) in forgeries(now) {
        let mut headers =
            signature_headers(SigningSecrets { current: secret, previous: None }, "id", now, BODY);
        let mut body = BODY.to_vec();
        change(&mut headers, &mut body, secret);
        let status = post(addr, &headers, &body);
        let is_right = if what == "right" {
            (200..300).contains(&status)
        } else {
            (400..500).contains(&status)
        };
        if !is_right {
            return Some(format!("{status} for a delivery that is {what}"));
        }
    }
    None
}

const BODY: &[u8] = b"{\"amount\": 10}";

type Headers = [(&'static str, String); 5];
type Change = Box<dyn Fn(&mut Headers, &mut Vec<u8>, &str)>;

fn forgeries(now: i64) -> Vec<(&'static str, Change)> {
    let signed_at = |at: i64| -> Change {
        Box::new(move |headers, body, secret| {
            *headers = signature_headers(
                SigningSecrets { current: secret, previous: None },
                "id",
                at,
                body,
            );
        })
    };
    let signature = |of: fn(&str) -> String| -> Change {
        Box::new(move |headers, _, _| headers[1].1 = of(&headers[1].1))
    };
    vec![
        ("right", Box::new(|_, _, _| ())),
        ("changed", Box::new(|_, body, _| body[11] = b'9')),
        ("longer", Box::new(|_, body, _| body.push(b' '))),
        ("old", signed_at(now - TOLERANCE - 60)),
        ("of the future", signed_at(now + TOLERANCE + 60)),
        (
            "moved to another time",
            Box::new(move |headers, _, _| headers[0].1 = (now + 1).to_string()),
        ),
        ("of no time", Box::new(|headers, _, _| headers[0].1 = "soon".to_owned())),
        ("unsigned", signature(|_| String::new())),
        ("signed in part", signature(|it| it[..20].to_owned())),
        ("signed with another scheme", signature(|it| it.replace("v1=", "v2="))),
        ("signed by a stranger", signature(|it| it.replace(['0', '1', '2', '3'], "f"))),
        ("right", Box::new(|_, _, _| ())),
    ]
}

fn post(addr: SocketAddr, headers: &Headers, body: &[u8]) -> u16 {
    let mut connection = Connection::open(addr).unwrap();
    let mut request =
        format!("POST /hook HTTP/1.1\r\nHost: {addr}\r\nContent-Length: {}\r\n", body.len());
    request.push_str(
        "Content-Type: application/json\r\nX-CueAPI-Execution-Id: id\r\nConnection: close\r\n",
    );
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    let request = [request.as_bytes(), b"\r\n", body].concat();
    connection.stream().write_all(&request).unwrap();
    connection.plain_response().status
}
