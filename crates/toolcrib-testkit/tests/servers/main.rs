//! Every server of the rig does what its description says.

#![expect(clippy::unwrap_used, clippy::panic, reason = "the helpers of a test may fail like the test itself")]

use serde_json::json;
use toolcrib_testkit::programs::{self, Program};

use crate::client::JsonLinesClient;

mod real;
mod scripted;

mod client;

/// Starts a server and finds these tools in its list.
#[track_caller]
fn check_tools(program: Option<Program>, wanted: &[&str]) {
    let Some((program, arguments)) = program else {
        return programs::skip(std::thread::current().name().unwrap_or("a server"), "it was not fetched");
    };
    let names = JsonLinesClient::start(&program, &arguments).tool_names(json!({}));
    for name in wanted {
        assert!(names.iter().any(|listed| listed == name), "`{name}` is not among {names:?}");
    }
}
