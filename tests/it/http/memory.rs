//! What requests cost in memory: in a process of its own, by its peak. Bounds are wide enough for a debug build on a
//! busy machine; a tree of the same values takes 90 times their text.

use cued::store::MAX_LIST_BYTES;

use crate::support::*;

const MIB: usize = 1 << 20;

/// The most that a tree takes for its text: an object with one entry.
fn small_objects(bytes: usize) -> String {
    let object = r#"{"":0},"#;
    let list = object.repeat(bytes / object.len());
    format!("[{}]", list.trim_end_matches(','))
}

fn create_with(user: &Client, payload: &str) -> Response {
    let cue =
        r#""name":"n","schedule":{"type":"recurring","cron":"0 0 1 1 *"},"transport":"worker""#;
    user.call("POST", "/v1/cues", &[], format!("{{{cue},\"payload\":{payload}}}").as_bytes())
        .unwrap()
}

/// The peak in MB that `job` adds to the memory of the server.
fn added_mb(server: &Server, job: impl FnOnce()) -> u64 {
    // Sets the peak to the current use.
    fs::write(format!("/proc/{}/clear_refs", server.pid()), "5").unwrap();
    let before = resident_mb(server.pid());
    job();
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    let added = (peak / 1024).saturating_sub(before);
    println!("added {added} MB to {before} MB; now {} MB", resident_mb(server.pid()));
    added
}

#[test]
fn a_large_body_of_small_values_costs_a_few_times_its_size() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let payload = format!("{{\"a\":{}}}", small_objects(2_000_000));
    let unsorted = format!("{{{}\"a\":1}}", "\"z\":0,\"\":0,".repeat(180_000));
    let added = added_mb(&server, || {
        create_with(&user, &payload).expect_error(400, "invalid_payload_size");
        create_with(&user, &unsorted).expect(201);
        let register =
            user.call("POST", "/v1/auth/register", &[], small_objects(60_000).as_bytes());
        register.unwrap().expect_error(422, "validation_error");
        let fields: String = (0..150_000).map(|number| format!("\"{number}\":0,")).collect();
        let body = format!("{{{fields}\"name\":{}}}", small_objects(200_000));
        let named = user.call("POST", "/v1/cues", &[], body.as_bytes()).unwrap();
        named.expect_error(422, "validation_error");
    });
    assert!(added <= 24, "{added} MB");
}

#[test]
fn a_payload_that_grows_sixfold_in_its_stored_form_costs_four_times_that_form() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let payload = format!("{{\"a\":\"{}\"}}", "\u{7f}".repeat(MIB - 9));
    let mut cue = Value::Null;
    let added = added_mb(&server, || cue = create_with(&user, &payload).expect(201));
    assert_eq!(cue["payload"].text("a").len(), MIB - 9);
    // The text itself, and in the writer SQLite's copy of it, the row and the pages.
    assert!(added <= 4 * 6 + 2, "{added} MB");
}

#[test]
fn stored_payloads_are_answered_as_their_text() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let payload = format!("{{\"a\":{},\"task\":\"t\"}}", small_objects(MIB - 40));
    let cue = create_with(&user, &payload).expect(201);
    let path = cue_path(&cue);
    let fire = format!("{path}/fire");
    (0..8).for_each(|_| drop(user.bare("POST", &fire).expect(200)));
    let mut listed = Vec::new();
    let user = user.unchecked();
    let added = added_mb(&server, || listed = user.get("/v1/executions/claimable").body);
    assert!(added <= 24, "{added} MB");
    assert!(listed.len() <= MAX_LIST_BYTES + 100);
    let list: Value = serde_json::from_slice(&listed).unwrap();
    assert_eq!(list.list("executions").len(), 3);
    assert_eq!(list["has_more"], true);
    assert_eq!(list["executions"][0]["payload"], cue["payload"]);
    let merged = added_mb(&server, || {
        user.post(&fire, &json!({"payload_override": {"b": 1}})).expect(200);
    });
    assert!(merged <= 24, "{merged} MB");

    // Each of these takes up to 12 MB while it is read and rendered.
    let lists = added_mb(&server, || {
        thread::scope(|scope| {
            for _ in 0..50 {
                let user = user.clone();
                scope.spawn(move || {
                    let listed = user.get("/v1/executions/claimable");
                    assert!(
                        listed.status == 503 || listed.status == 200 && listed.body.len() > MIB
                    );
                });
            }
        });
    });
    assert!(lists <= 64, "{lists} MB");

    let renamed = added_mb(&server, || {
        thread::scope(|scope| {
            for _ in 0..58 {
                let (user, path) = (user.clone(), &path);
                scope.spawn(move || {
                    // All responses of the account together have a bound, so some of 58 at once are refused.
                    let renamed = user.patch(path, &json!({"name": "x"}));
                    assert!(
                        renamed.status == 503 || renamed.status == 200 && renamed.body.len() > MIB
                    );
                });
            }
        });
    });
    // As trees these answers took 5,800 MB.
    assert!(renamed <= 64, "{renamed} MB");
}

