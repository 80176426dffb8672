//! Nodes that are paused or killed while they discover a source: another node takes over when the lease ends, and the
//! paused one does no harm when it wakes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::Mutex;
use serde_json::{Value, json};
use toolcrib_testkit::http_server::{HttpReply, LoopbackServer, ReceivedRequest};
use toolcrib_testkit::postgres::{self, run_sql};
use toolcrib_testkit::programs;

use super::nodes::{admin_header, read_at, start_nodes};
use crate::support::http::{RawHttpResponse, request, try_request};
use crate::support::test_server::{TEST_TIMEOUT, TestWorkspace, wait_until};

#[test]
fn discoveries_of_paused_and_killed_nodes_are_taken_over() {
    let name = "discoveries_of_paused_and_killed_nodes_are_taken_over";
    let Some(store) = postgres::shared_database() else { return programs::skip(name, "PostgreSQL is not installed") };
    let lists = Arc::<HeldLists>::default();
    let replying = lists.clone();
    let server = LoopbackServer::start(move |request| replying.reply_to(request));
    let source = |path: &str| json!({ "url": format!("{}{path}", server.url), "ttl": "24h" });
    let sources = json!({ "paused": source("/paused"), "killed": source("/killed") });
    let workspace = TestWorkspace::new(&sources, &json!({}));
    let mut nodes = start_nodes(&workspace, &store, &[]);
    let urls: Vec<String> = nodes.iter().map(|node| node.url.clone()).collect();
    let refreshed = request(&urls[2], "POST", "/api/refresh", &admin_header(), "");
    assert_eq!(list_tools(&urls[2], position(&refreshed)), ["killed__initial", "paused__initial"]);

    lists.are_changed.store(true, Ordering::SeqCst);
    thread::scope(|scope| {
        let refresh = |url, source| {
            let path = format!("/api/sources/{source}/refresh?force=true");
            scope.spawn(move || try_request(url, "POST", &path, &admin_header(), "", TEST_TIMEOUT))
        };
        let paused_refresh = refresh(&urls[0], "paused");
        let killed_refresh = refresh(&urls[1], "killed");
        wait_until("both nodes are waiting for a list", || lists.counts.lock().len() == 2);
        nodes[0].pause();
        nodes[1].kill();

        // Returns when both leases have ended.
        let refreshed = request(&urls[2], "POST", "/api/refresh?force=true", &admin_header(), "");
        let end = position(&refreshed);
        assert_eq!(refreshed.expect_json(200)["totals"]["succeeded"], json!(2), "{refreshed:?}");
        assert_eq!(list_tools(&urls[2], end), ["killed__newer", "paused__newer"]);

        lists.is_released.store(true, Ordering::SeqCst);
        nodes[0].resume();
        let woken = paused_refresh.join().unwrap().unwrap();
        assert_eq!(woken.status, 200, "{woken:?}");
        assert_eq!(list_tools(&urls[0], end), ["killed__newer", "paused__newer"]);
        assert_eq!(run_sql(&store, "SELECT seq FROM head"), end.to_string(), "the woken node has written: {woken:?}");
        assert!(killed_refresh.join().unwrap().is_err());
    });
    let history = request(&urls[2], "GET", "/api/history?limit=1000", &admin_header(), "").expect_json(200);
    let records_with = |tool: &str| {
        let records = history["records"].as_array().unwrap();
        records.iter().filter(|record| record.to_string().contains(&format!("\"{tool}\""))).count()
    };
    assert_eq!((records_with("newer"), records_with("older")), (2, 0), "{history}");
}

/// Tool lists of an MCP server at each path, of one tool each: `initial`, then `older`, which the server holds back
/// until the test releases it, then `newer`.
#[derive(Debug, Default)]
struct HeldLists {
    /// Whether `initial` is over.
    are_changed: AtomicBool,
    is_released: AtomicBool,
    /// Requests for a list since then, by path.
    counts: Mutex<BTreeMap<String, usize>>,
}

impl HeldLists {
    fn reply_to(&self, request: &ReceivedRequest) -> HttpReply {
        if request.rpc_method() != "tools/list" {
            return request.legacy_handshake("lists").unwrap_or_else(|| HttpReply::empty(404));
        }
        let tool = json!({ "name": self.next_tool(&request.target), "inputSchema": { "type": "object" } });
        request.rpc_result(&json!({ "tools": [tool] }))
    }

    fn next_tool(&self, path: &str) -> &'static str {
        if !self.are_changed.load(Ordering::SeqCst) {
            return "initial";
        }
        let count = {
            let mut counts = self.counts.lock();
            let count = counts.entry(path.to_owned()).or_default();
            *count += 1;
            *count
        };
        if count > 1 {
            return "newer";
        }
        wait_until("the older list is released", || self.is_released.load(Ordering::SeqCst));
        "older"
    }
}

/// Position of the node that answered.
fn position(response: &RawHttpResponse) -> u64 {
    response.header("x-toolcrib-position").unwrap().parse().unwrap()
}

/// Names of the tools on a node at a position.
#[track_caller]
fn list_tools(url: &str, position: u64) -> Vec<String> {
    let list = read_at(url, "/api/tools", position).expect_json(200);
    let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
    list["tools"].as_array().unwrap().iter().map(name).collect()
}
