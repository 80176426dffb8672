//! The page that `describe` prints for a tool, current or historical.

use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib::core::text::{sanitize, sanitize_truncated};

use super::arguments::{render_arguments, wrap_line};
use crate::color;
use crate::pretty_json::pretty_print;

/// The content of a page.
pub(super) struct ToolPage<'a> {
    /// The name that agents see.
    pub(super) name: &'a str,
    pub(super) title: Option<&'a str>,
    /// Labelled facts, one per line; empty values are left out.
    pub(super) rows: Vec<(&'static str, String)>,
    pub(super) description: &'a str,
    /// The input schema to render: complete, or pruned.
    pub(super) schema: &'a RawValue,
    /// Whether the source sent an input schema.
    pub(super) has_schema: bool,
    /// Remarks on the tool, one per line.
    pub(super) notes: Vec<String>,
    /// Whether deeply nested parts of the schema are omitted.
    pub(super) is_pruned: bool,
    /// JSON blocks at the end, by title; `None` is shown as "none".
    pub(super) json_sections: Vec<(&'static str, Option<String>)>,
}

impl ToolPage<'_> {
    /// Renders the page. Text that comes from the source is stripped of control characters.
    pub(super) fn render(&self) -> String {
        // Name and title.
        let mut text = color::bold(self.name);
        if let Some(title) = self.title {
            text.push_str(&format!(" — {}", sanitize_truncated(title, 120)));
        }
        text.push('\n');
        // Facts, labels padded to ten columns.
        for (label, value) in self.rows.iter().filter(|(_, value)| !value.is_empty()) {
            text.push_str(&format!("  {}{value}\n", color::dim(&format!("{label:<10}"))));
        }
        // Description, wrapped.
        let description: Vec<String> =
            sanitize(self.description).lines().map(|line| wrap_line(line, 2).join("\n")).collect();
        text.push_str(&format!("\n{}\n", indent(&description.join("\n"), "  ")));
        // Arguments, from the schema.
        let schema: Value = serde_json::from_str(self.schema.get()).unwrap_or_default();
        text.push_str(&format!("\n  {}\n", color::bold("Arguments")));
        text.push_str(&render_arguments(&schema, !self.has_schema));
        let pruned = self.is_pruned.then_some("deeply nested parts are omitted here; `--full` shows them");
        let notes = self.notes.iter().map(String::as_str).chain(pruned);
        let notes: Vec<String> = notes.map(|note| format!("  note: {note}\n")).collect();
        if !notes.is_empty() {
            text.push_str(&format!("\n{}", notes.concat()));
        }
        for (title, raw) in &self.json_sections {
            let raw = raw.as_ref().map_or_else(|| "none".to_owned(), |raw| sanitize(&pretty_print(raw)));
            text.push_str(&format!("\n  {}\n{}\n", color::bold(title), indent(&raw, "    ")));
        }
        text
    }
}

/// Indents every line; drops trailing spaces.
fn indent(text: &str, by: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("{by}{line}").trim_end().to_owned()).collect();
    lines.join("\n")
}
