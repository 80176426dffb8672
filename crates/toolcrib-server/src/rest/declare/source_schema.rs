//! The keys of a source, as a configuration file has them.

use serde_json::{Map, Value, json};

use crate::rest::openapi_schema::{nullable, object_schema, partial_object, string_array, string_enum};
use crate::rest::route::schema_ref;

pub(in crate::rest) fn schemas() -> Vec<(&'static str, Value)> {
    let keys = source_keys();
    let mut new = keys.clone();
    new["properties"]["name"] =
        json!({ "type": "string", "description": "Becomes the prefix of its tools: `name__tool`" });
    new["properties"]["id"] = json!({ "type": "string", "description": "Another word for `name`" });
    let declared = object_schema(&[("outcome", nullable(schema_ref("Outcome")))]);
    vec![
        ("SourceKeys", keys),
        ("NewSource", new),
        ("DeclaredSource", json!({ "allOf": [schema_ref("Source"), declared] })),
    ]
}

/// `null` is the same as leaving a key out, or takes it away.
fn source_keys() -> Value {
    let text = |about: &str| json!({ "type": ["string", "null"], "description": about });
    let flag = |about: &str| json!({ "type": ["boolean", "null"], "description": about });
    let list = |about: &str| {
        let mut shape = nullable(string_array());
        shape["description"] = json!(about);
        shape
    };
    let pairs = |about: &str| {
        let value = json!({ "type": ["string", "null"] });
        json!({ "type": ["object", "null"], "additionalProperties": value, "description": about })
    };
    let mut shape = partial_object(&[
        ("command", text("The program that starts an MCP server on stdio")),
        ("args", list("Its arguments")),
        ("env", pairs("Variables for it; values may be references such as `${env:NAME}`")),
        ("cwd", text("The directory it starts in")),
        ("inherit_env", list("Variables of the server's own that it gets too")),
        ("url", text("The address of an MCP server that runs elsewhere")),
        ("transport", nullable_enum(&["http", "sse", "stdio"])),
        ("headers", pairs("For every request")),
        (
            "auth",
            json!({ "type": ["object", "null"], "description": "`bearer`, `basic`, `api_key`, `oauth2` or `schemes`" }),
        ),
        ("openapi", text("An API: the file or address of its document")),
        ("base_url", text("Where requests go, whatever the document says")),
        ("include", list("Only these operations, by globs")),
        ("exclude", list("All operations but these")),
        ("include_tags", list("Only operations with one of these tags")),
        ("methods", list("Only operations with one of these methods")),
        ("variables", pairs("Of the addresses in the document")),
        ("allow_refs", list("Where else the document may be continued")),
        ("poll", json!({ "type": ["object", "null"], "description": "How operations that take long are waited for" })),
        ("workflow", text("Workflows: their Arazzo document")),
        (
            "builtin",
            json!({ "description": "`all`, or names of built-in tools", "anyOf": [{ "type": "string", "enum": ["all"] }, string_array(), { "type": "null" }] }),
        ),
        ("roots", list("The directories that built-in file tools may touch")),
        ("allow_private", flag("Private addresses may be reached")),
        ("ttl", text("How long its list is fresh, such as `5m`")),
        ("connect_timeout", text("A duration such as `5s`")),
        ("first_start_timeout", text("For the first discovery of a server that is started, such as `120s`")),
        ("discovery_timeout", text("A duration such as `30s`")),
        ("call_timeout", text("A duration such as `60s`")),
        ("idle", text("After which a connection that nobody uses ends")),
        ("result_limit", text("Above which a result is given in pages, such as `256KiB`")),
        ("on_conflict", nullable_enum(&["exclude", "keep"])),
        ("lifecycle", nullable_enum(&["shared", "transient", "per_client"])),
        ("results", nullable_enum(&["clean", "raw"])),
        ("enabled", flag("Whether agents see its tools")),
        ("title", text("For people")),
        ("tags", list("To search by")),
        ("essential", list("Tools that every agent should know of, by globs")),
        (
            "tools",
            json!({
                "type": ["object", "null"],
                "additionalProperties": string_enum(&["allow", "ask", "deny", "hide"]),
                "description": "What may be called, by globs on the names",
            }),
        ),
    ]);
    if let Some(shape) = shape.as_object_mut() {
        shape.extend(Map::from_iter([("additionalProperties".to_owned(), json!(false))]));
    }
    shape
}

fn nullable_enum(words: &[&str]) -> Value {
    let mut all: Vec<Value> = words.iter().map(|word| json!(word)).collect();
    all.push(Value::Null);
    json!({ "enum": all })
}
