//! TOML as a tree, in the order of the file.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Entry, Fault, Lines, Node, Value, twice};

pub(super) fn parse(text: &str, file: &str) -> Result<Node, Fault> {
    let lines = Lines::new(text);
    match DeTable::parse(text) {
        Ok(table) => Ok(Node { value: map(table.get_ref(), &lines), line: 1 }),
        Err(error) => {
            let at = error.span().unwrap_or_default();
            let fault = lines.fault(file, at.start, error.message());
            match (error.message(), text.get(at.clone())) {
                ("duplicate key", Some(key)) => Err(match first_line(text, at.start, key) {
                    Some(first) => Fault { message: twice(key, first), ..fault },
                    None => Fault { message: format!("the key `{key}` stands twice; keep one"), ..fault },
                }),
                _ => Err(fault),
            }
        }
    }
}

fn map(table: &DeTable<'_>, lines: &Lines<'_>) -> Value {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    Value::Map(
        entries
            .into_iter()
            .map(|(key, value)| {
                let line = lines.line(key.span().start);
                Entry { key: key.get_ref().to_string(), line, node: node(value, line, lines) }
            })
            .collect(),
    )
}

/// A table has no place of its own, for its parts may stand anywhere: it is where its key is.
fn node(value: &Spanned<DeValue<'_>>, key_line: usize, lines: &Lines<'_>) -> Node {
    let line = lines.line(value.span().start);
    match value.get_ref() {
        DeValue::String(text) => Node::text(text.as_ref(), line),
        DeValue::Integer(number) => Node { value: Value::Number(number.to_string()), line },
        DeValue::Float(number) => Node { value: Value::Number(number.to_string()), line },
        DeValue::Boolean(flag) => Node { value: Value::Bool(*flag, flag.to_string()), line },
        DeValue::Datetime(time) => Node::text(time.to_string(), line),
        DeValue::Array(items) => {
            Node { value: Value::List(items.iter().map(|item| node(item, line, lines)).collect()), line }
        }
        DeValue::Table(table) => Node { value: map(table, lines), line: key_line },
    }
}

/// The parser says only where the second of two equal keys is: the first is looked for in the text before it,
/// among the headers for a header, within the table for a key.
fn first_line(text: &str, second: usize, key: &str) -> Option<usize> {
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
