//! `cued mcp`. Every message, of the agent too, has the form of the published schema of its version.

use std::io::Write as _;
use std::process::ChildStdin;

use jsonschema::Validator;

use crate::cli::client::Desk;
use crate::support::*;

pub const HANDSHAKE: &str = "2025-11-25";
const STATELESS: &str = "2026-07-28";

fn schema(version: &str, name: &str) -> Validator {
    let text = match version {
        STATELESS => include_str!("../../../data/mcp/2026-07-28.json"),
        _ => include_str!("../../../data/mcp/2025-11-25.json"),
    };
    let mut schema: Value = serde_json::from_str(text).unwrap();
    schema["$ref"] = format!("#/$defs/{name}").into();
    jsonschema::validator_for(&schema).unwrap()
}

#[track_caller]
pub fn assert_fits(version: &str, name: &str, message: &Value) {
    let faults: Vec<String> =
        schema(version, name).iter_errors(message).map(|it| it.to_string()).collect();
    assert!(faults.is_empty(), "{message} is no {name} of {version}: {faults:?}");
}

/// The names of the schemas of a request and its result.
fn types(method: &str) -> [&'static str; 2] {
    match method {
        "initialize" => ["InitializeRequest", "InitializeResult"],
        "server/discover" => ["DiscoverRequest", "DiscoverResult"],
        "ping" => ["PingRequest", "EmptyResult"],
        "tools/list" => ["ListToolsRequest", "ListToolsResult"],
        "tools/call" => ["CallToolRequest", "CallToolResult"],
        _ => panic!("{method}"),
    }
}

/// An MCP client with its server, `cued mcp`.
pub struct Agent {
    command: LiveCommand,
    input: Option<ChildStdin>,
    version: &'static str,
    next_id: u32,
    /// All that the server wrote.
    output: String,
}

impl Agent {
    /// Begins with the handshake.
    pub fn start(home: &ClientHome, flags: &[&str]) -> Self {
        let mut agent = Self::silent(home, flags);
        let answer = agent.request("initialize", introduction(HANDSHAKE));
        assert_eq!(answer["result"]["protocolVersion"], HANDSHAKE);
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_fits(HANDSHAKE, "InitializedNotification", &initialized);
        agent.send(&initialized.to_string());
        agent
    }

    /// An agent whose server is a double.
    pub fn of_double() -> (Receiver, Self) {
        let server = Receiver::start();
        let home = ClientHome::new().env("CUED_URL", server.url()).env("CUED_API_KEY", "cue_sk_1");
        let agent = Self::start(&home, &[]);
        (server, agent)
    }

    fn silent(home: &ClientHome, flags: &[&str]) -> Self {
        let mut command = home.command(&[&["mcp"], flags].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        Self {
            command: LiveCommand::new(child),
            input,
            version: HANDSHAKE,
            next_id: 1,
            output: String::new(),
        }
    }

    fn stateless(home: &ClientHome) -> Self {
        Self { version: STATELESS, ..Self::silent(home, &[]) }
    }

    pub fn send(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    #[track_caller]
    pub fn receive(&mut self) -> Value {
        let line = self.command.line();
        self.output.push_str(&line);
        serde_json::from_str(&line).unwrap()
    }

    #[track_caller]
    pub fn request(&mut self, method: &str, mut params: Value) -> Value {
        if self.version == STATELESS {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": STATELESS,
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let request =
            json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params});
        let [request_type, result_type] = types(method);
        assert_fits(self.version, request_type, &request);
        self.send(&request.to_string());
        let answer = self.receive();
        assert_eq!(answer["id"], self.next_id, "{answer}");
        self.next_id += 1;
        if answer.get("error").is_some() {
            assert_fits(self.version, "JSONRPCErrorResponse", &answer);
        } else {
            assert_fits(self.version, "JSONRPCResultResponse", &answer);
            assert_fits(self.version, result_type, &answer["result"]);
        }
        answer
    }

    fn tools(&mut self) -> Vec<Value> {
        self.request("tools/list", json!({}))["result"].list("tools").clone()
    }

    #[track_caller]
    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))["result"].clone()
    }

    /// The content of a call that succeeds. The text has it too.
    #[track_caller]
    fn ok(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        assert_eq!(result.get("isError"), None, "{result}");
        let content = result["structuredContent"].clone();
        assert_eq!(
            serde_json::from_str::<Value>(result["content"][0].text("text")).unwrap(),
            content
        );
        content
    }

    /// The text of a call that fails.
    #[track_caller]
    pub fn fails(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{result}");
        result["content"][0].text("text").to_owned()
    }

    /// Closes standard input, after which the command must succeed without another line.
    #[track_caller]
    pub fn end(mut self) -> String {
        self.input = None;
        assert_eq!(self.command.end(), (Some(0), vec![]), "{}", self.command.stderr);
        self.command.stderr.clone()
    }
}

