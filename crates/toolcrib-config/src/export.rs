//! Exports sources and rules as a configuration file that parses back to the same. References stay references; literals
//! that may be secret are masked unless [`Secrets::Plain`] is requested.
//!
//! ```text
//! sources:
//!   files: { command: "npx", args: ["-y", "server-files"], env: { TOKEN: "${env:TOKEN}" } }
//! ```
//!
//! Texts are always quoted and keys only where needed. No YAML library is used for writing: the flow style is JSON with
//! a few more escapes, and the same sources always give the same bytes.

use serde_json::{Map, Value};
use toolcrib_core::access_rules::AccessRules;
use toolcrib_core::source::Source;

use super::rules::{is_empty_section, rules_to_sections};
use super::show::show_source_keys;
use super::source_keys::{Secrets, source_to_keys};

/// Exports as YAML, one line per source, group, access rule and policy, sorted by id or name.
pub fn export(sources: &[&Source], rules: &AccessRules, secrets: Secrets) -> String {
    let mut sources = sources.to_vec();
    sources.sort_by(|a, b| a.id.cmp(&b.id));
    // The first line tells a reader whether the file contains secrets.
    let mut text = String::from(match secrets {
        Secrets::Masked => "# Written by `toolcrib export`. Values shown as `***` were left out.\n",
        Secrets::Plain => "# Written by `toolcrib export --secrets`. It may hold secrets: keep it safe.\n",
    });
    text.push_str(if sources.is_empty() { "sources: {}\n" } else { "sources:\n" });
    for source in sources {
        text.push_str(&format!("  {}: ", quote_if_needed(source.id.as_str())));
        write_flow(&Value::Object(source_to_keys(source, secrets)), &mut text);
        text.push('\n');
    }
    for (section, rules) in export_rules(rules) {
        text.push_str(&format!("{section}:\n"));
        for (name, keys) in rules.as_object().into_iter().flatten() {
            text.push_str(&format!("  {}: ", quote_if_needed(name)));
            write_flow(keys, &mut text);
            text.push('\n');
        }
        for rule in rules.as_array().into_iter().flatten() {
            text.push_str("  - ");
            write_flow(rule, &mut text);
            text.push('\n');
        }
    }
    text
}

/// Exports as JSON, sorted by id or name.
pub fn export_json(sources: &[&Source], rules: &AccessRules, secrets: Secrets) -> Value {
    let mut sources = sources.to_vec();
    sources.sort_by(|a, b| a.id.cmp(&b.id));
    let keys = |source: &Source| Value::Object(source_to_keys(source, secrets));
    let sources: Map<String, Value> = sources.into_iter().map(|source| (source.id.to_string(), keys(source))).collect();
    let mut exported = Map::from_iter([("sources".to_owned(), sources.into())]);
    exported.extend(export_rules(rules));
    exported.into()
}

/// Renders the sections of rules that are not empty. Rules hold no secrets.
fn export_rules(rules: &AccessRules) -> impl Iterator<Item = (String, Value)> {
    let rules: Vec<_> = rules.iter().map(|(rule, _)| rule).collect();
    let rules: Vec<_> = rules.iter().map(|rule| (rule, None)).collect();
    rules_to_sections(&rules).into_iter().filter(|(_, section)| !is_empty_section(section))
}

/// Returns the keys that a masked export replaces by `***`, such as `env.TOKEN` or `args[2]`.
/// Empty if a masked export loses nothing.
pub fn masked_keys(source: &Source) -> Vec<String> {
    // Both have the same shape, so they can be compared value by value.
    let masked = show_source_keys(source);
    let plain = Value::Object(source_to_keys(source, Secrets::Plain));
    let mut keys = Vec::new();
    collect_differences(&masked, &plain, String::new(), &mut keys);
    keys
}

/// Walks both exports in parallel and collects the keys whose values differ.
fn collect_differences(masked: &Value, plain: &Value, key: String, into: &mut Vec<String>) {
    match (masked, plain) {
        (Value::Object(masked), Value::Object(plain)) => {
            for ((name, masked), plain) in masked.iter().zip(plain.values()) {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                collect_differences(masked, plain, key, into);
            }
        }
        (Value::Array(masked), Value::Array(plain)) => {
            for (index, (masked, plain)) in masked.iter().zip(plain).enumerate() {
                collect_differences(masked, plain, format!("{key}[{index}]"), into);
            }
        }
        // A value that differs without `***` was only rewritten, such as a reference in its full form.
        _ if masked != plain && masked.to_string().contains("***") => into.push(key),
        _ => {}
    }
}

/// Writes YAML in flow style, which is JSON except for additional characters that YAML wants escaped.
fn write_flow(value: &Value, into: &mut String) {
    match value {
        Value::Object(object) => {
            into.push_str("{ ");
            for (index, (key, value)) in object.iter().enumerate() {
                into.push_str(if index == 0 { "" } else { ", " });
                into.push_str(&quote_if_needed(key));
                into.push_str(": ");
                write_flow(value, into);
            }
            into.push_str(" }");
        }
        Value::Array(items) => {
            into.push('[');
            for (index, item) in items.iter().enumerate() {
                into.push_str(if index == 0 { "" } else { ", " });
                write_flow(item, into);
            }
            into.push(']');
        }
        Value::String(text) => write_quoted(text, into),
        Value::Null | Value::Bool(_) | Value::Number(_) => into.push_str(&value.to_string()),
    }
}

/// Returns a key as it is if every YAML parser reads it as text, and quoted otherwise.
/// Exports may be read by other programs, some of which follow YAML 1.1.
fn quote_if_needed(key: &str) -> String {
    let is_plain = key.starts_with(|first: char| first.is_ascii_alphabetic())
        && key.chars().all(|character| character.is_ascii_alphanumeric() || character == '_');
    // YAML 1.1 parsers read these words as booleans or null.
    let is_word = matches!(key, "y" | "n" | "yes" | "no" | "on" | "off" | "true" | "false" | "null");
    if is_plain && !is_word {
        return key.to_owned();
    }
    let mut quoted = String::new();
    write_quoted(key, &mut quoted);
    quoted
}

/// Writes a double-quoted YAML scalar. Escapes control characters, and line separators and byte order marks, which YAML
/// parsers treat specially.
fn write_quoted(text: &str, into: &mut String) {
    into.push('"');
    for character in text.chars() {
        match character {
            '"' => into.push_str("\\\""),
            '\\' => into.push_str("\\\\"),
            '\n' => into.push_str("\\n"),
            '\t' => into.push_str("\\t"),
            '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => write_escape(character, into),
            _ if character.is_control() => write_escape(character, into),
            _ => into.push(character),
        }
    }
    into.push('"');
}

/// Writes `\uXXXX`. All characters that need it are in the basic plane.
fn write_escape(character: char, into: &mut String) {
    into.push_str(&format!("\\u{:04x}", u32::from(character)));
}
