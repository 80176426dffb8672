//! YAML 1.2 as a tree, from the parser's events: anchors, aliases and `<<` are resolved here, and bounded.

use std::collections::{HashMap, HashSet};

use granit_parser::{Event, Parser, ScalarStyle, Tag};

use super::{ConfigDiagnostic, ConfigNode, MAX_NODE_DEPTH, NodeEntry, NodeValue, lower_first};

/// Aliases may copy `most_copies` nodes in all.
pub(super) fn parse(text: &str, file: &str, most_copies: usize) -> Result<ConfigNode, ConfigDiagnostic> {
    let mut tree = TreeBuilder {
        file,
        open_collections: Vec::new(),
        anchors: HashMap::new(),
        copied_nodes: 0,
        max_copies: most_copies,
        root: None,
    };
    for next in Parser::new_from_str(text) {
        let (event, span) = next.map_err(|error| {
            let (line, column) = (error.marker().line(), error.marker().col() + 1);
            ConfigDiagnostic::new(file, line, "", lower_first(&error.info())).with_column(column)
        })?;
        tree.handle_event(event, span.start.line())?;
    }
    Ok(tree.root.unwrap_or(ConfigNode::null(1)))
}

struct TreeBuilder<'a> {
    file: &'a str,
    /// The lists and maps that have begun and not ended, the innermost last.
    open_collections: Vec<OpenCollection>,
    anchors: HashMap<usize, ConfigNode>,
    copied_nodes: usize,
    max_copies: usize,
    root: Option<ConfigNode>,
}

struct OpenCollection {
    line: usize,
    anchor: usize,
    collection: Collection,
}

enum Collection {
    List(Vec<ConfigNode>),
    /// With the key that waits for its value.
    Map(Vec<NodeEntry>, Option<(String, usize)>),
}

