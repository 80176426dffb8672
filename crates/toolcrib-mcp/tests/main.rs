//! Tests of the MCP client and of the MCP server, each against scripted and against real counterparts.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test helpers panic on failure")]

mod client {
    //! Tests of the client against scripted servers, with correct and with faulty behaviour.

    mod http;
    mod http_errors;
    mod modern;
    mod stdio;
    mod stdio_errors;
    mod support;
    mod tasks;
}

mod server {
    //! Tests of the server side, with raw HTTP requests and lines and with our own client.

    mod client;
    mod client_requests;
    mod http;
    mod http_errors;
    mod sessions;
    mod stdio;
    mod support;
}

use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

fn to_raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap()
}

fn parse(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap()
}
