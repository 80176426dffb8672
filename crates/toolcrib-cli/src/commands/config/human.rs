//! The merged configuration as commented YAML: the keys of a configuration file, with the origin of each value as a
//! comment.
//!
//! ```text
//! sources:
//!   files:  # toolcrib.yaml:2
//!     command: npx
//!     enabled: false  # command
//! defaults:
//!   ttl: 5m  # default
//! ```
//!
//! The input is the JSON of `toolcrib config --json`; nothing is looked up here.

use serde_json::{Map, Value, json};

/// Renders the JSON of the merged configuration.
pub(super) fn render_config(merged: &Value) -> String {
    let mut text = String::new();
    text.push_str(&format!("# data: {}\n", merged["data"].as_str().unwrap_or_default()));
    let files: Vec<&str> = merged["files"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    match &files[..] {
        [] => text.push_str("# no configuration file; `toolcrib init` writes one\n"),
        files => files.iter().for_each(|file| text.push_str(&format!("# file: {file}\n"))),
    }
    if let Some(reason) = merged["untrusted"]["reason"].as_str() {
        text.push_str(&format!("# {reason}, so none of it applies; review it, then run `toolcrib trust`\n"));
    }
    let mut sources = entries(&merged["sources"]);
    let overrides = entries(&merged["overrides"]);
    // A source that only the environment declares consists of its overrides.
    for id in overrides.keys().filter(|id| merged["sources"].get(id).is_none()) {
        sources.insert(id.clone(), json!({ "origin": "environment" }));
    }
    text.push_str(if sources.is_empty() { "sources: {}\n" } else { "sources:\n" });
    for (id, keys) in sources {
        let overrides = overrides.get(&id).map(entries).unwrap_or_default();
        render_source(&mut text, &id, &keys, &overrides);
    }
    for section in ["defaults", "expose", "search", "identity"] {
        text.push_str(&format!("{section}:\n"));
        for (key, value) in entries(&merged[section]) {
            render_with_origin(&mut text, "  ", &key, &value);
        }
    }
    render_rules(&mut text, merged);
    // Nothing is limited by default; listed only where a file limits it.
    let limits: Vec<(String, Value)> =
        entries(&merged["limits"]).into_iter().filter(|(_, limit)| !limit["value"].is_null()).collect();
    if !limits.is_empty() {
        text.push_str("limits:\n");
    }
    for (key, limit) in limits {
        render_with_origin(&mut text, "  ", &key, &limit);
    }
    // Permissions that are off by default; listed only where they are granted.
    for key in ["allow_commands", "allow_private_sources"] {
        if merged[key]["value"] == true {
            render_with_origin(&mut text, "", key, &merged[key]);
        }
    }
    if !merged["public_url"]["value"].is_null() {
        render_with_origin(&mut text, "", "public_url", &merged["public_url"]);
    }
    if !merged["store"]["value"].is_null() {
        render_with_origin(&mut text, "", "store", &merged["store"]);
    }
    render_with_origin(&mut text, "", "warm", &merged["warm"]);
    text
}

/// Dims the comments if the output is coloured.
pub(super) fn dim_comments(text: &str, coloured: bool) -> String {
    if !coloured {
        return text.to_owned();
    }
    // Colour is added after the text was sanitised, which would remove the escape sequences.
    let dim = |comment: &str| console::style(comment.to_owned()).dim().force_styling(true).to_string();
    let line = |line: &str| match line.find("# ") {
        Some(start) => format!("{}{}\n", &line[..start], dim(&line[start..])),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// Renders a source: its own keys, and overrides by commands or variables with their origin. A source with an invalid
/// declaration has its errors as comments instead of keys.
fn render_source(text: &mut String, id: &str, keys: &Value, overrides: &Map<String, Value>) {
    text.push_str(&format!(
        "  {}:  # {}\n",
        render_scalar(&Value::from(id)),
        keys["origin"].as_str().unwrap_or_default()
    ));
    for fault in keys["faults"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        text.push_str(&format!("    # error: {fault}\n"));
    }
    let own = entries(keys).into_iter().filter(|(key, _)| !["origin", "faults"].contains(&key.as_str()));
    // An overridden key is rendered below, with the value in effect.
    for (key, value) in own.filter(|(key, _)| !overrides.contains_key(key)) {
        text.push_str(&format!("    {key}: {}\n", render_scalar(&value)));
    }
    for (key, value) in overrides {
        render_with_origin(text, "    ", key, value);
    }
}

/// Renders the sections of groups, access rules and policies that are not empty.
fn render_rules(text: &mut String, merged: &Value) {
    let keys = |text: &mut String, rule: &Value, first: &str| {
        let mut indent = first;
        for (key, value) in entries(rule).into_iter().filter(|(key, _)| key != "origin") {
            // The origin stands behind the name, which is the first key of an item.
            let origin = rule["origin"].as_str().filter(|_| indent != "    ");
            let origin = origin.map(|origin| format!("  # {origin}")).unwrap_or_default();
            text.push_str(&format!("{indent}{key}: {}{origin}\n", render_scalar(&value)));
            indent = "    ";
        }
    };
    let groups = entries(&merged["groups"]);
    text.push_str(if groups.is_empty() { "" } else { "groups:\n" });
    for (name, group) in groups {
        let origin = group["origin"].as_str().unwrap_or_default();
        text.push_str(&format!("  {}:  # {origin}\n", render_scalar(&Value::from(name))));
        keys(text, &group, "    ");
    }
    for section in ["access", "policies"] {
        let rules = merged[section].as_array().map(Vec::as_slice).unwrap_or_default();
        text.push_str(&if rules.is_empty() { String::new() } else { format!("{section}:\n") });
        rules.iter().for_each(|rule| keys(text, rule, "  - "));
    }
}

/// Renders `key: value  # origin`.
fn render_with_origin(text: &mut String, indent: &str, key: &str, value: &Value) {
    let origin = value["origin"].as_str().unwrap_or_default();
    text.push_str(&format!("{indent}{key}: {}  # {origin}\n", render_scalar(&value["value"])));
}

/// The entries of an object; none for any other value.
fn entries(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// Renders a value as a plain YAML scalar if that is unambiguous, else as JSON, which is valid YAML.
fn render_scalar(value: &Value) -> String {
    let is_word = |text: &str| {
        text.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '/')
            && text.chars().all(|character| character.is_ascii_alphanumeric() || "_-./@".contains(character))
            // Words that YAML would read as another type must be quoted.
            && !matches!(text, "true" | "false" | "yes" | "no" | "on" | "off" | "null")
            && text.parse::<f64>().is_err()
    };
    match value.as_str() {
        Some(text) if is_word(text) => text.to_owned(),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renders_every_value_with_its_origin() {
        let merged = json!({
            "data": "/d", "files": ["/p/toolcrib.yaml"],
            "sources": {
                "a": { "command": "npx", "args": ["-y", "a b"], "enabled": true, "origin": "toolcrib.yaml:2" },
                "b": { "faults": ["toolcrib.yaml:3: wrong"], "origin": "toolcrib.yaml:3" },
                "9": { "url": "https://x", "origin": "runtime" },
            },
            "overrides": {
                "a": { "enabled": { "value": false, "origin": "command" } },
                "new": { "url": { "value": "http://n", "origin": "TOOLCRIB_SOURCE_NEW_URL" } },
            },
            "defaults": { "ttl": { "value": "5m", "origin": "default" } },
            "expose": { "prefix": { "value": true, "origin": "default" } },
            "search": { "model": { "value": "/p/model", "origin": "toolcrib.yaml:7" } },
            "identity": { "loopback": { "value": "owner", "origin": "default" } },
            "groups": { "support": { "tools": ["a__b"], "mode": "search", "origin": "toolcrib.yaml:4" } },
            "access": [{ "name": "all", "groups": ["support"], "active": true, "origin": "runtime" }],
            "policies": [],
            "limits": {
                "calls_per_minute": { "value": 600, "origin": "toolcrib.yaml:8" },
                "concurrent_calls": { "value": null, "origin": "default" },
            },
            "allow_commands": { "value": true, "origin": "toolcrib.yaml:1" },
            "allow_private_sources": { "value": true, "origin": "toolcrib.yaml:9" },
            "warm": { "value": "demand", "origin": "default" },
        });
        let expected = r#"# data: /d
# file: /p/toolcrib.yaml
sources:
  a:  # toolcrib.yaml:2
    command: npx
    args: ["-y","a b"]
    enabled: false  # command
  b:  # toolcrib.yaml:3
    # error: toolcrib.yaml:3: wrong
  "9":  # runtime
    url: "https://x"
  new:  # environment
    url: "http://n"  # TOOLCRIB_SOURCE_NEW_URL
defaults:
  ttl: 5m  # default
expose:
  prefix: true  # default
search:
  model: /p/model  # toolcrib.yaml:7
identity:
  loopback: owner  # default
groups:
  support:  # toolcrib.yaml:4
    tools: ["a__b"]
    mode: search
access:
  - name: all  # runtime
    groups: ["support"]
    active: true
limits:
  calls_per_minute: 600  # toolcrib.yaml:8
allow_commands: true  # toolcrib.yaml:1
allow_private_sources: true  # toolcrib.yaml:9
warm: demand  # default
"#;
        assert_eq!(render_config(&merged), expected);
    }
}
