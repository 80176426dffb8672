//! Real servers, and test servers based on the official SDKs.

use toolcrib_testkit::programs::{self, Program};

use crate::check_tools;

#[test]
fn the_rmcp_server_answers() {
    check_tools(Some((programs::rmcp_server(), vec![])), &["echo", "greet", "sum"]);
}

#[test]
fn the_python_server_answers() {
    check_tools(programs::python_server(), &["divide", "greet"]);
}

#[test]
fn the_typescript_server_answers() {
    check_tools(programs::ts_server(), &["greet", "weather"]);
}

#[test]
fn server_everything_answers() {
    check_tools(programs::everything_server(), &["echo", "get-sum"]);
}

#[test]
fn server_filesystem_answers() {
    let folder = std::env::temp_dir().to_string_lossy().into_owned();
    check_tools(
        programs::filesystem_server().map(|program| with_argument(program, &folder)),
        &["list_directory", "read_text_file"],
    );
}

#[test]
fn server_memory_answers() {
    check_tools(programs::memory_server(), &["create_entities", "read_graph"]);
}

#[test]
fn server_time_answers() {
    check_tools(programs::time_server(), &["convert_time", "get_current_time"]);
}

#[test]
fn server_git_answers() {
    check_tools(programs::git_server(), &["git_log", "git_status"]);
}

fn with_argument((program, mut arguments): Program, argument: &str) -> Program {
    arguments.push(argument.to_owned());
    (program, arguments)
}
