//! Real MCP servers: discovery, calls, restart from the cache, changed configuration, crashes, disabling.
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
use toolcrib::core::inventory::{Actor, Command as InventoryCommand};
use toolcrib::core::tool::TaskMode;
use toolcrib::registry::{BreakerState, ConnectionState};
use toolcrib_testkit::http_server::{HttpReply, LoopbackServer};
use toolcrib_testkit::programs::{self, Program};

use crate::support::{
    SqliteRegistry, agent, cached_tools, call, id, is_running, list_tools, output_text, read_lines, send_signal,
    wait_until, with_settings,
};

/// A tool to call, its arguments, and text that the result must contain.
struct SampleCall {
    tool: &'static str,
    input: Value,
    expected_text: &'static str,
}

/// Checks the whole lifecycle of a stdio server.
async fn check_stdio_server(name: &str, program: Option<Program>, settings: Value, sample: SampleCall) {
    let Some((program, mut arguments)) = program else {
        return programs::skip(&format!("real_servers::{name}"), "the server was not fetched");
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
    let starts = |fixture: &SqliteRegistry| read_lines(&fixture.path("starts"));
    let tool = format!("s__{}", sample.tool);
    let input: Value =
        serde_json::from_str(&sample.input.to_string().replace("{home}", home.path().to_str().unwrap())).unwrap();

    // Discover and call.
    let fixture = SqliteRegistry::open_in(home, json!({"s": source})).await;
    let listed = list_tools(&fixture).await;
    assert!(listed.contains(&tool), "{name}: {listed:?} {:?}", fixture.sources().get(&id("s")).unwrap().last_error);
    let output = call(&fixture, &tool, input.clone()).await.unwrap();
    assert!(!output.is_error() && output_text(&output).contains(sample.expected_text), "{name}: {}", output.content());
    assert_eq!(starts(&fixture).len(), 2, "{name}: one to discover, one to call");

    // Restart: the list comes from the store, and no process is started.
    let fixture = fixture.reopen(json!({"s": source})).await;
    assert_eq!(list_tools(&fixture).await, listed);
    assert_eq!(starts(&fixture).len(), 2, "{name}: from the cache");
    assert!(!starts(&fixture).iter().any(|pid| is_running(pid)), "{name}: closing ended them");

    // Changed configuration: the list is stale, and the process of the next call refreshes it first.
    let fixture = fixture
        .reopen(json!({"s": with_settings(source.clone(), json!({"env": with_settings(env, json!({"MORE": "1"}))}))}))
        .await;
    assert_eq!(
        (cached_tools(&fixture), fixture.sources().get(&id("s")).unwrap().freshness),
        (listed, Freshness::Stale)
    );
    call(&fixture, &tool, input.clone()).await.unwrap();
    assert_eq!(starts(&fixture).len(), 3, "{name}");
    assert_eq!(fixture.sources().get(&id("s")).unwrap().freshness, Freshness::Fresh);

    // A crash between two calls does not affect the caller.
    send_signal("KILL", starts(&fixture).last().unwrap());
    wait_until("its end was noticed", || fixture.sources().get(&id("s")).unwrap().connection == ConnectionState::None)
        .await;
    let output = call(&fixture, &tool, input.clone()).await.unwrap();
    assert!(!output.is_error(), "{name}");
    assert_eq!(starts(&fixture).len(), 4, "{name}");

    // Disabled: the tools are removed at once, the process soon after.
    fixture.execute(InventoryCommand::Disable(id("s")), Actor::new("operator")).await.unwrap();
    assert!(cached_tools(&fixture).is_empty());
    let error = call(&fixture, &tool, input).await.unwrap_err();
    assert_eq!(error.code, Code::ToolNotImplemented);
    let last = starts(&fixture).pop().unwrap();
    wait_until("its process ended", || !is_running(&last)).await;
    fixture.registry.close().await;
}

/// Writes a script that records its process id and then executes its arguments.
fn write_counting_script(home: &Path) -> String {
    let path = home.join("counting");
    std::fs::write(&path, format!("#!/bin/sh\necho $$ >> '{}'\nexec \"$@\"\n", home.join("starts").display())).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn everything() {
    let sample = SampleCall { tool: "echo", input: json!({"message": "hello"}), expected_text: "hello" };
    check_stdio_server("everything", programs::everything_server(), json!({}), sample).await;
}

#[tokio::test]
async fn filesystem() {
    let sample = SampleCall { tool: "list_directory", input: json!({"path": "{home}"}), expected_text: "counting" };
    check_stdio_server("filesystem", programs::filesystem_server(), json!({"args": ["{home}"]}), sample).await;
}

#[tokio::test]
async fn memory() {
    let entity = json!({"entities": [{"name": "Ada", "entityType": "person", "observations": ["counts"]}]});
    let sample = SampleCall { tool: "create_entities", input: entity, expected_text: "" };
    check_stdio_server(
        "memory",
        programs::memory_server(),
        json!({"env": {"MEMORY_FILE_PATH": "{home}/memory.jsonl"}}),
        sample,
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
        return programs::skip("real_servers::git", "`git` is not installed");
    }
    let sample = SampleCall { tool: "git_status", input: json!({"repo_path": path}), expected_text: "branch" };
    check_stdio_server("git", programs::git_server(), json!({"args": ["--repository", path]}), sample).await;
}

#[tokio::test]
async fn rmcp() {
    let sample = SampleCall { tool: "sum", input: json!({"numbers": [1, 2, 3]}), expected_text: "6" };
    check_stdio_server("rmcp", Some((programs::rmcp_server(), Vec::new())), json!({}), sample).await;
}

#[tokio::test]
async fn python() {
    let sample = SampleCall { tool: "greet", input: json!({"name": "Ada"}), expected_text: "Hello, Ada!" };
    check_stdio_server("python", programs::python_server(), json!({}), sample).await;
}

#[tokio::test]
async fn typescript() {
    let sample = SampleCall { tool: "weather", input: json!({"city": "Ulm"}), expected_text: "clear" };
    check_stdio_server("typescript", programs::ts_server(), json!({}), sample).await;
}

#[tokio::test]
async fn a_read_only_call_is_repeated_when_its_server_crashes() {
    let Some((program, mut arguments)) = programs::everything_server() else {
        return programs::skip(
            "real_servers::a_read_only_call_is_repeated_when_its_server_crashes",
            "the server was not fetched",
        );
    };
    let home = tempfile::tempdir().unwrap();
    arguments.insert(0, program.to_str().unwrap().to_owned());
    let source = json!({"command": write_counting_script(home.path()), "args": arguments});
    let fixture = SqliteRegistry::open_in(home, json!({"s": source})).await;
    let (listener, mut progress) = toolcrib::testkit::progress_channel();
    let input = json!({"duration": 1, "steps": 10});
    let call = fixture.call("s__trigger-long-running-operation", input).on_progress(listener).caller(agent());
    let running = call.into_future();
    let (result, ()) = tokio::join!(running, async {
        assert!(progress.recv().await.is_some(), "it is under way");
        send_signal("KILL", &read_lines(&fixture.path("starts"))[0]);
        while progress.recv().await.is_some() {}
    });
    assert!(output_text(&result.unwrap()).contains("completed"));
    assert_eq!(read_lines(&fixture.path("starts")).len(), 2);
}

#[tokio::test]
async fn a_crash_fails_the_running_call_and_the_next_one_works() {
    let Some((program, mut arguments)) = programs::memory_server() else {
        return programs::skip(
            "real_servers::a_crash_fails_the_running_call_and_the_next_one_works",
            "the server was not fetched",
        );
    };
    let home = tempfile::tempdir().unwrap();
    arguments.insert(0, program.to_str().unwrap().to_owned());
    // The server writes to a FIFO without a reader, so the call never ends.
    let graph = home.path().join("graph");
    assert!(Command::new("mkfifo").arg(&graph).status().unwrap().success());
    let env = json!({"MEMORY_FILE_PATH": graph});
    let source = json!({"command": write_counting_script(home.path()), "args": arguments, "env": env});
    let fixture = SqliteRegistry::open_in(home, json!({"s": source})).await;
    list_tools(&fixture).await;
    let input = json!({"entities": [{"name": "Ada", "entityType": "person", "observations": []}]});
    let registry = fixture.registry.clone();
    let running = tokio::spawn(async move { call(&registry, "s__create_entities", input).await });
    wait_until("it is called", || fixture.sources().get(&id("s")).unwrap().connection == ConnectionState::Connected)
        .await;
    send_signal("KILL", read_lines(&fixture.path("starts")).last().unwrap());
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(error.code, Code::ToolExecutionFailed | Code::ToolUnavailable), "{}", error.message);
    std::fs::remove_file(&graph).unwrap();
    assert!(call(&fixture, "s__read_graph", json!({})).await.is_ok());
}

/// RAII guard for a server process; kills it on drop.
pub(crate) struct HttpServerProcess(Child);

impl Drop for HttpServerProcess {
    fn drop(&mut self) {
        // Both fail only if the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a free port below the ephemeral range, where no other test gets it before the server binds it.
fn free_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id() % 12_000;
    let steps = std::iter::repeat_with(|| TAKEN.fetch_add(1, Ordering::Relaxed)).take(12_000);
    let mut ports = steps.map(|step| 20_000 + u16::try_from((start + step) % 12_000).unwrap());
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

/// Starts a server on a free port and waits until it accepts connections.
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

async fn check_http_server(source: Value, sample: SampleCall) -> SqliteRegistry {
    let fixture = SqliteRegistry::open(json!({"s": source})).await;
    let tool = format!("s__{}", sample.tool);
    let listed = list_tools(&fixture).await;
    assert!(listed.contains(&tool), "{listed:?} {:?}", fixture.sources().get(&id("s")).unwrap().last_error);
    for _ in 0..2 {
        let output = call(&fixture, &tool, sample.input.clone()).await.unwrap();
        assert!(output_text(&output).contains(sample.expected_text), "{}", output.content());
    }
    let fixture = fixture.reopen(json!({"s": source})).await;
    assert_eq!(cached_tools(&fixture), listed);
    fixture
}

fn echo_call() -> SampleCall {
    SampleCall { tool: "echo", input: json!({"message": "far away"}), expected_text: "far away" }
}

#[tokio::test]
async fn everything_over_streamable_http() {
    let Some(program) = programs::everything_server() else {
        return programs::skip("real_servers::everything_over_streamable_http", "the server was not fetched");
    };
    let (server, port) = start_http_server(program, |_| vec!["streamableHttp".to_owned()]).await;
    let fixture = check_http_server(json!({"url": format!("http://127.0.0.1:{port}/mcp")}), echo_call()).await;
    drop(server);
    let error = call(&fixture, "s__echo", json!({"message": "gone"})).await.unwrap_err();
    assert_eq!(error.code, Code::ToolUnavailable, "{}", error.message);
    assert!(!cached_tools(&fixture).is_empty(), "its list stays");
}

#[tokio::test]
async fn everything_over_sse() {
    let Some(program) = programs::everything_server() else {
        return programs::skip("real_servers::everything_over_sse", "the server was not fetched");
    };
    let (_server, port) = start_http_server(program, |_| vec!["sse".to_owned()]).await;
    let url = format!("http://127.0.0.1:{port}/sse");
    check_http_server(json!({"url": url, "transport": "sse"}), echo_call()).await.registry.close().await;
}

#[tokio::test]
async fn python_over_http() {
    let Some(program) = programs::python_server() else {
        return programs::skip("real_servers::python_over_http", "the server was not fetched");
    };
    let (_server, port) = start_http_server(program, |port| vec!["--http".to_owned(), port.to_string()]).await;
    let sample = SampleCall { tool: "greet", input: json!({"name": "Ada"}), expected_text: "Hello, Ada!" };
    check_http_server(json!({"url": format!("http://127.0.0.1:{port}/mcp")}), sample).await.registry.close().await;
}

#[tokio::test]
async fn rmcp_over_http() {
    let mut command = Command::new(programs::rmcp_server());
    let mut server = HttpServerProcess(command.arg("--http").stdout(Stdio::piped()).spawn().unwrap());
    let url = read_announced_url(&mut server);
    let sample = SampleCall { tool: "greet", input: json!({"name": "Ada"}), expected_text: "Hello, Ada!" };
    check_http_server(json!({"url": url}), sample).await.registry.close().await;
}

/// Reads the URL from the line `listening on URL`.
fn read_announced_url(server: &mut HttpServerProcess) -> String {
    let mut line = String::new();
    BufReader::new(server.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line.trim().rsplit(' ').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_lost_session_is_renewed() {
    let mut command = Command::new(programs::scripted_http_server());
    let mut server =
        HttpServerProcess(command.args(["--forget-session-after", "5"]).stdout(Stdio::piped()).spawn().unwrap());
    let fixture = SqliteRegistry::open(json!({"s": {"url": read_announced_url(&mut server)}})).await;
    for _ in 0..20 {
        assert_eq!(output_text(&call(&fixture, "s__echo", json!({"text": "hello"})).await.unwrap()), "hello");
    }
}

/// Regression: rejections opened the breaker, and 401 looked like a broken server.
#[tokio::test]
async fn http_errors_have_different_codes_and_do_not_affect_the_breaker() {
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
        let fixture = SqliteRegistry::open(json!({"s": {"url": read_announced_url(&mut server)}})).await;
        for _ in 0..7 {
            let error = call(&fixture, "s__echo", json!({"text": "hello"})).await.unwrap_err();
            assert_eq!((error.code, error.is_retryable()), (code, retryable), "{status}: {}", error.message);
            let details = error.details.unwrap();
            assert_eq!(details["upstream_status"].to_string(), status[..3], "{details}");
            assert_eq!(details["retry_after_ms"], retry_after, "{status}");
        }
        let view = fixture.sources().get(&id("s")).unwrap();
        assert_eq!((view.failures, view.breaker.state), (0, BreakerState::Closed), "{status}");
    }
}

#[tokio::test]
async fn a_missing_token_is_reported_and_a_configured_one_is_sent() {
    let mut command = Command::new(programs::scripted_http_server());
    let mut server =
        HttpServerProcess(command.args(["--require-bearer", "s3cret"]).stdout(Stdio::piped()).spawn().unwrap());
    let url = read_announced_url(&mut server);
    let fixture = SqliteRegistry::open(json!({"s": {"url": url}})).await;
    assert!(list_tools(&fixture).await.is_empty());
    let error = fixture.sources().get(&id("s")).unwrap().last_error.unwrap();
    assert_eq!((error.code, error.retryable), (Code::AuthRequired, false));
    assert!(error.message.contains("HTTP 401"), "{}", error.message);
    assert!(error.message.contains("TOOLCRIB_SOURCE_S_TOKEN"), "{}", error.message);
    std::fs::write(fixture.path("token"), "s3cret\n").unwrap();
    let reference = format!("${{file:{}}}", fixture.path("token").display());
    let fixture = fixture.reopen(json!({"s": {"url": url, "auth": {"bearer": reference}}})).await;
    assert_eq!(list_tools(&fixture).await.len(), 3, "{:?}", fixture.sources().get(&id("s")).unwrap().last_error);
}

/// `server-everything` rejects a call of this tool that is no task.
async fn check_research_task(source: Value) {
    let fixture = SqliteRegistry::open(json!({"s": source})).await;
    let tool = "s__simulate-research-query";
    assert!(list_tools(&fixture).await.contains(&tool.to_owned()));
    let execution = fixture.tool(tool).unwrap().execution();
    assert_eq!(execution.task_support, Some(TaskMode::Required));
    let output = call(&fixture, tool, json!({"topic": "tides"})).await.unwrap();
    assert!(!output.is_error() && output_text(&output).contains("Research Report: tides"), "{}", output.content());
    fixture.registry.close().await;
}

#[tokio::test]
async fn a_tool_that_requires_a_task_is_called_as_one() {
    let Some((program, arguments)) = programs::everything_server() else {
        return programs::skip(
            "real_servers::a_tool_that_requires_a_task_is_called_as_one",
            "the server was not fetched",
        );
    };
    check_research_task(json!({"command": program, "args": arguments})).await;
    let (_server, port) = start_http_server((program, arguments), |_| vec!["streamableHttp".to_owned()]).await;
    check_research_task(json!({"url": format!("http://127.0.0.1:{port}/mcp")})).await;
}

#[tokio::test]
async fn a_server_that_wants_an_oauth_login_is_explained() {
    let metadata = json!({"resource": "x", "authorization_servers": ["https://id.example.com/realm?key=s3cret"],
        "scopes_supported": ["notes.read", "notes.write"]});
    for (challenge, names_write) in
        [("Bearer resource_metadata=\"/meta\", scope=\"notes.read\"", false), ("Bearer realm=\"x\"", true)]
    {
        let answer = metadata.clone();
        let server = LoopbackServer::start(move |request| match request.target.as_str() {
            "/meta" | "/.well-known/oauth-protected-resource/mcp" => HttpReply::json(200, &answer),
            _ => HttpReply::empty(401).with_header("WWW-Authenticate", challenge),
        });
        let url = format!("{}/mcp", server.url);
        let fixture = SqliteRegistry::open(json!({"s": {"url": format!("{url}?token=hunter2")}})).await;
        assert!(list_tools(&fixture).await.is_empty());
        let error = fixture.sources().get(&id("s")).unwrap().last_error.unwrap();
        assert_eq!((error.code, error.retryable), (Code::AuthRequired, false));
        let message = error.message;
        for part in [
            "HTTP 401",
            "wants an OAuth login at `https://id.example.com/realm",
            "`notes.read`",
            &format!("`npx -y mcp-remote {url}"),
            "TOOLCRIB_SOURCE_S_TOKEN",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert!(!message.contains("hunter2") && !message.contains("s3cret"), "{message}");
        assert_eq!(message.contains("`notes.write`"), names_write, "{message}");
        let error = call(&fixture, "s__anything", json!({})).await.unwrap_err();
        assert_eq!((error.code, error.is_retryable()), (Code::AuthRequired, false), "{}", error.message);
    }
}

#[tokio::test]
async fn a_call_that_needs_a_login_says_where_to_log_in() {
    let server = LoopbackServer::start(|request| match request.rpc_method().as_str() {
        "server/discover" => {
            request.rpc_result(&json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}))
        }
        "tools/list" => request.rpc_result(&json!({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]})),
        "tools/call" => HttpReply::empty(401).with_header("WWW-Authenticate", "Bearer resource_metadata=\"/meta\""),
        _ if request.target == "/meta" => {
            HttpReply::json(200, json!({"authorization_servers": ["https://id.example.com"]}))
        }
        _ => HttpReply::empty(404),
    });
    let url = format!("{}/mcp", server.url);
    let fixture = SqliteRegistry::open(json!({"s": {"url": url}})).await;
    for _ in 0..2 {
        let error = call(&fixture, "s__t", json!({})).await.unwrap_err();
        assert_eq!((error.code, error.is_retryable()), (Code::AuthRequired, false), "{}", error.message);
        assert!(error.message.contains("wants an OAuth login at `https://id.example.com`"), "{}", error.message);
        let login = &error.details.unwrap()["login"];
        assert_eq!(login["command"], json!(format!("npx -y mcp-remote {url}")));
    }
    let fetched = server.requests().iter().filter(|request| request.target == "/meta").count();
    assert_eq!(fetched, 1, "the metadata is not fetched for each call");
}
