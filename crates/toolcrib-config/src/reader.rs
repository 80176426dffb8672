//! Reads typed values out of the untyped tree of a configuration file.
//!
//! A wrong value is recorded as a diagnostic and reading continues, so that one pass reports all errors of a file. The
//! methods therefore return `None` or an empty value for a wrong value as well as for an absent one; whether the file
//! is valid is decided at the end, by `errors`.
//!
//! Null counts as absent everywhere: `ttl:` without a value leaves the default.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use toolcrib_core::text::did_you_mean;
use toolcrib_core::time::parse_duration;

use super::ConfigDialect;
use super::diagnostic::ConfigDiagnostic;
use super::overrides::parse_flag;
use super::path::resolve_file_references;
use super::reference::{find_unknown_kind, has_reference};
use super::secret_mask::mask_literals;
use super::size::parse_size;
use super::syntax::{ConfigNode, NodeEntry, NodeValue, join_key};

/// Maximum of every duration setting: one year. Sums with the current time stay far from overflow.
const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Collects errors and warnings while a configuration file is read.
/// Each source gets a reader of its own, because its errors belong to it and not to the file.
pub(super) struct ConfigReader<'a> {
    /// Display name of the file.
    pub(super) file: &'a str,
    /// Directory that relative paths are resolved against.
    pub(super) base_dir: &'a Path,
    /// Decides whether unknown keys are errors or warnings.
    pub(super) dialect: ConfigDialect,
    /// Resolves references in values that are no texts; `None` where they cannot be resolved.
    pub(super) lookup: Option<ReferenceLookup<'a>>,
    pub(super) errors: Vec<ConfigDiagnostic>,
    pub(super) warnings: Vec<ConfigDiagnostic>,
}

/// Resolves all references in a text. The error names a reference and the reason, never a value.
pub type ReferenceLookup<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// Map of keys with its position in the file.
pub(super) struct Section<'n> {
    /// Key path such as `sources.files.auth`.
    pub(super) path: String,
    /// Line where the map starts; used for errors about keys that are missing.
    pub(super) line: usize,
    /// Entries in file order, null values included.
    pub(super) entries: &'n [NodeEntry],
}

/// Whether a duration of zero is allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ZeroDuration {
    /// For settings in which zero is meaningful: `ttl: 0s` is always stale, `idle: 0s` keeps no idle connection.
    Allowed,
    /// For timeouts, which could never be met.
    Rejected,
}

impl<'n> Section<'n> {
    /// Returns the value of a key; null counts as absent.
    pub(super) fn get(&self, key: &str) -> Option<&'n ConfigNode> {
        self.entry(key).map(|entry| &entry.node)
    }

    /// Returns key and value, for the line of the key; null counts as absent.
    pub(super) fn entry(&self, key: &str) -> Option<&'n NodeEntry> {
        self.entries.iter().find(|entry| entry.key == key && !entry.node.is_null())
    }

    /// Whether a key has a value other than null.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }
}