#[test]
fn every_list_ends_before_four_mebibytes_and_says_so() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    // Each character takes six in JSON.
    let description = "\u{1}".repeat(10_000);
    for _ in 0..100 {
        user.create(&with(worker_cue("n", YEARLY), json!({"description": description})));
    }
    for number in 0..300 {
        let handlers = vec!["\u{1}".repeat(250); 10];
        let beat = json!({"worker_id": number.to_string(), "handlers": handlers});
        user.post("/v1/worker/heartbeat", &beat).expect(200);
    }
    let mut seen = 0;
    let added = added_mb(&server, || {
        for (path, name) in [("/v1/cues?limit=100", "cues"), ("/v1/workers", "workers")] {
            let response = user.get(path);
            assert!(response.body.len() <= MAX_LIST_BYTES + 100, "{path}: {}", response.body.len());
            let list = response.expect(200);
            let count = list[name].as_array().unwrap().len();
            assert!(
                count > 50 && list["has_more"] == true,
                "{path}: {count}, {}",
                list["has_more"]
            );
            seen = if name == "cues" { count } else { seen };
        }
    });
    assert!(added <= 40, "{added} MB");
    let rest = user.read(&format!("/v1/cues?limit=100&offset={seen}"));
    assert_eq!((rest.list("cues").len() + seen, &rest["has_more"]), (100, &json!(false)));
}

#[test]
fn large_deliveries_to_receivers_that_never_answer_take_bounded_memory() {
    let server = Server::start(DEV_UNLIMITED);
    let receiver = Receiver::on_all_addresses();
    receiver.react(Reaction::Hang);
    // Stored and sent as 3 MB.
    let text = "é".repeat(500_000);
    let large: Vec<_> = (2..10)
        .map(|host| {
            let user = server.user();
            let url = format!("http://127.0.0.{host}:{}/", receiver.addr.port());
            let cue = with(webhook_cue("n", YEARLY, &url), json!({"payload": {"a": text}}));
            let cue = user.create(&cue);
            (user, cue)
        })
        .collect();
    let user = server.user();
    let quick = Receiver::start();
    let small = user.create(&webhook_cue("n", YEARLY, &quick.url()));
    let added = added_mb(&server, || {
        for (user, cue) in large.iter().cycle().take(32) {
            user.clone().fire(cue);
        }
        receiver.wait_hanging(1);
        user.fire(&small);
        quick.wait_for(1);
    });
    assert!(added <= 50, "{added} MB");
    receiver.release();
}

#[test]
fn an_apply_of_large_payloads_costs_a_few_times_its_size() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let cue =
        r#""name":"n","schedule":{"type":"recurring","cron":"0 0 1 1 *"},"transport":"worker""#;
    let body = |payload: &str, is_dry_run: bool| {
        let cues: Vec<String> =
            (0..20).map(|it| format!("\"c{it}\":{{{cue},\"payload\":{payload}}}")).collect();
        format!("{{\"dry_run\":{is_dry_run},\"cues\":{{{}}}}}", cues.join(","))
    };
    let send = |body: &str| user.call("POST", "/v1/apply", &[], body.as_bytes()).unwrap();
    send(&body("{\"z\":1}", false)).expect(200);
    let value = small_objects(980);
    let entries: Vec<String> = (0..99).map(|it| format!("\"{it}\":{value}")).collect();
    let large = body(&format!("{{{}}}", entries.join(",")), true);
    assert!(large.len() > 1_900_000 && large.len() < 2_097_152, "{}", large.len());
    let mut answer = Value::Null;
    let added = added_mb(&server, || answer = send(&large).expect(200));
    assert_eq!(answer.list("changes").len(), 20);
    assert!(added <= 17, "{added} MB");
}

#[test]
fn memory_goes_back_to_the_system_after_large_requests() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let before = resident_mb(server.pid());
    let payload = format!("{{\"a\":{},\"task\":\"t\"}}", small_objects(MIB - 40));
    let path = cue_path(&create_with(&user, &payload).expect(201));
    let user = user.unchecked();
    let large = small_objects(2_000_000);
    for _ in 0..2 {
        thread::scope(|scope| {
            for _ in 0..30 {
                let (user, path, large) = (user.clone(), &path, &large);
                scope.spawn(move || {
                    // All bodies and responses of the account together have a bound.
                    assert!([200, 503].contains(&user.patch(path, &json!({"name": "x"})).status));
                    let created = user.call("POST", "/v1/cues", &[], large.as_bytes()).unwrap();
                    assert!([422, 503].contains(&created.status), "{}", created.status);
                });
            }
        });
    }
    // With the default settings of glibc 35 MB stay; SQLite's caches are the least part of them.
    until_true("memory goes back", || resident_mb(server.pid()) <= before + 25);
}

#[test]
fn sixty_four_streams_take_less_than_32_kib_each() {
    const EVENTS: usize = 20;
    let server = Server::start(DEV_UNLIMITED);
    let users: Vec<Client> = (0..13).map(|_| server.user()).collect();
    let cues: Vec<_> = users.iter().map(|user| user.create(&worker_cue("n", YEARLY))).collect();
    let rename = |count: usize| {
        for (user, cue) in users.iter().zip(&cues) {
            (0..count).for_each(|_| drop(user.change(cue, &json!({"name": "x"}))));
        }
    };
    // The first stream begins the record of events, which all share.
    let mut streams = vec![EventReader::open(server.addr(), &users[0], "")];
    rename(EVENTS);
    let added = added_mb(&server, || {
        streams
            .extend((1..64).map(|number| EventReader::open(server.addr(), &users[number / 5], "")));
        rename(EVENTS);
        for stream in &mut streams[1..] {
            assert_eq!(stream.next().0, "hello");
            (0..EVENTS).for_each(|_| assert_eq!(stream.next().0, "cue.updated"));
        }
    });
    assert!(added <= 2, "{added} MB");
}
