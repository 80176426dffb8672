//! Three nodes and their database under faults: clients change rules on any node that answers, while nodes are killed and
//! paused and the database is restarted. Afterwards all nodes have the same history and catalogue, with each acknowledged
//! change once.

mod faults;
mod followers;
mod writers;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use toolcrib_testkit::postgres::{PostgresServer, StopMode, run_sql};
use toolcrib_testkit::programs;

use super::nodes::{ServingNode, admin_header, read_at, start_nodes};
use super::{fault_seed, is_full_size};
use crate::support::http::{RawHttpResponse, request};
use crate::support::test_server::{TestWorkspace, wait_until};
use faults::{FaultPlan, cause_faults};
use followers::RecordFollower;
use writers::{RuleWriter, WriterReport, find_mark};

const WRITER_COUNT: usize = 6;
const PAGE_SIZE: u64 = 1_000;

/// Lists that are equal on all nodes, byte for byte.
const LISTS: [&str; 14] = [
    "/api/tools",
    "/api/tools?limit=5",
    "/api/tools?order=tokens",
    "/api/tools?format=mcp",
    "/api/tools?format=anthropic",
    "/api/tools?format=openai",
    "/api/tools?format=openai-strict",
    "/api/tools?format=gemini",
    "/api/search?q=tool",
    "/api/search?q=add+two+numbers",
    "/api/context",
    "/api/groups",
    "/api/policies",
    "/api/history",
];

#[test]
fn nodes_and_database_may_fail_at_any_time() {
    let Some(mut postgres) = PostgresServer::start() else {
        return programs::skip("nodes_and_database_may_fail_at_any_time", "PostgreSQL is not installed");
    };
    let seed = fault_seed();
    eprintln!("TOOLCRIB_SOAK_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let plan = fault_plan(&mut random);
    let sources = json!({
        "core": { "builtin": "all" },
        "things": { "command": programs::scripted_server(), "args": ["--tools", "40"], "ttl": "24h" },
    });
    let workspace = TestWorkspace::new(&sources, &json!({}));
    let store = postgres.create_database();
    let mut nodes = start_nodes(&workspace, &store, &[]);
    let urls: Vec<String> = nodes.iter().map(|node| node.url.clone()).collect();
    let discovered = request(&urls[0], "POST", "/api/refresh", &admin_header(), "").expect_json(200);
    assert_eq!(discovered["results"][1]["added"].as_array().unwrap().len(), 40, "{discovered}");

    let started_at = Instant::now();
    let progress = AtomicUsize::new(0);
    let followers: Vec<RecordFollower> = urls.iter().map(|_| RecordFollower::default()).collect();
    thread::scope(|scope| {
        let _stop_guard = FollowerStopGuard(&followers);
        let following: Vec<_> =
            followers.iter().zip(&urls).map(|(follower, url)| scope.spawn(|| follower.run(url))).collect();
        let writing: Vec<_> = (0..WRITER_COUNT)
            .map(|writer| {
                let numbers = plan.end * writer / WRITER_COUNT..plan.end * (writer + 1) / WRITER_COUNT;
                let writer = RuleWriter::new(writer, &urls);
                let progress = &progress;
                scope.spawn(move || writer.run(numbers, progress))
            })
            .collect();
        wait_until("the followers have got records", || {
            followers.iter().all(|follower| follower.last_seq.load(Ordering::SeqCst) > 0)
        });
        let faults = cause_faults(&plan, &mut nodes, &mut postgres, &progress, &mut random);
        let reports: Vec<WriterReport> = writing.into_iter().map(|writer| writer.join().unwrap()).collect();
        let elapsed = started_at.elapsed();

        let end: u64 = run_sql(&store, "SELECT seq FROM head").parse().unwrap();
        let journal = read_equal_histories(&urls, end);
        assert_each_write_is_recorded_once(&journal, &reports);
        assert_equal_lists(&urls, end);
        for follower in &followers {
            wait_until("the follower gets the last record", || follower.last_seq.load(Ordering::SeqCst) == end);
            follower.is_stopped.store(true, Ordering::SeqCst);
        }
        end_nodes(&mut nodes, &workspace);
        let mut streams = 0;
        for (followed, url) in following.into_iter().zip(&urls) {
            let followed = followed.join().unwrap();
            assert!(followed.records == journal, "{url} has sent other records than are in the journal");
            streams += followed.streams;
        }
        let sum = |count: fn(&WriterReport) -> usize| reports.iter().map(count).sum::<usize>();
        eprintln!(
            "{} changes by {WRITER_COUNT} writers in {:.1} s: {} failed requests were repeated, {} of them had been \
             carried out; slowest change {:.1} s\n\
             faults: {} nodes killed, {} paused, database restarted {} times\n\
             {end} records, equal on all nodes; sent live without gap or duplicate over {streams} streams",
            plan.end,
            elapsed.as_secs_f64(),
            sum(|report| report.failed_requests),
            sum(|report| report.found_done),
            reports.iter().map(|report| report.slowest).max().unwrap().as_secs_f64(),
            faults.kills,
            faults.pauses,
            faults.restarts,
        );
        assert_eq!(faults.restarts, plan.restarts.len());
        assert!(faults.kills > 0 && faults.pauses > 0 && streams > urls.len(), "too few faults to test anything");
        assert!(faults.kills + faults.pauses >= plan.min_node_faults, "{faults:?}");
    });
}

/// RAII guard that stops the followers, thus also when the test fails: their threads would otherwise never end.
struct FollowerStopGuard<'a>(&'a [RecordFollower]);

