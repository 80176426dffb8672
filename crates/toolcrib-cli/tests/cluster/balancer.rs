//! Agents call tools through the balancer of `examples/cluster/` while its nodes come and go. Only calls that were in
//! flight on a killed node are lost, and no call is executed twice.

mod agents;
mod hanging_node;
mod upstream;

use std::fs::{self, File};
use std::io::ErrorKind;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use toolcrib_testkit::{postgres, programs};

use super::nodes::{ServingNode, admin_header, free_address, start_nodes};
use super::{example_dir, fault_seed, is_full_size, served_by};
use crate::support::http::{request, try_request};
use crate::support::test_server::{TEST_TIMEOUT, TestWorkspace, wait_until};
use agents::{AgentReport, CallingAgent, SentRequest};
use upstream::JobServer;

/// Calls of each agent between two events, so that each call meets one event at most.
const MIN_CALLS_BETWEEN_REMOVALS: usize = 2;

/// A node that was ended and started again.
#[derive(Debug)]
struct NodeRemoval {
    node: &'static str,
    is_kill: bool,
    began_at: Instant,
    ended_at: Instant,
}

#[test]
fn calls_through_the_balancer_are_lost_with_a_killed_node_only() {
    let name = "calls_through_the_balancer_are_lost_with_a_killed_node_only";
    if programs::haproxy().is_none() {
        return programs::skip(name, "HAProxy is not installed");
    }
    let Some(store) = postgres::shared_database() else { return programs::skip(name, "PostgreSQL is not installed") };
    let seed = fault_seed();
    eprintln!("TOOLCRIB_SOAK_SEED={seed}");
    let (agent_count, removal_count) = if is_full_size() { (100, 30) } else { (30, 6) };

    let jobs = JobServer::start();
    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    let document = workspace.path("jobs.json");
    fs::write(&document, JobServer::document().to_string()).unwrap();
    workspace.configure(&jobs.sources(document.to_str().unwrap()), &json!({}));
    // The balancer is a local process, like those that need no token.
    let mut nodes = start_nodes(&workspace, &store, &["--require-token"]);
    let refreshed = request(&nodes[0].url, "POST", "/api/refresh", &admin_header(), "").expect_json(200);
    assert_eq!(refreshed["totals"]["added"], json!(2), "{refreshed}");
    let headers = format!("{}Content-Type: application/json\r\n", admin_header());
    let role = json!({ "name": "agents", "role": "agent" }).to_string();
    let created = request(&nodes[0].url, "POST", "/api/tokens", &headers, &role).expect_json(201);
    let token = created["token"].as_str().unwrap();
    let balancer = LoadBalancer::start(&workspace, &nodes);

    let agents: Vec<CallingAgent> = (0..agent_count).map(CallingAgent::new).collect();
    let started_at = Instant::now();
    let (removals, reports) = thread::scope(|scope| {
        let _stop_guard = AgentStopGuard(&agents);
        let calling: Vec<_> = agents.iter().map(|agent| scope.spawn(|| agent.run(&balancer.url, token))).collect();
        let mut random = StdRng::seed_from_u64(seed);
        let mut removals = Vec::new();
        for number in 0..removal_count {
            wait_for_calls(&agents);
            let node = random.random_range(0..nodes.len());
            removals.push(remove_node(&mut nodes[node], number % 2 == 0, &agents));
            wait_until("the balancer uses the node", || balancer.next_node() == nodes[node].label);
        }
        wait_for_calls(&agents);
        agents.iter().for_each(|agent| agent.is_stopped.store(true, Ordering::SeqCst));
        let reports: Vec<AgentReport> = calling.into_iter().map(|agent| agent.join().unwrap()).collect();
        (removals, reports)
    });
    let elapsed = started_at.elapsed().as_secs_f64();
    let (call_count, lost, lost_after_execution) = check_calls(&jobs, &reports, &removals);
    let renewed_sessions: usize = reports.iter().map(|report| report.renewed_sessions).sum();
    let kill_count = removals.iter().filter(|removal| removal.is_kill).count();
    eprintln!(
        "{agent_count} agents made {call_count} calls in {elapsed:.1} s while nodes were killed {kill_count} times and ended \
         with SIGTERM {} times\n\
         {lost} calls were in flight on a killed node and lost, {lost_after_execution} of them after their execution; none \
         was executed twice\n\
         {renewed_sessions} sessions were renewed after 404",
        removals.len() - kill_count,
    );
    assert!(kill_count > 0 && removals.len() > kill_count && renewed_sessions > 0, "too few faults to test anything");
    // With few agents it may happen that no call is on a node when that is killed.
    assert!(lost > 0 || !is_full_size(), "no call was in flight on a killed node");
    drop(balancer);
    nodes.iter_mut().for_each(ServingNode::terminate);
    wait_until("no process is left", || workspace.process_count() == 0);
}

