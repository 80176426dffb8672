//! Untyped syntax tree of a configuration file, the same for YAML, TOML and JSON. Every value knows its line.
//!
//! Scalars keep their spelling, so that `1.10` in `env` stays `1.10`. Size, depth and alias copies are bounded here;
//! the meaning of keys is defined by the modules that read the tree.
//!
//! Parsing does not go through serde, because serde's data model knows neither lines nor spellings: `version: 1.10`
//! would become the number 1.1, and a wrong type would be reported without its place.
//!
//! ```text
//! PORT: 0x50    in line 2 becomes    NodeEntry { key: "PORT", line: 2, node: Number("0x50") }
//! ```

mod json;
mod to_json;
mod toml;
mod yaml;

use std::collections::HashMap;

use super::Syntax;
use super::diagnostic::ConfigDiagnostic;

pub(super) use to_json::node_to_json;
pub use to_json::yaml_to_json;

/// Value with the line where it starts, counted from one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ConfigNode {
    pub(super) value: NodeValue,
    pub(super) line: usize,
}

/// Value of a node. Maps keep the order of the file.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum NodeValue {
    Null,
    /// With its spelling: `no` is false for a boolean setting, and the text `no` in `env`.
    Bool(bool, String),
    /// As it is spelled in the file.
    Number(String),
    Text(String),
    List(Vec<ConfigNode>),
    Map(Vec<NodeEntry>),
}

/// Key of a map with its value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NodeEntry {
    pub(super) key: String,
    /// Line of the key, which may differ from the line of its value.
    pub(super) line: usize,
    pub(super) node: ConfigNode,
}

impl NodeEntry {
    /// Creates a key with a text that comes from no file.
    pub(super) fn text(key: &str, text: &str) -> NodeEntry {
        let node = ConfigNode { value: NodeValue::Text(text.to_owned()), line: 0 };
        NodeEntry { key: key.to_owned(), line: 0, node }
    }
}

// Configuration files may come from a project that is not trusted yet, so every bound below is checked before trust is
// decided.

/// Maximum size of a file: far above real configurations, small enough to parse in memory.
const MAX_FILE_BYTES: usize = 16 * 1024 * 1024;
/// Maximum number of nodes that YAML aliases may copy in total. Stops alias bombs ("billion laughs").
/// OpenAPI documents pass a larger bound to [`yaml_to_json`].
const MAX_ALIAS_COPIES: usize = 100_000;
/// A text counts as one more node for each of this many bytes, so that aliases of long texts are bounded too.
const TEXT_BYTES_PER_NODE: usize = 256;
/// Maximum nesting depth. The tree is walked by recursion, so this protects the stack.
const MAX_NODE_DEPTH: usize = 128;

/// Parses a whole file; an empty one is null. Duplicate keys are errors in every syntax.
/// A syntax error is a single diagnostic, since parsing stops there; all duplicate keys are reported together.
pub(super) fn parse(text: &str, file: &str, syntax: Syntax) -> Result<ConfigNode, Vec<ConfigDiagnostic>> {
    if text.len() > MAX_FILE_BYTES {
        return Err(vec![ConfigDiagnostic::new(file, 1, "", "the file is larger than 16 MiB")]);
    }
    // Editors on Windows write a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let node = match syntax {
        Syntax::Yaml => yaml::parse(text, file, MAX_ALIAS_COPIES),
        Syntax::Toml => toml::parse(text, file),
        Syntax::Json => json::parse(text, file),
    }
    .map_err(|diagnostic| vec![diagnostic])?;
    let mut errors = Vec::new();
    find_duplicate_keys(&node, file, "", &mut errors);
    if errors.is_empty() { Ok(node) } else { Err(errors) }
}

impl ConfigNode {
    /// Creates a null, which counts as absent wherever a key is looked up.
    pub(super) fn null(line: usize) -> ConfigNode {
        ConfigNode { value: NodeValue::Null, line }
    }

    /// Creates a text node, for values that are made by rewriting.
    pub(super) fn text(text: impl Into<String>, line: usize) -> ConfigNode {
        ConfigNode { value: NodeValue::Text(text.into()), line }
    }

    /// Creates a boolean, for values that are made by rewriting.
    pub(super) fn flag(flag: bool, line: usize) -> ConfigNode {
        ConfigNode { value: NodeValue::Bool(flag, flag.to_string()), line }
    }

    /// Whether this is null. `key:` without a value is null in YAML.
    pub(super) fn is_null(&self) -> bool {
        self.value == NodeValue::Null
    }

