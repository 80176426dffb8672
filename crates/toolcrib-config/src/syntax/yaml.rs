//! YAML 1.2 parser of configuration files, on top of a parser that emits events. Resolves anchors, aliases and merge
//! keys (`<<`) within a bound on copied nodes.
//!
//! Aliases are copied, not shared, so a small file can describe a huge tree. Each copy is counted before it is made:
//!
//! ```text
//! a: &a [x, x, x, x]
//! b: &b [*a, *a, *a, *a]
//! c: [*b, *b, *b, *b]        # each line multiplies the size by four
//! ```

use std::collections::{HashMap, HashSet};

use granit_parser::{Event, Parser, ScalarStyle, Tag};

use super::{ConfigDiagnostic, ConfigNode, MAX_NODE_DEPTH, NodeEntry, NodeValue, lower_first};

/// Parses one document. Anchors and aliases may copy at most `max_copies` nodes in total.
/// Stops at the first error. An empty text is null.
pub(super) fn parse(text: &str, file: &str, max_copies: usize) -> Result<ConfigNode, ConfigDiagnostic> {
    let mut tree = TreeBuilder {
        file,
        open_collections: Vec::new(),
        anchors: HashMap::new(),
        copied_nodes: 0,
        max_copies,
        root: None,
    };
    for next in Parser::new_from_str(text) {
        let (event, span) = next.map_err(|error| {
            let line = error.marker().line();
            let column = error.marker().col() + 1;
            ConfigDiagnostic::new(file, line, "", lower_first(&error.info())).with_column(column)
        })?;
        tree.handle_event(event, span.start.line())?;
    }
    Ok(tree.root.unwrap_or(ConfigNode::null(1)))
}

/// Builds the tree from parser events.
struct TreeBuilder<'a> {
    file: &'a str,
    /// Lists and maps that have started and not ended, innermost last.
    open_collections: Vec<OpenCollection>,
    /// Nodes with an anchor, by the number that the parser gives it.
    anchors: HashMap<usize, ConfigNode>,
    /// Nodes copied so far, for anchors and for aliases.
    copied_nodes: usize,
    /// Bound on `copied_nodes`.
    max_copies: usize,
    /// Set when the outermost node is complete.
    root: Option<ConfigNode>,
}

/// List or map whose end event has not come yet.
struct OpenCollection {
    line: usize,
    /// Number of its anchor, or zero. The node is stored for aliases when it is complete.
    anchor: usize,
    collection: Collection,
}

/// Content of an open collection.
enum Collection {
    List(Vec<ConfigNode>),
    /// Entries, and the key whose value comes next, with its line.
    Map(Vec<NodeEntry>, Option<(String, usize)>),
}

