//! TOML as a tree, in the order of the file.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{ConfigDiagnostic, ConfigNode, LineIndex, NodeEntry, NodeValue, duplicate_key_message};

pub(super) fn parse(text: &str, file: &str) -> Result<ConfigNode, ConfigDiagnostic> {
    let lines = LineIndex::new(text);
    match DeTable::parse(text) {
        Ok(table) => Ok(ConfigNode { value: table_to_value(table.get_ref(), &lines), line: 1 }),
        Err(error) => {
            let at = error.span().unwrap_or_default();
            let fault = lines.diagnostic_at(file, at.start, error.message());
            match (error.message(), text.get(at.clone())) {
                ("duplicate key", Some(key)) => Err(match find_first_line(text, at.start, key) {
                    Some(first) => ConfigDiagnostic { message: duplicate_key_message(key, first), ..fault },
                    None => ConfigDiagnostic { message: format!("the key `{key}` stands twice; keep one"), ..fault },
                }),
                _ => Err(fault),
            }
        }
    }
}

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

/// A table has no place of its own, for its parts may stand anywhere: it is where its key is.
fn value_to_node(value: &Spanned<DeValue<'_>>, key_line: usize, lines: &LineIndex<'_>) -> ConfigNode {
    let line = lines.line(value.span().start);
    match value.get_ref() {
        DeValue::String(text) => ConfigNode::text(text.as_ref(), line),
        DeValue::Integer(number) => ConfigNode { value: NodeValue::Number(number.to_string()), line },
        DeValue::Float(number) => ConfigNode { value: NodeValue::Number(number.to_string()), line },
        DeValue::Boolean(flag) => ConfigNode { value: NodeValue::Bool(*flag, flag.to_string()), line },
        DeValue::Datetime(time) => ConfigNode::text(time.to_string(), line),
        DeValue::Array(items) => ConfigNode {
            value: NodeValue::List(items.iter().map(|item| value_to_node(item, line, lines)).collect()),
            line,
        },
        DeValue::Table(table) => ConfigNode { value: table_to_value(table, lines), line: key_line },
    }
}

/// The parser says only where the second of two equal keys is: the first is looked for in the text before it,
/// among the headers for a header, within the table for a key.
fn find_first_line(text: &str, second: usize, key: &str) -> Option<usize> {
    let before = text.get(..second)?;
    let this = text.lines().nth(before.matches('\n').count())?;
    let mut earlier = before.lines().enumerate().map(|(index, line)| (index + 1, line.trim())).collect::<Vec<_>>();
    // The last one is the beginning of this very line.
    if !before.ends_with('\n') {
        earlier.pop();
    }
    let header = |line: &str| line.split('#').next().unwrap_or_default().trim().to_owned();
    if this.trim_start().starts_with('[') {
        return earlier.iter().find(|(_, line)| header(line) == header(this)).map(|(number, _)| *number);
    }
    earlier
        .iter()
        .rev()
        .take_while(|(_, line)| !line.starts_with('['))
        .find(|(_, line)| line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(['=', '.'])))
        .map(|(number, _)| *number)
}
