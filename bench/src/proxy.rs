//! What Toolcrib costs in between: `tools/call` over HTTP through `toolcrib serve`, against the same call made directly
//! to the server behind it.

use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::json;
use toolcrib_testkit::rig;

use crate::Result;
use crate::material::scripted;
use crate::measure::{median, ratio, timed};
use crate::report::{Bar, Report, Row, shown};

mod agent;
mod process;

use agent::{Agent, Version};
use process::Process;

/// Calls of one agent, in blocks that take turns.
const BLOCKS: usize = 40;
const BLOCK: usize = 50;
const MOST: f64 = 2.5;

const AGENTS: usize = 64;
const CALLS_EACH: usize = 100;
const ROUNDS: usize = 3;

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let place = tempfile::tempdir()?;
    let bare = Process::start(&mut Command::new(rig::toolcrib().with_file_name("fast-http")))?;
    let forward = Process::start(Command::new(rig::toolcrib().with_file_name("forward")).arg(&bare.url))?;
    let sdk = Process::start(Command::new(rig::rmcp_server()).arg("--http"))?;
    let count_file = place.path().join("starts");
    let counted = scripted(&["--count-file", &count_file.to_string_lossy()]);
    let config = place.path().join("toolcrib.json");
    let sources = json!({
        "bare": {"url": bare.url},
        "sdk": {"url": sdk.url},
        "counted": {"command": counted.first(), "args": counted.get(1..)},
    });
    std::fs::write(&config, json!({"sources": sources}).to_string())?;
    let toolcrib = |words: &[&str]| {
        let mut command = Command::new(rig::toolcrib());
        command.args(words).arg("--config").arg(&config).arg("--data").arg(place.path().join("data"));
        command
    };
    let known = toolcrib(&["refresh", "--quiet"]).output()?;
    if !known.status.success() {
        return Err(String::from_utf8_lossy(&known.stderr).into());
    }
    let discovered = starts(&count_file)?;
    let served = Process::start(&mut toolcrib(&["serve", "--quiet", "--listen", "127.0.0.1:0"]))?;
    let url = format!("{}/mcp", served.url);
    let through = |tool| Goal { url: url.clone(), tool, name: "`toolcrib serve`" };
    let to = |process: &Process, name| Goal { url: process.url.clone(), tool: "echo", name };

    let to_sdk = to(&sdk, "a server made with the official Rust SDK");
    let at_most = Bar::AtMost(MOST, "directly".into());
    alone(report, Version::Old, [&through("sdk__echo"), &to_sdk], at_most)?;
    let to_bare = to(&bare, "a server that does nothing else");
    for version in [Version::Old, Version::New] {
        alone(report, version, [&through("bare__echo"), &to_bare], Bar::None)?;
        alone(report, version, [&to(&forward, "a proxy that does nothing"), &to_bare], Bar::None)?;
    }
    together(report, &through("bare__echo"), &to_bare)?;

    // And a server that is a process: one for all of them.
    crowd(&through("counted__echo"), 1)?;
    let started = starts(&count_file)? - discovered;
    report.row(Row {
        bench: "proxy",
        measured: format!("processes started for {AGENTS} agents at once: {started}"),
        against: "servers behind: 1".into(),
        ratio: started as f64,
        bar: Bar::Holds(started == 1, "one".into()),
    });
    Ok(())
}

/// Where to call which tool.
#[derive(Clone)]
struct Goal {
    url: String,
    tool: &'static str,
    name: &'static str,
}

/// One agent that waits for each answer.
fn alone(report: &mut Report, version: Version, [through, direct]: [&Goal; 2], bar: Bar) -> Result<()> {
    let mut agents = [
        (Agent::connect(&through.url, version)?, through.tool, Vec::new()),
        (Agent::connect(&direct.url, version)?, direct.tool, Vec::new()),
    ];
    // The first block only warms up.
    for block in 0..=BLOCKS {
        for (agent, tool, times) in &mut agents {
            for call in 0..BLOCK {
                let (time, answer) = timed(|| agent.call(tool, &format!("block {block}, call {call}")));
                answer?;
                if block > 0 {
                    times.push(time);
                }
            }
        }
    }
    let [(_, _, ours), (_, _, theirs)] = agents;
    let (ours, theirs) = (median(ours), median(theirs));
    report.row(Row {
        bench: "proxy",
        measured: format!("`tools/call` ({}) through {}, median: {}", version.name(), through.name, shown(ours)),
        against: format!("directly to {}: {}", direct.name, shown(theirs)),
        ratio: ratio(ours, theirs),
        bar,
    });
    Ok(())
}

/// Many agents, each of which waits for its answers.
fn together(report: &mut Report, through: &Goal, direct: &Goal) -> Result<()> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(crowd(through, CALLS_EACH)?);
        theirs.push(crowd(direct, CALLS_EACH)?);
    }
    let (ours, theirs) = (median(ours), median(theirs));
    let speed = |time: Duration| format!("{:.0} calls/s", (AGENTS * CALLS_EACH) as f64 / time.as_secs_f64());
    report.row(Row {
        bench: "proxy",
        measured: format!("{AGENTS} agents at once, through `toolcrib serve`: {}", speed(ours)),
        against: format!("directly: {}", speed(theirs)),
        ratio: ratio(ours, theirs),
        bar: Bar::None,
    });
    Ok(())
}

/// How long it takes all of them to make so many calls each; connecting is not counted.
fn crowd(goal: &Goal, calls: usize) -> Result<Duration> {
    let goal = Arc::new(goal.clone());
    let agents = (0..AGENTS).map(|_| Agent::connect(&goal.url, Version::New)).collect::<Result<Vec<_>>>()?;
    let (time, ended) = timed(|| {
        let threads = agents.into_iter().enumerate().map(|(number, mut agent)| {
            let goal = goal.clone();
            thread::spawn(move || {
                (0..calls)
                    .try_for_each(|call| agent.call(goal.tool, &format!("agent {number}, call {call}")))
                    // An error of this kind may not cross threads.
                    .map_err(|error| error.to_string())
            })
        });
        // All of them are started before the first is waited for.
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())))
            .collect::<Vec<_>>()
    });
    ended.into_iter().collect::<std::result::Result<(), String>>()?;
    Ok(time)
}

fn starts(count_file: &std::path::Path) -> Result<usize> {
    Ok(std::fs::read_to_string(count_file)?.lines().count())
}
