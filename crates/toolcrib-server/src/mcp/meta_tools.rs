//! Definitions of the three meta tools through which an agent finds, describes and calls all others.
//!
//! Their names have no prefix. Where tools of sources are listed without prefixes too, `listing_cache` keeps them from
//! taking one of these names.

use std::sync::LazyLock;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::response::to_raw;

/// Name of the tool that finds tools.
pub(super) const SEARCH_TOOLS: &str = "search_tools";
/// Name of the tool that returns the arguments of tools.
pub(super) const DESCRIBE_TOOLS: &str = "describe_tools";
/// Name of the tool that calls a tool, or reads a page of an earlier result.
pub(super) const CALL_TOOL: &str = "call_tool";

/// The meta tools as they are listed, by name. Every word in the descriptions costs every agent tokens. Sorted by name
/// like every list. The signatures below repeat the arguments in short.
pub(super) static META_TOOLS: LazyLock<Vec<(&'static str, Value)>> = LazyLock::new(|| {
    vec![
        (
            CALL_TOOL,
            json!({
                "name": CALL_TOOL,
                "description": "Call a tool found with search_tools. Large results come in pages: pass `page` to read the next one.",
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        "name": { "type": "string", "description": "Tool name, e.g. source__tool" },
                        "arguments": { "type": "object", "description": "The tool's own arguments" },
                        "page": { "type": "string", "description": "Cursor of a paged result; calls nothing" },
                    },
                    "required": ["name"],
                },
            }),
        ),
        (
            DESCRIBE_TOOLS,
            json!({
                "name": DESCRIBE_TOOLS,
                "description": "Arguments of tools by name; `full` gives whole schemas.",
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        "names": { "type": "array", "items": { "type": "string" } },
                        "full": { "type": "boolean" },
                    },
                    "required": ["names"],
                },
                "annotations": { "readOnlyHint": true },
            }),
        ),
        (
            SEARCH_TOOLS,
            json!({
                "name": SEARCH_TOOLS,
                "description": "Find tools by what they do, or by name. Returns one line per tool: name(required*: type, optional: type) — purpose.",
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        "query": { "type": "string", "description": "What you want to do, in a few words" },
                        "limit": { "type": "integer", "description": "Default 5" },
                    },
                    "required": ["query"],
                },
                "annotations": { "readOnlyHint": true },
            }),
        ),
    ]
});

/// Returns the input schema of a meta tool; `None` for other tools.
pub(super) fn input_schema(name: &str) -> Option<Box<RawValue>> {
    let (_, tool) = META_TOOLS.iter().find(|(known, _)| *known == name)?;
    Some(to_raw(&tool["inputSchema"]))
}

/// Returns the signature of a meta tool, for errors about its arguments.
pub(super) fn signature(name: &str) -> &'static str {
    match name {
        SEARCH_TOOLS => "search_tools(query*: string, limit: integer)",
        DESCRIBE_TOOLS => "describe_tools(names*: array of string, full: boolean)",
        _ => "call_tool(name*: string, arguments: object, page: string)",
    }
}
