//! Typed values out of the untyped tree. What is wrong is collected with its place, and reading goes on.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::Dialect;
use super::fault::Fault;
use super::node::{Entry, Node, Value, joined};
use super::size::parse_size;
use crate::text::did_you_mean;
use crate::time::parse_duration;

/// Nobody waits longer than this; it keeps what is computed with it within what a clock can say.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

pub(super) struct Reader<'a> {
    pub(super) file: &'a str,
    /// What relative paths are relative to.
    pub(super) base: &'a Path,
    pub(super) dialect: Dialect,
    pub(super) faults: Vec<Fault>,
    pub(super) warnings: Vec<Fault>,
}

/// A map of keys, and where it stands.
pub(super) struct Section<'n> {
    pub(super) path: String,
    pub(super) line: usize,
    pub(super) entries: &'n [Entry],
}

/// Whether a length of time may be none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Zero {
    Allowed,
    Refused,
}

impl<'n> Section<'n> {
    /// The value under a key; null counts as absent.
    pub(super) fn get(&self, key: &str) -> Option<&'n Node> {
        self.entry(key).map(|entry| &entry.node)
    }

    pub(super) fn entry(&self, key: &str) -> Option<&'n Entry> {
        self.entries.iter().find(|entry| entry.key == key && !entry.node.is_null())
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &'a str, base: &'a Path, dialect: Dialect) -> Reader<'a> {
        Reader { file, base, dialect, faults: Vec::new(), warnings: Vec::new() }
    }

    pub(super) fn fault(&mut self, line: usize, key: &str, message: impl AsRef<str>) {
        self.faults.push(Fault::new(self.file, line, key, message));
    }

    pub(super) fn warn(&mut self, line: usize, key: &str, message: impl AsRef<str>) {
        self.warnings.push(Fault::new(self.file, line, key, message));
    }

    /// A mistake in our own file, and none of our business in another client's.
    pub(super) fn complain(&mut self, line: usize, key: &str, message: impl AsRef<str>) {
        match self.dialect {
            Dialect::Own => self.fault(line, key, message),
            Dialect::Client => self.warn(line, key, format!("{}; ignored", message.as_ref())),
        }
    }

    pub(super) fn section<'n>(&mut self, node: &'n Node, path: &str) -> Option<Section<'n>> {
        match &node.value {
            Value::Map(_) | Value::Null => {
                Some(Section { path: path.to_owned(), line: node.line, entries: node.entries() })
            }
            Value::Bool(..) | Value::Number(_) | Value::Text(_) | Value::List(_) => {
                self.expected("a map of keys", node, path);
                None
            }
        }
    }

    pub(super) fn unknown_keys(&mut self, section: &Section<'_>, known: &[&str]) {
        for entry in section.entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            let near = did_you_mean(&entry.key, known.iter().copied());
            self.complain(entry.line, &section.path, format!("unknown key `{}`{near}", entry.key));
        }
    }

    /// Text and nothing else.
    pub(super) fn text(&mut self, section: &Section<'_>, key: &str) -> Option<String> {
        let node = section.get(key)?;
        match &node.value {
            Value::Text(text) if !text.trim().is_empty() => Some(text.clone()),
            Value::Text(_) => {
                self.fault(node.line, &joined(&section.path, key), "expected text, found none between the quotes");
                None
            }
            Value::Bool(_, spelling) | Value::Number(spelling) => {
                let message = format!("expected text, found {}; write it in quotes: \"{spelling}\"", node.kind());
                self.fault(node.line, &joined(&section.path, key), message);
                None
            }
            Value::Null | Value::List(_) | Value::Map(_) => {
                self.expected("text", node, &joined(&section.path, key));
                None
            }
        }
    }

    /// Text as a program or a server gets it: a number or a flag stands for its spelling.
    pub(super) fn spelling(&mut self, node: &Node, path: &str) -> Option<String> {
        match &node.value {
            Value::Text(text) | Value::Number(text) | Value::Bool(_, text) => Some(text.clone()),
            Value::Null | Value::List(_) | Value::Map(_) => {
                self.expected("text", node, path);
                None
            }
        }
    }

    pub(super) fn texts(&mut self, section: &Section<'_>, key: &str) -> Vec<String> {
        let Some(node) = section.get(key) else { return Vec::new() };
        let path = joined(&section.path, key);
        let Value::List(items) = &node.value else {
            self.expected("a list", node, &path);
            return Vec::new();
        };
        items.iter().enumerate().filter_map(|(index, item)| self.spelling(item, &format!("{path}[{index}]"))).collect()
    }

    /// Names and their texts. A name without a value is left out, as in other clients.
    pub(super) fn pairs(&mut self, section: &Section<'_>, key: &str) -> BTreeMap<String, String> {
        let Some(node) = section.get(key) else { return BTreeMap::new() };
        let path = joined(&section.path, key);
        let Some(pairs) = self.section(node, &path) else { return BTreeMap::new() };
        pairs
            .entries
            .iter()
            .filter(|entry| !entry.node.is_null())
            .filter_map(|entry| Some((entry.key.clone(), self.spelling(&entry.node, &joined(&path, &entry.key))?)))
            .collect()
    }

    pub(super) fn flag(&mut self, section: &Section<'_>, key: &str) -> Option<bool> {
        let node = section.get(key)?;
        if let Value::Bool(flag, _) = node.value {
            return Some(flag);
        }
        self.expected("true or false", node, &joined(&section.path, key));
        None
    }

    pub(super) fn duration(&mut self, section: &Section<'_>, key: &str, zero: Zero) -> Option<Duration> {
        let node = section.get(key)?;
        let path = joined(&section.path, key);
        let duration = match &node.value {
            Value::Text(text) => parse_duration(text),
            Value::Number(number) => {
                let message = format!("expected a length of time, found the number {number}; write `{number}s`");
                self.fault(node.line, &path, message);
                return None;
            }
            Value::Null | Value::Bool(..) | Value::List(_) | Value::Map(_) => None,
        };
        match duration {
            Some(duration) if duration.is_zero() && zero == Zero::Refused => {
                self.fault(node.line, &path, "must be more than nothing; write `30s`, say");
                None
            }
            Some(duration) if duration > LONGEST => {
                self.fault(node.line, &path, "must be a year at most; write `8760h` or less");
                None
            }
            Some(duration) => Some(duration),
            None => {
                let found = self.shown(node);
                self.fault(node.line, &path, format!("expected a length of time such as `30s` or `5m`, found {found}"));
                None
            }
        }
    }

    pub(super) fn size(&mut self, section: &Section<'_>, key: &str) -> Option<u64> {
        let node = section.get(key)?;
        let size = match &node.value {
            Value::Text(text) | Value::Number(text) => parse_size(text).filter(|size| *size > 0),
            Value::Null | Value::Bool(..) | Value::List(_) | Value::Map(_) => None,
        };
        if size.is_none() {
            let found = self.shown(node);
            let message = format!("expected a size such as `256KiB` or `1MiB`, found {found}");
            self.fault(node.line, &joined(&section.path, key), message);
        }
        size
    }

    pub(super) fn count(&mut self, section: &Section<'_>, key: &str) -> Option<u32> {
        let node = section.get(key)?;
        let count = match &node.value {
            Value::Number(text) => text.parse().ok(),
            Value::Null | Value::Bool(..) | Value::Text(_) | Value::List(_) | Value::Map(_) => None,
        };
        if count.is_none() {
            let found = self.shown(node);
            let message = format!("expected a whole number such as `4000`, found {found}");
            self.fault(node.line, &joined(&section.path, key), message);
        }
        count
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&mut self, node: &Node, path: &str, choices: &[(&str, T)]) -> Option<T> {
        let word = node.as_text();
        if let Some((_, choice)) = choices.iter().find(|(name, _)| Some(*name) == word) {
            return Some(*choice);
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let near = did_you_mean(word.unwrap_or_default(), names.iter().copied());
        let (found, wanted) = (self.shown(node), one_of(&names));
        self.fault(node.line, path, format!("expected {wanted}, found {found}{near}"));
        None
    }

    pub(super) fn expected(&mut self, wanted: &str, node: &Node, path: &str) {
        self.fault(node.line, path, format!("expected {wanted}, found {}", node.kind()));
    }

    /// A value in a message. Only for keys that hold no secrets.
    fn shown(&self, node: &Node) -> String {
        match &node.value {
            Value::Text(text) | Value::Number(text) | Value::Bool(_, text) => format!("`{text}`"),
            Value::Null | Value::List(_) | Value::Map(_) => node.kind().to_owned(),
        }
    }
}

/// `a`, `b` or `c`, each in backticks.
pub(super) fn one_of(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}