fn introduction(version: &str) -> Value {
    json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}})
}

#[test]
fn an_agent_schedules_its_own_work() {
    let desk = Desk::new();
    let mut agent = Agent::start(&desk.home, &[]);
    let cue = agent.ok(
        "createCue",
        json!({"name": "report", "slug": "home/report", "transport": "worker", "payload": {"task": "report"},
               "schedule": {"type": "once", "at": "2030-01-01T09:00:00Z"}}),
    );
    let upcoming = agent.ok("listUpcomingOfAllCues", json!({"hours": 24}));
    assert_eq!(upcoming["cues"][0]["cue_id"], cue["id"], "{upcoming}");
    let none = agent.call("claimNext", json!({"worker_id": "agent"}));
    let sentence = json!([{"type": "text", "text": "No run that fits is waiting."}]);
    assert_eq!((none.get("isError"), &none["content"]), (None, &sentence));
    desk.user.advance("PT9H");
    let claim = agent.ok("claimNext", json!({"worker_id": "agent", "task": "report"}));
    assert_eq!(claim["payload"], json!({"task": "report"}));
    let run = claim["execution_id"].clone();
    desk.user.advance("PT14M");
    let extended = agent.ok("extendLease", json!({"execution_id": run, "X-Worker-Id": "agent"}));
    assert_eq!(extended["lease_extended_until"], "2030-01-01T09:29:00Z");
    let other = agent.fails("extendLease", json!({"execution_id": run, "X-Worker-Id": "other"}));
    assert!(other.contains("not_execution_owner: Another worker has the run"), "{other}");
    agent.ok(
        "reportOutcome",
        json!({"execution_id": run, "success": false, "error": "exit code 3"}),
    );
    let again = agent.fails("reportOutcome", json!({"execution_id": run, "success": true}));
    assert!(again.contains("outcome_already_reported"), "{again}");
    let ended = agent.fails("extendLease", json!({"execution_id": run}));
    assert!(ended.ends_with("Call extendLease more often than the lease lasts."), "{ended}");
    let read = agent.ok("getExecution", json!({"execution_id": run}));
    assert_eq!(read["status"], "failed");
    assert_eq!(read["outcome"]["error"], "exit code 3");
    let read = agent.ok("getCue", json!({"cue_id": "slug:home/report"}));
    assert_eq!(read["id"], cue["id"]);
    agent.end();
}

#[test]
fn an_agent_finds_out_why_a_run_failed_and_mends_its_cue() {
    let (desk, receiver) = (Desk::new(), Receiver::start());
    receiver.react(Reaction::Status(503));
    let mut agent = Agent::stateless(&desk.home);
    let described = agent.ok("previewSchedule", json!({"text": "every weekday at 9"}));
    let schedule = json!({"type": "recurring", "cron": described["schedule"]["cron"]});
    let cue = agent.ok(
        "createCue",
        json!({"name": "backup", "schedule": schedule, "callback": {"url": receiver.url()},
               "retry": {"max_attempts": 1}}),
    );
    let id = &cue["id"];
    assert_eq!(agent.ok("listCues", json!({"q": "back", "failing": false}))["total"], 1);
    assert_eq!(agent.ok("listCues", json!({"tag": ["a", "b"]}))["total"], 0);
    let run = agent.ok("fireCue", json!({"cue_id": id, "payload_override": {"volume": 1}}));
    desk.user.settle();
    let failed = agent.ok("listExecutions", json!({"cue_id": id, "status": "failed", "limit": 5}));
    assert_eq!(failed["executions"][0]["id"], run["execution_id"]);
    let attempts = agent.ok("listAttempts", json!({"execution_id": run["execution_id"]}));
    assert_eq!(attempts["attempts"][0]["cause"], "status_5xx");
    receiver.react(Reaction::Status(200));
    agent.ok("updateCue", json!({"cue_id": id, "status": "paused", "description": "mended"}));
    let first = agent.ok("fireCue", json!({"cue_id": id, "idempotency_key": "once"}));
    let second = agent.ok("fireCue", json!({"cue_id": id, "idempotency_key": "once"}));
    assert_eq!(first["execution_id"], second["execution_id"]);
    desk.user.settle();
    let cue = agent.ok("getCue", json!({"cue_id": id, "execution_limit": 1}));
    assert_eq!(cue["status"], "paused");
    assert_eq!(cue["executions"][0]["status"], "success");
    let deleted = agent.call("deleteCue", json!({"cue_id": id}));
    assert_eq!(deleted["content"], json!([{"type": "text", "text": "Done."}]));
    let gone = agent.fails("getCue", json!({"cue_id": id}));
    assert!(
        gone.starts_with("getCue: ")
            && gone
                .contains("\n\ncue_not_found: The account has no cue with this id. It was deleted")
            && gone.ends_with("check with listCues."),
        "{gone}"
    );
    agent.end();
}

