//! Nodes as processes: `toolcrib serve` with one configuration, each with a label and a data directory of its own.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tempfile::TempDir;
use toolcrib_testkit::programs;

use super::processes::{cpu_time, resident_memory};
use crate::Result;
use crate::http::RawHttpClient;
use crate::proxy::ListeningProcess;

/// Token of the administrator on all nodes.
const ADMIN_TOKEN: &str = "administrator-token-of-the-benchmarks";
/// Header with that token, as a complete line.
pub(super) const ADMIN_HEADER: &str = "Authorization: Bearer administrator-token-of-the-benchmarks\r\n";

/// Configuration of the nodes and the directory with their data.
pub(super) struct NodeFiles {
    directory: TempDir,
    config: PathBuf,
}

/// Running node, killed on drop.
pub(super) struct NodeProcess {
    process: ListeningProcess,
    /// Host and port.
    pub(super) address: String,
}

impl NodeFiles {
    /// Writes a configuration with these sources. Their lists stay fresh for the whole run.
    pub(super) fn new(sources: &Map<String, Value>) -> Result<NodeFiles> {
        let directory = tempfile::tempdir()?;
        let config = directory.path().join("toolcrib.json");
        std::fs::write(&config, json!({"defaults": {"ttl": "24h"}, "sources": sources}).to_string())?;
        Ok(NodeFiles { directory, config })
    }

    /// Returns the data directory of a node.
    pub(super) fn data_dir(&self, label: &str) -> PathBuf {
        self.directory.path().join(label)
    }

    /// Starts a node on a PostgreSQL store, and waits until it listens.
    pub(super) fn start_node(&self, label: &str, store: &str) -> Result<NodeProcess> {
        self.start(label, &["--store", store])
    }

    /// Starts a node with SQLite in its data directory, and waits until it listens.
    pub(super) fn start_sqlite_node(&self, label: &str) -> Result<NodeProcess> {
        self.start(label, &[])
    }

    fn start(&self, label: &str, store: &[&str]) -> Result<NodeProcess> {
        let mut command = Command::new(programs::toolcrib_binary());
        command.args(["serve", "--quiet", "--listen", "127.0.0.1:0", "--node", label]).args(store);
        command.arg("--config").arg(&self.config).arg("--data").arg(self.data_dir(label));
        command.env("TOOLCRIB_ADMIN_TOKEN", ADMIN_TOKEN);
        let process = ListeningProcess::start(&mut command)?;
        let address = process.url.strip_prefix("http://").ok_or("the URL is not plain HTTP")?.to_owned();
        Ok(NodeProcess { process, address })
    }

    /// Starts nodes on a PostgreSQL store: `node-0` and further ones.
    pub(super) fn start_nodes(&self, count: usize, store: &str) -> Result<Vec<NodeProcess>> {
        (0..count).map(|number| self.start_node(&format!("node-{number}"), store)).collect()
    }
}

impl NodeProcess {
    /// Address for MCP clients.
    pub(super) fn mcp_url(&self) -> String {
        format!("{}/mcp", self.process.url)
    }

    pub(super) fn connect(&self) -> Result<RawHttpClient> {
        RawHttpClient::connect(&self.address)
    }

    /// Discovers all sources. Returns how many of them this node has contacted.
    pub(super) fn discover_all(&self) -> Result<u64> {
        let response = self.connect()?.post("/api/refresh", ADMIN_HEADER)?;
        let refreshed: Value = serde_json::from_slice(&response.body)?;
        let total = |name: &str| refreshed["totals"][name].as_u64().unwrap_or_default();
        if total("failed") > 0 {
            return Err(format!("{} sources could not be discovered", total("failed")).into());
        }
        Ok(total("contacted"))
    }

    /// Returns the number of the last record that the node has applied.
    pub(super) fn position(&self) -> Result<u64> {
        Ok(self.connect()?.get("/healthz", "")?.position)
    }

    /// Returns the CPU time that the node has used.
    pub(super) fn cpu_time(&self) -> Result<Duration> {
        cpu_time(self.process.pid())
    }

    /// Returns the resident memory of the node in bytes.
    pub(super) fn resident_memory(&self) -> Result<u64> {
        resident_memory(self.process.pid())
    }
}

/// Waits until all nodes have applied the same number of records, of which there is at least one.
pub(super) fn wait_for_equal_positions(nodes: &[NodeProcess]) -> Result<u64> {
    const MAX_ATTEMPTS: usize = 6_000;
    for _ in 0..MAX_ATTEMPTS {
        let positions = nodes.iter().map(NodeProcess::position).collect::<Result<Vec<_>>>()?;
        match positions.first() {
            Some(first) if *first > 0 && positions.iter().all(|position| position == first) => return Ok(*first),
            Some(_) | None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    Err("the nodes do not reach the same position".into())
}
