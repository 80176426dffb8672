//! Searches through the balancer of `examples/cluster`, to three nodes on one machine.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use toolcrib_testkit::postgres::PostgresServer;
use toolcrib_testkit::programs;

use super::cluster::{ADMIN_HEADER, NodeFiles, NodeProcess};
use super::parts::PartsTable;
use super::processes::{DatabaseProcesses, cpu_time};
use super::upstream::UpstreamServers;
use super::{SOURCES, TOOLS_PER_SOURCE};
use crate::Result;
use crate::http::{CLIENTS, REQUESTS_PER_CLIENT, RawHttpClient, search_paths, time_concurrent_clients};
use crate::measure::median;
use crate::report::{BenchReport, RatioRow, Threshold, format_duration};

/// Number of measurements.
const ROUNDS: usize = 5;

/// Running HAProxy, killed on drop.
struct BalancerProcess {
    child: Child,
    address: String,
}

/// Compares searches through the balancer with those of one node.
pub(super) fn run(report: &mut BenchReport, parts: &mut PartsTable, server: &PostgresServer) -> Result<()> {
    let haproxy = programs::haproxy().ok_or("HAProxy is not installed")?;
    let upstream = UpstreamServers::start(SOURCES, TOOLS_PER_SOURCE, Duration::ZERO)?;
    let files = NodeFiles::new(&upstream.sources)?;
    let url = server.create_database();
    let nodes = files.start_nodes(3, &url)?;
    nodes.iter().try_for_each(|node| node.discover_all().map(drop))?;
    let [first, ..] = &nodes[..] else { return Err("there are no nodes".into()) };
    let balancer = BalancerProcess::start(&haproxy, &nodes)?;
    let database = DatabaseProcesses::find(&url)?;
    let queries = search_paths();
    let cpu_times = || -> Result<[Duration; 3]> {
        let nodes = nodes.iter().map(NodeProcess::cpu_time).sum::<Result<Duration>>()?;
        Ok([nodes, cpu_time(balancer.child.id())?, database.cpu_time()?])
    };
    let mut times = [Vec::new(), Vec::new()];
    let mut used = [Duration::ZERO; 3];
    // The first round is a warm-up and not counted.
    for round in 0..=ROUNDS {
        let direct = time_concurrent_clients(&first.address, &queries, ADMIN_HEADER)?;
        let before = cpu_times()?;
        let balanced = time_concurrent_clients(&balancer.address, &queries, ADMIN_HEADER)?;
        let after = cpu_times()?;
        if round > 0 {
            times[0].push(balanced);
            times[1].push(direct);
            for ((used, after), before) in used.iter_mut().zip(after).zip(before) {
                *used += after - before;
            }
        }
    }
    let [balanced, direct] = times.map(median);
    let per_second = |time: Duration| (CLIENTS * REQUESTS_PER_CLIENT) as f64 / time.as_secs_f64();
    let [node, balancer, database] = used.map(|time| time / (ROUNDS * CLIENTS * REQUESTS_PER_CLIENT) as u32);
    report.add_row(RatioRow {
        bench: "nodes",
        measured: format!(
            "`GET /api/search` through HAProxy to {} nodes on this machine: {:.0} a second",
            nodes.len(),
            per_second(balanced)
        ),
        baseline: format!("directly to one of them: {:.0} a second", per_second(direct)),
        ratio: per_second(balanced) / per_second(direct),
        threshold: Threshold::None,
    });
    parts.add(
        "CPU time of a cached search through HAProxy, with a connection of its own: on the node; on HAProxy; on the database",
        format!("{}; {}; {}", format_duration(node), format_duration(balancer), format_duration(database)),
    );
    Ok(())
}

impl BalancerProcess {
    /// Starts HAProxy with the configuration of the example, and waits until it answers.
    fn start(haproxy: &Path, nodes: &[NodeProcess]) -> Result<BalancerProcess> {
        const MAX_ATTEMPTS: usize = 500;
        let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/cluster/haproxy.cfg");
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let mut command = Command::new(haproxy);
        command.arg("-db").arg("-f").arg(config).env("BALANCER_LISTEN", &address);
        for (variable, node) in ["NODE_A", "NODE_B", "NODE_C"].iter().zip(nodes) {
            command.env(variable, &node.address);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let balancer = BalancerProcess { child, address };
        for _ in 0..MAX_ATTEMPTS {
            let answered = RawHttpClient::connect(&balancer.address)
                .and_then(|mut client| client.get("/api/tools?limit=1", ADMIN_HEADER));
            if answered.is_ok() {
                return Ok(balancer);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err("HAProxy does not answer".into())
    }
}

impl Drop for BalancerProcess {
    fn drop(&mut self) {
        // Fails if it has exited already.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}
