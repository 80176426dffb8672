//! A configuration file as one untyped tree in which every value knows its line, whatever syntax it was written in.
//! Scalars keep their spelling, so that `1.10` in `env` stays `1.10`. What the keys mean is left to others.

mod json;
mod plain;
mod toml;
mod yaml;

use std::collections::HashMap;

use super::Syntax;
use super::fault::Fault;

pub(crate) use plain::yaml_to_json;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) line: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Null,
    /// With its spelling: `no` is false where a flag is wanted, and text in `env`.
    Bool(bool, String),
    Number(String),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    /// The line of the key, which is not always that of its value.
    pub(super) line: usize,
    pub(super) node: Node,
}

/// Larger than any configuration, smaller than any harm.
const LARGEST_FILE: usize = 16 * 1024 * 1024;
/// How many nodes the aliases of a configuration may copy in all: an alias bomb ends here.
const MOST_COPIES: usize = 100_000;
/// So many bytes of text are copied for the price of a node.
const TEXT_OF_NODE: usize = 256;
/// Deeper than any configuration; the tree is walked by recursion.
const DEEPEST: usize = 128;

/// Parses a whole file; an empty one is null.
pub(super) fn parse(text: &str, file: &str, syntax: Syntax) -> Result<Node, Vec<Fault>> {
    if text.len() > LARGEST_FILE {
        return Err(vec![Fault::new(file, 1, "", "the file is larger than 16 MiB")]);
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let node = match syntax {
        Syntax::Yaml => yaml::parse(text, file, MOST_COPIES),
        Syntax::Toml => toml::parse(text, file),
        Syntax::Json => json::parse(text, file),
    }
    .map_err(|fault| vec![fault])?;
    let mut faults = Vec::new();
    find_duplicates(&node, file, "", &mut faults);
    if faults.is_empty() { Ok(node) } else { Err(faults) }
}

impl Node {
    pub(super) fn null(line: usize) -> Node {
        Node { value: Value::Null, line }
    }

    pub(super) fn text(text: impl Into<String>, line: usize) -> Node {
        Node { value: Value::Text(text.into()), line }
    }

    pub(super) fn is_null(&self) -> bool {
        self.value == Value::Null
    }

    /// The value under a key of a map; null counts as absent.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|entry| entry.key == key && !entry.node.is_null()).map(|entry| &entry.node)
    }

    /// The entries of a map; none for anything else.
    pub(super) fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            Value::Null | Value::Bool(..) | Value::Number(_) | Value::Text(_) | Value::List(_) => &[],
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            Value::Null | Value::Bool(..) | Value::Number(_) | Value::List(_) | Value::Map(_) => None,
        }
    }

    /// What it is, in the words of a message.
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "nothing",
            Value::Bool(..) => "true or false",
            Value::Number(_) => "a number",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map of keys",
        }
    }

    /// How many nodes it is made of and how deep they are nested, for what a YAML alias would copy. A long text counts as
    /// several, for it is copied too.
    fn size_and_depth(&self) -> (usize, usize) {
        let of_text = |text: &str| text.len() / TEXT_OF_NODE;
        let of_all = |sizes: &mut dyn Iterator<Item = (usize, usize)>| {
            let (size, depth) =
                sizes.fold((0, 0), |(size, depth): (usize, usize), (more, deep)| (size + more, depth.max(deep)));
            (size + 1, depth + 1)
        };
        let of_entry = |entry: &Entry| {
            let (size, depth) = entry.node.size_and_depth();
            (size + of_text(&entry.key), depth)
        };
        match &self.value {
            Value::Null => (1, 0),
            Value::Bool(_, text) | Value::Number(text) | Value::Text(text) => (1 + of_text(text), 0),
            Value::List(nodes) => of_all(&mut nodes.iter().map(Node::size_and_depth)),
            Value::Map(entries) => of_all(&mut entries.iter().map(of_entry)),
        }
    }
}

fn find_duplicates(node: &Node, file: &str, path: &str, faults: &mut Vec<Fault>) {
    match &node.value {
        Value::Null | Value::Bool(..) | Value::Number(_) | Value::Text(_) => {}
        Value::List(nodes) => nodes.iter().for_each(|node| find_duplicates(node, file, path, faults)),
        Value::Map(entries) => {
            let mut seen = HashMap::new();
            for entry in entries {
                if let Some(first) = seen.insert(entry.key.as_str(), entry.line) {
                    faults.push(Fault::new(file, entry.line, path, twice(&entry.key, first)));
                }
                find_duplicates(&entry.node, file, &joined(path, &entry.key), faults);
            }
        }
    }
}

fn twice(key: &str, first: usize) -> String {
    format!("the key `{key}` stands twice: here and in line {first}; keep one")
}

pub(super) fn joined(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Where the lines of a text begin, to turn offsets into lines and columns.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Lines<'a> {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Lines { text, starts }
    }

    fn line(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset)
    }

    fn column(&self, offset: usize) -> usize {
        let start = self.starts[self.line(offset).saturating_sub(1)];
        self.text.get(start..offset).map_or(1, |before| before.chars().count() + 1)
    }

    fn fault(&self, file: &str, offset: usize, message: &str) -> Fault {
        Fault::new(file, self.line(offset), "", lower_first(message)).at_column(self.column(offset))
    }
}

/// Parsers begin their messages in capitals; ours follow a colon.
fn lower_first(message: &str) -> String {
    let mut characters = message.chars();
    characters.next().map(|first| first.to_lowercase().chain(characters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
