//! Hostile callers, crowds and receivers.

use std::io::{ErrorKind, Read, Write};

use cued::metrics::process::max_open_files;

use crate::journeys::monitoring::metrics::scrape;
use crate::support::*;

/// The longest time for a request of another caller; the time-outs are 10 s and more.
const SOON: Duration = Duration::from_secs(8);

/// Answers to a caller beside ten large bodies.
const MANY: usize = 30;

/// A list of 4 MB.
const LIST: &str = "/v1/executions/claimable";

/// Peak memory of a server under attack.
const PEAK_MB: u64 = 250;

/// A connection that has sent `request`. The server may have closed it already.
fn open(addr: SocketAddr, request: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    drop(stream.write_all(request));
    stream
}

/// `count` connections from an address of this machine, which have sent `request`.
fn open_from(source: &str, addr: SocketAddr, count: usize, request: &[u8]) -> Vec<TcpStream> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let connect = |_| {
        let stream = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(SocketAddr::new(source.parse().unwrap(), 0)).unwrap();
            socket.connect(addr).await.unwrap().into_std().unwrap()
        });
        stream.set_nonblocking(false).unwrap();
        // The server may have closed it already.
        drop((&stream).write_all(request));
        stream
    };
    (0..count).map(connect).collect()
}

/// The head of a request with the key of a user, and what follows its headers.
fn head_of(user: &Client, line: &str, more: &str) -> String {
    format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n{more}\r\n",
        user.key()
    )
}

/// A body of which almost all is sent.
fn unfinished_body(user: &Client) -> Vec<u8> {
    let head = head_of(user, "POST /v1/cues", "Content-Length: 2000000\r\n");
    [head.as_bytes(), &vec![b' '; 1_990_000]].concat()
}

fn cue_with(text: String) -> Value {
    with(worker_cue("n", YEARLY), json!({"payload": {"text": text}}))
}

/// Creates a cue and reads the status, each on a new connection.
#[track_caller]
fn assert_served(server: &Server, user: &Client) {
    let (begun, busy) = (Instant::now(), busy_time(server.pid()));
    user.clone().create(&worker_cue("n", YEARLY));
    user.with_key("none").read("/status");
    let (took, busy) = (begun.elapsed(), busy_time(server.pid()) - busy);
    // A server that works, or waits for a processor of a busy machine, may be slow. It must not wait for other callers.
    assert!(
        took < SOON || busy > took / 2,
        "served after {took:?}, in which the server worked for {busy:?}"
    );
}

#[track_caller]
fn assert_bounded(server: &Server) {
    let peak = peak_mb(server.pid());
    eprintln!("{peak} MB at most");
    assert!(peak < PEAK_MB, "{peak} MB");
}

#[test]
fn unfinished_large_bodies_of_one_account_leave_room_for_others() {
    let server = Server::start(DEV_UNLIMITED);
    let (user, greedy) = (server.user(), server.user());
    let request = unfinished_body(&greedy);
    let mut crowd: Vec<_> = (0..64).map(|_| open(server.addr(), &request)).collect();
    assert_served(&server, &user);
    let large = cue_with("x".repeat(1_000_000));
    user.create(&large);
    let refused = || {
        // Bodies that arrive together refuse each other: more are open until the held ones use up the share.
        crowd.push(open(server.addr(), &request));
        Some(greedy.post("/v1/cues", &large)).filter(|response| response.status != 201)
    };
    until("the share is used up", refused).expect_error(503, "server_busy");
    assert_bounded(&server);
    drop(crowd);
}

#[test]
fn unread_responses_of_one_account_hold_only_its_share() {
    let server = Server::start(DEV_UNLIMITED);
    let (user, greedy) = (server.user(), server.user());
    let cue = greedy.create(&cue_with("x".repeat(1_000_000)));
    (0..4).for_each(|_| drop(greedy.fire(&cue)));
    let request = head_of(&greedy, &format!("GET {LIST}"), "");
    let mut crowd: Vec<_> = (0..40).map(|_| open(server.addr(), request.as_bytes())).collect();
    // Each has the beginning of a response, and most of them an error.
    let statuses = crowd.iter_mut().map(|stream| {
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        String::from_utf8_lossy(&start[9..]).into_owned()
    });
    let statuses: Vec<_> = statuses.collect();
    assert!(statuses.iter().all(|status| status == "200" || status == "503"), "{statuses:?}");
    assert!(statuses.iter().any(|status| status == "503"), "{statuses:?}");
    assert_served(&server, &user);
    assert_bounded(&server);
    drop(crowd);
    until_true("the share is returned", || greedy.clone().get(LIST).status == 200);
}

