//! Every server of the rig answers a client that knows nothing but JSON lines.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use toolcrib_testkit::rig::{self, Program};

#[test]
fn the_scripted_server_answers() {
    check(Some((rig::scripted(), vec![])), &["add", "echo", "fail"]);
}

#[test]
fn the_rmcp_server_answers() {
    check(Some((rig::rmcp_server(), vec![])), &["greet", "sum"]);
}

#[test]
fn the_python_server_answers() {
    check(rig::python_server(), &["divide", "greet"]);
}

#[test]
fn the_typescript_server_answers() {
    check(rig::ts_server(), &["greet", "weather"]);
}

#[test]
fn server_everything_answers() {
    check(rig::everything(), &["echo", "get-sum"]);
}

#[test]
fn server_filesystem_answers() {
    let folder = std::env::temp_dir().to_string_lossy().into_owned();
    check(rig::filesystem().map(|program| with(program, &folder)), &["list_directory", "read_text_file"]);
}

#[test]
fn server_memory_answers() {
    check(rig::memory(), &["create_entities", "read_graph"]);
}

#[test]
fn server_time_answers() {
    check(rig::time(), &["convert_time", "get_current_time"]);
}

#[test]
fn server_git_answers() {
    check(rig::git(), &["git_log", "git_status"]);
}

/// Starts a server and finds these tools in its list.
#[track_caller]
fn check(program: Option<Program>, wanted: &[&str]) {
    let Some((program, arguments)) = program else {
        return rig::skip(std::thread::current().name().unwrap_or("a server"), "it was not fetched");
    };
    let mut client = Client::start(Command::new(program).args(arguments));
    let who = json!({"name": "rig", "version": "1"});
    client.ask("initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": who}));
    client.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let list = client.ask("tools/list", json!({}));
    let names: Vec<&str> = list["tools"].as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
    for name in wanted {
        assert!(names.contains(name), "`{name}` is not among {names:?}");
    }
}

fn with((program, mut arguments): Program, argument: &str) -> Program {
    arguments.push(argument.to_owned());
    (program, arguments)
}

/// Ends its server when it is dropped.
struct Client {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Client {
    fn start(command: &mut Command) -> Client {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Client { child, to, from }
    }

    fn say(&mut self, message: &Value) {
        self.to.write_all(format!("{message}\n").as_bytes()).unwrap();
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.say(&json!({"jsonrpc": "2.0", "id": method, "method": method, "params": params}));
        loop {
            let mut line = String::new();
            assert_ne!(self.from.read_line(&mut line).unwrap(), 0, "the server ended before it answered `{method}`");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == method {
                return message["result"].clone();
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}
