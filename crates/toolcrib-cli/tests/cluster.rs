//! Several nodes as real processes on one PostgreSQL: under faults, behind the balancer of `examples/cluster/`, and
//! started by the script there; and the shape of its files for containers.
#![cfg(target_os = "linux")]

mod balancer;
mod chaos;
mod manifests;
mod nodes;
mod script;
mod takeover;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::{fs, thread};

use serde_json::{Value, json};
use toolcrib_testkit::observe::is_running;
use toolcrib_testkit::{postgres, programs};

use crate::support::http::{RawHttpResponse, request};
use crate::support::test_server::{TEST_TIMEOUT, TestWorkspace, send_signal, wait_until};

#[test]
fn the_example_serves_on_three_nodes_and_survives_the_kill_of_one() {
    let name = "the_example_serves_on_three_nodes_and_survives_the_kill_of_one";
    if programs::haproxy().is_none() {
        return programs::skip(name, "HAProxy is not installed");
    }
    if !postgres::is_installed() {
        return programs::skip(name, "PostgreSQL is not installed");
    }
    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    let mut cluster = Cluster::start(&workspace);

    // Requests without a session are spread.
    let answers: Vec<RawHttpResponse> = (0..6).map(|_| cluster.send("GET", "/api/whoami", "", "")).collect();
    assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
    let nodes: BTreeSet<&str> = answers.iter().map(served_by).collect();
    assert_eq!(nodes, BTreeSet::from(["a", "b", "c"]));
    assert_eq!(request(&cluster.url, "GET", "/api/whoami", "", "").status, 401);

    let session = cluster.begin_session();
    let listed: Vec<RawHttpResponse> = (0..6).map(|_| cluster.list_tools(&session)).collect();
    for answer in &listed {
        let tools = answer.expect_json(200)["result"]["tools"].clone();
        assert_eq!(tools[0]["name"], json!("calculate"));
    }
    let nodes: BTreeSet<&str> = listed.iter().map(served_by).collect();
    assert_eq!(nodes.len(), 1, "{nodes:?}");

    let node = served_by(&listed[0]).to_owned();
    send_signal("KILL", cluster.node_pid(&node));
    // The signal does not wait: until all threads of the process have ended, its socket accepts connections. Then the
    // script reaps it.
    let process_dir = Path::new("/proc").join(cluster.node_pid(&node));
    wait_until("the node has ended", || !process_dir.exists());
    let refused = cluster.list_tools(&session);
    assert_eq!(refused.status, 404, "{refused:?}");
    assert_ne!(served_by(&refused), node);
    let next_session = cluster.begin_session();
    assert_eq!(cluster.list_tools(&next_session).status, 200);
    for _ in 0..6 {
        assert_eq!(cluster.send("GET", "/api/whoami", "", "").status, 200);
    }

    let postgres_pid = cluster.postgres_pid();
    assert!(is_running(&postgres_pid));
    assert_eq!(cluster.end(), Some(143));
    assert!(!is_running(&postgres_pid));
    assert_eq!(workspace.process_count(), 0);
    assert!(!cluster.state_dir.exists());
}

/// Running `run.sh`; ended on drop.
struct Cluster {
    script: Child,
    /// Address of the balancer.
    url: String,
    admin_header: String,
    /// Name and process id.
    nodes: Vec<(String, String)>,
    state_dir: PathBuf,
}

impl Cluster {
    /// Starts the script and waits until the balancer answers.
    #[track_caller]
    fn start(workspace: &TestWorkspace) -> Cluster {
        Cluster::start_with(workspace, &[])
    }