#[test]
fn unfinished_large_bodies_of_many_accounts_leave_room_for_a_newcomer() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let mut crowd = Vec::new();
    for _ in 0..5 {
        let request = unfinished_body(&server.user());
        crowd.extend((0..10).map(|_| open(server.addr(), &request)));
    }
    for _ in 0..5 {
        assert_served(&server, &user);
        server.user();
    }
    assert_bounded(&server);
    drop(crowd);
}

#[test]
fn bodies_that_never_come_give_way_to_other_connections() {
    let (server, user) = Server::with_user(&[DEV_UNLIMITED, &["--max-connections", "64"]].concat());
    let key = format!("Authorization: Bearer {}\r\n", user.key());
    for (line, key) in [("GET /status", ""), ("POST /v1/cues", &key)] {
        let request =
            format!("{line} HTTP/1.1\r\nHost: localhost\r\n{key}Content-Length: 2\r\n\r\n");
        let crowd: Vec<_> = (0..64).map(|_| open(server.addr(), request.as_bytes())).collect();
        eprintln!("{line}");
        assert_served(&server, &user);
        drop(crowd);
    }
}

/// Requests `path` and reads nothing but the status.
fn begin_response(user: &Client, server: &Server, path: &str) -> TcpStream {
    let head = head_of(user, &format!("GET {path}"), "");
    let mut stream = open(server.addr(), head.as_bytes());
    let mut start = [0; 12];
    stream.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
    stream
}

#[test]
fn a_change_without_room_for_its_response_is_not_made() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    // Six times as large in the stored form.
    let large = cue_with("\u{7f}".repeat(1_040_000));
    let cue = user.create(&large);
    let (path, execution) = (cue_path(&cue), format!("/v1/executions/{}", user.fire(&cue)));
    // A third does not fit into the account's share of 16 MiB.
    let mut unread = [(); 2].map(|()| begin_response(&user, &server, &path));
    let changes = [
        ("POST", "/v1/cues", large.to_string()),
        ("PATCH", &path, json!({"name": "x"}).to_string()),
        ("PATCH", &path, json!({"payload": large["payload"], "name": "x"}).to_string()),
        ("POST", &format!("{path}/fire"), json!({"payload_override": {"a": 1}}).to_string()),
        ("POST", "/v1/executions/claim", "{}".to_owned()),
        ("POST", &format!("{execution}/claim"), "{}".to_owned()),
    ];
    for (method, path, body) in changes {
        // Who reads nothing for 10 s is disconnected. Who reads much gets large buffers of the kernel, into which the rest
        // of the response fits: it is then no longer in the memory of the server.
        unread.iter_mut().for_each(|stream| stream.read_exact(&mut vec![0; 128 << 10]).unwrap());
        let refused = user.call(method, path, &[], body.as_bytes()).unwrap();
        refused.refuses_for(1, 503, "server_busy");
    }
    // Small ones are made, and answered.
    let small = worker_cue("s", "@daily");
    user.create(&small);
    drop(unread);
    assert_eq!(user.read("/v1/cues").column("cues", "name"), ["s", "n"]);
    let runs = user.read("/v1/executions");
    assert_eq!((&runs["total"], &runs["executions"][0]["status"]), (&json!(1), &json!("pending")));
    user.post("/v1/executions/claim", &json!({})).expect(200);
}

