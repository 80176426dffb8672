//! Variables in the files of other clients: `${workspaceFolder}`, `${userHome}`, Gemini's `$NAME`.
//! `${NAME}` and `${env:NAME}` need no replacement: they are Toolcrib's own references.
//!
//! ```text
//! ${workspaceFolder}/bin    /home/ada/project/bin      the directory of the project is known now
//! ${userHome}/x             ${env:HOME}/x              resolved when a connection is made
//! $TOKEN (Gemini only)      ${env:TOKEN}
//! ```

use super::super::reader::ConfigReader;
use super::super::syntax::{ConfigNode, NodeValue, join_key};
use super::McpClientKind;

/// Replaces the variables in all texts of a tree, and warns about `${input:…}`, which has no equivalent.
pub(super) fn replace_variables(
    reader: &mut ConfigReader<'_>,
    client: Option<McpClientKind>,
    node: &mut ConfigNode,
    path: &str,
) {
    let line = node.line;
    match &mut node.value {
        NodeValue::Null | NodeValue::Bool(..) | NodeValue::Number(_) => {}
        NodeValue::Text(text) => {
            *text = replace_in_text(text, &reader.base_dir.to_string_lossy(), client);
            if text.contains("${input:") {
                reader.warn(line, path, "`${input:…}` is not supported; use `${env:NAME}`");
            }
        }
        NodeValue::List(items) => items.iter_mut().for_each(|item| replace_variables(reader, client, item, path)),
        NodeValue::Map(entries) => {
            for entry in entries {
                replace_variables(reader, client, &mut entry.node, &join_key(path, &entry.key));
            }
        }
    }
}

/// Replaces variables in one text. `folder` is the workspace folder.
/// Other clients pass `$NAME` on as it is, so it is rewritten for Gemini alone.
fn replace_in_text(text: &str, folder: &str, client: Option<McpClientKind>) -> String {
    let text = text.replace("${workspaceFolder}", folder).replace("${userHome}", "${env:HOME}");
    if client == Some(McpClientKind::Gemini) { to_env_references(&text) } else { text }
}

/// Rewrites `$NAME` to `${env:NAME}`. A name ends at the first character that no variable name contains.
fn to_env_references(text: &str) -> String {
    // Every part after the first follows a `$`.
    let mut parts = text.split('$');
    let mut rewritten = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
        let end = part.find(|character| !is_name(character)).unwrap_or(part.len());
        let (name, rest) = part.split_at(end);
        // `${…}` and a lone `$` stay: their name is empty here.
        if name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') {
            rewritten.push_str(&format!("${{env:{name}}}{rest}"));
        } else {
            rewritten.push('$');
            rewritten.push_str(part);
        }
    }
    rewritten
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_become_references() {
        for (client, text, expected) in [
            (None, "${workspaceFolder}/a:${userHome}", "/p/a:${env:HOME}"),
            (None, "$TOKEN", "$TOKEN"),
            (Some(McpClientKind::Gemini), "Bearer $TOKEN!", "Bearer ${env:TOKEN}!"),
            (Some(McpClientKind::Gemini), "${TOKEN} $5 $", "${TOKEN} $5 $"),
        ] {
            assert_eq!(replace_in_text(text, "/p", client), expected);
        }
    }
}
