//! A start: `toolcrib tools --json` of a catalogue that is on disk, against a program that prints the same bytes.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use toolcrib_testkit::rig;

use crate::Result;
use crate::material::{configuration, scripted, spread};
use crate::measure::{median, ratio, timed};
use crate::report::{Bar, Report, Row, shown};

const SOURCES: usize = 50;
const TOOLS: usize = 2_000;
const ROUNDS: usize = 41;
const FACTOR: f64 = 1.5;
const ALLOWANCE: Duration = Duration::from_millis(30);

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let place = tempfile::tempdir()?;
    let count_file = place.path().join("starts");
    let config = declare(place.path(), &count_file)?;
    let data = place.path().join("data");
    let toolcrib = || {
        let mut command = Command::new(rig::toolcrib());
        command.args(["tools", "--json", "--config"]).arg(&config).arg("--data").arg(&data);
        command
    };
    // The first list discovers everything; from then on it is on disk.
    let (first, listed) = timed(|| output(toolcrib()));
    let listed = listed?;
    let tools = serde_json::from_slice::<serde_json::Value>(&listed)?["tools"].as_array().map_or(0, Vec::len);
    if tools != TOOLS || starts(&count_file)? != SOURCES {
        return Err(format!("{tools} tools of {} sources were discovered", starts(&count_file)?).into());
    }
    let file = place.path().join("listed.json");
    fs::write(&file, &listed)?;
    let print_file = || {
        let mut command = Command::new(rig::toolcrib().with_file_name("print-file"));
        command.arg(&file);
        command
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for (command, times) in [(toolcrib(), &mut ours), (print_file(), &mut theirs)] {
            let (time, printed) = timed(|| output(command));
            if printed? != listed {
                return Err("the same catalogue was printed otherwise".into());
            }
            times.push(time);
        }
    }
    let quietest = |times: &[Duration]| times.iter().min().copied().unwrap_or_default();
    let (our_best, their_best) = (quietest(&ours), quietest(&theirs));
    let (ours, theirs) = (median(ours), median(theirs));
    let allowed = theirs.mul_f64(FACTOR) + ALLOWANCE;
    report.row(Row {
        bench: "start",
        measured: format!("`toolcrib tools --json`, {SOURCES} sources, {TOOLS} tools on disk: {}", shown(ours)),
        against: format!("`print-file`, the same {:.1} MB: {}", listed.len() as f64 / 1e6, shown(theirs)),
        ratio: ratio(ours, theirs),
        bar: Bar::AtMost(
            ratio(allowed, theirs),
            format!("{FACTOR} × {} + {} = {}", shown(theirs), shown(ALLOWANCE), shown(allowed)),
        ),
    });
    report.row(Row {
        bench: "start",
        measured: format!("the least disturbed of {ROUNDS} runs: {}", shown(our_best)),
        against: format!("likewise: {}", shown(their_best)),
        ratio: ratio(our_best, their_best),
        bar: Bar::None,
    });
    let started = starts(&count_file)? - SOURCES;
    report.row(Row {
        bench: "start",
        measured: format!("processes started in {ROUNDS} starts: {started}"),
        against: format!("in the first, which discovered all within {}: {SOURCES}", shown(first)),
        ratio: started as f64 / SOURCES as f64,
        bar: Bar::Holds(started == 0, "none".into()),
    });
    Ok(())
}

/// Writes a list for each source and a configuration that declares them all.
fn declare(place: &Path, count_file: &Path) -> Result<std::path::PathBuf> {
    let mut commands = Vec::new();
    for (number, recording) in spread(SOURCES, TOOLS)?.into_iter().enumerate() {
        let file = place.join(format!("list-{number}.json"));
        fs::write(&file, serde_json::to_vec(&recording.tools)?)?;
        let flags = ["--tools-file", &file.to_string_lossy(), "--count-file", &count_file.to_string_lossy()];
        commands.push((recording.name, scripted(&flags)));
    }
    let config = place.join("toolcrib.json");
    fs::write(&config, configuration(&commands))?;
    Ok(config)
}

/// What a program prints, read through a pipe as another program would.
fn output(mut command: Command) -> Result<Vec<u8>> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(format!("{command:?} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}

fn starts(count_file: &Path) -> Result<usize> {
    Ok(fs::read_to_string(count_file)?.lines().count())
}
