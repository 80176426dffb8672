//! The real servers, and ours on the official SDKs.

use toolcrib_testkit::rig::{self, Program};

use crate::check;

#[test]
fn the_rmcp_server_answers() {
    check(Some((rig::rmcp_server(), vec![])), &["echo", "greet", "sum"]);
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

fn with((program, mut arguments): Program, argument: &str) -> Program {
    arguments.push(argument.to_owned());
    (program, arguments)
}