#[test]
fn an_agent_sends_a_waiting_run_at_once_or_cancels_it() {
    let (desk, receiver) = (Desk::new(), Receiver::start());
    receiver.react(Reaction::Status(503));
    let mut agent = Agent::start(&desk.home, &[]);
    let schedule = json!({"type": "recurring", "cron": "@yearly"});
    let cue = json!({"name": "a", "schedule": schedule, "callback": {"url": receiver.url()}});
    let cue = agent.ok("createCue", cue);
    let mut fire = || {
        let run = agent.ok("fireCue", json!({"cue_id": cue["id"]}))["execution_id"].clone();
        desk.user.settle();
        json!({"execution_id": run})
    };
    let [sent, cancelled] = [fire(), fire()];
    receiver.react(Reaction::Status(200));
    agent.ok("retryExecution", sent.clone());
    desk.user.settle();
    assert_eq!(agent.ok("getExecution", sent)["status"], "success");
    assert_eq!(agent.ok("cancelExecution", cancelled)["error_message"], "cancelled");
    agent.end();
}

#[test]
fn the_tools_are_operations_of_the_api_with_their_effects() {
    let (_desk, home) = (Desk::new(), ClientHome::without_server());
    let mut agent = Agent::start(&home, &[]);
    let tools = agent.tools();
    let mut hints: BTreeMap<Vec<&str>, Vec<&str>> = BTreeMap::new();
    for tool in &tools {
        let annotations = tool["annotations"].as_object().unwrap();
        assert_eq!(annotations.len(), 5, "{tool}");
        let set =
            annotations.iter().filter(|(_, value)| **value == true).map(|(name, _)| name.as_str());
        hints.entry(set.collect()).or_default().push(tool.text("name"));
    }
    let expected = BTreeMap::from([
        (
            vec!["idempotentHint", "readOnlyHint"],
            vec![
                "listCues",
                "getCue",
                "previewSchedule",
                "listUpcomingOfAllCues",
                "listExecutions",
                "getExecution",
                "listAttempts",
            ],
        ),
        (vec!["destructiveHint", "idempotentHint", "openWorldHint"], vec!["updateCue"]),
        (vec!["destructiveHint", "idempotentHint"], vec!["deleteCue", "cancelExecution"]),
        (vec!["openWorldHint"], vec!["createCue", "fireCue", "retryExecution"]),
        (vec!["idempotentHint"], vec!["extendLease", "reportOutcome"]),
        (vec![], vec!["claimNext"]),
    ]);
    assert_eq!(hints, expected);
    let document: Value =
        serde_json::from_str(include_str!("../../../../src/http/openapi.json")).unwrap();
    for tool in &tools {
        let operations =
            document["paths"].as_object().unwrap().values().flat_map(|it| it.as_object().unwrap());
        let operation =
            operations.map(|it| it.1).find(|it| it["operationId"] == tool["name"]).unwrap();
        assert_eq!(tool["title"], operation["summary"]);
        let description = tool.text("description");
        assert!(description.ends_with(operation.text("description")), "{tool}");
        let schema = &tool["inputSchema"];
        jsonschema::validator_for(schema).unwrap();
        for text in ["\"$ref\"", "Idempotency-Key\""] {
            assert!(!tool.to_string().contains(text), "{tool}");
        }
    }
    let schema = &tools.iter().find(|tool| tool["name"] == "updateCue").unwrap()["inputSchema"];
    assert_eq!(schema["required"], json!(["cue_id"]));
    assert_eq!(schema["properties"]["overlap"]["anyOf"][0]["type"], "string", "{schema}");
    agent.end();
}

