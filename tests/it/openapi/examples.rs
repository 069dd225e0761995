//! The examples of the API reference, run as they stand: all of a language in one process, each with objects of its own
//! in place of those that it names.

use crate::openapi::{OPERATIONS, Operation};
use crate::support::*;

/// Writes the reference, and says which of its pages are not those of the description.
const GENERATOR: &str = ".ci/openapi/reference.py";

/// The page with what the examples share.
const INDEX: &str = include_str!("../../../src/docs/reference/api.md");

/// The other pages.
const PAGES_OF_OPERATIONS: &str = "src/docs/reference/api";

/// What the examples do not reach on a server of a test, and the answer instead.
const REFUSED: [(&str, u16); 4] = [
    // The restored copy has been promoted long ago.
    ("adminPromote", 409),
    ("createPortal", 400),
    // Without Stripe.
    ("receiveStripeEvent", 404),
    // The examples have a key, and no session.
    ("signOut", 404),
];

/// The path of the receiver that refuses its deliveries, so that they are tried again.
const FAILS: &str = "/fails";

/// It ends with the server.
const ENDLESS: &str = "streamEvents";

/// It deletes what the others need.
const LAST: &str = "resetTestServer";

/// The operations of browsers.
const PAGES: &str = "pages";

#[derive(Clone, Copy, PartialEq, Debug)]
enum Language {
    Curl,
    Cued,
    Python,
    JavaScript,
}

const LANGUAGES: [Language; 4] =
    [Language::Curl, Language::Cued, Language::Python, Language::JavaScript];

struct Example {
    operation: &'static Operation,
    language: Language,
    code: String,
}

/// The functions that the examples in Python and in JavaScript call, from the page that all others refer to.
fn functions() -> [String; 2] {
    ["python", "js"].map(|language| {
        let (_, rest) = INDEX.split_once(&format!("\n```{language}\n")).expect(language);
        rest.split_once("\n```").unwrap().0.to_owned()
    })
}

/// The examples on the pages of the reference, that of the server last: it moves the clock.
fn examples() -> Vec<Example> {
    let pages = fs::read_dir(PAGES_OF_OPERATIONS).unwrap();
    let mut pages: Vec<_> = pages.map(|page| page.unwrap().path()).collect();
    pages.sort();
    let mut found = Vec::new();
    for page in pages {
        let text = fs::read_to_string(page).unwrap();
        for section in text.split("\n## ").skip(1) {
            let (_, id) = section.lines().next().unwrap().split_once(" {#").expect(section);
            let id = id.strip_suffix('}').unwrap();
            let operation = OPERATIONS.iter().find(|operation| operation.id == id).expect(id);
            for block in section.split("\n```").skip(1).step_by(2) {
                let (name, code) = block.split_once('\n').unwrap();
                let language = match name {
                    "python" => Language::Python,
                    "js" => Language::JavaScript,
                    _ if code.starts_with("curl ") => Language::Curl,
                    _ => Language::Cued,
                };
                found.push(Example { operation, language, code: code.to_owned() });
            }
        }
    }
    found
}

#[test]
fn the_reference_is_that_of_the_description() {
    let Ok(check) = Command::new("python3").args(["-B", GENERATOR, "--check"]).output() else {
        return skip("there is no python3");
    };
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
}

#[test]
fn each_operation_has_an_example_in_each_language() {
    let examples = examples();
    for operation in OPERATIONS.iter() {
        let found = examples.iter().filter(|example| example.operation.id == operation.id);
        let found: Vec<Language> = found.map(|example| example.language).collect();
        let expected =
            if operation.json["tags"][0] == PAGES { &LANGUAGES[..1] } else { &LANGUAGES[..] };
        assert_eq!(found, expected, "{}", operation.id);
    }
}

/// A server with what the examples need. Its first user is an operator.
struct World {
    server: Server,
    user: Client,
    receiver: Receiver,
    home: TempDir,
}