impl Drop for FollowerStopGuard<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|follower| follower.is_stopped.store(true, Ordering::SeqCst));
    }
}

/// Faults of the short test, or of the full one.
fn fault_plan(random: &mut StdRng) -> FaultPlan {
    if is_full_size() {
        let restarts = vec![(3_000, StopMode::Fast), (7_000, StopMode::Kill)];
        return FaultPlan { end: 10_000, max_interval: 100, min_node_faults: 40, restarts };
    }
    let mode = if random.random() { StopMode::Fast } else { StopMode::Kill };
    FaultPlan { end: 400, max_interval: 50, min_node_faults: 2, restarts: vec![(200, mode)] }
}

/// Reads the history of all nodes page by page. Asserts that they are equal and have each sequence number once, and
/// returns the records.
fn read_equal_histories(urls: &[String], end: u64) -> Vec<Value> {
    let mut records: Vec<Value> = Vec::new();
    for after in (0..end).step_by(PAGE_SIZE as usize) {
        let path = format!("/api/history?after={after}&limit={PAGE_SIZE}");
        let mut page = read_equal(urls, &path, end).expect_json(200);
        records.append(page["records"].as_array_mut().unwrap());
    }
    let numbers: Vec<u64> = records.iter().map(|record| record["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=end).collect::<Vec<_>>());
    records
}

fn assert_each_write_is_recorded_once(journal: &[Value], reports: &[WriterReport]) {
    let mut recorded: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for record in journal {
        if let Some(mark) = find_mark(record) {
            recorded.entry(mark).or_default().push(record["seq"].as_u64().unwrap());
        }
    }
    for write in reports.iter().flat_map(|report| &report.acknowledged) {
        let numbers = recorded.remove(&write.mark).unwrap_or_default();
        assert_eq!(numbers.len(), 1, "{write:?}: {numbers:?}");
        assert!(numbers[0] <= write.position, "{write:?} has the record {numbers:?}");
    }
    assert!(recorded.is_empty(), "records of no change: {recorded:?}");
}

fn assert_equal_lists(urls: &[String], position: u64) {
    for path in LISTS {
        assert_eq!(read_equal(urls, path, position).status, 200, "{path}");
    }
    // Each node has its own connections, and the nodes report their positions one after the other.
    let sources = urls.iter().map(|url| {
        let mut list = read_at(url, "/api/sources", position).expect_json(200);
        assert!(list.as_object_mut().unwrap().remove("nodes").is_some(), "{list}");
        for source in list["sources"].as_array_mut().unwrap() {
            source.as_object_mut().unwrap().remove("connection");
        }
        list.to_string()
    });
    let sources: Vec<String> = sources.collect();
    assert!(sources.iter().all(|list| *list == sources[0]), "{sources:#?}");
}

/// Reads a list from all nodes at a position; asserts that bytes and tags are equal.
#[track_caller]
fn read_equal(urls: &[String], path: &str, position: u64) -> RawHttpResponse {
    let mut responses: Vec<RawHttpResponse> = urls.iter().map(|url| read_at(url, path, position)).collect();
    let first = responses.pop().unwrap();
    for other in responses {
        for header in ["x-toolcrib-position", "etag", "link"] {
            assert_eq!(other.header(header), first.header(header), "{header} of {path}");
        }
        assert_eq!(other.body, first.body, "{path}");
    }
    first
}

/// Starts a server below each node, and ends the nodes with SIGTERM. No process is left.
fn end_nodes(nodes: &mut [ServingNode<'_>], workspace: &TestWorkspace) {
    let headers = format!("{}Content-Type: application/json\r\n", admin_header());
    for node in &*nodes {
        let body = json!({ "arguments": { "a": 2, "b": 3 } }).to_string();
        let result = request(&node.url, "POST", "/api/tools/things__add/call", &headers, &body).expect_json(200);
        assert_eq!(result["content"][0]["text"], json!("5"), "{result}");
    }
    assert!(workspace.process_count() >= 2 * nodes.len(), "nodes and their servers are running");
    nodes.iter_mut().for_each(ServingNode::terminate);
    wait_until("no process is left", || workspace.process_count() == 0);
}