impl<'a> ConfigReader<'a> {
    pub(super) fn new(file: &'a str, base: &'a Path, dialect: ConfigDialect) -> ConfigReader<'a> {
        ConfigReader { file, base_dir: base, dialect, lookup: None, errors: Vec::new(), warnings: Vec::new() }
    }

    /// Sets how references in values that are no texts are resolved.
    pub(super) fn with_lookup(self, lookup: Option<ReferenceLookup<'a>>) -> ConfigReader<'a> {
        ConfigReader { lookup, ..self }
    }

    /// Parses a value that is a reference, such as `${env:TTL}`, and reports an unknown kind of reference. `None` for any
    /// other value. `Some(None)` reports why it cannot be used: without its value, which may be a secret that was named
    /// by mistake.
    pub(super) fn read_reference<T>(
        &mut self,
        node: &ConfigNode,
        path: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<Option<T>> {
        let text = node.as_text()?;
        if !has_reference(text) {
            let kind = find_unknown_kind(text)?;
            let known = "`${env:NAME}`, `${env:NAME:-default}` and `${file:PATH}`";
            self.error(node.line, path, format!("`{kind}` is no kind of reference; the known ones are {known}"));
            return Some(None);
        }
        let resolved = match self.lookup {
            Some(lookup) => lookup(&resolve_file_references(self.base_dir, text)),
            None => Err(format!("`{}` cannot be resolved here", mask_literals(text))),
        };
        let value = match resolved {
            Ok(resolved) => parse(resolved.trim())
                .ok_or_else(|| format!("expected {expected}, found another value of `{}`", mask_literals(text))),
            Err(reason) => Err(reason),
        };
        Some(value.map_err(|message| self.error(node.line, path, message)).ok())
    }

    /// Records an error.
    pub(super) fn error(&mut self, line: usize, key: &str, message: impl AsRef<str>) {
        self.errors.push(ConfigDiagnostic::new(self.file, line, key, message));
    }

    /// Records a warning.
    pub(super) fn warn(&mut self, line: usize, key: &str, message: impl AsRef<str>) {
        self.warnings.push(ConfigDiagnostic::new(self.file, line, key, message));
    }

    /// Reports an unknown or misplaced key: an error in Toolcrib's files, a warning in those of other clients, which
    /// have keys of their own.
    pub(super) fn error_or_warn(&mut self, line: usize, key: &str, message: impl AsRef<str>) {
        match self.dialect {
            ConfigDialect::Toolcrib => self.error(line, key, message),
            ConfigDialect::Client => self.warn(line, key, format!("{}; ignored", message.as_ref())),
        }
    }

    /// Returns a map as a section. Null is an empty section, anything else an error.
    pub(super) fn as_section<'n>(&mut self, node: &'n ConfigNode, path: &str) -> Option<Section<'n>> {
        match &node.value {
            NodeValue::Map(_) | NodeValue::Null => {
                Some(Section { path: path.to_owned(), line: node.line, entries: node.entries() })
            }
            NodeValue::Bool(..) | NodeValue::Number(_) | NodeValue::Text(_) | NodeValue::List(_) => {
                self.type_error("a map of keys", node, path);
                None
            }
        }
    }

    /// Reports keys that are not in `known`, with the nearest known key.
    /// Continues with the known ones.
    pub(super) fn report_unknown_keys(&mut self, section: &Section<'_>, known: &[&str]) {
        for entry in section.entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            let near = did_you_mean(&entry.key, known.iter().copied());
            self.error_or_warn(entry.line, &section.path, format!("unknown key `{}`{near}", entry.key));
        }
    }

    /// Reads a non-empty text. A number or boolean is an error with the advice to quote it.
    /// For keys in which a number is more likely a mistake than meant, such as `title` and `command`.
    pub(super) fn read_text(&mut self, section: &Section<'_>, key: &str) -> Option<String> {
        let node = section.get(key)?;
        match &node.value {
            NodeValue::Text(text) if !text.trim().is_empty() => Some(text.clone()),
            NodeValue::Text(_) => {
                self.error(node.line, &join_key(&section.path, key), "expected text, found an empty string");
                None
            }
            NodeValue::Bool(_, spelling) | NodeValue::Number(spelling) => {
                let message = format!("expected text, found {}; write it in quotes: \"{spelling}\"", node.type_name());
                self.error(node.line, &join_key(&section.path, key), message);
                None
            }
            NodeValue::Null | NodeValue::List(_) | NodeValue::Map(_) => {
                self.type_error("text", node, &join_key(&section.path, key));
                None
            }
        }
    }

    /// Reads a scalar as text. A number or boolean keeps its spelling in the file, as programs and servers expect it.
    pub(super) fn read_scalar(&mut self, node: &ConfigNode, path: &str) -> Option<String> {
        match &node.value {
            NodeValue::Text(text) | NodeValue::Number(text) | NodeValue::Bool(_, text) => Some(text.clone()),
            NodeValue::Null | NodeValue::List(_) | NodeValue::Map(_) => {
                self.type_error("text", node, path);
                None
            }
        }
    }

    /// Reads a list of scalars; absent means empty. Items of another type are reported with their index and left out.
    pub(super) fn read_list(&mut self, section: &Section<'_>, key: &str) -> Vec<String> {
        let Some(node) = section.get(key) else { return Vec::new() };
        let path = join_key(&section.path, key);
        let NodeValue::List(items) = &node.value else {
            self.type_error("a list", node, &path);
            return Vec::new();
        };
        items
            .iter()
            .enumerate()
            .filter_map(|(index, item)| self.read_scalar(item, &format!("{path}[{index}]")))
            .collect()
    }

    /// Reads a list of scalars whose references are resolved now: for globs, tags and names, which are compared and
    /// never sent.
    pub(super) fn read_resolved_list(&mut self, section: &Section<'_>, key: &str) -> Vec<String> {
        let path = join_key(&section.path, key);
        let line = section.get(key).map_or(section.line, |node| node.line);
        let items = self.read_list(section, key).into_iter().enumerate();
        items.filter_map(|(index, item)| self.resolve_text(item, line, &format!("{path}[{index}]"))).collect()
    }

    /// Like [`ConfigReader::read_text`], with its references resolved now.
    pub(super) fn read_resolved_text(&mut self, section: &Section<'_>, key: &str) -> Option<String> {
        let line = section.get(key)?.line;
        let text = self.read_text(section, key)?;
        self.resolve_text(text, line, &join_key(&section.path, key))
    }

    /// Resolves the references of a text now, if it has any. An empty value is an error.
    pub(super) fn resolve_text(&mut self, text: String, line: usize, path: &str) -> Option<String> {
        // Other text with `${` is literal.
        if !has_reference(&text) {
            return Some(text);
        }
        let node = ConfigNode { value: NodeValue::Text(text.clone()), line };
        let not_empty = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        self.read_reference(&node, path, "text", not_empty).unwrap_or(Some(text))
    }

    /// Reads a map of names to scalars. A name whose value is null is skipped, as other clients do.
    pub(super) fn read_map(&mut self, section: &Section<'_>, key: &str) -> BTreeMap<String, String> {
        let Some(node) = section.get(key) else { return BTreeMap::new() };
        let path = join_key(&section.path, key);
        let Some(pairs) = self.as_section(node, &path) else { return BTreeMap::new() };
        pairs
            .entries
            .iter()
            .filter(|entry| !entry.node.is_null())
            .filter_map(|entry| Some((entry.key.clone(), self.read_scalar(&entry.node, &join_key(&path, &entry.key))?)))
            .collect()
    }

    /// Reads a boolean.
    pub(super) fn read_bool(&mut self, section: &Section<'_>, key: &str) -> Option<bool> {
        let node = section.get(key)?;
        if let NodeValue::Bool(flag, _) = node.value {
            return Some(flag);
        }
        let path = join_key(&section.path, key);
        if let Some(flag) = self.read_reference(node, &path, "true or false", parse_flag) {
            return flag;
        }
        self.type_error("true or false", node, &path);
        None
    }

    /// Reads a boolean that may be written as text or number, as in files of other clients.
    pub(super) fn read_flag(&mut self, node: &ConfigNode, path: &str) -> Option<bool> {
        let flag = match &node.value {
            NodeValue::Bool(flag, _) => Some(*flag),
            NodeValue::Text(text) | NodeValue::Number(text) => parse_flag(text),
            NodeValue::Null | NodeValue::List(_) | NodeValue::Map(_) => None,
        };
        if flag.is_some() {
            return flag;
        }
        if let Some(flag) = self.read_reference(node, path, "true or false", parse_flag) {
            return flag;
        }
        self.type_error("true or false", node, path);
        None
    }

    /// Reads a duration such as `30s`, of at most [`MAX_DURATION`].
    /// A bare number is rejected, since other clients use both seconds and milliseconds.
    pub(super) fn read_duration(&mut self, section: &Section<'_>, key: &str, zero: ZeroDuration) -> Option<Duration> {
        let node = section.get(key)?;
        let path = join_key(&section.path, key);
        let is_valid =
            |duration: &Duration| *duration <= MAX_DURATION && (!duration.is_zero() || zero == ZeroDuration::Allowed);
        let expected = "a duration such as `30s` or `5m`";
        let parse = |text: &str| parse_duration(text).filter(is_valid);
        if let Some(duration) = self.read_reference(node, &path, expected, parse) {
            return duration;
        }
        let duration = match &node.value {
            NodeValue::Text(text) => parse_duration(text),
            NodeValue::Number(number) => {
                let message = format!("expected a duration, found the number {number}; write `{number}s`");
                self.error(node.line, &path, message);
                return None;
            }
            NodeValue::Null | NodeValue::Bool(..) | NodeValue::List(_) | NodeValue::Map(_) => None,
        };
        match duration {
            Some(duration) if duration.is_zero() && zero == ZeroDuration::Rejected => {
                self.error(node.line, &path, "must be greater than zero, for example `30s`");
                None
            }
            Some(duration) if duration > MAX_DURATION => {
                self.error(node.line, &path, "must be at most one year; write `8760h` or less");
                None
            }
            Some(duration) => Some(duration),
            None => {
                let found = self.describe_value(node);
                self.error(node.line, &path, format!("expected a duration such as `30s` or `5m`, found {found}"));
                None
            }
        }
    }

    /// Reads a size such as `256KiB`, greater than zero.
    /// A bare number is a number of bytes.
    pub(super) fn read_size(&mut self, section: &Section<'_>, key: &str) -> Option<u64> {
        let node = section.get(key)?;
        let parse = |text: &str| parse_size(text).filter(|size| *size > 0);
        let path = join_key(&section.path, key);
        if let Some(size) = self.read_reference(node, &path, "a size such as `256KiB` or `1MiB`", parse) {
            return size;
        }
        let size = match &node.value {
            NodeValue::Text(text) | NodeValue::Number(text) => parse(text),
            NodeValue::Null | NodeValue::Bool(..) | NodeValue::List(_) | NodeValue::Map(_) => None,
        };
        if size.is_none() {
            let found = self.describe_value(node);
            self.error(node.line, &path, format!("expected a size such as `256KiB` or `1MiB`, found {found}"));
        }
        size
    }

    /// Reads a non-negative integer.
    pub(super) fn read_count(&mut self, section: &Section<'_>, key: &str) -> Option<u32> {
        self.read_number(section, key, "a whole number such as `4000`", |_| true)
    }

    /// Reads a whole number of a range.
    pub(super) fn read_count_within(
        &mut self,
        section: &Section<'_>,
        key: &str,
        range: &RangeInclusive<u32>,
    ) -> Option<u32> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        self.read_number(section, key, &expected, |count| range.contains(&count))
    }

    /// Reads a whole number that is accepted; `expected` describes it.
    fn read_number(
        &mut self,
        section: &Section<'_>,
        key: &str,
        expected: &str,
        is_accepted: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let node = section.get(key)?;
        let path = join_key(&section.path, key);
        let parse = |text: &str| text.parse().ok().filter(|count| is_accepted(*count));
        if let Some(count) = self.read_reference(node, &path, expected, parse) {
            return count;
        }
        let count = if let NodeValue::Number(text) = &node.value { parse(text) } else { None };
        if count.is_none() {
            let found = self.describe_value(node);
            self.error(node.line, &path, format!("expected {expected}, found {found}"));
        }
        count
    }

    /// Reads a key whose value is one of a fixed set of words.
    pub(super) fn read_choice_at<T: Copy>(
        &mut self,
        section: &Section<'_>,
        key: &str,
        choices: &[(&str, T)],
    ) -> Option<T> {
        self.read_choice(section.get(key)?, &join_key(&section.path, key), choices)
    }

    /// Reads one of a fixed set of words. Words are compared exactly. The message lists all of them and the nearest
    /// one.
    pub(super) fn read_choice<T: Copy>(&mut self, node: &ConfigNode, path: &str, choices: &[(&str, T)]) -> Option<T> {
        let word = node.as_text();
        if let Some((_, choice)) = choices.iter().find(|(name, _)| Some(*name) == word) {
            return Some(*choice);
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let parse = |word: &str| choices.iter().find(|(name, _)| *name == word).map(|(_, choice)| *choice);
        if let Some(choice) = self.read_reference(node, path, &format_alternatives(&names), parse) {
            return choice;
        }
        let near = did_you_mean(word.unwrap_or_default(), names.iter().copied());
        let found = self.describe_value(node);
        let expected = format_alternatives(&names);
        self.error(node.line, path, format!("expected {expected}, found {found}{near}"));
        None
    }

    /// Reports a value of the wrong type. Quotes no value, so it is safe for keys that hold secrets.
    pub(super) fn type_error(&mut self, expected: &str, node: &ConfigNode, path: &str) {
        self.error(node.line, path, format!("expected {expected}, found {}", node.type_name()));
    }

    /// Quotes a value for a message. Only for keys that hold no secrets.
    /// Secrets are read by `read_scalar`, `read_list` and `read_map`, whose messages name the type alone.
    fn describe_value(&self, node: &ConfigNode) -> String {
        match &node.value {
            NodeValue::Text(text) | NodeValue::Number(text) | NodeValue::Bool(_, text) => format!("`{text}`"),
            NodeValue::Null | NodeValue::List(_) | NodeValue::Map(_) => node.type_name().to_owned(),
        }
    }
}

/// Formats names as "`a`, `b` or `c`".
pub(super) fn format_alternatives(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}