impl World {
    fn new() -> Self {
        let home = TempDir::new().unwrap();
        let backups = home.path().join("backups");
        fs::create_dir(&backups).unwrap();
        let clock = ["--test-clock", "2030-01-01T00:00:00Z"];
        let folder = ["--backup-dir", backups.to_str().unwrap()];
        // As with `--dev`, where an operator cannot change who may register.
        let callbacks = ["--limits", "off", "--allow-callbacks-to", "loopback"];
        let server = Server::start(&[&callbacks[..], &clock, &folder].concat());
        let user = server.user();
        user.patch("/v1/admin/settings", &json!({"registration": "open"})).expect(200);
        let react = |delivery: &Delivery| match delivery.path.as_str() {
            FAILS => Reaction::Status(500),
            // As ntfy does.
            "/" => Reaction::Full(200, Vec::new(), r#"{"id":"x","event":"message"}"#.to_owned()),
            _ => Reaction::Status(200),
        };
        let receiver = Receiver::with(Reaction::choose(react));
        user.patch("/v1/auth/me", &json!({"alert_webhook_url": receiver.url()})).expect(200);
        Self { server, user, receiver, home }
    }

    /// The example with a key and objects of its own.
    fn prepared(&self, example: &Example) -> (String, String) {
        let id = example.operation.id;
        let other = || self.server.user();
        // What ends keys and sessions is done to another account.
        let is_own = !matches!(id, "regenerateKey" | "endOtherSessions");
        let key = if is_own { self.user.key().to_owned() } else { other().key().to_owned() };
        let mut code = example.code.clone();
        let mut swap = |known: &str, own: &dyn Fn() -> String| {
            if code.contains(known) {
                code = code.replace(known, &own());
            }
        };
        swap("https://example.com", &|| self.receiver.url_of(""));
        swap("https://ntfy.sh", &|| self.receiver.url_of(""));
        swap("ann@example.com", &|| format!("{}@example.com", id.to_lowercase()));
        swap("cue_4f8k2m9x1q7z", &|| self.cue("/"));
        swap("0198c0de-7a10-7c3e-9d52-1f0a6b3c4d5e", &|| self.execution(id));
        swap("key_8d1f", &|| self.made("/v1/auth/keys", &json!({"name": "spare"}), "id"));
        swap("chn_8f2c0a4d1b7e", &|| {
            let channel = json!({"type": "ntfy", "url": self.receiver.url_of("/backups")});
            self.made("/v1/channels", &channel, "id")
        });
        swap("cue_sk_3f9a1c7e5b2d8046a1c3e5f7092b4d6e", &|| self.user.key().to_owned());
        swap("1f0c6a52-8f0e-4a53-9d5e-2f6f6d1d9b7a", &|| self.session());
        swap("f3a9c1e5-8b2d-4607", &|| self.device_code(id));
        swap("5b0c9a4e-3d2f-4e1a-8b7c-6d5e4f3a2b1c", &|| other().me().text("id").to_owned());
        swap("0f6b1c9e-2a47-4a0e-9a55-7c1d2e3f4a5b", &|| self.plan_request(&other()));
        swap("cued-20300101T090000Z.db", &|| self.backup());
        if id == "deleteWorker" || id == "claimNext" {
            self.user
                .post("/v1/worker/heartbeat", &json!({"worker_id": "pi-1", "handlers": ["report"]}))
                .expect(200);
        }
        if id == "claimNext" {
            self.fired(&json!({"task": "report"}));
        }
        (key, code)
    }

    /// A field of a new object.
    fn made(&self, path: &str, body: &Value, field: &str) -> String {
        let made = self.user.post(path, body).expect(201);
        made[field].as_str().unwrap().to_owned()
    }

    fn cue(&self, path: &str) -> String {
        let cue = webhook_cue("c", "0 3 * * *", &self.receiver.url_of(path));
        self.made("/v1/cues", &cue, "id")
    }

    /// A run for workers.
    fn fired(&self, payload: &Value) -> String {
        let parts = json!({"payload": payload, "verification": {"mode": "manual"}});
        self.user.fire(&self.user.create(&with(worker_cue("w", "0 3 * * *"), parts)))
    }

    /// A run in the state that the operation needs.
    fn execution(&self, operation: &str) -> String {
        if matches!(operation, "retryExecution" | "listAttempts" | "showRequest") {
            let run = self.user.fire(&json!({"id": self.cue(FAILS)}));
            self.user.settle();
            return run;
        }
        let run = self.fired(&json!({}));
        if matches!(operation, "claimExecution" | "cancelExecution") {
            return run;
        }
        let path = format!("/v1/executions/{run}");
        self.user.post(&format!("{path}/claim"), &json!({"worker_id": "pi-1"})).expect(200);
        if matches!(operation, "extendLease" | "reportOutcome") {
            return run;
        }
        self.user.report(&run, &json!({"success": true}));
        if operation == "reopenVerification" {
            self.user.post(&format!("{path}/verify"), &json!({"valid": true})).expect(200);
        }
        run
    }

    fn session(&self) -> String {
        let key = json!({"api_key": self.user.key()});
        let begun = self.user.post_with("/v1/auth/session", &[], &key).expect(201);
        begun["session"].text("id").to_owned()
    }

    /// The code of a device that waits, except for the one that begins.
    fn device_code(&self, operation: &str) -> String {
        let code = format!("device-of-{operation}");
        if operation != "startDeviceLogin" {
            self.user.post("/v1/auth/device-code", &json!({"device_code": code})).expect(201);
        }
        code
    }

    fn plan_request(&self, user: &Client) -> String {
        let plan = json!({"plan": "pro", "interval": "monthly"});
        let link = user.post("/v1/billing/checkout", &plan).expect(200);
        let (_, token) = link.text("checkout_url").split_once("token=").unwrap();
        let form = [("Content-Type", "application/x-www-form-urlencoded")];
        let body = format!("token={token}");
        let confirmed =
            self.user.call("POST", "/billing/checkout", &form, body.as_bytes()).unwrap();
        assert_eq!(confirmed.status, 200);
        let requests = self.user.read("/v1/admin/billing");
        let email = &user.me()["email"];
        let list = requests.list("requests");
        let own = list.iter().find(|request| request["email"] == *email).expect("its request");
        own.text("id").to_owned()
    }

    fn backup(&self) -> String {
        // The names are those of seconds.
        self.user.advance("PT1S");
        self.made("/v1/admin/backups", &json!(null), "name")
    }

    /// A command in a new folder, with the environment that the examples read.
    fn command(&self, program: &str) -> Command {
        // `cued` is that of this build, and `curl` prints the status after the body.
        fs::write(
            self.home.path().join(".curlrc"),
            "silent\nwrite-out = \"\\nSTATUS %{http_code}\\n\"\n",
        )
        .unwrap();
        let bin = Path::new(env!("CARGO_BIN_EXE_cued")).parent().unwrap();
        let home = ClientHome::signed_in(&self.server, &self.user);
        let mut command = home.other(program);
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("HOME", self.home.path()).env("PYTHONUNBUFFERED", "1");
        command.current_dir(self.home.path()).stdin(Stdio::null());
        command
    }
}

impl Language {
    fn program(self) -> &'static str {
        match self {
            Self::Curl | Self::Cued => "bash",
            Self::Python => "python3",
            Self::JavaScript => "node",
        }
    }

