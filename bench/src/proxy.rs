//! Overhead of Toolcrib as a gateway: `tools/call` over HTTP through `toolcrib serve`, compared with the same call made
//! directly to the upstream server.
//!
//! ```text
//! agent ──▶ toolcrib serve ──▶ upstream     measured
//! agent ──▶ forward ─────────▶ upstream     a second hop without any logic, for comparison
//! agent ───────────────────────▶ upstream   baseline
//! ```
//!
//! There are three upstreams: one of the official SDK, which stands for a typical server and has the threshold; a
//! minimal one, against which every microsecond shows; and a stdio server that counts its starts.

use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::json;
use toolcrib_testkit::programs;

use crate::Result;
use crate::measure::{measure_time, median, ratio};
use crate::recorded_tools::scripted_command;
use crate::report::{BenchReport, RatioRow, Threshold, format_duration};

mod agent;
mod process;

pub(crate) use agent::{Agent, AgentProtocol};
pub(crate) use process::ListeningProcess;

/// Number of blocks of calls. Both targets alternate, so that disturbances affect both.
const BLOCKS: usize = 40;
/// Number of calls in a block.
const BLOCK_SIZE: usize = 50;
/// Maximum latency relative to a direct call, for a server based on the official SDK.
const MAX_RATIO: f64 = 2.5;

/// Number of concurrent agents.
const AGENTS: usize = 64;
/// Number of calls of each agent.
const CALLS_PER_AGENT: usize = 100;
/// Number of measurements of the throughput.
const ROUNDS: usize = 3;

/// Starts all servers and compares calls through Toolcrib, through a bare proxy, and directly.
pub(crate) fn run(report: &mut BenchReport) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let bare = ListeningProcess::start(&mut Command::new(programs::toolcrib_binary().with_file_name("fast-http")))?;
    let forward =
        ListeningProcess::start(Command::new(programs::toolcrib_binary().with_file_name("forward")).arg(&bare.url))?;
    let sdk = ListeningProcess::start(Command::new(programs::rmcp_server()).arg("--http"))?;
    let count_file = directory.path().join("starts");
    let counted_command = scripted_command(&["--count-file", &count_file.to_string_lossy()]);
    let config = directory.path().join("toolcrib.json");
    let sources = json!({
        "bare": {"url": bare.url},
        "sdk": {"url": sdk.url},
        "counted": {"command": counted_command.first(), "args": counted_command.get(1..)},
    });
    std::fs::write(&config, json!({"sources": sources}).to_string())?;
    let toolcrib = |arguments: &[&str]| {
        let mut command = Command::new(programs::toolcrib_binary());
        command.args(arguments).arg("--config").arg(&config).arg("--data").arg(directory.path().join("data"));
        command
    };
    // Discover before serving, so that no call waits for it.
    let refresh = toolcrib(&["refresh", "--quiet"]).output()?;
    if !refresh.status.success() {
        return Err(String::from_utf8_lossy(&refresh.stderr).into());
    }
    let discovered = count_starts(&count_file)?;
    let served = ListeningProcess::start(&mut toolcrib(&["serve", "--quiet", "--listen", "127.0.0.1:0"]))?;
    let url = format!("{}/mcp", served.url);
    let through = |tool| BenchTarget { url: url.clone(), tool, name: "`toolcrib serve`" };
    let to = |process: &ListeningProcess, name| BenchTarget { url: process.url.clone(), tool: "echo", name };

    // The threshold is for the typical case; the minimal server below only shows the absolute overhead.
    let to_sdk = to(&sdk, "a server made with the official Rust SDK");
    let at_most = Threshold::AtMost(MAX_RATIO, "directly".into());
    measure_latency(report, AgentProtocol::Legacy, [&through("sdk__echo"), &to_sdk], at_most)?;
    let to_bare = to(&bare, "a minimal server");
    for version in [AgentProtocol::Legacy, AgentProtocol::Modern] {
        measure_latency(report, version, [&through("bare__echo"), &to_bare], Threshold::None)?;
        measure_latency(report, version, [&to(&forward, "a proxy without logic"), &to_bare], Threshold::None)?;
    }
    measure_concurrency(report, &through("bare__echo"), &to_bare)?;

    // A stdio server must be started once for all agents.
    // One call each, all at once: without a shared connection every agent would start a process.
    time_concurrent_agents(&through("counted__echo"), 1)?;
    let started = count_starts(&count_file)? - discovered;
    report.add_row(RatioRow {
        bench: "proxy",
        measured: format!("processes started for {AGENTS} agents at once: {started}"),
        baseline: "servers behind: 1".into(),
        ratio: started as f64,
        threshold: Threshold::Condition(started == 1, "one".into()),
    });
    Ok(())
}

