//! Tests of the MCP client and of the MCP server, each against scripted and against real counterparts.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test helpers panic on failure")]

mod client;
mod server;

use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

fn to_raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap()
}

fn parse(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap()
}
