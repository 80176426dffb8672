//! A node that hangs behind the balancer, while the nodes are without their database.

use std::fs;
use std::io::ErrorKind;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use toolcrib_server::ServerLimits;
use toolcrib_testkit::postgres::{PostgresServer, StopMode};
use toolcrib_testkit::programs;

use super::LoadBalancer;
use crate::cluster::nodes::{admin_header, start_nodes};
use crate::cluster::{example_dir, served_by};
use crate::support::http::{RawHttpResponse, request, try_request};
use crate::support::test_server::{TEST_TIMEOUT, TestWorkspace, wait_until};

/// Requests that are sent at once, so that each node has some.
const REQUEST_COUNT: usize = 9;

#[test]
fn a_hanging_node_is_taken_out_and_nodes_without_a_database_are_not() {
    let name = "a_hanging_node_is_taken_out_and_nodes_without_a_database_are_not";
    if programs::haproxy().is_none() {
        return programs::skip(name, "HAProxy is not installed");
    }
    let Some(mut postgres) = PostgresServer::start() else {
        return programs::skip(name, "PostgreSQL is not installed");
    };
    let workspace = TestWorkspace::new(&json!({ "core": { "builtin": "all" } }), &json!({}));
    let nodes = start_nodes(&workspace, &postgres.create_database(), &["--require-token"]);
    let balancer = LoadBalancer::start(&workspace, &nodes);
    postgres.stop(StopMode::Fast);
    for node in &nodes {
        wait_until("the node notices that the database is gone", || {
            is_stale(&request(&node.url, "GET", "/api/tools", &admin_header(), ""))
        });
    }

    nodes[0].pause();
    let paused_at = Instant::now();
    let list_tools = || try_request(&balancer.url, "GET", "/api/tools", &admin_header(), "", TEST_TIMEOUT);
    let answers: Vec<_> = thread::scope(|scope| {
        let sent: Vec<_> = (0..REQUEST_COUNT).map(|_| scope.spawn(list_tools)).collect();
        sent.into_iter().map(|answer| answer.join().unwrap()).collect()
    });
    eprintln!("the balancer has taken the hanging node out after {:.1} s", paused_at.elapsed().as_secs_f64());
    let is_lost = |answer: &&std::io::Result<RawHttpResponse>| match answer {
        Ok(response) => matches!(response.status, 502 | 503) && served_by(response) == nodes[0].label,
        Err(error) => matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset),
    };
    let is_done = |answer: &&std::io::Result<RawHttpResponse>| {
        answer.as_ref().is_ok_and(|response| response.status == 200 && is_stale(response))
    };
    let (lost, done) = (answers.iter().filter(is_lost).count(), answers.iter().filter(is_done).count());
    assert!(lost > 0 && done > 0 && lost + done == REQUEST_COUNT, "{answers:#?}");
    // Meanwhile the other nodes were checked as often as the one that hangs.
    for _ in 0..REQUEST_COUNT {
        let response = list_tools().unwrap();
        assert!(
            response.status == 200 && is_stale(&response) && served_by(&response) != nodes[0].label,
            "{response:?}"
        );
    }
    nodes[0].resume();
    wait_until("the balancer uses the resumed node", || {
        let response = list_tools().unwrap();
        assert_eq!(response.status, 200, "{response:?}");
        served_by(&response) == nodes[0].label
    });

    postgres.start_again();
    for node in &nodes {
        wait_until("the balancer uses each node with the database", || {
            let response = list_tools().unwrap();
            served_by(&response) == node.label && !is_stale(&response)
        });
    }
}

/// A node that ends refuses health checks while it finishes its calls.
#[test]
fn the_balancer_leaves_a_node_the_time_to_finish_its_calls() {
    let config = fs::read_to_string(example_dir().join("haproxy.cfg")).unwrap();
    let words: Vec<&str> = config.split_whitespace().collect();
    let value_of = |name: &str| words[words.iter().position(|word| *word == name).unwrap() + 1];
    let interval = Duration::from_millis(value_of("inter").trim_end_matches("ms").parse().unwrap());
    let fall: u32 = value_of("fall").parse().unwrap();
    let hard_stop = Duration::from_secs(value_of("hard-stop-after").trim_end_matches('s').parse().unwrap());
    // The second is for the responses to unfinished requests.
    let drain_timeout = ServerLimits::default().drain_timeout + Duration::from_secs(1);
    assert!(interval * (fall - 1) >= drain_timeout && hard_stop > drain_timeout, "{interval:?} {fall} {hard_stop:?}");
}

/// Whether a response is from memory.
fn is_stale(response: &RawHttpResponse) -> bool {
    response.header("x-toolcrib-stale").is_some()
}