#[test]
fn large_bodies_of_some_accounts_leave_the_http_threads_to_others() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    // Keys with an escape, in an order that has to be sorted.
    let keys: String = (0..130_000_u32)
        .map(|number| format!("\"\\n{:x}\":0,", number.wrapping_mul(0x9e37_79b1)))
        .collect();
    let schedule = r#"{"type":"recurring","cron":"0 0 1 1 *"}"#;
    let body = format!("{{{keys}\"name\":\"n\",\"transport\":\"worker\",\"schedule\":{schedule}}}");
    assert!((1_500_000..2_097_152).contains(&body.len()), "{}", body.len());
    let accounts = [(); 2].map(|()| server.user().unchecked());
    std::thread::scope(|scope| {
        let greedy: Vec<_> = (0..10)
            .map(|number| {
                let (greedy, body) = (accounts[number % 2].clone(), &body);
                scope.spawn(move || {
                    // On a busy machine the client gives up before its answer comes.
                    if let Ok(created) = greedy.call("POST", "/v1/cues", &[], body.as_bytes()) {
                        assert!([201, 503].contains(&created.status), "{}", created.text());
                    }
                })
            })
            .collect();
        let (mut answers, status) = (0, user.with_key("none"));
        // A caller that waits for a large body each time gets at most one answer for each. A thread that panics is
        // finished too: the scope then fails the test.
        while answers < MANY && greedy.iter().any(|thread| !thread.is_finished()) {
            status.clone().read("/status");
            answers += 1;
        }
        assert_eq!(answers, MANY, "answers beside {} large bodies", greedy.len());
    });
}

#[test]
fn malformed_http2_frames_do_not_flood_the_log() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    // An acknowledgement of a PING that was never sent; the library logs a warning.
    let ping = [&[0, 0, 8, 6, 1, 0, 0, 0, 0][..], &[7; 8]].concat();
    // WINDOW_UPDATE of 0, on stream 1, which is an error of the protocol.
    let update = [0, 0, 4, 8, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    for frames in [ping.repeat(2_000), update.to_vec()] {
        for _ in 0..20 {
            let mut stream = open(
                server.addr(),
                &[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings, &frames].concat(),
            );
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            // Until the server has read all of it.
            drop(stream.read_to_end(&mut Vec::new()));
        }
    }
    assert_served(&server, &user);
    let log = server.log();
    assert!(log.lines().count() < 10, "{} lines: {:?}", log.lines().count(), log.lines().last());
}

/// A connection of HTTP/2 that takes no body of a response, and 128 requests.
fn http2_requests() -> Vec<u8> {
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        [&[0, 0, u8::try_from(payload.len()).unwrap(), kind, flags, 0, 0, 0, stream], payload]
            .concat()
    };
    let literal = |name: &str, value: &str| {
        let length = |text: &str| u8::try_from(text.len()).unwrap();
        [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
    };
    let head = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "localhost"),
        (":path", "/status"),
    ];
    let head: Vec<u8> = head.iter().flat_map(|(name, value)| literal(name, value)).collect();
    let requests =
        (0..128).flat_map(|number: u8| frame(1, 5, number.wrapping_mul(2).wrapping_add(1), &head));
    let settings = frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), settings, requests.collect()].concat()
}

#[test]
fn http2_requests_whose_responses_are_not_read_hold_only_the_share_of_one_address() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let before = resident_mb(server.pid());
    let crowd = open_from("127.0.0.9", server.addr(), 200, &http2_requests());
    assert_served(&server, &user);
    // Without a bound: 300 MB, and they stayed after the end of the connections.
    let peak = peak_mb(server.pid());
    eprintln!("{before} MB before, {peak} MB at most");
    assert!(peak < before + 60, "{before} MB before, {peak} MB at most");
    drop(crowd);
}

#[test]
fn memory_goes_back_to_the_system_after_a_crowd_of_connections() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let before = resident_mb(server.pid());
    let head = [b"GET /status HTTP/1.1\r\nHost: localhost\r\nX-A: ", &[b'a'; 15_500][..]].concat();
    let crowd: Vec<_> = (1..=16)
        .flat_map(|number| open_from(&format!("127.0.1.{number}"), server.addr(), 128, &head))
        .collect();
    assert_served(&server, &user);
    let during = resident_mb(server.pid());
    drop(crowd);
    eprintln!("{before} MB before, {during} MB during the crowd");
    assert!(during > before + 20, "{before} MB before, {during} MB during the crowd");
    // Nothing is returned below 24 MiB.
    let most = (before + 8).max(25);
    assert!(most < during, "{before} MB before, {during} MB during the crowd");
    until_within("memory goes back", Duration::from_secs(120), || {
        (resident_mb(server.pid()) <= most).then_some(())
    });
}