#[test]
fn a_read_only_server_has_no_other_tools() {
    let desk = Desk::new();
    let mut agent = Agent::start(&desk.home, &["--read-only"]);
    let names: BTreeSet<_> = agent.tools().iter().map(|it| it.text("name").to_owned()).collect();
    assert!(names.contains("previewSchedule") && !names.contains("claimNext"), "{names:?}");
    let answer =
        agent.request("tools/call", json!({"name": "deleteCue", "arguments": {"cue_id": "cue_1"}}));
    assert_eq!(answer["error"]["code"], -32_602);
    assert_eq!(answer["error"]["message"], "There is no tool \"deleteCue\"; tools/list has all");
    agent.end();
}

/// A model has no shell and sends no requests.
#[track_caller]
fn assert_is_for_a_model(text: &str) {
    for no in [
        "`cued ", "/v1/", "`GET ", "`POST ", "`PATCH ", "`PUT ", "`DELETE ", "--url", ": `4",
        ": `5",
    ] {
        assert!(!text.contains(no), "{no} is in {text}");
    }
}

/// The server that an agent calls, in place of `cued`, which responds with this error.
pub fn refuse(server: &Receiver, status: u16, code: &str) {
    let body = json!({"error": {"code": code, "message": "No", "status": status}}).to_string();
    server.react(Reaction::Full(status, vec![("retry-after", "42".to_owned())], body));
}

#[test]
fn a_call_neither_waits_nor_is_sent_again() {
    let (server, mut agent) = Agent::of_double();
    refuse(&server, 429, "rate_limit_exceeded");
    let calls = [
        ("listCues", json!({})),
        ("createCue", json!({"name": "a"})),
        ("deleteCue", json!({"cue_id": "cue_1"})),
    ];
    for (tool, arguments) in &calls {
        let text = agent.fails(tool, arguments.clone());
        assert_eq!(text, format!("{tool}: too many requests; ask again in 42 s"));
    }
    refuse(&server, 503, "server_busy");
    let text = agent.fails("listCues", json!({}));
    assert!(text.contains("server_busy: Too much work at once"), "{text}");
    server.react(Reaction::HangUp);
    agent.fails("listCues", json!({}));
    assert_eq!(server.count(), calls.len() + 2);
    agent.end();
}

#[test]
fn the_advice_of_every_error_names_tools_in_place_of_commands() {
    let (server, mut agent) = Agent::of_double();
    let codes = include_str!("../../../../src/docs/reference/errors.md");
    let codes = codes.lines().filter_map(|line| line.strip_prefix("## "));
    for code in codes.filter(|code| *code != "claim_failed") {
        refuse(&server, 400, code);
        let text = agent.fails("listCues", json!({}));
        let is_whole =
            text.starts_with(&format!("listCues: No\n\n{code}: ")) && text.ends_with('.');
        assert!(is_whole || text == format!("listCues: No ({code})"), "{text}");
        assert_is_for_a_model(&text);
    }
    for (code, tool) in [
        ("cue_not_found", "check with listCues."),
        ("execution_in_flight", "Wait with getExecution, then"),
        ("invalid_schedule", "Try it with previewSchedule,"),
        ("execution_not_claiming", "Call extendLease more often"),
        ("slug_taken", "change that cue: updateCue does."),
    ] {
        refuse(&server, 400, code);
        let text = agent.fails("listCues", json!({}));
        assert!(text.contains(tool), "{text}");
    }
    agent.end();
}

#[test]
fn without_credentials_only_calls_fail_until_the_user_signs_in() {
    let desk = Desk::new();
    let home = ClientHome::new().env("CUED_URL", desk.server.url());
    let mut agent = Agent::start(&home, &[]);
    assert_eq!(agent.tools().len(), 16);
    let text = agent.fails("listCues", json!({}));
    assert_eq!(text, "listCues: not signed in; ask the user, who has set this MCP server up");
    let profile = json!({"url": desk.server.url(), "api_key": desk.user.key()});
    home.store(&json!({"current": "default", "profiles": {"default": profile}}));
    assert_eq!(agent.ok("listCues", json!({}))["total"], 0);
    agent.end();
    let home = home.env("CUED_API_KEY", "cue_sk_wrong");
    let mut agent = Agent::start(&home, &[]);
    let text = agent.fails("listCues", json!({}));
    let expected =
        "does not accept the API key in CUED_API_KEY: unset it, or replace it; ask the user";
    assert!(text.contains(expected), "{text}");
    agent.end();
}