    /// Like [`Cluster::start`], with environment variables.
    #[track_caller]
    fn start_with(workspace: &TestWorkspace, variables: &[(&str, &str)]) -> Cluster {
        // By default in the temporary directory of the system: the one of the test is closed to the user `postgres`.
        let mut command = script_command(workspace, &["--port", "0"]);
        command.envs(variables.iter().copied());
        let log = workspace.path("run.log");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(fs::File::create(&log).unwrap());
        let mut script = command.spawn().unwrap();
        let stdout = BufReader::new(script.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            // Reads all of the output, so that the script never waits for a reader.
            stdout.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
        });
        let mut cluster = Cluster {
            script,
            url: String::new(),
            admin_header: String::new(),
            nodes: Vec::new(),
            state_dir: PathBuf::new(),
        };
        while let Ok(line) = lines.recv_timeout(TEST_TIMEOUT) {
            let words: Vec<&str> = line.split([' ', ';', '(', ')']).collect();
            match words[..] {
                ["node", name, "on", _, "", "process", pid, ..] => {
                    cluster.nodes.push((name.to_owned(), pid.to_owned()))
                }
                ["balancer", "on", url, ..] => cluster.url = url.to_owned(),
                ["admin", "token", "in", path] => {
                    let token = fs::read_to_string(path).unwrap();
                    cluster.admin_header = format!("Authorization: Bearer {}\r\n", token.trim());
                }
                ["logs", "in", path, ..] => {
                    cluster.state_dir = path.into();
                    return cluster;
                }
                _ => {}
            }
        }
        panic!("it did not start: {}", fs::read_to_string(&log).unwrap());
    }

    fn node_pid(&self, name: &str) -> &str {
        self.nodes.iter().find(|node| node.0 == name).map(|node| &*node.1).unwrap()
    }

    /// Sends a request of the administrator to the balancer.
    fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> RawHttpResponse {
        request(&self.url, method, path, &format!("{}{headers}", self.admin_header), body)
    }

    /// Begins a session of MCP 2025-11-25 and returns its id.
    #[track_caller]
    fn begin_session(&self) -> String {
        let client = json!({ "name": "test", "version": "1" });
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        let response = self.send_mcp("initialize", &params, "");
        assert_eq!(response.status, 200, "{response:?}");
        response.header("mcp-session-id").unwrap().to_owned()
    }

    fn list_tools(&self, session: &str) -> RawHttpResponse {
        let headers = format!("MCP-Protocol-Version: 2025-11-25\r\nMcp-Session-Id: {session}\r\n");
        self.send_mcp("tools/list", &json!({}), &headers)
    }

    fn send_mcp(&self, method: &str, params: &Value, headers: &str) -> RawHttpResponse {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let accepted = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";
        self.send("POST", "/mcp", &format!("{accepted}{headers}"), &body)
    }

    fn postgres_pid(&self) -> String {
        let status = fs::read_to_string(self.state_dir.join("postgres/data/postmaster.pid")).unwrap();
        status.lines().next().unwrap().to_owned()
    }

    /// Sends SIGTERM and returns the exit code.
    fn end(&mut self) -> Option<i32> {
        self.begin_end();
        self.wait_for_exit()
    }

    fn begin_end(&self) {
        send_signal("TERM", self.script.id());
    }

    fn wait_for_exit(&mut self) -> Option<i32> {
        let mut status = None;
        wait_until("the cluster to end", || {
            status = self.script.try_wait().unwrap();
            status.is_some()
        });
        status.and_then(|status| status.code())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.script.try_wait().is_ok_and(|status| status.is_none()) {
            self.end();
        }
    }
}

/// The command that runs `run.sh` in the directory of a test.
fn script_command(workspace: &TestWorkspace, arguments: &[&str]) -> Command {
    let mut command = Command::new("bash");
    command.arg(example_dir().join("run.sh")).args(arguments);
    workspace.isolate(&mut command);
    command.env("TOOLCRIB", env!("CARGO_BIN_EXE_toolcrib"));
    command
}

/// Whether tests run at their full size, which `cargo xtask soak` selects.
fn is_full_size() -> bool {
    std::env::var("TOOLCRIB_SOAK").is_ok_and(|size| size == "full")
}

/// Number that decides which faults a test causes: the one that the caller has set, or a random one.
fn fault_seed() -> u64 {
    std::env::var("TOOLCRIB_SOAK_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap())
}

/// Label of the node that answered, which the balancer adds to the response.
fn served_by(response: &RawHttpResponse) -> &str {
    response.header("x-served-by").unwrap_or_default()
}

fn example_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/cluster").canonicalize().unwrap()
}
