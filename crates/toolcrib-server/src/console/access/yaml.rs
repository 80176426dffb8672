//! Writes a definition as YAML for the text editor: one line per key, lists of maps with one item per line.
//!
//! ```text
//! title: "Support desk"
//! select:
//!   - { source: "zendesk*", tags: ["read"] }
//! ```

use serde_json::{Map, Value};

/// Writes the keys of a definition.
pub(super) fn write_yaml(keys: &Map<String, Value>) -> String {
    let mut text = String::new();
    for (key, value) in keys {
        match value.as_array().filter(|items| items.iter().any(Value::is_object)) {
            Some(items) => {
                text.push_str(&format!("{key}:\n"));
                items.iter().for_each(|item| text.push_str(&format!("  - {}\n", write_flow(item))));
            }
            None => text.push_str(&format!("{key}: {}\n", write_flow(value))),
        }
    }
    text
}

/// Writes a value on one line. Texts are JSON texts, which YAML reads alike.
fn write_flow(value: &Value) -> String {
    match value {
        Value::Object(entries) => {
            let entries = entries.iter().map(|(key, value)| format!("{}: {}", write_key(key), write_flow(value)));
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(write_flow).collect::<Vec<_>>().join(", ")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

/// Keys of definitions are plain words; keys inside the value of a condition can be anything.
fn write_key(key: &str) -> String {
    let is_plain = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    // Words that YAML reads as something else.
    let is_reserved = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"].contains(&key);
    if is_plain && !is_reserved { key.to_owned() } else { Value::from(key).to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolcrib::config::parse_rule;
    use toolcrib::core::access_rules::RuleKind;

    use super::*;
    use crate::console::access::draft::to_keys;

    #[test]
    fn written_definitions_are_read_back() {
        for (kind, keys) in [
            (
                RuleKind::Group,
                json!({ "title": "A: \"b\" #c", "select": [{ "name": "regex:^a{1,2}$", "tags": ["x"] }] }),
            ),
            (RuleKind::Group, json!({ "tools": ["git__push"], "instructions": "one\ntwo" })),
            (
                RuleKind::Access,
                json!({ "when": [{ "claim": "a.b", "equals": { "null": 1 } }, { "claim": "c", "exists": false }],
                        "groups": ["all"], "active": false }),
            ),
            (RuleKind::Policy, json!({ "match": { "risk": ["destructive"], "group": "all" }, "verdict": "ask" })),
        ] {
            let text = write_yaml(keys.as_object().unwrap());
            let parsed =
                parse_rule(kind, "x", &text, "definition.yaml").unwrap_or_else(|error| panic!("{error:?}\n{text}"));
            assert_eq!(Value::Object(to_keys(&parsed.rule)), keys, "{text}");
        }
    }
}
