//! What a call through the registry costs, against the same lines written to the server directly. For information.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use toolcrib::{CallOptions, Caller, Options, Registry};

use crate::Result;
use crate::material::{config, scripted};
use crate::measure::{median, ratio};
use crate::report::{Bar, Report, Row, shown};

const CALLS: usize = 2_000;
const ROUNDS: usize = 5;

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(runtime.block_on(through_registry())?);
        theirs.push(directly()?);
    }
    let (ours, theirs) = (median(ours), median(theirs));
    report.row(Row {
        bench: "wire",
        measured: format!("`Registry::call` of `echo` over stdio: {}", speed(ours)),
        against: format!("the same lines, written and read directly: {}", speed(theirs)),
        ratio: ratio(ours, theirs),
        bar: Bar::None,
    });
    Ok(())
}

fn speed(each: Duration) -> String {
    format!("{} each, {:.0} calls/s", shown(each), 1.0 / each.as_secs_f64())
}

/// The time of a call, one after the other.
async fn through_registry() -> Result<Duration> {
    let registry = Registry::open(config(&[("scripted".to_owned(), scripted(&[]))])?, Options::default()).await?;
    let caller = Caller { name: "bench".into() };
    let call = async || registry.call(&caller, "scripted__echo", arguments(), CallOptions::default()).await;
    // The first one discovers and connects.
    call().await?;
    let began = Instant::now();
    for _ in 0..CALLS {
        call().await?;
    }
    let time = began.elapsed();
    registry.close().await;
    Ok(time.div_f64(CALLS as f64))
}

fn directly() -> Result<Duration> {
    let mut server = Server::start()?;
    let params =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}});
    server.ask(0, "initialize", &params)?;
    let params = json!({"name": "echo", "arguments": arguments()});
    let began = Instant::now();
    for id in 1..=CALLS {
        server.ask(id, "tools/call", &params)?;
    }
    Ok(began.elapsed().div_f64(CALLS as f64))
}

fn arguments() -> Value {
    json!({"text": "Is anybody there?"})
}

/// Ends when it is dropped.
struct Server {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Server {
    fn start() -> Result<Server> {
        let words = scripted(&[]);
        let mut child = Command::new(&words[0]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let to = child.stdin.take().ok_or("no stdin")?;
        let from = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        Ok(Server { child, to, from })
    }

    fn ask(&mut self, id: usize, method: &str, params: &Value) -> Result<()> {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.to.write_all(format!("{message}\n").as_bytes())?;
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        let answer: Value = serde_json::from_str(&line)?;
        if answer["id"] == id && answer["result"].is_object() { Ok(()) } else { Err(line.into()) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.child.kill().and_then(|()| self.child.wait());
    }
}
