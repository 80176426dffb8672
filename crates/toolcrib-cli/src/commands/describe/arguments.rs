//! The arguments of a tool in columns, broken where the terminal ends.

use serde_json::Value;
use toolcrib::core::outline;

use crate::color;

pub(super) fn render_arguments(schema: &Value, unknown: bool) -> String {
    let arguments = outline::list_arguments(schema);
    if arguments.is_empty() {
        let several = ["anyOf", "oneOf"].iter().any(|key| schema.get(key).is_some());
        return match (unknown, several) {
            (true, _) => "    not known\n".into(),
            (false, true) => "    one of several forms; `--full` shows them\n".into(),
            (false, false) => "    none\n".into(),
        };
    }
    let mut rows = Vec::new();
    collect_rows(&arguments, 0, &mut rows);
    let widest = |column: usize| rows.iter().map(|row| console::measure_text_width(&row[column])).max().unwrap_or(0);
    let names = widest(0).min(32);
    let kinds = widest(1).min(28);
    let mut text = String::new();
    for [name, kind, said] in &rows {
        let left = format!("    {}  {}  ", pad_right(name, names), pad_right(kind, kinds));
        let margin = console::measure_text_width(&left);
        let said = wrap_line(said, margin).join(&format!("\n{}", " ".repeat(margin)));
        text.push_str(format!("{left}{said}").trim_end());
        text.push('\n');
    }
    if rows.iter().any(|[name, ..]| name.ends_with('*')) {
        text.push_str(&format!("    {}\n", color::dim("* required")));
    }
    text
}

fn collect_rows(arguments: &outline::ArgumentList, depth: usize, rows: &mut Vec<[String; 3]>) {
    let indented = |text: &str| format!("{}{text}", "  ".repeat(depth));
    for argument in &arguments.items {
        let mark = if argument.required { "*" } else { "" };
        let mut said = argument.description.clone();
        let mut add = |text: String| {
            said.push_str(if said.is_empty() { "" } else { " " });
            said.push_str(&text);
        };
        if !argument.choices.is_empty() {
            add(format!("[one of {}]", argument.choices.join(", ")));
        }
        if !argument.limits.is_empty() {
            add(format!("[{}]", argument.limits.join(", ")));
        }
        if let Some(default) = &argument.default {
            add(format!("[default {default}]"));
        }
        rows.push([indented(&format!("{}{mark}", argument.name)), argument.kind.clone(), said]);
        collect_rows(&argument.nested, depth + 1, rows);
    }
    rows.extend(arguments.omitted_note().map(|ending| [indented(&ending), String::new(), String::new()]));
}

fn pad_right(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(console::measure_text_width(text))))
}

/// A line broken where the terminal ends, for text that begins at `margin`; elsewhere it stays whole.
pub(super) fn wrap_line(line: &str, margin: usize) -> Vec<String> {
    const MIN_TEXT_WIDTH: usize = 30;
    let columns = console::Term::stdout().size_checked().map_or(usize::MAX, |(_, columns)| usize::from(columns));
    let width = columns.saturating_sub(margin).max(MIN_TEXT_WIDTH);
    if console::measure_text_width(line) <= width {
        return vec![line.to_owned()];
    }
    let mut lines = vec![String::new()];
    for word in line.split(' ') {
        match lines.last_mut() {
            Some(last) if last.is_empty() => last.push_str(word),
            Some(last) if console::measure_text_width(last) + 1 + console::measure_text_width(word) <= width => {
                last.push_str(&format!(" {word}"));
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