    /// Returns the value of a key of a map; null counts as absent.
    pub(super) fn get(&self, key: &str) -> Option<&ConfigNode> {
        self.entries().iter().find(|entry| entry.key == key && !entry.node.is_null()).map(|entry| &entry.node)
    }

    /// Returns the entries of a map; an empty slice for anything else.
    pub(super) fn entries(&self) -> &[NodeEntry] {
        if let NodeValue::Map(entries) = &self.value { entries } else { &[] }
    }

    /// Returns the text of a text node; numbers and booleans are not text.
    pub(super) fn as_text(&self) -> Option<&str> {
        if let NodeValue::Text(text) = &self.value { Some(text) } else { None }
    }

    /// Type of the value for messages such as "expected text, found a list".
    /// Names no value, which may be a secret.
    pub(super) fn type_name(&self) -> &'static str {
        match &self.value {
            NodeValue::Null => "nothing",
            NodeValue::Bool(..) => "true or false",
            NodeValue::Number(_) => "a number",
            NodeValue::Text(_) => "text",
            NodeValue::List(_) => "a list",
            NodeValue::Map(_) => "a map of keys",
        }
    }

    /// Number of nodes and nesting depth, as the cost of copying this node for a YAML alias. A long text counts as
    /// several nodes.
    fn size_and_depth(&self) -> (usize, usize) {
        let text_cost = |text: &str| text.len() / TEXT_BYTES_PER_NODE;
        let sum_children = |sizes: &mut dyn Iterator<Item = (usize, usize)>| {
            let (size, depth) = sizes.fold((0, 0), |(size, depth): (usize, usize), (child_size, child_depth)| {
                (size + child_size, depth.max(child_depth))
            });
            (size + 1, depth + 1)
        };
        let entry_cost = |entry: &NodeEntry| {
            let (size, depth) = entry.node.size_and_depth();
            (size + text_cost(&entry.key), depth)
        };
        match &self.value {
            NodeValue::Null => (1, 0),
            NodeValue::Bool(_, text) | NodeValue::Number(text) | NodeValue::Text(text) => (1 + text_cost(text), 0),
            NodeValue::List(nodes) => sum_children(&mut nodes.iter().map(ConfigNode::size_and_depth)),
            NodeValue::Map(entries) => sum_children(&mut entries.iter().map(entry_cost)),
        }
    }
}

/// Reports keys that occur more than once in a map.
/// Both stay in the tree, and a lookup would silently use the first.
fn find_duplicate_keys(node: &ConfigNode, file: &str, path: &str, errors: &mut Vec<ConfigDiagnostic>) {
    match &node.value {
        NodeValue::Null | NodeValue::Bool(..) | NodeValue::Number(_) | NodeValue::Text(_) => {}
        NodeValue::List(nodes) => nodes.iter().for_each(|node| find_duplicate_keys(node, file, path, errors)),
        NodeValue::Map(entries) => {
            let mut seen = HashMap::new();
            for entry in entries {
                if let Some(first) = seen.insert(entry.key.as_str(), entry.line) {
                    let message = duplicate_key_message(&entry.key, first);
                    errors.push(ConfigDiagnostic::new(file, entry.line, path, message));
                }
                find_duplicate_keys(&entry.node, file, &join_key(path, &entry.key), errors);
            }
        }
    }
}

/// Message for the second of two equal keys.
fn duplicate_key_message(key: &str, first_line: usize) -> String {
    format!("duplicate key `{key}`, first set in line {first_line}; keep one")
}

/// Appends a key to a key path: `sources` and `files` become `sources.files`.
pub(super) fn join_key(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Start offsets of the lines of a text, to convert byte offsets into lines and columns.
struct LineIndex<'a> {
    text: &'a str,
    line_starts: Vec<usize>,
}

impl<'a> LineIndex<'a> {
    fn new(text: &'a str) -> LineIndex<'a> {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        LineIndex { text, line_starts: starts }
    }

    /// Line number of a byte offset, counted from one.
    fn line(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset)
    }

    /// Column of a byte offset in characters, counted from one.
    fn column(&self, offset: usize) -> usize {
        let start = self.line_starts[self.line(offset).saturating_sub(1)];
        self.text.get(start..offset).map_or(1, |before| before.chars().count() + 1)
    }

    /// Creates a syntax error with line and column.
    fn diagnostic_at(&self, file: &str, offset: usize, message: &str) -> ConfigDiagnostic {
        ConfigDiagnostic::new(file, self.line(offset), "", lower_first(message)).with_column(self.column(offset))
    }
}

/// Lowercases the first letter: messages of parsers start with a capital, but here they follow a colon.
fn lower_first(message: &str) -> String {
    let mut characters = message.chars();
    characters.next().map(|first| first.to_lowercase().chain(characters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
