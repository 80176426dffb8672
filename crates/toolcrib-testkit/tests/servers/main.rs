//! Smoke tests of all servers that the test kit provides.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail like tests")]

use serde_json::json;
use toolcrib_testkit::programs::{self, Program};

use crate::client::JsonLinesClient;

mod real;
mod scripted;

mod client;

/// Starts a server and checks that its list contains these tools.
#[track_caller]
fn check_tools(program: Option<Program>, expected: &[&str]) {
    let Some((program, arguments)) = program else {
        return programs::skip(std::thread::current().name().unwrap_or("a server"), "the server was not fetched");
    };
    let names = JsonLinesClient::start(&program, &arguments).tool_names(json!({}));
    for name in expected {
        assert!(names.iter().any(|listed| listed == name), "`{name}` is not among {names:?}");
    }
}
