//! Real servers: discover, call, restart from the cache without a process, change the configuration, die, disable.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use toolcrib::Code;
use toolcrib::core::freshness::Freshness;
use toolcrib::core::inventory::{Actor, Command as Wish};
use toolcrib::registry::{BreakerState, ConnectionState};
use toolcrib_testkit::programs::{self, Program};

use crate::support::{
    SqliteRegistry, agent, cached_tools, call, id, is_running, kill_process, list_tools, output_text, read_lines,
    wait_until, with_settings,
};

/// What is tried on a server: a tool, its arguments, and what its answer has in it.
struct SampleCall {
    tool: &'static str,
    input: Value,
    expected_text: &'static str,
}

/// The whole life of a stdio server.
async fn check_stdio_server(name: &str, program: Option<Program>, settings: Value, trial: SampleCall) {
    let Some((program, mut arguments)) = program else {
        return programs::skip(&format!("real::{name}"), "the server was not fetched");
    };
    let home = tempfile::tempdir().unwrap();
    let settings: Value =
        serde_json::from_str(&settings.to_string().replace("{home}", home.path().to_str().unwrap())).unwrap();
    if let Some(more) = settings.get("args") {
        arguments.extend(more.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()));
    }
    let counted = write_counting_script(home.path());
    arguments.insert(0, program.to_str().unwrap().to_owned());
    let env = settings.get("env").cloned().unwrap_or_else(|| json!({}));
    let source = json!({"command": counted, "args": arguments, "env": env});
    let starts = |workshop: &SqliteRegistry| read_lines(&workshop.path("starts"));
    let tool = format!("s__{}", trial.tool);
    let input: Value =
        serde_json::from_str(&trial.input.to_string().replace("{home}", home.path().to_str().unwrap())).unwrap();

    // Discover and call.
    let workshop = SqliteRegistry::open_in(home, json!({"s": source})).await;
    let listed = list_tools(&workshop).await;
    assert!(listed.contains(&tool), "{name}: {listed:?} {:?}", workshop.source(&id("s")).unwrap().last_error);
    let output = call(&workshop, &tool, input.clone()).await.unwrap();
    assert!(!output.is_error() && output_text(&output).contains(trial.expected_text), "{name}: {}", output.content());
    assert_eq!(starts(&workshop).len(), 2, "{name}: one to discover, one to call");

    // Restart: everything is there, and no process was started.
    let workshop = workshop.reopen(json!({"s": source})).await;
    assert_eq!(list_tools(&workshop).await, listed);
    assert_eq!(starts(&workshop).len(), 2, "{name}: from the cache");
    assert!(!starts(&workshop).iter().any(|pid| is_running(pid)), "{name}: closing ended them");

    // Another configuration: stale, and discovered again before the next call, by the process that then serves it.
    let workshop = workshop
        .reopen(json!({"s": with_settings(source.clone(), json!({"env": with_settings(env, json!({"MORE": "1"}))}))}))
        .await;
    assert_eq!((cached_tools(&workshop), workshop.source(&id("s")).unwrap().freshness), (listed, Freshness::Stale));
    call(&workshop, &tool, input.clone()).await.unwrap();
    assert_eq!(starts(&workshop).len(), 3, "{name}");
    assert_eq!(workshop.source(&id("s")).unwrap().freshness, Freshness::Fresh);

    // It dies between two calls, and nobody notices.
    kill_process(starts(&workshop).last().unwrap());
    wait_until("its end was noticed", || workshop.source(&id("s")).unwrap().connection == ConnectionState::None).await;
    let output = call(&workshop, &tool, input.clone()).await.unwrap();
    assert!(!output.is_error(), "{name}");
    assert_eq!(starts(&workshop).len(), 4, "{name}");

    // Disabled: its tools are gone at once, its process soon.
    workshop.execute(Wish::Disable(id("s")), Actor::new("somebody")).await.unwrap();
    assert!(cached_tools(&workshop).is_empty());
    let error = call(&workshop, &tool, input).await.unwrap_err();
    assert_eq!(error.code, Code::ToolNotImplemented);
    let last = starts(&workshop).pop().unwrap();
    wait_until("its process ended", || !is_running(&last)).await;
    workshop.registry.close().await;
}

