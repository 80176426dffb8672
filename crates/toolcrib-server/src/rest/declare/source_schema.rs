//! OpenAPI schemas of the keys of a source, which are those of a configuration file.

use serde_json::{Value, json};

use crate::rest::openapi_schema::{
    boolean, closed, described, nullable, object_schema, partial_object, string_array, string_enum, text, with_optional,
};
use crate::rest::route::schema_ref;

/// Schemas of the routes that declare and change sources.
pub(in crate::rest) fn schemas() -> Vec<(&'static str, Value)> {
    let keys = source_keys();
    let name = described(text(), "Name of the source, the prefix of its tools: `name__tool`");
    let new = with_optional(keys.clone(), &[("name", name), ("id", described(text(), "Alias of `name`"))]);
    let declared = object_schema(&[("outcome", nullable(schema_ref("Outcome")))]);
    vec![
        ("SourceKeys", keys),
        ("NewSource", new),
        ("DeclaredSource", json!({ "allOf": [schema_ref("Source"), declared] })),
    ]
}

/// Schema of all keys. Each may be `null`: in a declaration it counts as missing, in a patch it removes the key.
fn source_keys() -> Value {
    let object = |about: &str| json!({ "type": ["object", "null"], "description": about });
    let text = |about: &str| described(nullable(text()), about);
    let flag = |about: &str| described(nullable(boolean()), about);
    let list = |about: &str| described(nullable(string_array()), about);
    let map = |value: Value, about: &str| json!({ "type": ["object", "null"], "additionalProperties": value, "description": about });
    let pairs = |about: &str| map(json!({ "type": ["string", "null"] }), about);
    closed(partial_object(&[
        ("command", text("Program of an MCP server on stdio")),
        ("args", list("Arguments of the program")),
        ("env", pairs("Environment variables of the program; values may be references such as `${env:NAME}`")),
        ("cwd", text("Working directory of the program")),
        ("inherit_env", list("Environment variables of Toolcrib that the program inherits")),
        ("url", text("URL of a remote MCP server")),
        ("transport", nullable_enum(&["http", "sse", "stdio"])),
        ("headers", pairs("HTTP headers of every request")),
        ("protocol", nullable_enum(&["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"])),
        ("auth", object("`bearer`, `basic`, `api_key`, `oauth2` or `schemes`")),
        ("openapi", text("File or URL of the OpenAPI document of an API")),
        ("base_url", text("Base URL of requests, instead of the one in the document")),
        ("include", list("Only these operations, by globs")),
        ("exclude", list("All operations except these, by globs")),
        ("include_tags", list("Only operations with one of these tags")),
        ("methods", list("Only operations with one of these methods")),
        ("variables", pairs("Variables of the server URLs in the document")),
        ("allow_refs", list("Further files and URLs that the document may refer to")),
        ("poll", object("Polling of asynchronous operations")),
        ("workflow", text("File of an Arazzo document with workflows")),
        (
            "builtin",
            json!({ "description": "`all`, or names of built-in tools", "anyOf": [{ "type": "string", "enum": ["all"] }, string_array(), { "type": "null" }] }),
        ),
        ("roots", list("Directories that built-in file tools may access")),
        ("allow_private", flag("Allow requests to private addresses")),
        ("ttl", text("How long the tool list is fresh, such as `5m`")),
        ("connect_timeout", text("A duration such as `5s`")),
        ("first_start_timeout", text("Timeout of the first discovery of a stdio server, such as `120s`")),
        ("discovery_timeout", text("A duration such as `30s`")),
        ("call_timeout", text("A duration such as `60s`")),
        ("idle", text("Idle time after which a connection is closed")),
        ("result_limit", text("Size above which a result is split into pages, such as `256KiB`")),
        ("on_conflict", nullable_enum(&["exclude", "keep"])),
        ("lifecycle", nullable_enum(&["shared", "transient", "per_client"])),
        ("results", nullable_enum(&["clean", "raw"])),
        ("validate", nullable_enum(&["strict", "lenient"])),
        ("trust_hints", flag("Whether the hints of the server say how risky its tools are")),
        ("enabled", flag("Whether agents see its tools")),
        ("title", text("Title for people")),
        ("tags", list("Tags to search by")),
        ("essential", list("Essential tools, listed in the summary for agents, by globs")),
        ("nodes", list("Labels of the nodes that may start it; every node without it")),
        ("limits", object("Limits on calls of all callers together: `calls_per_minute`, `concurrent_calls`")),
        ("tools", map(string_enum(&["allow", "ask", "deny", "hide"]), "Policies by globs on the tool names")),
    ]))
}

/// Schema of one of these values or `null`; without a `type`, because `null` has another one.
fn nullable_enum(values: &[&str]) -> Value {
    let mut choices: Vec<Value> = values.iter().map(|value| json!(value)).collect();
    choices.push(Value::Null);
    json!({ "enum": choices })
}
