//! How a tool is laid out for people, whether it is one of now or of then.

use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib::core::text::{shown, shown_short};

use super::listed::{listed, wrapped};
use crate::paint;
use crate::pretty::pretty;

pub(super) struct Page<'a> {
    pub(super) name: &'a str,
    pub(super) title: Option<&'a str>,
    /// What is known of it, line by line; those without a value are left out.
    pub(super) rows: Vec<(&'static str, String)>,
    pub(super) description: &'a str,
    pub(super) schema: &'a RawValue,
    /// Whether the source gave a schema.
    pub(super) has_schema: bool,
    pub(super) notes: Vec<String>,
    /// Something of the schema is not shown.
    pub(super) is_pruned: bool,
    /// What is shown as JSON at the end, under its titles.
    pub(super) whole: Vec<(&'static str, Option<String>)>,
}

impl Page<'_> {
    pub(super) fn text(&self) -> String {
        let mut text = paint::bold(self.name);
        if let Some(title) = self.title {
            text.push_str(&format!(" — {}", shown_short(title, 120)));
        }
        text.push('\n');
        for (label, value) in self.rows.iter().filter(|(_, value)| !value.is_empty()) {
            text.push_str(&format!("  {}{value}\n", paint::dim(&format!("{label:<10}"))));
        }
        let description: Vec<String> =
            shown(self.description).lines().map(|line| wrapped(line, 2).join("\n")).collect();
        text.push_str(&format!("\n{}\n", indented(&description.join("\n"), "  ")));
        let schema: Value = serde_json::from_str(self.schema.get()).unwrap_or_default();
        text.push_str(&format!("\n  {}\n", paint::bold("Arguments")));
        text.push_str(&listed(&schema, !self.has_schema));
        let pruned = self.is_pruned.then_some("what lies deep is left out here; `--full` has it");
        let notes = self.notes.iter().map(String::as_str).chain(pruned);
        let notes: Vec<String> = notes.map(|note| format!("  note: {note}\n")).collect();
        if !notes.is_empty() {
            text.push_str(&format!("\n{}", notes.concat()));
        }
        for (title, raw) in &self.whole {
            let raw = raw.as_ref().map_or_else(|| "none".to_owned(), |raw| shown(&pretty(raw)));
            text.push_str(&format!("\n  {}\n{}\n", paint::bold(title), indented(&raw, "    ")));
        }
        text
    }
}

fn indented(text: &str, by: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("{by}{line}").trim_end().to_owned()).collect();
    lines.join("\n")
}