impl TreeBuilder<'_> {
    /// Processes one parser event.
    fn handle_event(&mut self, event: Event<'_>, line: usize) -> Result<(), ConfigDiagnostic> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let node = ConfigNode { value: parse_scalar(&text, style, tag.as_deref()), line };
                self.record_anchor(anchor, &node)?;
                // As a key, a scalar is its text: `no` is a key named `no`, not `false`.
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
            // Emitted only on request; comment events exist only if another crate enables that feature.
            Event::Anchor(..) | Event::UnresolvedAlias(_) | _ => Ok(()),
        }
    }

    /// Opens a list or map, unless it is nested too deep.
    fn begin_collection(&mut self, line: usize, anchor: usize, collection: Collection) -> Result<(), ConfigDiagnostic> {
        if self.open_collections.len() >= MAX_NODE_DEPTH {
            return Err(self.diagnostic_at(line, "nested too deep"));
        }
        self.open_collections.push(OpenCollection { line, anchor, collection });
        Ok(())
    }

    /// Closes the innermost collection and adds it to the one around it.
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

    /// Adds a node to the innermost open collection, as a key or as a value. `key` is its text in case it is a key.
    fn add_node(&mut self, node: ConfigNode, key: Option<&str>) -> Result<(), ConfigDiagnostic> {
        let line = node.line;
        match self.open_collections.last_mut().map(|open| &mut open.collection) {
            None => self.root = Some(node),
            Some(Collection::List(nodes)) => nodes.push(node),
            Some(Collection::Map(entries, pending_key)) => match (pending_key.take(), key) {
                (Some((key, line)), _) => entries.push(NodeEntry { key, line, node }),
                (None, Some(key)) => *pending_key = Some((key.to_owned(), line)),
                (None, None) => return Err(self.diagnostic_at(line, "expected text as a key, found a list or a map")),
            },
        }
        Ok(())
    }

    /// Stores a node for its aliases. Counted like a copy, since nested anchors store the same nodes again.
    fn record_anchor(&mut self, anchor: usize, node: &ConfigNode) -> Result<(), ConfigDiagnostic> {
        // The parser numbers anchors from one; zero means no anchor.
        if anchor > 0 {
            self.copied_nodes += node.size_and_depth().0;
            if self.copied_nodes > self.max_copies {
                return Err(self.diagnostic_at(node.line, "YAML anchors copy too much; write the values out"));
            }
            self.anchors.insert(anchor, node.clone());
        }
        Ok(())
    }

    /// Returns a copy of the node that an alias refers to. Counted, so that aliases of aliases cannot grow
    /// exponentially.
    fn resolve_alias(&mut self, anchor: usize, line: usize) -> Result<ConfigNode, ConfigDiagnostic> {
        let Some(node) = self.anchors.get(&anchor) else {
            return Err(self.diagnostic_at(line, "an alias cannot refer to a node that contains it"));
        };
        let (size, depth) = node.size_and_depth();
        self.copied_nodes += size;
        if self.copied_nodes > self.max_copies || self.open_collections.len() + depth > MAX_NODE_DEPTH {
            return Err(self.diagnostic_at(line, "YAML aliases copy too much; write the values out"));
        }
        Ok(node.clone())
    }

    /// Appends the entries of `<<` maps whose keys are not set yet.
    /// Keys of the map itself take precedence over merged ones, and earlier merged maps over later ones.
    fn resolve_merge_keys(&self, entries: Vec<NodeEntry>) -> Result<Vec<NodeEntry>, ConfigDiagnostic> {
        let (merges, mut entries): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.key == "<<");
        if merges.is_empty() {
            return Ok(entries);
        }
        // Collected once: a map may have as many `<<` as other keys, and a set per `<<` would be quadratic.
        let mut known: HashSet<String> = entries.iter().map(|entry| entry.key.clone()).collect();
        for NodeEntry { line, node, .. } in merges {
            let maps = match node.value {
                NodeValue::List(nodes) => nodes,
                NodeValue::Map(_) => vec![node],
                NodeValue::Null | NodeValue::Bool(..) | NodeValue::Number(_) | NodeValue::Text(_) => {
                    return Err(self.diagnostic_at(line, "`<<` takes a map or a list of maps"));
                }
            };
            for entry in maps.iter().flat_map(ConfigNode::entries) {
                if known.insert(entry.key.clone()) {
                    entries.push(entry.clone());
                }
            }
        }
        Ok(entries)
    }

    /// Creates an error at a line.
    fn diagnostic_at(&self, line: usize, message: &str) -> ConfigDiagnostic {
        ConfigDiagnostic::new(self.file, line, "", message)
    }
}

/// Type of an unquoted scalar. Like YAML 1.1, `yes`, `no`, `on` and `off` are booleans; the spelling is kept.
fn parse_scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> NodeValue {
    // `!!str 5` is text.
    let as_text = tag.is_some_and(|tag| tag.core_suffix() == Some("str"));
    if style != ScalarStyle::Plain || as_text {
        return NodeValue::Text(text.to_owned());
    }
    // The spelling is kept with each boolean: in `env`, `no` is the text that the user wrote.
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

/// Whether an unquoted scalar is a decimal, hexadecimal or octal number.
fn is_number(text: &str) -> bool {
    let digits_of = |prefix: &str, radix| {
        text.strip_prefix(prefix).is_some_and(|digits| u64::from_str_radix(digits, radix).is_ok())
    };
    // Rust parses `inf` and `nan` as numbers; here they are text.
    let decimal = text.contains(|character: char| character.is_ascii_digit()) && text.parse::<f64>().is_ok();
    decimal || digits_of("0x", 16) || digits_of("0o", 8)
}