/// A script that counts its starts and becomes what it is given.
fn write_counting_script(home: &Path) -> String {
    let path = home.join("counting");
    std::fs::write(&path, format!("#!/bin/sh\necho $$ >> '{}'\nexec \"$@\"\n", home.join("starts").display())).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn everything() {
    let trial = SampleCall { tool: "echo", input: json!({"message": "hello"}), expected_text: "hello" };
    check_stdio_server("everything", programs::everything_server(), json!({}), trial).await;
}

#[tokio::test]
async fn filesystem() {
    let trial = SampleCall { tool: "list_directory", input: json!({"path": "{home}"}), expected_text: "counting" };
    check_stdio_server("filesystem", programs::filesystem_server(), json!({"args": ["{home}"]}), trial).await;
}

#[tokio::test]
async fn memory() {
    let entity = json!({"entities": [{"name": "Ada", "entityType": "person", "observations": ["counts"]}]});
    let trial = SampleCall { tool: "create_entities", input: entity, expected_text: "" };
    check_stdio_server(
        "memory",
        programs::memory_server(),
        json!({"env": {"MEMORY_FILE_PATH": "{home}/memory.jsonl"}}),
        trial,
    )
    .await;
}

#[tokio::test]
async fn time() {
    let input = json!({"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"});
    check_stdio_server(
        "time",
        programs::time_server(),
        json!({}),
        SampleCall { tool: "convert_time", input, expected_text: "21:00" },
    )
    .await;
}

#[tokio::test]
async fn git() {
    let repository = tempfile::tempdir().unwrap();
    let path = repository.path().to_str().unwrap();
    let made = Command::new("git").args(["init", "-q", path]).status();
    if !made.is_ok_and(|status| status.success()) {
        return programs::skip("real::git", "`git` is not there");
    }
    let trial = SampleCall { tool: "git_status", input: json!({"repo_path": path}), expected_text: "branch" };
    check_stdio_server("git", programs::git_server(), json!({"args": ["--repository", path]}), trial).await;
}

#[tokio::test]
async fn rmcp() {
    let trial = SampleCall { tool: "sum", input: json!({"numbers": [1, 2, 3]}), expected_text: "6" };
    check_stdio_server("rmcp", Some((programs::rmcp_server(), Vec::new())), json!({}), trial).await;
}

#[tokio::test]
async fn python() {
    let trial = SampleCall { tool: "greet", input: json!({"name": "Ada"}), expected_text: "Hello, Ada!" };
    check_stdio_server("python", programs::python_server(), json!({}), trial).await;
}

#[tokio::test]
async fn typescript() {
    let trial = SampleCall { tool: "weather", input: json!({"city": "Ulm"}), expected_text: "clear" };
    check_stdio_server("typescript", programs::ts_server(), json!({}), trial).await;
}

#[tokio::test]
async fn a_call_that_only_reads_is_repeated_when_its_server_dies_under_it() {
    let Some((program, mut arguments)) = programs::everything_server() else {
        return programs::skip("real::a_call_that_only_reads_is_repeated", "the server was not fetched");
    };
    let home = tempfile::tempdir().unwrap();
    arguments.insert(0, program.to_str().unwrap().to_owned());
    let source = json!({"command": write_counting_script(home.path()), "args": arguments});
    let workshop = SqliteRegistry::open_in(home, json!({"s": source})).await;
    let (sender, mut progress) = tokio::sync::mpsc::channel(16);
    let options = toolcrib::CallOptions { progress: Some(sender), ..Default::default() };
    let (caller, input) = (agent(), json!({"duration": 1, "steps": 10}));
    let running = workshop.call(&caller, "s__trigger-long-running-operation", input, options);
    let (result, ()) = tokio::join!(running, async {
        assert!(progress.recv().await.is_some(), "it is under way");
        kill_process(&read_lines(&workshop.path("starts"))[0]);
        while progress.recv().await.is_some() {}
    });
    assert!(output_text(&result.unwrap()).contains("completed"));
    assert_eq!(read_lines(&workshop.path("starts")).len(), 2);
}

#[tokio::test]
async fn a_server_that_dies_in_mid_call_fails_that_call_and_serves_the_next() {
    let Some((program, mut arguments)) = programs::memory_server() else {
        return programs::skip("real::a_server_that_dies_in_mid_call", "the server was not fetched");
    };
    let home = tempfile::tempdir().unwrap();
    arguments.insert(0, program.to_str().unwrap().to_owned());
    // It writes to a pipe that nobody reads, and so never answers.
    let graph = home.path().join("graph");
    assert!(Command::new("mkfifo").arg(&graph).status().unwrap().success());
    let env = json!({"MEMORY_FILE_PATH": graph});
    let source = json!({"command": write_counting_script(home.path()), "args": arguments, "env": env});
    let workshop = SqliteRegistry::open_in(home, json!({"s": source})).await;
    list_tools(&workshop).await;
    let input = json!({"entities": [{"name": "Ada", "entityType": "person", "observations": []}]});
    let registry = workshop.registry.clone();
    let running = tokio::spawn(async move { call(&registry, "s__create_entities", input).await });
    wait_until("it is called", || workshop.source(&id("s")).unwrap().connection == ConnectionState::Connected).await;
    kill_process(read_lines(&workshop.path("starts")).last().unwrap());
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(error.code, Code::ToolExecutionFailed | Code::ToolUnavailable), "{}", error.message);
    std::fs::remove_file(&graph).unwrap();
    assert!(call(&workshop, "s__read_graph", json!({})).await.is_ok());
}