impl TreeBuilder<'_> {
    fn handle_event(&mut self, event: Event<'_>, line: usize) -> Result<(), ConfigDiagnostic> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let node = ConfigNode { value: parse_scalar(&text, style, tag.as_deref()), line };
                self.record_anchor(anchor, &node)?;
                // A key is its text, whatever it might mean as a value.
                self.add_node(node, Some(&text))
            }
            Event::SequenceStart(_, anchor, _) => self.begin_collection(line, anchor, Collection::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => self.begin_collection(line, anchor, Collection::Map(Vec::new(), None)),
            Event::SequenceEnd | Event::MappingEnd => self.end_collection(),
            Event::Alias(anchor) => {
                let node = self.resolve_alias(anchor, line)?;
                let text = node.as_text().map(str::to_owned);
                self.add_node(node, text.as_deref())
            }
            Event::DocumentStart(..) if self.root.is_some() => {
                Err(self.diagnostic_at(line, "a second document begins here; only one is read"))
            }
            Event::StreamStart | Event::StreamEnd | Event::DocumentStart(..) | Event::DocumentEnd => Ok(()),
            // Only emitted when asked for; comments exist only if another crate switches them on.
            Event::Anchor(..) | Event::UnresolvedAlias(_) | _ => Ok(()),
        }
    }

    fn begin_collection(&mut self, line: usize, anchor: usize, collection: Collection) -> Result<(), ConfigDiagnostic> {
        if self.open_collections.len() >= MAX_NODE_DEPTH {
            return Err(self.diagnostic_at(line, "nested too deep"));
        }
        self.open_collections.push(OpenCollection { line, anchor, collection });
        Ok(())
    }

    fn end_collection(&mut self) -> Result<(), ConfigDiagnostic> {
        let Some(OpenCollection { line, anchor, collection }) = self.open_collections.pop() else { return Ok(()) };
        let value = match collection {
            Collection::List(nodes) => NodeValue::List(nodes),
            Collection::Map(entries, _) => NodeValue::Map(self.resolve_merge_keys(entries)?),
        };
        let node = ConfigNode { value, line };
        self.record_anchor(anchor, &node)?;
        self.add_node(node, None)
    }

    /// Puts a node where the innermost open collection wants it; `key` is its text should it be a key.
    fn add_node(&mut self, node: ConfigNode, key: Option<&str>) -> Result<(), ConfigDiagnostic> {
        let line = node.line;
        match self.open_collections.last_mut().map(|open| &mut open.collection) {
            None => self.root = Some(node),
            Some(Collection::List(nodes)) => nodes.push(node),
            Some(Collection::Map(entries, waiting)) => match (waiting.take(), key) {
                (Some((key, line)), _) => entries.push(NodeEntry { key, line, node }),
                (None, Some(key)) => *waiting = Some((key.to_owned(), line)),
                (None, None) => return Err(self.diagnostic_at(line, "expected text as a key, found a list or a map")),
            },
        }
        Ok(())
    }

    /// Keeps what an alias may stand for, counted like what aliases copy: anchors may stand inside one another.
    fn record_anchor(&mut self, anchor: usize, node: &ConfigNode) -> Result<(), ConfigDiagnostic> {
        // The parser counts anchors from one; zero is none.
        if anchor > 0 {
            self.copied_nodes += node.size_and_depth().0;
            if self.copied_nodes > self.max_copies {
                return Err(self.diagnostic_at(node.line, "anchors name too much; write the values out"));
            }
            self.anchors.insert(anchor, node.clone());
        }
        Ok(())
    }

    /// What an alias stands for, counted so that aliases of aliases cannot grow without end.
    fn resolve_alias(&mut self, anchor: usize, line: usize) -> Result<ConfigNode, ConfigDiagnostic> {
        let Some(node) = self.anchors.get(&anchor) else {
            return Err(self.diagnostic_at(line, "an alias cannot stand inside what it names"));
        };
        let (size, depth) = node.size_and_depth();
        self.copied_nodes += size;
        if self.copied_nodes > self.max_copies || self.open_collections.len() + depth > MAX_NODE_DEPTH {
            return Err(self.diagnostic_at(line, "aliases copy too much; write the values out"));
        }
        Ok(node.clone())
    }

    /// The entries with those of `<<` behind them, where they do not stand already.
    fn resolve_merge_keys(&self, entries: Vec<NodeEntry>) -> Result<Vec<NodeEntry>, ConfigDiagnostic> {
        let (merges, mut entries): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.key == "<<");
        if merges.is_empty() {
            return Ok(entries);
        }
        // Once for all of them: a map may have as many `<<` as other keys.
        let mut known: HashSet<String> = entries.iter().map(|entry| entry.key.clone()).collect();
        for NodeEntry { line, node, .. } in merges {
            let sources = match node.value {
                NodeValue::List(nodes) => nodes,
                NodeValue::Map(_) => vec![node],
                NodeValue::Null | NodeValue::Bool(..) | NodeValue::Number(_) | NodeValue::Text(_) => {
                    return Err(self.diagnostic_at(line, "`<<` takes a map or a list of maps"));
                }
            };
            for entry in sources.iter().flat_map(ConfigNode::entries) {
                if known.insert(entry.key.clone()) {
                    entries.push(entry.clone());
                }
            }
        }
        Ok(entries)
    }

    fn diagnostic_at(&self, line: usize, message: &str) -> ConfigDiagnostic {
        ConfigDiagnostic::new(self.file, line, "", message)
    }
}

fn parse_scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> NodeValue {
    let as_text = tag.is_some_and(|tag| tag.core_suffix() == Some("str"));
    if style != ScalarStyle::Plain || as_text {
        return NodeValue::Text(text.to_owned());
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => NodeValue::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => NodeValue::Bool(true, text.to_owned()),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            NodeValue::Bool(false, text.to_owned())
        }
        _ if is_number(text) => NodeValue::Number(text.to_owned()),
        _ => NodeValue::Text(text.to_owned()),
    }
}

fn is_number(text: &str) -> bool {
    let digits_of = |prefix: &str, radix| {
        text.strip_prefix(prefix).is_some_and(|digits| u64::from_str_radix(digits, radix).is_ok())
    };
    // Rust reads `inf` and `nan` as numbers; here they are words.
    let decimal = text.contains(|character: char| character.is_ascii_digit()) && text.parse::<f64>().is_ok();
    decimal || digits_of("0x", 16) || digits_of("0o", 8)
}
