//! Nodes of one store as real processes, each with its own data directory. A test kills, pauses and ends them, and starts
//! them again at the same address.

use std::fs::OpenOptions;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::http::{RawHttpResponse, request, try_request};
use crate::support::test_server::{TestWorkspace, read_or_empty, send_signal, wait_until};

/// Labels of the nodes, as in `examples/cluster/haproxy.cfg`.
pub(super) const NODE_LABELS: [&str; 3] = ["a", "b", "c"];
/// The administrator's token on all nodes.
pub(super) const ADMIN_TOKEN: &str = "an-administrator-token-of-the-tests";
/// Maximum time of a request that finds out whether a node is ready.
const READINESS_TIMEOUT: Duration = Duration::from_secs(2);

/// A node, which may be running or not; killed on drop.
pub(super) struct ServingNode<'a> {
    workspace: &'a TestWorkspace,
    pub(super) label: &'static str,
    /// `http://127.0.0.1:PORT`, the same after each start.
    pub(super) url: String,
    store: String,
    /// Further arguments of `toolcrib serve`.
    arguments: &'static [&'static str],
    process: Option<Child>,
}

/// Starts a node for each of [`NODE_LABELS`].
pub(super) fn start_nodes<'a>(
    workspace: &'a TestWorkspace,
    store: &str,
    arguments: &'static [&'static str],
) -> Vec<ServingNode<'a>> {
    let start = |label| {
        let (url, store) = (format!("http://{}", free_address()), store.to_owned());
        let mut node = ServingNode { workspace, label, url, store, arguments, process: None };
        assert!(node.start(), "node {label} does not start: {}", node.log());
        node
    };
    NODE_LABELS.map(start).into()
}

impl ServingNode<'_> {
    /// Starts the process and waits until it is ready. Returns false if it has ended instead, as it does without a store.
    pub(super) fn start(&mut self) -> bool {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolcrib"));
        command.args(["serve", "--listen", self.url.strip_prefix("http://").unwrap()]);
        command.args(["--node", self.label, "--store", &self.store]).args(self.arguments);
        command.arg("--config").arg(self.workspace.path("toolcrib.json"));
        command.arg("--data").arg(self.workspace.path(&format!("node-{}", self.label)));
        self.workspace.isolate(&mut command);
        command.env("TOOLCRIB_ADMIN_TOKEN", ADMIN_TOKEN);
        let log = OpenOptions::new().create(true).append(true).open(self.log_path()).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut process = command.spawn().unwrap();
        let mut is_ready = false;
        wait_until("the node to be ready or to end", || {
            is_ready = try_request(&self.url, "GET", "/readyz", "", "", READINESS_TIMEOUT).is_ok();
            is_ready || process.try_wait().unwrap().is_some()
        });
        self.process = is_ready.then_some(process);
        is_ready
    }

    /// Ends the process with SIGKILL, also a paused one.
    pub(super) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Suspends the process: its connections stay open and get no answer.
    pub(super) fn pause(&self) {
        send_signal("STOP", self.pid());
    }

    pub(super) fn resume(&self) {
        send_signal("CONT", self.pid());
    }

    /// Ends the process with SIGTERM, and asserts that it succeeds.
    #[track_caller]
    pub(super) fn terminate(&mut self) {
        send_signal("TERM", self.pid());
        let mut process = self.process.take().unwrap();
        let mut status = None;
        wait_until("the node to end", || {
            status = process.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.is_some_and(|status| status.success()), "node {}: {status:?}\n{}", self.label, self.log());
    }

    /// Output of all its processes.
    pub(super) fn log(&self) -> String {
        read_or_empty(&self.log_path())
    }

    fn log_path(&self) -> PathBuf {
        self.workspace.path(&format!("node-{}.log", self.label))
    }

    fn pid(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }
}

impl Drop for ServingNode<'_> {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns an address that is free now. Below the ports that the system gives to clients: one of those could take the
/// port while its node is not running.
pub(super) fn free_address() -> String {
    let is_free = |address: &String| TcpListener::bind(address).is_ok();
    let mut candidates = (0..100).map(|_| format!("127.0.0.1:{}", rand::random_range(20_000..32_000)));
    candidates.find(is_free).unwrap()
}

/// Reads from a node at a position, which it may still have to reach.
#[track_caller]
pub(super) fn read_at(url: &str, path: &str, position: u64) -> RawHttpResponse {
    let separator = if path.contains('?') { '&' } else { '?' };
    let path = format!("{path}{separator}min_position={position}");
    let mut response = request(url, "GET", &path, &admin_header(), "");
    wait_until("the node reaches the position", || {
        if response.status == 503 {
            response = request(url, "GET", &path, &admin_header(), "");
        }
        response.status != 503
    });
    assert_eq!(response.header("x-toolcrib-position"), Some(&*position.to_string()), "{path}: {response:?}");
    response
}

/// Header line of the administrator.
pub(super) fn admin_header() -> String {
    format!("Authorization: Bearer {ADMIN_TOKEN}\r\n")
}