    /// Whether the machine has what the examples need.
    fn is_there(self) -> bool {
        let tool = if self == Self::Curl { "curl" } else { self.program() };
        let is_there = Command::new(tool).arg("--version").output().is_ok();
        if !is_there {
            skip(&format!("there is no {tool}"));
        }
        is_there
    }

    fn file(self) -> &'static str {
        match self {
            Self::Curl | Self::Cued => "examples.sh",
            Self::Python => "examples.py",
            Self::JavaScript => "examples.mjs",
        }
    }

    /// What stands before all examples, so that `STATUS` follows the output of each.
    fn begin(self) -> String {
        let [python, javascript] = functions();
        match self {
            Self::Curl | Self::Cued => String::new(),
            Self::Python => {
                "import os, traceback, urllib.request, urllib.error\n\
                 sent = urllib.request.urlopen\n\
                 def noted(request, data=None):\n    \
                     try:\n        response = sent(request, data)\n    \
                     except urllib.error.HTTPError as error:\n        \
                         print('\\nSTATUS', error.code)\n        raise\n    \
                     print('\\nSTATUS', response.code)\n    return response\n\
                 urllib.request.urlopen = noted\n"
                    .to_owned()
                    + &python
                    + "\n"
            }
            Self::JavaScript => {
                "const sent = fetch;\n\
                 globalThis.fetch = async (...request) => {\n  const response = await sent(...request);\n  \
                 console.log(`\\nSTATUS ${response.status}`);\n  return response;\n};\n"
                    .to_owned()
                    + &javascript
                    + "\n"
            }
        }
    }

    /// An example in a scope of its own, after a line with its name.
    fn case(self, name: &str, key: &str, code: &str) -> String {
        match self {
            Self::Curl => format!("echo; echo '== {name}'\nexport CUED_API_KEY={key}\n{code}\n"),
            Self::Cued => {
                format!(
                    "echo; echo '== {name}'\nexport CUED_API_KEY={key}\n{code}\nprintf '\\nSTATUS %s\\n' $?\n"
                )
            }
            Self::Python => format!(
                "print('\\n== {name}')\nos.environ['CUED_API_KEY'] = '{key}'\n\
                 try:\n    exec({code:?}, dict(globals()))\nexcept Exception:\n    traceback.print_exc()\n    print('FAILED')\n"
            ),
            Self::JavaScript => format!(
                "console.log('\\n== {name}');\nprocess.env.CUED_API_KEY = '{key}';\n\
                 try {{ await (async () => {{\n{code}\n}})(); }}\n\
                 catch (error) {{ console.error(error); console.log('FAILED'); }}\n"
            ),
        }
    }
}

