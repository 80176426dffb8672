//! Cost of a call through the registry, compared with the same messages written to the server directly. Without a
//! threshold.
//!
//! Both sides call `echo` of the scripted server over stdio, one call at a time. The difference is the work of the
//! registry (names, policy, arguments, circuit breaker, correlation) and the switch between threads.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use toolcrib::{Principal, Registry, RegistryOptions};

use crate::Result;
use crate::measure::{median, ratio};
use crate::recorded_tools::{parse_config, scripted_command};
use crate::report::{BenchReport, RatioRow, Threshold, format_duration};

/// Number of sequential calls in a round.
const CALLS: usize = 2_000;
/// Number of measurements of each kind, of which the median counts.
const ROUNDS: usize = 5;

/// Compares both kinds of calls.
pub(crate) fn run(report: &mut BenchReport) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let mut measured = Vec::new();
    let mut baseline = Vec::new();
    for _ in 0..ROUNDS {
        measured.push(runtime.block_on(time_registry_calls())?);
        baseline.push(time_direct_calls()?);
    }
    let measured = median(measured);
    let baseline = median(baseline);
    report.add_row(RatioRow {
        bench: "wire",
        measured: format!("`Registry::call` of `echo` over stdio: {}", format_speed(measured)),
        baseline: format!("the same lines, written and read directly: {}", format_speed(baseline)),
        ratio: ratio(measured, baseline),
        threshold: Threshold::None,
    });
    Ok(())
}

/// Formats a time per call with the rate.
fn format_speed(per_call: Duration) -> String {
    format!("{} each, {:.0} calls/s", format_duration(per_call), 1.0 / per_call.as_secs_f64())
}

/// Measures the mean time of sequential calls through the registry.
async fn time_registry_calls() -> Result<Duration> {
    let registry = Registry::open(
        parse_config(&[("scripted".to_owned(), scripted_command(&[]))], &Map::new())?,
        RegistryOptions::default(),
    )
    .await?;
    let caller = Principal::local("bench");
    let call = async || registry.call("scripted__echo", call_arguments()).caller(caller.clone()).await;
    // The first call discovers and connects.
    call().await?;
    let began = Instant::now();
    for _ in 0..CALLS {
        call().await?;
    }
    let time = began.elapsed();
    registry.close().await;
    Ok(time.div_f64(CALLS as f64))
}

/// Measures the mean time of sequential calls without Toolcrib.
fn time_direct_calls() -> Result<Duration> {
    // A new process each time, as on the other side.
    let mut server = DirectServer::start()?;
    let params =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}});
    server.request(0, "initialize", &params)?;
    let params = json!({"name": "echo", "arguments": call_arguments()});
    let began = Instant::now();
    for id in 1..=CALLS {
        server.request(id, "tools/call", &params)?;
    }
    Ok(began.elapsed().div_f64(CALLS as f64))
}

/// Arguments of every call.
fn call_arguments() -> Value {
    json!({"text": "Is anybody there?"})
}

/// Server process without Toolcrib in between, killed on drop.
struct DirectServer {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl DirectServer {
    /// Starts the scripted server.
    fn start() -> Result<DirectServer> {
        let command = scripted_command(&[]);
        let mut child = Command::new(&command[0]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take().ok_or("no stdin")?;
        let stdout = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        Ok(DirectServer { child, stdin, stdout })
    }

    /// Sends a request and checks that the response has a result. Expects the response on the next line.
    fn request(&mut self, id: usize, method: &str, params: &Value) -> Result<()> {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.stdin.write_all(format!("{message}\n").as_bytes())?;
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        let response: Value = serde_json::from_str(&line)?;
        if response["id"] == id && response["result"].is_object() { Ok(()) } else { Err(line.into()) }
    }
}

impl Drop for DirectServer {
    fn drop(&mut self) {
        // Fails if the server has exited already.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}
