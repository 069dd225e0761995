//! `cued mcp`: calls at the same time.

use crate::cli::client::mcp::{Agent, HANDSHAKE, assert_fits, refuse};
use crate::support::*;

fn call(id: u32, tool: &str) -> String {
    let params = json!({"name": tool, "arguments": {"cue_id": "cue_1"}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

#[test]
fn nothing_waits_for_a_slow_call() {
    let (server, mut agent) = Agent::of_double();
    server.react(Reaction::Hang);
    agent.send(&call(100, "getCue"));
    agent.send(&call(101, "getCue"));
    server.wait_hanging(2);
    assert_eq!(agent.request("ping", json!({}))["result"], json!({}));
    refuse(&server, 503, "server_busy");
    agent.fails("listCues", json!({}));
    let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 100, "reason": "late"}});
    assert_fits(HANDSHAKE, "CancelledNotification", &cancelled);
    agent.send(&cancelled.to_string());
    // After the notification.
    assert_eq!(agent.request("ping", json!({}))["result"], json!({}));
    server.release();
    assert_eq!(agent.receive()["id"], 101);
    agent.end();
}

#[test]
fn calls_of_a_batch_are_answered_together_and_many_calls_wait_for_each_other() {
    let (server, mut agent) = Agent::of_double();
    refuse(&server, 503, "server_busy");
    agent.send(&format!("[{}, {}]", call(1, "getCue"), call(2, "deleteCue")));
    let answers = agent.receive();
    let ids: Vec<_> =
        answers.as_array().unwrap().iter().map(|it| it["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [1, 2], "{answers}");
    server.react(Reaction::Hang);
    (0..40).for_each(|id| agent.send(&call(id, "getCue")));
    server.wait_hanging(32);
    server.release();
    let mut ids: Vec<_> = (0..40).map(|_| agent.receive()["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..40).collect::<Vec<_>>());
    agent.end();
}
