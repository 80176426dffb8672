//! Large OpenAPI documents: time and memory of `toolcrib refresh`, the same for an unchanged document, and FastMCP on
//! the same document where it is installed.
//!
//! The thresholds of time and memory are absolute here, since no other program does the same work on every machine. The
//! unchanged document has a ratio: it must not be parsed again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use toolcrib_testkit::programs;

use crate::Result;
use crate::measure::{median, ratio};
use crate::report::{BenchReport, RatioRow, Threshold, format_duration};

/// Number of refreshes of each kind.
const ROUNDS: usize = 7;
/// File, name, maximum time and maximum memory in megabytes of each document.
const DOCUMENTS: [(&str, &str, Duration, f64); 2] = [
    ("github__api.github.com.json", "GitHub", Duration::from_millis(1_000), 150.0),
    ("stripe__spec3-2022-04-12.json", "Stripe", Duration::from_millis(1_500), 150.0),
];
/// Variable with the path of a Python that has FastMCP, set by `cargo xtask bench`.
const FASTMCP_ENV: &str = "TOOLCRIB_BENCH_FASTMCP";

/// Measures all documents.
pub(crate) fn run(report: &mut BenchReport) -> Result<()> {
    let folder = programs::data_dir().ok_or("no recorded data; set TOOLCRIB_TEST_DATA")?.join("openapi");
    for (file, name, allowed, memory) in DOCUMENTS {
        measure_document(report, &folder.join(file), name, allowed, memory)?;
    }
    Ok(())
}

/// Measures one document: full refresh, refresh of the unchanged document, and memory.
fn measure_document(report: &mut BenchReport, file: &Path, name: &str, allowed: Duration, memory: f64) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let config = directory.path().join("toolcrib.json");
    // The base address is never contacted: only the document is read. Without a time to live each refresh is due.
    let source = json!({ "openapi": file, "base_url": "http://127.0.0.1:9", "ttl": "0s" });
    fs::write(&config, json!({ "sources": { "api": source } }).to_string())?;
    let refresh = |force: bool| {
        let mut command = Command::new(programs::toolcrib_binary());
        command.args(["refresh", "--json", "--config"]).arg(&config).arg("--data").arg(directory.path().join("data"));
        command.args(force.then_some("--force"));
        command
    };
    let mut read = Vec::new();
    let mut same = Vec::new();
    let mut peak_memory = 0.0_f64;
    let mut tools = 0;
    for round in 0..ROUNDS {
        // `--force` discards the cached document; without it the refresh finds it unchanged.
        let first = measure_process(refresh(true))?;
        let again = measure_process(refresh(false))?;
        let outcome: Value = serde_json::from_slice(&first.stdout)?;
        let outcome = &outcome["results"][0];
        tools =
            outcome["unchanged"].as_u64().unwrap_or_default() + outcome["added"].as_array().map_or(0, Vec::len) as u64;
        let unchanged: Value = serde_json::from_slice(&again.stdout)?;
        if unchanged["results"][0]["status"] != "unchanged" || tools == 0 {
            return Err(format!("round {round}: {outcome}, then {unchanged}").into());
        }
        read.push(first.duration);
        same.push(again.duration);
        peak_memory = peak_memory.max(first.peak_megabytes);
    }
    // Shown for information; the median counts.
    let best = read.iter().min().copied().unwrap_or_default();
    let read = median(read);
    let same = median(same);
    report.add_row(RatioRow {
        bench: "openapi",
        measured: format!(
            "{name}'s document to {tools} tools on disk, in a separate process: {}",
            format_duration(read)
        ),
        baseline: format!("allowed: {}; fastest of {ROUNDS} runs: {}", format_duration(allowed), format_duration(best)),
        ratio: ratio(read, allowed),
        threshold: Threshold::AtMost(1.0, format_duration(allowed)),
    });
    report.add_row(RatioRow {
        bench: "openapi",
        measured: format!("{name}: peak memory {peak_memory:.0} MB"),
        baseline: format!("allowed: {memory:.0} MB"),
        ratio: peak_memory / memory,
        threshold: Threshold::AtMost(1.0, format!("{memory:.0} MB")),
    });
    report.add_row(RatioRow {
        bench: "openapi",
        measured: format!("{name}: the same document again, unchanged: {}", format_duration(same)),
        baseline: format!("parsed again (`--force`): {}", format_duration(read)),
        ratio: ratio(same, read),
        threshold: Threshold::AtMost(0.5, "not parsed again".into()),
    });
    measure_fastmcp(report, file, name, read, peak_memory)
}

/// Measures FastMCP on the same document. Without a threshold, since it may not be installed.
fn measure_fastmcp(report: &mut BenchReport, file: &Path, name: &str, measured: Duration, memory: f64) -> Result<()> {
    let Some(python) = std::env::var_os(FASTMCP_ENV) else { return Ok(()) };
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("peers/fastmcp_openapi.py");
    let mut command = Command::new(python);
    command.arg(script).arg(file);
    let baseline = measure_process(command)?;
    let summary = String::from_utf8_lossy(&baseline.stdout).trim().to_owned();
    report.add_row(RatioRow {
        bench: "openapi",
        measured: format!("{name}: {} and {memory:.0} MB", format_duration(measured)),
        baseline: format!(
            "FastMCP, {summary}: {} and {:.0} MB",
            format_duration(baseline.duration),
            baseline.peak_megabytes
        ),
        ratio: ratio(measured, baseline.duration),
        threshold: Threshold::None,
    });
    Ok(())
}

/// Time, memory and output of a process.
struct ProcessMeasurement {
    duration: Duration,
    /// Peak resident memory.
    peak_megabytes: f64,
    stdout: Vec<u8>,
}

/// Runs a command and samples its peak memory from `/proc`, so this benchmark needs Linux. Fails if the command fails.
/// A peak in the last millisecond before the exit may be missed.
fn measure_process(mut command: Command) -> Result<ProcessMeasurement> {
    let began = Instant::now();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let status = PathBuf::from(format!("/proc/{}/status", child.id()));
    let sampler = thread::spawn(move || {
        // The peak only grows, so the last sample before the exit is the result.
        let mut kilobytes = 0.0;
        while let Some(now) = fs::read_to_string(&status).ok().as_deref().and_then(parse_peak_kilobytes) {
            kilobytes = now;
            thread::sleep(Duration::from_millis(1));
        }
        kilobytes / 1024.0
    });
    let output = child.wait_with_output()?;
    let took = began.elapsed();
    let megabytes = sampler.join().map_err(|_| "the memory sampler panicked")?;
    if !output.status.success() {
        return Err(
            format!("{command:?} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr)).into()
        );
    }
    Ok(ProcessMeasurement { duration: took, peak_megabytes: megabytes, stdout: output.stdout })
}

/// Peak resident memory (`VmHWM`) in a `/proc/PID/status` file.
fn parse_peak_kilobytes(status: &str) -> Option<f64> {
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
