//! Variables that other clients put into their files: `${workspaceFolder}`, `${userHome}`, Gemini's `$NAME`.
//! `${NAME}` and `${env:NAME}` are references of ours already.

use super::super::node::{Node, Value, joined};
use super::super::reader::Reader;
use super::Client;

pub(super) fn replace(reader: &mut Reader<'_>, client: Option<Client>, node: &mut Node, path: &str) {
    let line = node.line;
    match &mut node.value {
        Value::Null | Value::Bool(..) | Value::Number(_) => {}
        Value::Text(text) => {
            *text = replaced(text, &reader.base.to_string_lossy(), client);
            if text.contains("${input:") {
                reader.warn(line, path, "`${input:…}` is not asked for; use `${env:NAME}`");
            }
        }
        Value::List(items) => items.iter_mut().for_each(|item| replace(reader, client, item, path)),
        Value::Map(entries) => {
            for entry in entries {
                replace(reader, client, &mut entry.node, &joined(path, &entry.key));
            }
        }
    }
}

fn replaced(text: &str, folder: &str, client: Option<Client>) -> String {
    let text = text.replace("${workspaceFolder}", folder).replace("${userHome}", "${env:HOME}");
    match client {
        Some(Client::Gemini) => with_braces(&text),
        None
        | Some(
            Client::ClaudeDesktop
            | Client::ClaudeCode
            | Client::Cursor
            | Client::Vscode
            | Client::Codex
            | Client::Windsurf
            | Client::Zed,
        ) => text,
    }
}

/// `$NAME` as `${env:NAME}`.
fn with_braces(text: &str) -> String {
    let mut parts = text.split('$');
    let mut changed = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
        let end = part.find(|character| !is_name(character)).unwrap_or(part.len());
        let (name, rest) = part.split_at(end);
        if name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') {
            changed.push_str(&format!("${{env:{name}}}{rest}"));
        } else {
            changed.push('$');
            changed.push_str(part);
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_become_references() {
        for (client, text, expected) in [
            (None, "${workspaceFolder}/a:${userHome}", "/p/a:${env:HOME}"),
            (None, "$TOKEN", "$TOKEN"),
            (Some(Client::Gemini), "Bearer $TOKEN!", "Bearer ${env:TOKEN}!"),
            (Some(Client::Gemini), "${TOKEN} $5 $", "${TOKEN} $5 $"),
        ] {
            assert_eq!(replaced(text, "/p", client), expected);
        }
    }
}