/// A server that listens, ended with the test.
pub(crate) struct HttpServerProcess(Child);

impl Drop for HttpServerProcess {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// A port below those that the kernel hands out, for one of these could be another test's before the server has it.
fn free_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id() % 12_000;
    let steps = std::iter::repeat_with(|| TAKEN.fetch_add(1, Ordering::Relaxed)).take(12_000);
    let mut ports = steps.map(|step| 20_000 + u16::try_from((start + step) % 12_000).unwrap());
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

/// Starts a server on a free port and waits until it takes connections.
pub(crate) async fn start_http_server(
    (program, arguments): Program,
    more: impl Fn(u16) -> Vec<String>,
) -> (HttpServerProcess, u16) {
    let port = free_port();
    let mut command = Command::new(program);
    command.args(arguments).args(more(port)).env("PORT", port.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let server = HttpServerProcess(command.spawn().unwrap());
    wait_until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok()).await;
    (server, port)
}

async fn check_http_server(source: Value, trial: SampleCall) -> SqliteRegistry {
    let workshop = SqliteRegistry::open(json!({"s": source})).await;
    let tool = format!("s__{}", trial.tool);
    let listed = list_tools(&workshop).await;
    assert!(listed.contains(&tool), "{listed:?} {:?}", workshop.source(&id("s")).unwrap().last_error);
    for _ in 0..2 {
        let output = call(&workshop, &tool, trial.input.clone()).await.unwrap();
        assert!(output_text(&output).contains(trial.expected_text), "{}", output.content());
    }
    let workshop = workshop.reopen(json!({"s": source})).await;
    assert_eq!(cached_tools(&workshop), listed);
    workshop
}

fn echo_call() -> SampleCall {
    SampleCall { tool: "echo", input: json!({"message": "far away"}), expected_text: "far away" }
}

#[tokio::test]
async fn everything_over_streamable_http() {
    let Some(program) = programs::everything_server() else {
        return programs::skip("real::everything_over_streamable_http", "the server was not fetched");
    };
    let (server, port) = start_http_server(program, |_| vec!["streamableHttp".to_owned()]).await;
    let workshop = check_http_server(json!({"url": format!("http://127.0.0.1:{port}/mcp")}), echo_call()).await;
    drop(server);
    let error = call(&workshop, "s__echo", json!({"message": "gone"})).await.unwrap_err();
    assert_eq!(error.code, Code::ToolUnavailable, "{}", error.message);
    assert!(!cached_tools(&workshop).is_empty(), "its list stays");
}

#[tokio::test]
async fn everything_over_sse() {
    let Some(program) = programs::everything_server() else {
        return programs::skip("real::everything_over_sse", "the server was not fetched");
    };
    let (_server, port) = start_http_server(program, |_| vec!["sse".to_owned()]).await;
    let url = format!("http://127.0.0.1:{port}/sse");
    check_http_server(json!({"url": url, "transport": "sse"}), echo_call()).await.registry.close().await;
}

#[tokio::test]
async fn python_over_http() {
    let Some(program) = programs::python_server() else {
        return programs::skip("real::python_over_http", "the server was not fetched");
    };
    let (_server, port) = start_http_server(program, |port| vec!["--http".to_owned(), port.to_string()]).await;
    let trial = SampleCall { tool: "greet", input: json!({"name": "Ada"}), expected_text: "Hello, Ada!" };
    check_http_server(json!({"url": format!("http://127.0.0.1:{port}/mcp")}), trial).await.registry.close().await;
}

#[tokio::test]
async fn rmcp_over_http() {
    let mut command = Command::new(programs::rmcp_server());
    let mut server = HttpServerProcess(command.arg("--http").stdout(Stdio::piped()).spawn().unwrap());
    let url = read_announced_url(&mut server);
    let trial = SampleCall { tool: "greet", input: json!({"name": "Ada"}), expected_text: "Hello, Ada!" };
    check_http_server(json!({"url": url}), trial).await.registry.close().await;
}

/// The address in `listening on URL`.
fn read_announced_url(server: &mut HttpServerProcess) -> String {
    let mut line = String::new();
    BufReader::new(server.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line.trim().rsplit(' ').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_forgotten_session_is_begun_anew() {
    let mut command = Command::new(programs::scripted_http_server());
    let mut server =
        HttpServerProcess(command.args(["--forget-session-after", "5"]).stdout(Stdio::piped()).spawn().unwrap());
    let workshop = SqliteRegistry::open(json!({"s": {"url": read_announced_url(&mut server)}})).await;
    for _ in 0..20 {
        assert_eq!(output_text(&call(&workshop, "s__echo", json!({"text": "hello"})).await.unwrap()), "hello");
    }
}

/// Refusals opened the breaker, and 401 looked like a broken server.
#[tokio::test]
async fn what_a_server_refuses_by_status_is_told_apart_and_does_not_move_the_breaker() {
    let scope = "WWW-Authenticate=Bearer error=\"insufficient_scope\"";
    for (status, header, code, retryable, retry_after) in [
        ("401 Unauthorized", "", Code::AuthRequired, false, json!(null)),
        ("403 Forbidden", scope, Code::AuthRequired, false, json!(null)),
        ("403 Forbidden", "", Code::ToolExecutionFailed, false, json!(null)),
        ("404 Not Found", "", Code::ToolUnavailable, false, json!(null)),
        ("405 Method Not Allowed", "", Code::ToolUnavailable, false, json!(null)),
        ("410 Gone", "", Code::ToolUnavailable, false, json!(null)),
        ("429 Too Many Requests", "Retry-After=7", Code::RateLimited, true, json!(7000)),
        ("503 Service Unavailable", "Retry-After=7", Code::RateLimited, true, json!(7000)),
    ] {
        let mut command = Command::new(programs::scripted_http_server());
        command.args(["--version", "2026-07-28", "--refuse-calls", status]);
        if !header.is_empty() {
            command.args(["--refuse-header", header]);
        }
        let mut server = HttpServerProcess(command.stdout(Stdio::piped()).spawn().unwrap());
        let workshop = SqliteRegistry::open(json!({"s": {"url": read_announced_url(&mut server)}})).await;
        for _ in 0..7 {
            let error = call(&workshop, "s__echo", json!({"text": "hello"})).await.unwrap_err();
            assert_eq!((error.code, error.is_retryable()), (code, retryable), "{status}: {}", error.message);
            let details = error.details.unwrap();
            assert_eq!(details["upstream_status"].to_string(), status[..3], "{details}");
            assert_eq!(details["retry_after_ms"], retry_after, "{status}");
        }
        let view = workshop.source(&id("s")).unwrap();
        assert_eq!((view.failures, view.breaker.state), (0, BreakerState::Closed), "{status}");
    }
}

#[tokio::test]
async fn a_server_that_wants_a_token_says_so_and_gets_it() {
    let mut command = Command::new(programs::scripted_http_server());
    let mut server =
        HttpServerProcess(command.args(["--require-bearer", "s3cret"]).stdout(Stdio::piped()).spawn().unwrap());
    let url = read_announced_url(&mut server);
    let workshop = SqliteRegistry::open(json!({"s": {"url": url}})).await;
    assert!(list_tools(&workshop).await.is_empty());
    let error = workshop.source(&id("s")).unwrap().last_error.unwrap();
    assert_eq!((error.code, error.retryable), (Code::AuthRequired, false));
    assert!(error.message.contains("HTTP 401"), "{}", error.message);
    assert!(error.message.contains("TOOLCRIB_SOURCE_S_TOKEN"), "{}", error.message);
    std::fs::write(workshop.path("token"), "s3cret\n").unwrap();
    let reference = format!("${{file:{}}}", workshop.path("token").display());
    let workshop = workshop.reopen(json!({"s": {"url": url, "auth": {"bearer": reference}}})).await;
    assert_eq!(list_tools(&workshop).await.len(), 3, "{:?}", workshop.source(&id("s")).unwrap().last_error);
}