/// Server and tool to call.
#[derive(Clone)]
struct BenchTarget {
    url: String,
    tool: &'static str,
    /// Description for the report.
    name: &'static str,
}

/// Measures the latency of one agent that waits for each response, alternating between both targets. Each call has its
/// own text, so that a response of another call would be noticed.
fn measure_latency(
    report: &mut BenchReport,
    version: AgentProtocol,
    [through, direct]: [&BenchTarget; 2],
    threshold: Threshold,
) -> Result<()> {
    let mut agents = [
        (Agent::connect(&through.url, version)?, through.tool, Vec::new()),
        (Agent::connect(&direct.url, version)?, direct.tool, Vec::new()),
    ];
    // The first block is a warm-up and not counted.
    for block in 0..=BLOCKS {
        for (agent, tool, times) in &mut agents {
            for call in 0..BLOCK_SIZE {
                let (time, result) = measure_time(|| agent.call(tool, &format!("block {block}, call {call}")));
                result?;
                if block > 0 {
                    times.push(time);
                }
            }
        }
    }
    let [(_, _, measured), (_, _, baseline)] = agents;
    let measured = median(measured);
    let baseline = median(baseline);
    report.add_row(RatioRow {
        bench: "proxy",
        measured: format!(
            "`tools/call` ({}) through {}, median: {}",
            version.name(),
            through.name,
            format_duration(measured)
        ),
        baseline: format!("directly to {}: {}", direct.name, format_duration(baseline)),
        ratio: ratio(measured, baseline),
        threshold,
    });
    Ok(())
}

/// Measures the throughput of many concurrent agents, one thread and one connection each.
fn measure_concurrency(report: &mut BenchReport, through: &BenchTarget, direct: &BenchTarget) -> Result<()> {
    let mut measured = Vec::new();
    let mut baseline = Vec::new();
    for _ in 0..ROUNDS {
        measured.push(time_concurrent_agents(through, CALLS_PER_AGENT)?);
        baseline.push(time_concurrent_agents(direct, CALLS_PER_AGENT)?);
    }
    let measured = median(measured);
    let baseline = median(baseline);
    let speed = |time: Duration| format!("{:.0} calls/s", (AGENTS * CALLS_PER_AGENT) as f64 / time.as_secs_f64());
    report.add_row(RatioRow {
        bench: "proxy",
        measured: format!("{AGENTS} agents at once, through `toolcrib serve`: {}", speed(measured)),
        baseline: format!("directly: {}", speed(baseline)),
        ratio: ratio(measured, baseline),
        threshold: Threshold::None,
    });
    Ok(())
}

/// Measures the time until all agents have made `calls` calls each, without the time to connect.
fn time_concurrent_agents(target: &BenchTarget, calls: usize) -> Result<Duration> {
    let target = Arc::new(target.clone());
    let agents = (0..AGENTS).map(|_| Agent::connect(&target.url, AgentProtocol::Modern)).collect::<Result<Vec<_>>>()?;
    let (time, results) = measure_time(|| {
        let threads = agents.into_iter().enumerate().map(|(number, mut agent)| {
            let target = target.clone();
            thread::spawn(move || {
                (0..calls)
                    .try_for_each(|call| agent.call(target.tool, &format!("agent {number}, call {call}")))
                    // The boxed error is not `Send`.
                    .map_err(|error| error.to_string())
            })
        });
        // Collected first, so that all threads run before the first one is joined.
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())))
            .collect::<Vec<_>>()
    });
    results.into_iter().collect::<std::result::Result<(), String>>()?;
    Ok(time)
}

/// Number of starts of the counted server so far.
fn count_starts(count_file: &std::path::Path) -> Result<usize> {
    Ok(std::fs::read_to_string(count_file)?.lines().count())
}