#[test]
fn keys_and_secrets_stay_out_of_the_conversation() {
    let desk = Desk::new();
    let mut agent = Agent::start(&desk.home, &["--verbose"]);
    let cue = json!({"name": "a", "schedule": {"type": "recurring", "cron": "@yearly"},
                     "callback": {"url": "http://127.0.0.1:1/", "headers": {"Authorization": "Bearer s3cret"}}});
    let id = desk.user.create(&cue)["id"].clone();
    let headers = json!({"Authorization": "(hidden)"});
    assert_eq!(agent.ok("getCue", json!({"cue_id": id}))["callback"]["headers"], headers);
    assert_eq!(agent.ok("listCues", json!({}))["cues"][0]["callback"]["headers"], headers);
    agent.ok("updateCue", json!({"cue_id": id, "callback": {"timeout_seconds": 5}}));
    agent.ok("fireCue", json!({"cue_id": id}));
    desk.user.settle();
    let runs = agent.ok("listExecutions", json!({}));
    agent.ok("listAttempts", json!({"execution_id": runs["executions"][0]["id"]}));
    let text = agent.fails("updateCue", json!({"cue_id": id, "callback": {"headers": headers}}));
    assert!(
        text.starts_with(
            "updateCue: callback.headers: (hidden) is no value; leave headers out to keep them"
        ),
        "{text}"
    );
    let stored = desk.user.read(&format!("/v1/cues/{}", id.as_str().unwrap()));
    assert_eq!(stored["callback"]["headers"]["Authorization"], "Bearer s3cret");
    let secret = desk.user.read("/v1/auth/webhook-secret")["webhook_secret"].clone();
    let all = agent.output.clone() + &agent.end();
    for hidden in ["s3cret", desk.user.key(), secret.as_str().unwrap()] {
        assert!(!all.contains(hidden), "{hidden} is in {all}");
    }
}

#[test]
fn a_payload_that_looks_like_a_callback_is_shown_as_it_is() {
    let desk = Desk::new();
    let mut agent = Agent::start(&desk.home, &[]);
    let like = json!({"callback": {"headers": {"a": "b"}}, "cues": [{"callback": {"headers": {"a": "b"}}}]});
    let schedule = json!({"type": "recurring", "cron": "@yearly"});
    let cue = json!({"name": "a", "transport": "worker", "schedule": schedule, "payload": like});
    let id = agent.ok("createCue", cue)["id"].clone();
    assert_eq!(agent.ok("getCue", json!({"cue_id": id}))["payload"], like);
    let run = agent.ok("fireCue", json!({"cue_id": id}))["execution_id"].clone();
    desk.user.settle();
    assert_eq!(agent.ok("claimNext", json!({}))["payload"], like);
    agent.ok("reportOutcome", json!({"execution_id": run, "success": true, "metadata": like}));
    assert_eq!(agent.ok("getExecution", json!({"execution_id": run}))["outcome"]["metadata"], like);
    agent.end();
}

#[test]
fn a_long_result_is_cut() {
    let desk = Desk::new();
    let mut agent = Agent::start(&desk.home, &[]);
    let schedule = json!({"type": "recurring", "cron": "@yearly"});
    let payload = json!({"text": "é".repeat(100_000)});
    let cue = json!({"name": "a", "transport": "worker", "schedule": schedule, "payload": payload});
    let result = agent.call("createCue", cue);
    let text = |index: usize| result["content"][index].text("text");
    assert!(
        text(0).starts_with("The result has 200") && text(0).contains("It begins as follows"),
        "{}",
        text(0)
    );
    assert!((99_990..=100_000).contains(&text(1).len()) && text(1).contains("\"id\":\"cue_"));
    assert_eq!(result.get("isError"), None);
    agent.end();
}

#[test]
fn the_version_without_a_handshake_is_spoken() {
    let home = ClientHome::without_server();
    let mut agent = Agent::stateless(&home);
    let result = agent.request("server/discover", json!({}))["result"].clone();
    assert_eq!(result["supportedVersions"], json!([STATELESS]));
    assert_eq!(agent.request("tools/list", json!({}))["result"]["resultType"], "complete");
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2099-01-01"});
    agent.send(
        &json!({"jsonrpc": "2.0", "id": "x", "method": "tools/list", "params": {"_meta": meta}})
            .to_string(),
    );
    let answer = agent.receive();
    assert_fits(STATELESS, "UnsupportedProtocolVersionError", &answer);
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("x"), &json!(-32_022)));
    agent.end();
}
