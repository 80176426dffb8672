//! The script of `examples/cluster/`: how it ends, and what it does when it cannot start.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use serde_json::json;
use toolcrib_testkit::observe::is_running;
use toolcrib_testkit::raw_http::encode_request;
use toolcrib_testkit::{postgres, programs};

use super::{Cluster, script_command};
use crate::support::http::RawHttpResponse;
use crate::support::test_server::{TEST_TIMEOUT, TestWorkspace, wait_until};

/// Response that a server sends when it has begun to read the body of a request with `Expect: 100-continue`.
const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

/// Regression: the balancer closed all connections before the nodes finished their calls.
#[test]
fn a_call_in_flight_is_answered_when_the_cluster_ends() {
    let name = "a_call_in_flight_is_answered_when_the_cluster_ends";
    if programs::haproxy().is_none() || !postgres::is_installed() {
        return programs::skip(name, "HAProxy or PostgreSQL is not installed");
    }
    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    let mut cluster = Cluster::start(&workspace);
    let address = cluster.url.strip_prefix("http://").unwrap().to_owned();
    let headers = format!("{}Content-Type: application/json\r\nExpect: 100-continue\r\n", cluster.admin_header);
    let body = json!({ "arguments": { "expression": "6 * 7" } }).to_string();
    let call = encode_request(&address, "POST", "/api/tools/calculate/call", &headers, body.as_bytes());
    let (head, body) = call.split_at(call.len() - body.len());

    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream.write_all(head).unwrap();
    let mut interim = [0; CONTINUE.len()];
    stream.read_exact(&mut interim).unwrap();
    assert_eq!(String::from_utf8_lossy(&interim).to_ascii_lowercase(), CONTINUE.to_ascii_lowercase());
    cluster.begin_end();
    wait_until("the balancer refuses connections", || TcpStream::connect(&address).is_err());
    stream.write_all(body).unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    let result = RawHttpResponse::parse(&response).expect_json(200);
    assert_eq!(result["structured"], json!({ "result": 42 }), "{result}");
    assert_eq!(cluster.wait_for_exit(), Some(143));
}

/// Regression: PostgreSQL, nodes and balancer went on without the script. Also the variables of another database do not
/// disturb it.
#[test]
fn the_cluster_ends_with_its_killed_script() {
    let name = "the_cluster_ends_with_its_killed_script";
    if programs::haproxy().is_none() || !postgres::is_installed() {
        return programs::skip(name, "HAProxy or PostgreSQL is not installed");
    }
    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    let mut cluster = Cluster::start_with(&workspace, &[("PGSSLMODE", "verify-full"), ("PGPORT", "1")]);
    let postgres_pid = cluster.postgres_pid();
    assert!(workspace.process_count() > 5, "script, balancer, nodes and PostgreSQL are running");
    cluster.script.kill().and_then(|()| cluster.script.wait()).unwrap();
    wait_until("all processes end", || workspace.process_count() == 0 && !is_running(&postgres_pid));
    fs::remove_dir_all(&cluster.state_dir).unwrap();
}

/// Regression: as root, the script opened a private directory to other users.
#[test]
fn a_failed_start_keeps_its_logs_and_the_mode_of_an_existing_directory() {
    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    if programs::haproxy().is_none() {
        let name = "a_failed_start_keeps_its_logs_and_the_mode_of_an_existing_directory";
        return programs::skip(name, "HAProxy is not installed");
    }
    let state_dir = workspace.path("state");
    fs::create_dir(&state_dir).unwrap();
    fs::set_permissions(&state_dir, PermissionsExt::from_mode(0o700)).unwrap();
    let failed = run_script(&workspace, &["--port", "0", "--store", "ftp://host", "--state", "state"]);
    assert!(failed.contains("node a does not start"), "{failed}");
    assert_eq!(fs::metadata(&state_dir).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(state_dir.join("node-a.log").exists());

    let failed = run_script(&workspace, &["--port", "0", "--store", "ftp://host"]);
    let logs = failed.lines().find_map(|line| line.strip_prefix("logs are kept in ")).unwrap_or_default();
    assert!(Path::new(logs).join("node-a.log").exists(), "{failed}");
    fs::remove_dir_all(logs).unwrap();
}

#[test]
fn a_port_in_use_is_reported_before_anything_is_started() {
    if programs::haproxy().is_none() {
        let name = "a_port_in_use_is_reported_before_anything_is_started";
        return programs::skip(name, "HAProxy is not installed");
    }
    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let failed = run_script(&workspace, &["--port", &port, "--state", "state", "--store", "memory:"]);
    assert_eq!(failed, format!("error: port {port} is in use; choose another one with `--port`\n"));
    assert!(!workspace.path("state").exists());
}

/// Runs the script, which fails, and returns what it prints on stderr.
#[track_caller]
fn run_script(workspace: &TestWorkspace, arguments: &[&str]) -> String {
    let Output { status, stderr, .. } = script_command(workspace, arguments).output().unwrap();
    let stderr = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{stderr}");
    stderr
}
