//! The arguments of a tool in columns (name, type, description), wrapped at the width of the terminal.
//!
//! ```text
//!     state*   string   Which orders [one of open, paid]
//!     filter   object
//!       max    number   [at most 100] [default 10]
//!     * required
//! ```
//!
//! The outline of the schema comes from `toolcrib_catalog::outline`, which also bounds its size.

use serde_json::Value;
use toolcrib::catalog::outline;

use crate::color;

/// Renders the arguments of an input schema; `unknown` tells that the source sent no schema.
pub(super) fn render_arguments(schema: &Value, unknown: bool) -> String {
    let arguments = outline::list_arguments(schema);
    if arguments.is_empty() {
        // A schema of alternatives has no properties of its own, and `none` would be wrong.
        let has_alternatives = ["anyOf", "oneOf"].iter().any(|key| schema.get(key).is_some());
        return match (unknown, has_alternatives) {
            (true, _) => "    not known\n".into(),
            (false, true) => "    one of several forms; `--full` shows them\n".into(),
            (false, false) => "    none\n".into(),
        };
    }
    let mut rows = Vec::new();
    collect_rows(&arguments, 0, &mut rows);
    let widest = |column: usize| rows.iter().map(|row| console::measure_text_width(&row[column])).max().unwrap_or(0);
    // Limit the first two columns, so that one long name does not push all descriptions off the screen.
    let name_width = widest(0).min(32);
    let type_width = widest(1).min(28);
    let mut text = String::new();
    for [name, kind, description] in &rows {
        let left = format!("    {}  {}  ", pad_right(name, name_width), pad_right(kind, type_width));
        let margin = console::measure_text_width(&left);
        let description = wrap_line(description, margin).join(&format!("\n{}", " ".repeat(margin)));
        text.push_str(format!("{left}{description}").trim_end());
        text.push('\n');
    }
    if rows.iter().any(|[name, ..]| name.ends_with('*')) {
        text.push_str(&format!("    {}\n", color::dim("* required")));
    }
    text
}

/// Appends a row per argument, nested arguments indented below their parent.
fn collect_rows(arguments: &outline::ArgumentList, depth: usize, rows: &mut Vec<[String; 3]>) {
    let indented = |text: &str| format!("{}{text}", "  ".repeat(depth));
    for argument in &arguments.items {
        let mark = if argument.required { "*" } else { "" };
        let mut description = argument.description.clone();
        let mut add = |text: String| {
            description.push_str(if description.is_empty() { "" } else { " " });
            description.push_str(&text);
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
        rows.push([indented(&format!("{}{mark}", argument.name)), argument.kind.clone(), description]);
        collect_rows(&argument.nested, depth + 1, rows);
    }
    let note_row = |note: String| [indented(&note), String::new(), String::new()];
    rows.extend(arguments.omitted_note().map(note_row));
    for variant in &arguments.variants {
        rows.push(note_row(format!("variant {}:", variant.label)));
        collect_rows(&variant.fields, depth + 1, rows);
    }
    rows.extend(arguments.omitted_variants_note().map(note_row));
}

/// Pads the text with spaces to the width; wide characters count as two columns.
fn pad_right(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(console::measure_text_width(text))))
}

/// Wraps a line at the width of the terminal, for text that starts in column `margin`. Without a terminal the line
/// stays whole.
pub(super) fn wrap_line(line: &str, margin: usize) -> Vec<String> {
    /// Narrower text would be unreadable; on such terminals lines overflow instead.
    const MIN_TEXT_WIDTH: usize = 30;
    let columns = console::Term::stdout().size_checked().map_or(usize::MAX, |(_, columns)| usize::from(columns));
    let width = columns.saturating_sub(margin).max(MIN_TEXT_WIDTH);
    if console::measure_text_width(line) <= width {
        return vec![line.to_owned()];
    }
    // Break at spaces only; a word longer than the line stays whole.
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