/// Asserts that only requests on killed nodes failed, and that each job was executed once, or not at all if its call
/// was lost. Returns the number of calls, of lost ones, and of lost ones whose job was executed.
fn check_calls(jobs: &JobServer, reports: &[AgentReport], removals: &[NodeRemoval]) -> (usize, usize, usize) {
    let mut executions = jobs.executions();
    let repeated: Vec<_> = executions.iter().filter(|(_, count)| **count > 1).collect();
    assert!(repeated.is_empty(), "executed twice: {repeated:?}");
    let failures: Vec<&SentRequest> = reports.iter().flat_map(|report| &report.failures).collect();
    for failure in &failures {
        assert!(was_in_flight(failure, removals), "lost: {failure:?}\n{removals:#?}");
    }
    let lost: Vec<&String> = failures.iter().filter_map(|failure| failure.job.as_ref()).collect();
    let lost_after_execution = lost.iter().filter(|job| executions.remove(**job).is_some()).count();
    let succeeded: Vec<&String> = reports.iter().flat_map(|report| &report.succeeded).collect();
    for job in &succeeded {
        assert_eq!(executions.remove(*job), Some(1), "{job}");
    }
    assert!(executions.is_empty(), "executed without a call: {executions:?}");
    (succeeded.len() + lost.len(), lost.len(), lost_after_execution)
}

/// Ends a node, lets the others serve for a while, and starts it again.
fn remove_node(node: &mut ServingNode<'_>, is_kill: bool, agents: &[CallingAgent]) -> NodeRemoval {
    let began_at = Instant::now();
    if is_kill {
        node.kill()
    } else {
        node.terminate()
    }
    let removal = NodeRemoval { node: node.label, is_kill, began_at, ended_at: Instant::now() };
    wait_for_calls(agents);
    assert!(node.start(), "{}", node.log());
    removal
}

/// Waits until each agent has made some more calls.
fn wait_for_calls(agents: &[CallingAgent]) {
    let calls = |agent: &CallingAgent| agent.calls.load(Ordering::SeqCst);
    let before: Vec<usize> = agents.iter().map(calls).collect();
    wait_until("all agents go on", || {
        agents.iter().zip(&before).all(|(agent, before)| calls(agent) >= before + MIN_CALLS_BETWEEN_REMOVALS)
    });
}

/// Whether a request was on a node when that was killed. The balancer answers 502 then, or cuts a response off.
fn was_in_flight(request: &SentRequest, removals: &[NodeRemoval]) -> bool {
    removals.iter().any(|removal| {
        let is_on_node = match &request.answer {
            Ok(response) => response.status == 502 && served_by(response) == removal.node,
            Err(error) => error.kind() == ErrorKind::UnexpectedEof,
        };
        removal.is_kill && is_on_node && request.sent_at <= removal.ended_at && request.ended_at >= removal.began_at
    })
}

/// RAII guard that stops the agents, thus also when the test fails.
struct AgentStopGuard<'a>(&'a [CallingAgent]);

impl Drop for AgentStopGuard<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|agent| agent.is_stopped.store(true, Ordering::SeqCst));
    }
}

/// HAProxy with the configuration of the example; killed on drop.
struct LoadBalancer {
    process: Child,
    url: String,
}

impl LoadBalancer {
    fn start(workspace: &TestWorkspace, nodes: &[ServingNode<'_>]) -> LoadBalancer {
        let address = free_address();
        let mut command = Command::new(programs::haproxy().unwrap());
        command.arg("-db").arg("-f").arg(example_dir().join("haproxy.cfg"));
        workspace.isolate(&mut command);
        command.env("BALANCER_LISTEN", &address);
        for node in nodes {
            let variable = format!("NODE_{}", node.label.to_uppercase());
            command.env(variable, node.url.strip_prefix("http://").unwrap());
        }
        let log = File::create(workspace.path("haproxy.log")).unwrap();
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let balancer = LoadBalancer { process, url: format!("http://{address}") };
        wait_until("the balancer answers", || balancer.next_node() != "");
        balancer
    }

    /// Label of the node that gets the next request; empty if there is none.
    fn next_node(&self) -> String {
        let response = try_request(&self.url, "GET", "/readyz", "", "", TEST_TIMEOUT);
        response.map(|response| served_by(&response).to_owned()).unwrap_or_default()
    }
}

impl Drop for LoadBalancer {
    fn drop(&mut self) {
        // Fails if the process has already ended.
        let _ = self.process.kill().and_then(|()| self.process.wait());
    }
}
