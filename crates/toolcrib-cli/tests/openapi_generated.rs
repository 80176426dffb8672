//! A thousand generated calls through `toolcrib serve` to APIs that validate them with their documents: hypothesis generates
//! the arguments from the schemas that agents see, openapi-core validates the requests. The scripts are in
//! `fixtures/generated`; the expectations are here.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use toolcrib_testkit::programs::{self, Program};

use crate::support::test_server::{TEST_TIMEOUT, TestWorkspace, read_or_empty};

/// Timeout for all calls together, which take a minute on two busy cores.
const CALLS_TIMEOUT: Duration = Duration::from_secs(400);

/// Allowed refusals of valid arguments, which HTTP cannot express.
const ALLOWED_REFUSALS: [&str; 6] = [
    "argument `…` is part of a path and must not be empty",
    "argument `…` is part of a path and must not make it `…` or `…`",
    "argument `…` is part of a path and must not have `…` between slashes, also percent-encoded",
    "argument `…` is required and must not be empty, since an empty value would not be sent",
    "argument `…` is sent in a header and must not have line breaks or other control characters",
    "argument `…` is sent in a header and must not begin or end with a space, which servers trim",
];

#[test]
fn a_thousand_generated_calls_match_the_documents() {
    let Some(program) = programs::generated_calls() else {
        let test = "a_thousand_generated_calls_match_the_documents";
        return programs::skip(test, "hypothesis and openapi-core were not fetched");
    };
    let report = run_generated_calls(&program);
    let number = |name: &str| report[name].as_u64().unwrap();
    let texts = |list: &Value| list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect();
    let none = Vec::<String>::new();
    assert_eq!((texts(&report["faults"]), texts(&report["differences"])), (none.clone(), none.clone()));
    assert_eq!((texts(&report["failed"]), texts(&report["pruned"])), (none.clone(), none.clone()));
    assert!(number("arrived") >= 1_000, "{report}");
    assert_eq!(number("tools"), 29);
    assert_eq!(report["operations"].as_object().unwrap().len(), 29, "{}", report["operations"]);

    let refused = report["refused"].as_object().unwrap();
    let unknown: Vec<&String> = refused.keys().filter(|reason| !ALLOWED_REFUSALS.contains(&reason.as_str())).collect();
    assert_eq!(unknown, Vec::<&String>::new());
    let refusals: u64 = refused.values().map(|count| count.as_u64().unwrap()).sum();
    assert!(refusals * 10 < number("calls"), "{refused:?}");

    let wrong = &report["wrong"];
    assert_eq!(texts(&wrong["arrived"]), none);
    assert!(wrong["calls"].as_u64().unwrap() >= 200, "{wrong}");
    assert_eq!(wrong["codes"], json!({ "TOOL_INVALID_INPUT": wrong["calls"] }));
}

/// Runs the generated calls and returns their report.
fn run_generated_calls(program: &Program) -> Value {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let kitchen = here.join("../../fixtures/openapi/kitchen.yaml");
    let shop = here.join("../toolcrib-demo/src/rest_api/openapi.json");
    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    let documents = [format!("kitchen={}", kitchen.display()), format!("shop={}", shop.display())];
    let (mut calls, lines) = CallsProcess::start(&workspace, program, &documents);
    let log = || read_or_empty(&workspace.path("calls.log"));
    let Ok(listening) = lines.recv_timeout(TEST_TIMEOUT) else { panic!("it did not start: {}", log()) };
    let url = listening.strip_prefix("listening on ").unwrap();

    let key = json!({"api_key": {"name": "key", "in": "query", "value": "k"}});
    let sources = json!({
        "kitchen": {"openapi": kitchen, "base_url": format!("{url}/kitchen"),
            "auth": {"schemes": {"key": key, "token": {"bearer": "t"}}}},
        "shop": {"openapi": shop, "base_url": format!("{url}/shop"), "auth": {"bearer": "corner-shop"}},
    });
    workspace.configure(&sources, &json!({"mode": "full"}));
    workspace.discover();
    let server = workspace.serve();
    writeln!(calls.0.stdin.take().unwrap(), "{}", server.mcp_url()).unwrap();
    let Ok(report) = lines.recv_timeout(CALLS_TIMEOUT) else {
        panic!("it printed no report: {}\n{}", log(), read_or_empty(&workspace.path("serve.log")));
    };
    serde_json::from_str(&report).unwrap()
}

/// The running script; killed on drop.
struct CallsProcess(Child);

impl CallsProcess {
    /// Starts the script; the receiver gets every line of its stdout.
    fn start(
        workspace: &TestWorkspace,
        (program, first): &Program,
        documents: &[String],
    ) -> (CallsProcess, mpsc::Receiver<String>) {
        let mut command = Command::new(program);
        workspace.isolate(&mut command);
        command.args(first).args(documents).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Python must not write its cache beside the scripts.
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command.stderr(std::fs::File::create(workspace.path("calls.log")).unwrap());
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // The receiver may have been dropped.
                let _ = sender.send(line);
            }
        });
        (CallsProcess(child), lines)
    }
}

impl Drop for CallsProcess {
    fn drop(&mut self) {
        // Fails if the process has already ended.
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}
