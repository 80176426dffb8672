//! YAML 1.2 as a tree, from the parser's events: anchors, aliases and `<<` are resolved here, and bounded.

use std::collections::{HashMap, HashSet};

use granit_parser::{Event, Parser, ScalarStyle, Tag};

use super::{DEEPEST, Entry, Fault, Node, Value, lower_first};

/// Aliases may copy `most_copies` nodes in all.
pub(super) fn parse(text: &str, file: &str, most_copies: usize) -> Result<Node, Fault> {
    let mut tree = Tree { file, open: Vec::new(), anchors: HashMap::new(), copies: 0, most_copies, root: None };
    for next in Parser::new_from_str(text) {
        let (event, span) = next.map_err(|error| {
            let (line, column) = (error.marker().line(), error.marker().col() + 1);
            Fault::new(file, line, "", lower_first(&error.info())).at_column(column)
        })?;
        tree.take(event, span.start.line())?;
    }
    Ok(tree.root.unwrap_or(Node::null(1)))
}

struct Tree<'a> {
    file: &'a str,
    /// The lists and maps that have begun and not ended, the innermost last.
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    copies: usize,
    most_copies: usize,
    root: Option<Node>,
}

struct Open {
    line: usize,
    anchor: usize,
    collection: Collection,
}

enum Collection {
    List(Vec<Node>),
    /// With the key that waits for its value.
    Map(Vec<Entry>, Option<(String, usize)>),
}

impl Tree<'_> {
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), Fault> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let node = Node { value: scalar(&text, style, tag.as_deref()), line };
                self.anchor(anchor, &node)?;
                // A key is its text, whatever it might mean as a value.
                self.add(node, Some(&text))
            }
            Event::SequenceStart(_, anchor, _) => self.begin(line, anchor, Collection::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => self.begin(line, anchor, Collection::Map(Vec::new(), None)),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => {
                let node = self.copy(anchor, line)?;
                let text = node.as_text().map(str::to_owned);
                self.add(node, text.as_deref())
            }
            Event::DocumentStart(..) if self.root.is_some() => {
                Err(self.fault(line, "a second document begins here; only one is read"))
            }
            Event::StreamStart | Event::StreamEnd | Event::DocumentStart(..) | Event::DocumentEnd => Ok(()),
            // Only emitted when asked for; comments exist only if another crate switches them on.
            Event::Anchor(..) | Event::UnresolvedAlias(_) | _ => Ok(()),
        }
    }

    fn begin(&mut self, line: usize, anchor: usize, collection: Collection) -> Result<(), Fault> {
        if self.open.len() >= DEEPEST {
            return Err(self.fault(line, "nested too deep"));
        }
        self.open.push(Open { line, anchor, collection });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Fault> {
        let Some(Open { line, anchor, collection }) = self.open.pop() else { return Ok(()) };
        let value = match collection {
            Collection::List(nodes) => Value::List(nodes),
            Collection::Map(entries, _) => Value::Map(self.merged(entries)?),
        };
        let node = Node { value, line };
        self.anchor(anchor, &node)?;
        self.add(node, None)
    }

    /// Puts a node where the innermost open collection wants it; `key` is its text should it be a key.
    fn add(&mut self, node: Node, key: Option<&str>) -> Result<(), Fault> {
        let line = node.line;
        match self.open.last_mut().map(|open| &mut open.collection) {
            None => self.root = Some(node),
            Some(Collection::List(nodes)) => nodes.push(node),
            Some(Collection::Map(entries, waiting)) => match (waiting.take(), key) {
                (Some((key, line)), _) => entries.push(Entry { key, line, node }),
                (None, Some(key)) => *waiting = Some((key.to_owned(), line)),
                (None, None) => return Err(self.fault(line, "expected text as a key, found a list or a map")),
            },
        }
        Ok(())
    }

    /// Keeps what an alias may stand for, counted like what aliases copy: anchors may stand inside one another.
    fn anchor(&mut self, anchor: usize, node: &Node) -> Result<(), Fault> {
        // The parser counts anchors from one; zero is none.
        if anchor > 0 {
            self.copies += node.size_and_depth().0;
            if self.copies > self.most_copies {
                return Err(self.fault(node.line, "anchors name too much; write the values out"));
            }
            self.anchors.insert(anchor, node.clone());
        }
        Ok(())
    }

    /// What an alias stands for, counted so that aliases of aliases cannot grow without end.
    fn copy(&mut self, anchor: usize, line: usize) -> Result<Node, Fault> {
        let Some(node) = self.anchors.get(&anchor) else {
            return Err(self.fault(line, "an alias cannot stand inside what it names"));
        };
        let (size, depth) = node.size_and_depth();
        self.copies += size;
        if self.copies > self.most_copies || self.open.len() + depth > DEEPEST {
            return Err(self.fault(line, "aliases copy too much; write the values out"));
        }
        Ok(node.clone())
    }

    /// The entries with those of `<<` behind them, where they do not stand already.
    fn merged(&self, entries: Vec<Entry>) -> Result<Vec<Entry>, Fault> {
        let (merges, mut entries): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.key == "<<");
        if merges.is_empty() {
            return Ok(entries);
        }
        // Once for all of them: a map may have as many `<<` as other keys.
        let mut known: HashSet<String> = entries.iter().map(|entry| entry.key.clone()).collect();
        for Entry { line, node, .. } in merges {
            let sources = match node.value {
                Value::List(nodes) => nodes,
                Value::Map(_) => vec![node],
                Value::Null | Value::Bool(..) | Value::Number(_) | Value::Text(_) => {
                    return Err(self.fault(line, "`<<` takes a map or a list of maps"));
                }
            };
            for entry in sources.iter().flat_map(Node::entries) {
                if known.insert(entry.key.clone()) {
                    entries.push(entry.clone());
                }
            }
        }
        Ok(entries)
    }

    fn fault(&self, line: usize, message: &str) -> Fault {
        Fault::new(self.file, line, "", message)
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Value {
    let as_text = tag.is_some_and(|tag| tag.core_suffix() == Some("str"));
    if style != ScalarStyle::Plain || as_text {
        return Value::Text(text.to_owned());
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Value::Bool(true, text.to_owned()),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Value::Bool(false, text.to_owned()),
        _ if is_number(text) => Value::Number(text.to_owned()),
        _ => Value::Text(text.to_owned()),
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
