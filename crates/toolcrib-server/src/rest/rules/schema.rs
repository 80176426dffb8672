//! Schemas of groups, access rules and policies, and of the preview of a change.

use serde_json::{Value, json};
use toolcrib::core::access_rules::{ClaimTest, Risk};

use crate::rest::openapi_schema::{
    array_of, boolean, closed, count, described, nullable, object_schema, partial_object, string_array, string_enum,
    text, with_optional,
};
use crate::rest::route::schema_ref;

/// A definition has the keys of a configuration file; a response has every key, and what Toolcrib adds.
pub(in crate::rest) fn schemas() -> Vec<(&'static str, Value)> {
    let group = [
        ("title", nullable(text())),
        ("select", described(array_of(schema_ref("Selector")), "Tools that match one of these selectors")),
        ("tools", described(string_array(), "Names of further tools")),
        ("exclude", described(string_array(), "Patterns on the names of tools that do not belong to the group")),
        ("instructions", nullable(text())),
        ("essential", string_array()),
        ("mode", nullable(string_enum(&["auto", "search", "full"]))),
    ];
    let access = [
        ("when", described(array_of(schema_ref("Condition")), "All of them must hold")),
        ("groups", string_array()),
        ("active", described(boolean(), "An inactive rule gives nothing, but counts as a rule")),
    ];
    let policy = [("match", schema_ref("PolicyMatch")), ("verdict", verdict())];
    let tools = [
        ("members", described(string_array(), "Names of its tools, denied, hidden and disabled ones included")),
        ("missing", described(string_array(), "Tools that it names and that are not there")),
    ];
    let policy_match = [
        ("group", described(text(), "The tool belongs to this group")),
        ("when", described(array_of(schema_ref("Condition")), "Conditions on the caller")),
    ];
    let list = |name: &str, schema: &str| object_schema(&[(name, array_of(schema_ref(schema)))]);
    let change = object_schema(&[("tool", text()), ("before", verdict()), ("after", verdict())]);
    let caller = object_schema(&[
        ("caller", text()),
        ("kind", string_enum(&["jwt", "token", "console", "local"])),
        ("gains", described(string_array(), "The first 100 tools that it sees afterwards and not before")),
        ("gains_count", described(count(), "Number of all of them")),
        ("loses", described(string_array(), "The first 100 tools that it sees before and not afterwards")),
        ("loses_count", described(count(), "Number of all of them")),
        ("verdicts", described(array_of(change), "The first 100 tools that it sees with another verdict")),
        ("verdicts_count", described(count(), "Number of all of them")),
    ]);
    let callers = described(array_of(caller), "The first 100 callers for whom something changes");
    let changed = described(count(), "Number of known callers for whom something changes");
    let unchanged = described(count(), "Number of known callers for whom nothing changes");
    vec![
        ("Group", response(&group, &tools)),
        ("Groups", list("groups", "Group")),
        ("GroupDefinition", definition(&group, &[])),
        ("AccessRule", response(&access, &[])),
        ("AccessRules", list("access", "AccessRule")),
        ("AccessRuleDefinition", definition(&access, &["groups"])),
        ("Policy", response(&policy, &[])),
        ("Policies", list("policies", "Policy")),
        ("PolicyDefinition", definition(&policy, &["verdict"])),
        ("PolicyMatch", with_optional(selector(), &policy_match)),
        ("Selector", selector()),
        ("Condition", condition()),
        ("RuleChangePreview", object_schema(&[("callers", callers), ("changed", changed), ("unchanged", unchanged)])),
    ]
}

fn verdict() -> Value {
    string_enum(&["allow", "ask", "deny", "hide"])
}

/// Schema of a rule as it is read: name, definition, what is found out about it, origin, and warnings of a change.
fn response(keys: &[(&str, Value)], found: &[(&str, Value)]) -> Value {
    let name = [("name", text())];
    let origin = [("origin", string_enum(&["config", "runtime"]))];
    let warnings = described(string_array(), "Consequences of the change that may not be intended");
    with_optional(object_schema(&[&name, keys, found, &origin].concat()), &[("warnings", warnings)])
}

/// Schema of a definition in a request. Fields of a response may be sent back and have no effect.
fn definition(keys: &[(&str, Value)], required: &[&str]) -> Value {
    let mut schema = partial_object(keys);
    let ignored = described(json!({}), "Ignored");
    let ignored = ["members", "missing", "origin", "warnings"].map(|name| (name, ignored.clone()));
    schema = with_optional(schema, &[("name", nullable(text()))]);
    schema = with_optional(schema, &ignored);
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    closed(schema)
}

fn selector() -> Value {
    let pattern = |what: &str| described(text(), &format!("Glob or `regex:` on {what}"));
    partial_object(&[
        ("source", pattern("the id of the source")),
        ("name", pattern("the name in the catalogue or the source's own name")),
        ("tags", described(string_array(), "Tags that the tool has, all of them")),
        ("without_tags", described(string_array(), "Tags of which the tool has none")),
        ("method", described(text(), "HTTP method of the operation")),
        ("path", pattern("the path of the operation")),
        ("risk", described(json!({ "anyOf": [risk(), array_of(risk())] }), "Risks that the tool has, all of them")),
    ])
}

fn risk() -> Value {
    string_enum(&Risk::ALL.map(Risk::as_str))
}

fn condition() -> Value {
    let value = described(json!({}), "Any JSON value but `null`");
    let tests = ClaimTest::NAMES.map(|name| match name {
        "matches" => (name, described(text(), "Glob or `regex:`")),
        "exists" => (name, boolean()),
        "in" | "not_in" => (name, array_of(json!({}))),
        _ => (name, value.clone()),
    });
    let claim = described(text(), "Dotted path of a claim, such as `realm_access.roles` or `caller.kind`");
    described(with_optional(object_schema(&[("claim", claim)]), &tests), "A claim and exactly one test")
}