const CROWD: usize = 10_000;

/// Requests after the crowd is complete.
const REQUESTS: usize = 20;

/// The errors of a request on a connection that the server has closed.
const CLOSED: [ErrorKind; 3] =
    [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe, ErrorKind::UnexpectedEof];

/// File descriptors for the other tests of this process.
const OTHERS: usize = 2_000;

/// The number of connections that this process may open, at most `CROWD`.
fn crowd() -> usize {
    let allowed = || max_open_files().unwrap_or(1_024).saturating_sub(OTHERS).max(500);
    if allowed() < CROWD {
        let pid = std::process::id().to_string();
        let limit = format!("--nofile={}", CROWD + OTHERS);
        // Only a privileged process may raise its limit.
        drop(Command::new("prlimit").args(["--pid", &pid, &limit]).output());
    }
    let crowd = CROWD.min(allowed());
    if crowd < CROWD {
        eprintln!("this process may open too few files: {crowd} connections instead of {CROWD}");
    }
    crowd
}

/// Connects `count` times from several threads and sends `word` on each.
fn connect(addr: SocketAddr, count: usize, word: &[u8]) -> Vec<TcpStream> {
    thread::scope(|scope| {
        let part = |number: usize| {
            let count = count / 8 + usize::from(number < count % 8);
            move || {
                let mut streams = Vec::new();
                for _ in 0..count {
                    let Ok(mut stream) = TcpStream::connect(addr) else { break };
                    // The server may have closed it already.
                    drop(stream.write_all(word));
                    streams.push(stream);
                }
                streams
            }
        };
        let threads: Vec<_> = (0..8).map(|number| scope.spawn(part(number))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn ten_thousand_idle_or_incomplete_connections_do_not_block_clients() {
    let ((server, user), idle_server) =
        (Server::with_user(DEV_UNLIMITED), Server::start(DEV_UNLIMITED));
    let request = |user: &Client| create_before_timeout(user, idle_server.addr());
    let (before, crowd) = (resident_mb(server.pid()), crowd());
    for word in [&b""[..], b"GET /health HTTP/1.1\r\nHo"] {
        let is_complete = AtomicBool::new(false);
        let (requests, streams) = thread::scope(|scope| {
            let (user, is_complete, request) = (user.clone(), &is_complete, &request);
            let client = scope.spawn(move || {
                let mut requests = 0;
                while !is_complete.load(Ordering::SeqCst) {
                    request(&user);
                    requests += 1;
                }
                requests
            });
            let streams = connect(server.addr(), crowd, word);
            is_complete.store(true, Ordering::SeqCst);
            (client.join().unwrap(), streams)
        });
        assert_eq!(streams.len(), crowd);
        (0..REQUESTS).for_each(|_| request(&user));
        let grown = resident_mb(server.pid()).saturating_sub(before);
        assert!(grown < 200, "{grown} MB more than before");
        eprintln!("{requests} requests while the crowd connected; {grown} MB more than before");
    }
}

/// Creates a cue on a new connection. The response must precede the head timeout of a silent connection that was opened
/// before the request, on a server without load: were the places of the crowd freed by that timeout only, a new client
/// would wait longer.
fn create_before_timeout(user: &Client, idle_server: SocketAddr) {
    let silent = TcpStream::connect(idle_server).unwrap();
    silent.set_nonblocking(true).unwrap();
    let daily = json!({"type": "recurring", "cron": "@daily"});
    let cue = json!({"name": "n", "transport": "worker", "schedule": daily});
    // A connection that is older than a thousand later ones of its address closes for them, if its request comes later
    // still: the client connects again.
    let created = loop {
        match user.clone().try_post("/v1/cues", &cue) {
            Err(error) if CLOSED.contains(&error.kind()) => {}
            answered => break answered.unwrap(),
        }
    };
    created.expect(201);
    let read = silent.peek(&mut [0]);
    let is_open = read.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    assert!(is_open, "the response came after the head timeout: {read:?}");
}

/// Writes a gigabyte, or as much as the client reads.
fn pour(stream: &mut TcpStream) {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n";
    let piece = vec![b'x'; 100_000];
    let mut left = 10_000;
    if stream.write_all(head.as_bytes()).is_ok() {
        while left > 0 && stream.write_all(&piece).is_ok() {
            left -= 1;
        }
    }
}

fn fire(user: &Client, url: &str) -> String {
    let more = json!({"retry": {"max_attempts": 1}, "on_failure": {"email": false}});
    user.fire(&user.create(&with(webhook_cue("hook", YEARLY, url), more)))
}

/// Status, HTTP status and error of an execution.
fn seen(user: &Client, execution: &str) -> (String, Value, String) {
    let execution = user.execution(execution);
    let text = |name: &str| execution[name].as_str().unwrap_or_default().to_owned();
    (text("status"), execution["http_status"].clone(), text("error_message"))
}

#[test]
fn every_receiver_fault_is_shown_and_delays_no_other_delivery() {
    let flags = ["--metrics-listen", "127.0.0.1:0", "--test-clock", "2030-01-01T00:00:00Z"];
    let (server, user) = Server::with_user(&[DEV_UNLIMITED, &flags].concat());
    let before = resident_mb(server.pid());
    let sound = Receiver::start();
    let resets = Receiver::on_accept(|_| ());
    let babbles = Receiver::with(Reaction::bytes("220 mail.example.com ESMTP\r\n"));
    let pours = Receiver::with(Reaction::script(pour));
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let cases = [
        (
            resets.url(),
            "failed",
            json!(null),
            "the connection was closed before the response was complete",
        ),
        (babbles.url(), "failed", json!(null), "the response is not valid HTTP"),
        (format!("http://{closed}/"), "failed", json!(null), "the connection was refused"),
        (
            "http://nowhere.invalid/".to_owned(),
            "failed",
            json!(null),
            "the host nowhere.invalid was not found",
        ),
        // The body was cut: a response that starts with 200 is a success.
        (pours.url(), "success", json!(200), ""),
        (sound.url(), "success", json!(200), ""),
    ];
    let executions = cases.clone().map(|(url, ..)| fire(&user, &url));
    user.settle();
    for ((url, status, http_status, error), execution) in cases.iter().zip(&executions) {
        let seen = seen(&user, execution);
        assert_eq!((seen.0.as_str(), &seen.1), (*status, http_status), "{url}: {}", seen.2);
        assert!(
            seen.2.starts_with(error) && seen.2.is_empty() == error.is_empty(),
            "{url}: {}",
            seen.2
        );
    }
    let kept = user.execution(&executions[4]);
    assert_eq!(kept["response_body"], "x".repeat(2_000));
    let grown = resident_mb(server.pid()).saturating_sub(before);
    assert!(grown < 20, "{grown} MB more than before");
    let page = scrape(&server);
    for (cause, count) in [("connection", 3.0), ("unknown_name", 1.0)] {
        let labels = [("result", "failed"), ("cause", cause)];
        assert_eq!(page.value("cued_deliveries_total", &labels), count, "{cause}");
    }
}

#[test]
fn a_slow_response_is_cut_after_thirty_seconds() {
    if !is_full_run() {
        eprintln!("left out but in the long tests: it takes thirty seconds");
        return;
    }
    let (_server, user) = Server::with_user(&[DEV_UNLIMITED, &["--test-clock"]].concat());
    let endless =
        "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n".to_owned() + &"x".repeat(100_000);
    let trickles = Receiver::with(Reaction::script(move |stream| drip(stream, endless.as_bytes())));
    let execution = fire(&user, &trickles.url());
    user.settle();
    let seen = seen(&user, &execution);
    assert_eq!(seen.0, "failed");
    assert_eq!(seen.2, "returned 200, but the body did not end within 30 s");
}
