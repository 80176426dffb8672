//! TOML parser of configuration files. Keys keep the order of the file, which the parser itself loses.
//!
//! TOML forbids duplicate keys, so the parser reports them as syntax errors. The message is rewritten here to be the
//! same as for the other syntaxes. Dates have no type in the tree and become text.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{ConfigDiagnostic, ConfigNode, LineIndex, NodeEntry, NodeValue, duplicate_key_message};

/// Parses a whole file. Unlike in YAML and JSON, an empty file is an empty map.
pub(super) fn parse(text: &str, file: &str) -> Result<ConfigNode, ConfigDiagnostic> {
    let lines = LineIndex::new(text);
    match DeTable::parse(text) {
        Ok(table) => Ok(ConfigNode { value: table_to_value(table.get_ref(), &lines), line: 1 }),
        Err(error) => {
            let span = error.span().unwrap_or_default();
            let diagnostic = lines.diagnostic_at(file, span.start, error.message());
            // The parser names only the second of two equal keys; the message should name both lines.
            match (error.message(), text.get(span.clone())) {
                ("duplicate key", Some(key)) => Err(match find_first_line(text, span.start, key) {
                    Some(first) => ConfigDiagnostic { message: duplicate_key_message(key, first), ..diagnostic },
                    None => ConfigDiagnostic { message: format!("duplicate key `{key}`; keep one"), ..diagnostic },
                }),
                _ => Err(diagnostic),
            }
        }
    }
}

/// Converts a table, with its keys in the order of the file.
fn table_to_value(table: &DeTable<'_>, lines: &LineIndex<'_>) -> NodeValue {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    NodeValue::Map(
        entries
            .into_iter()
            .map(|(key, value)| {
                let line = lines.line(key.span().start);
                NodeEntry { key: key.get_ref().to_string(), line, node: value_to_node(value, line, lines) }
            })
            .collect(),
    )
}

/// Converts a value. A table gets the line of its key: its entries may be spread over the file.
fn value_to_node(value: &Spanned<DeValue<'_>>, key_line: usize, lines: &LineIndex<'_>) -> ConfigNode {
    let line = lines.line(value.span().start);
    let to_node = |item: &Spanned<DeValue<'_>>| value_to_node(item, lines.line(item.span().start), lines);
    match value.get_ref() {
        DeValue::String(text) => ConfigNode::text(text.as_ref(), line),
        DeValue::Integer(number) => ConfigNode { value: NodeValue::Number(number.to_string()), line },
        DeValue::Float(number) => ConfigNode { value: NodeValue::Number(number.to_string()), line },
        DeValue::Boolean(flag) => ConfigNode { value: NodeValue::Bool(*flag, flag.to_string()), line },
        DeValue::Datetime(time) => ConfigNode::text(time.to_string(), line),
        DeValue::Array(items) => ConfigNode { value: NodeValue::List(items.iter().map(to_node).collect()), line },
        DeValue::Table(table) => ConfigNode { value: table_to_value(table, lines), line: key_line },
    }
}

/// Finds the line of the first of two equal keys in the text before the second one: among table headers for a header,
/// within the same table for a key. A search in the text, for the message alone: where it finds nothing, the message
/// names one line.
fn find_first_line(text: &str, second: usize, key: &str) -> Option<usize> {
    let before = text.get(..second)?;
    let line = text.lines().nth(before.matches('\n').count())?;
    let mut earlier = before.lines().enumerate().map(|(index, line)| (index + 1, line.trim())).collect::<Vec<_>>();
    // The last one is the beginning of the same line.
    if !before.ends_with('\n') {
        earlier.pop();
    }
    // A table header without its comment.
    let header = |line: &str| line.split('#').next().unwrap_or_default().trim().to_owned();
    if line.trim_start().starts_with('[') {
        return earlier.iter().find(|(_, candidate)| header(candidate) == header(line)).map(|(number, _)| *number);
    }
    earlier
        .iter()
        .rev()
        .take_while(|(_, line)| !line.starts_with('['))
        .find(|(_, line)| line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(['=', '.'])))
        .map(|(number, _)| *number)
}
