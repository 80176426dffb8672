//! Startup time: `toolcrib tools --json` with a stored catalogue, compared with a program that prints the same bytes.
//!
//! A new process per run, because that is how the command is used; the output is read through a pipe and compared, so
//! both programs do the same work. That no server is started is a condition of its own.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use toolcrib_testkit::programs;

use crate::Result;
use crate::measure::{measure_time, median, ratio};
use crate::recorded_tools::{config_json, extend_recorded, scripted_command};
use crate::report::{BenchReport, RatioRow, Threshold, format_duration};

/// Number of sources.
const SOURCES: usize = 50;
/// Number of tools of all sources together.
const TOOLS: usize = 2_000;
/// Number of runs of each program. Odd, so that the median is one of the measurements.
const ROUNDS: usize = 41;
/// Allowed: this factor of the baseline, plus [`FIXED_ALLOWANCE`] for opening the store.
const MAX_FACTOR: f64 = 1.5;
/// Fixed part of the threshold.
const FIXED_ALLOWANCE: Duration = Duration::from_millis(30);

/// Discovers once, then measures runs with the stored catalogue.
pub(crate) fn run(report: &mut BenchReport) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let count_file = directory.path().join("starts");
    let config = write_config(directory.path(), &count_file)?;
    let data = directory.path().join("data");
    let toolcrib = || {
        let mut command = Command::new(programs::toolcrib_binary());
        command.args(["tools", "--json", "--config"]).arg(&config).arg("--data").arg(&data);
        command
    };
    // The first run discovers all sources; later runs read the stored catalogue.
    let (first, expected) = measure_time(|| run_and_capture(toolcrib()));
    let expected = expected?;
    let tools = serde_json::from_slice::<serde_json::Value>(&expected)?["tools"].as_array().map_or(0, Vec::len);
    if tools != TOOLS || count_starts(&count_file)? != SOURCES {
        return Err(format!("{tools} tools of {} sources were discovered", count_starts(&count_file)?).into());
    }
    let file = directory.path().join("listed.json");
    fs::write(&file, &expected)?;
    // The baseline prints the same bytes from a file.
    let print_file = || {
        let mut command = Command::new(programs::toolcrib_binary().with_file_name("print-file"));
        command.arg(&file);
        command
    };
    let mut measured = Vec::new();
    let mut baseline = Vec::new();
    for _ in 0..ROUNDS {
        for (command, times) in [(toolcrib(), &mut measured), (print_file(), &mut baseline)] {
            let (time, output) = measure_time(|| run_and_capture(command));
            if output? != expected {
                return Err("two runs printed different catalogues".into());
            }
            times.push(time);
        }
    }
    let fastest = |times: &[Duration]| times.iter().min().copied().unwrap_or_default();
    let measured_best = fastest(&measured);
    let baseline_best = fastest(&baseline);
    let measured = median(measured);
    let baseline = median(baseline);
    // Medians against the threshold; the fastest runs are shown for information.
    let allowed = baseline.mul_f64(MAX_FACTOR) + FIXED_ALLOWANCE;
    report.add_row(RatioRow {
        bench: "start",
        measured: format!(
            "`toolcrib tools --json`, {SOURCES} sources, {TOOLS} tools on disk: {}",
            format_duration(measured)
        ),
        baseline: format!(
            "`print-file`, the same {:.1} MB: {}",
            expected.len() as f64 / 1e6,
            format_duration(baseline)
        ),
        ratio: ratio(measured, baseline),
        threshold: Threshold::AtMost(
            ratio(allowed, baseline),
            format!(
                "{MAX_FACTOR} × {} + {} = {}",
                format_duration(baseline),
                format_duration(FIXED_ALLOWANCE),
                format_duration(allowed)
            ),
        ),
    });
    report.add_row(RatioRow {
        bench: "start",
        measured: format!("fastest of {ROUNDS} runs: {}", format_duration(measured_best)),
        baseline: format!("fastest of {ROUNDS} runs: {}", format_duration(baseline_best)),
        ratio: ratio(measured_best, baseline_best),
        threshold: Threshold::None,
    });
    // A start with a stored catalogue must not start any server.
    let started = count_starts(&count_file)? - SOURCES;
    report.add_row(RatioRow {
        bench: "start",
        measured: format!("processes started in {ROUNDS} starts: {started}"),
        baseline: format!("in the first, which discovered all within {}: {SOURCES}", format_duration(first)),
        ratio: started as f64 / SOURCES as f64,
        threshold: Threshold::Condition(started == 0, "none".into()),
    });
    Ok(())
}

/// Writes a tool list per source and the configuration that serves them. Each server appends to `count_file` when it
/// starts.
fn write_config(directory: &Path, count_file: &Path) -> Result<std::path::PathBuf> {
    let mut commands = Vec::new();
    for (number, recording) in extend_recorded(SOURCES, TOOLS)?.into_iter().enumerate() {
        let file = directory.join(format!("list-{number}.json"));
        fs::write(&file, serde_json::to_vec(&recording.tools)?)?;
        let flags = ["--tools-file", &file.to_string_lossy(), "--count-file", &count_file.to_string_lossy()];
        commands.push((recording.name, scripted_command(&flags)));
    }
    let config = directory.join("toolcrib.json");
    fs::write(&config, config_json(&commands))?;
    Ok(config)
}

/// Runs a program and returns its stdout, read through a pipe.
fn run_and_capture(mut command: Command) -> Result<Vec<u8>> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(format!("{command:?} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}

/// Number of server processes started so far.
fn count_starts(count_file: &Path) -> Result<usize> {
    Ok(fs::read_to_string(count_file)?.lines().count())
}
