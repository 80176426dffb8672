//! A configuration file as one untyped tree in which every value knows its line, whatever syntax it was written in.
//! Scalars keep their spelling, so that `1.10` in `env` stays `1.10`. What the keys mean is left to others.

mod json;
mod to_json;
mod toml;
mod yaml;

use std::collections::HashMap;

use super::Syntax;
use super::diagnostic::ConfigDiagnostic;

pub(crate) use to_json::yaml_to_json;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ConfigNode {
    pub(super) value: NodeValue,
    pub(super) line: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum NodeValue {
    Null,
    /// With its spelling: `no` is false where a flag is wanted, and text in `env`.
    Bool(bool, String),
    Number(String),
    Text(String),
    List(Vec<ConfigNode>),
    Map(Vec<NodeEntry>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct NodeEntry {
    pub(super) key: String,
    /// The line of the key, which is not always that of its value.
    pub(super) line: usize,
    pub(super) node: ConfigNode,
}

/// Larger than any configuration, smaller than any harm.
const MAX_FILE_BYTES: usize = 16 * 1024 * 1024;
/// How many nodes the aliases of a configuration may copy in all: an alias bomb ends here.
const MAX_ALIAS_COPIES: usize = 100_000;
/// So many bytes of text are copied for the price of a node.
const TEXT_BYTES_PER_NODE: usize = 256;
/// Deeper than any configuration; the tree is walked by recursion.
const MAX_NODE_DEPTH: usize = 128;

/// Parses a whole file; an empty one is null.
pub(super) fn parse(text: &str, file: &str, syntax: Syntax) -> Result<ConfigNode, Vec<ConfigDiagnostic>> {
    if text.len() > MAX_FILE_BYTES {
        return Err(vec![ConfigDiagnostic::new(file, 1, "", "the file is larger than 16 MiB")]);
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let node = match syntax {
        Syntax::Yaml => yaml::parse(text, file, MAX_ALIAS_COPIES),
        Syntax::Toml => toml::parse(text, file),
        Syntax::Json => json::parse(text, file),
    }
    .map_err(|fault| vec![fault])?;
    let mut faults = Vec::new();
    find_duplicate_keys(&node, file, "", &mut faults);
    if faults.is_empty() { Ok(node) } else { Err(faults) }
}

impl ConfigNode {
    pub(super) fn null(line: usize) -> ConfigNode {
        ConfigNode { value: NodeValue::Null, line }
    }

    pub(super) fn text(text: impl Into<String>, line: usize) -> ConfigNode {
        ConfigNode { value: NodeValue::Text(text.into()), line }
    }

    pub(super) fn is_null(&self) -> bool {
        self.value == NodeValue::Null
    }

    /// The value under a key of a map; null counts as absent.
    pub(super) fn get(&self, key: &str) -> Option<&ConfigNode> {
        self.entries().iter().find(|entry| entry.key == key && !entry.node.is_null()).map(|entry| &entry.node)
    }

    /// The entries of a map; none for anything else.
    pub(super) fn entries(&self) -> &[NodeEntry] {
        match &self.value {
            NodeValue::Map(entries) => entries,
            NodeValue::Null | NodeValue::Bool(..) | NodeValue::Number(_) | NodeValue::Text(_) | NodeValue::List(_) => {
                &[]
            }
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match &self.value {
            NodeValue::Text(text) => Some(text),
            NodeValue::Null | NodeValue::Bool(..) | NodeValue::Number(_) | NodeValue::List(_) | NodeValue::Map(_) => {
                None
            }
        }
    }

    /// What it is, in the words of a message.
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

    /// How many nodes it is made of and how deep they are nested, for what a YAML alias would copy. A long text counts as
    /// several, for it is copied too.
    fn size_and_depth(&self) -> (usize, usize) {
        let of_text = |text: &str| text.len() / TEXT_BYTES_PER_NODE;
        let of_all = |sizes: &mut dyn Iterator<Item = (usize, usize)>| {
            let (size, depth) =
                sizes.fold((0, 0), |(size, depth): (usize, usize), (more, deep)| (size + more, depth.max(deep)));
            (size + 1, depth + 1)
        };
        let of_entry = |entry: &NodeEntry| {
            let (size, depth) = entry.node.size_and_depth();
            (size + of_text(&entry.key), depth)
        };
        match &self.value {
            NodeValue::Null => (1, 0),
            NodeValue::Bool(_, text) | NodeValue::Number(text) | NodeValue::Text(text) => (1 + of_text(text), 0),
            NodeValue::List(nodes) => of_all(&mut nodes.iter().map(ConfigNode::size_and_depth)),
            NodeValue::Map(entries) => of_all(&mut entries.iter().map(of_entry)),
        }
    }
}

fn find_duplicate_keys(node: &ConfigNode, file: &str, path: &str, faults: &mut Vec<ConfigDiagnostic>) {
    match &node.value {
        NodeValue::Null | NodeValue::Bool(..) | NodeValue::Number(_) | NodeValue::Text(_) => {}
        NodeValue::List(nodes) => nodes.iter().for_each(|node| find_duplicate_keys(node, file, path, faults)),
        NodeValue::Map(entries) => {
            let mut seen = HashMap::new();
            for entry in entries {
                if let Some(first) = seen.insert(entry.key.as_str(), entry.line) {
                    faults.push(ConfigDiagnostic::new(
                        file,
                        entry.line,
                        path,
                        duplicate_key_message(&entry.key, first),
                    ));
                }
                find_duplicate_keys(&entry.node, file, &join_key(path, &entry.key), faults);
            }
        }
    }
}

fn duplicate_key_message(key: &str, first: usize) -> String {
    format!("the key `{key}` stands twice: here and in line {first}; keep one")
}

pub(super) fn join_key(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Where the lines of a text begin, to turn offsets into lines and columns.
struct LineIndex<'a> {
    text: &'a str,
    line_starts: Vec<usize>,
}

impl<'a> LineIndex<'a> {
    fn new(text: &'a str) -> LineIndex<'a> {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        LineIndex { text, line_starts: starts }
    }

    fn line(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset)
    }

    fn column(&self, offset: usize) -> usize {
        let start = self.line_starts[self.line(offset).saturating_sub(1)];
        self.text.get(start..offset).map_or(1, |before| before.chars().count() + 1)
    }

    fn diagnostic_at(&self, file: &str, offset: usize, message: &str) -> ConfigDiagnostic {
        ConfigDiagnostic::new(file, self.line(offset), "", lower_first(message)).with_column(self.column(offset))
    }
}

/// Parsers begin their messages in capitals; ours follow a colon.
fn lower_first(message: &str) -> String {
    let mut characters = message.chars();
    characters.next().map(|first| first.to_lowercase().chain(characters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