/// The status that the output of an example ends with; of `cued` its exit code.
fn status(output: &str) -> Option<u16> {
    let (_, status) = output.rsplit_once("STATUS ")?;
    status.split_whitespace().next()?.parse().ok()
}

#[track_caller]
fn run_examples(language: Language) {
    if !language.is_there() {
        return;
    }
    let world = World::new();
    let mut all: Vec<Example> = examples()
        .into_iter()
        .filter(|example| example.language == language && example.operation.id != ENDLESS)
        .collect();
    all.sort_by_key(|example| example.operation.id == LAST);
    let mut script = language.begin();
    for example in &all {
        let (key, code) = world.prepared(example);
        script += &language.case(example.operation.id, &key, &code);
    }
    fs::write(world.home.path().join(language.file()), script).unwrap();
    let output = world.command(language.program()).arg(language.file()).output().unwrap();
    let (text, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let mut wrong = Vec::new();
    for example in &all {
        let it = example.operation;
        let (_, rest) = text.split_once(&format!("\n== {}\n", it.id)).unwrap_or_default();
        let own = rest.split("\n== ").next().unwrap();
        let status = status(own);
        let refused = REFUSED.iter().find(|(id, _)| *id == it.id).map(|(_, status)| *status);
        let is_right = status.is_some_and(|status| match (language, refused) {
            (Language::Cued, refused) => (status == 0) == refused.is_none(),
            (_, Some(refused)) => status == refused && it.response(status).is_some(),
            _ if it.json["tags"][0] == PAGES => it.response(status).is_some(),
            _ => status / 100 == 2 && it.response(status).is_some(),
        });
        // The functions make an error of a refusal.
        if !is_right || (own.contains("FAILED") && refused.is_none()) {
            wrong.push(format!("{}: {own}", it.id));
        }
    }
    assert!(wrong.is_empty(), "{}\n{errors}", wrong.join("\n"));
}

#[test]
fn the_examples_with_curl_work() {
    run_examples(Language::Curl);
}

#[test]
fn the_examples_with_cued_work() {
    run_examples(Language::Cued);
}

#[test]
fn the_examples_in_python_work() {
    run_examples(Language::Python);
}

#[test]
fn the_examples_in_javascript_work() {
    run_examples(Language::JavaScript);
}

#[test]
fn the_examples_of_the_stream_print_events() {
    let world = World::new();
    for example in examples().into_iter().filter(|example| example.operation.id == ENDLESS) {
        if !example.language.is_there() {
            continue;
        }
        let code = example.code.replace("cued tail", "cued tail --verbose");
        let file = world.home.path().join(example.language.file());
        fs::write(&file, code).unwrap();
        let mut command = world.command(example.language.program());
        let child =
            command.arg(&file).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut live = LiveCommand::new(child);
        if example.language == Language::Cued {
            live.wait_for_note("/v1/events");
            world.fired(&json!({}));
        }
        let line = live.line();
        assert!(!line.is_empty(), "{:?}", example.language);
        live.signal("-TERM");
    }
}
