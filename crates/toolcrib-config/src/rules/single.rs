//! A single group, access rule or policy outside a configuration file, with the same keys: from a file of a command, or
//! from the body of a request.

use std::path::Path;

use toolcrib_core::access_rules::{AccessRules, NamedRule, RuleKind, check_rule_name};
use toolcrib_core::text::sanitize_truncated;

use super::{GroupReference, ReadRules, find_unknown_groups, read_definition};
use crate::reader::{ConfigReader, Section};
use crate::syntax::{self, NodeEntry, NodeValue};
use crate::{ConfigDiagnostic, ConfigDialect, Syntax};

/// Name of the file in messages about the body of a request, which is JSON.
pub const REQUEST_BODY: &str = "request body";

/// Keys of responses that are no part of a definition. Clients may send back what they have read.
const RESPONSE_KEYS: [&str; 4] = ["members", "missing", "origin", "warnings"];

/// Group, access rule or policy outside a configuration file.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedRule {
    pub rule: NamedRule,
    /// Places where it names groups.
    references: Vec<GroupReference>,
}

/// Parses a definition: the keys that a file would have under the name of a group, or in an item of `access` or
/// `policies`, whose `name` may be left out. The name of the file determines the syntax, and [`REQUEST_BODY`] is JSON.
/// References are errors: a request must not read the environment of the server.
///
/// Fails with all errors of the definition. Whether the groups that it refers to exist is checked by
/// [`ParsedRule::check_groups`].
pub fn parse_rule(kind: RuleKind, name: &str, text: &str, file: &str) -> Result<ParsedRule, Vec<ConfigDiagnostic>> {
    let syntax = if file == REQUEST_BODY { Syntax::Json } else { Syntax::from_file_name(file) };
    let root = syntax::parse(text, file, syntax)?;
    let mut reader = ConfigReader::new(file, Path::new("."), ConfigDialect::Toolcrib);
    if let Err(error) = check_rule_name(kind, name) {
        reader.error(0, "", error.message);
    }
    let NodeValue::Map(entries) = &root.value else {
        reader.type_error("a map of keys", &root, "");
        return Err(reader.errors);
    };
    check_name(&mut reader, name, entries);
    let is_ignored = |key: &str| key == "name" || RESPONSE_KEYS.contains(&key);
    let entries: Vec<NodeEntry> = entries.iter().filter(|entry| !is_ignored(&entry.key)).cloned().collect();
    let section = Section { path: String::new(), line: root.line, entries: &entries };
    let mut read = ReadRules::default();
    let rule = read_definition(&mut reader, &section, kind, name.to_owned(), &mut read);
    match rule {
        Some(rule) if reader.errors.is_empty() => Ok(ParsedRule { rule, references: read.references }),
        _ => Err(reader.errors),
    }
}

impl ParsedRule {
    /// Returns the rule if the groups that it refers to exist. Fails with the place of each that does not.
    pub fn check_groups(self, rules: &AccessRules) -> Result<NamedRule, Vec<ConfigDiagnostic>> {
        let groups: Vec<&str> = rules.groups().map(|group| group.name.as_str()).collect();
        let errors = find_unknown_groups(&self.references, &groups);
        if errors.is_empty() { Ok(self.rule) } else { Err(errors) }
    }
}

/// Reports a `name` that is not the one under which the definition is stored.
fn check_name(reader: &mut ConfigReader<'_>, name: &str, entries: &[NodeEntry]) {
    let Some(entry) = entries.iter().find(|entry| entry.key == "name" && !entry.node.is_null()) else { return };
    let Some(found) = reader.read_scalar(&entry.node, "name") else { return };
    if found != name {
        let message = format!("`{}` is not the name of this definition, `{name}`", sanitize_truncated(&found, 80));
        reader.error(entry.line, "name", message);
    }
}
