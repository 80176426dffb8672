//! The page that `describe` prints for a source: what it is, what it has, and the instructions of its server.
//!
//! Everything that a source wrote is sanitised and truncated, because it goes to a terminal.

use toolcrib::core::text::{sanitize, sanitize_truncated};
use toolcrib::registry::SourceView;
use toolcrib::{Principal, SourceId};

use super::arguments::wrap_line;
use super::page::indent;
use crate::color;
use crate::commands::sources::{format_ago, serialized_name};
use crate::plural::pluralize;
use crate::session::CliSession;

/// Returns the id if a name is that of a source and not of a tool. A tool of the same name is described first, because
/// `describe` is about tools.
pub(super) fn find_source_id(session: &CliSession, reader: &Principal, name: &str) -> Option<SourceId> {
    let id = SourceId::parse(name).ok()?;
    let registry = &session.registry;
    let is_source = registry.sources().get_for(reader, &id).is_some();
    (is_source && registry.tool_for(reader, name).is_err()).then_some(id)
}

/// Renders the page of a source.
pub(super) fn render_source(source: &SourceView) -> String {
    let mut text = color::bold(source.id.as_str());
    if let Some(title) = &source.title {
        text.push_str(&format!(" — {}", sanitize_truncated(title, 120)));
    }
    text.push('\n');
    let status = if source.enabled { serialized_name(&source.status) } else { "disabled".to_owned() };
    let checked =
        source.last_checked.map_or_else(|| "never checked".to_owned(), |at| format!("checked {}", format_ago(at)));
    // Of other kinds of sources, the transport is the kind, and they have tools only.
    let is_mcp = source.kind == "mcp";
    let kind = match source.transport {
        Some(transport) if is_mcp => format!("mcp, {transport}"),
        Some(_) | None => source.kind.to_string(),
    };
    let resources = format!("{} and {}", source.resource_count, pluralize(source.resource_template_count, "template"));
    let rows = [
        ("kind", kind),
        ("location", location(source)),
        ("status", format!("{status}, {}, {checked}", serialized_name(&source.freshness))),
        ("tools", source.tool_count.to_string()),
        ("prompts", if is_mcp { source.prompt_count.to_string() } else { String::new() }),
        ("resources", if is_mcp { resources } else { String::new() }),
        ("error", source.last_error.as_ref().map(|error| error.message.clone()).unwrap_or_default()),
    ];
    for (label, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
        text.push_str(&format!("  {}{}\n", color::dim(&format!("{label:<11}")), sanitize(value)));
    }
    if let Some(instructions) = &source.instructions {
        let lines: Vec<String> = sanitize(instructions).lines().map(|line| wrap_line(line, 4).join("\n")).collect();
        text.push_str(&format!("\n  {}\n{}\n", color::bold("Instructions"), indent(&lines.join("\n"), "    ")));
    }
    if !source.skipped.is_empty() {
        text.push_str(&format!("\n  {}\n", color::bold("Skipped")));
        for skipped in &source.skipped {
            let name = sanitize_truncated(&skipped.name, 120);
            text.push_str(&format!("    {name}: {}\n", sanitize_truncated(&skipped.reason, 300)));
        }
    }
    text.push_str(&format!("\n  `toolcrib tools --source {}` lists its tools\n", source.id));
    text
}

/// Command line or address of a source; secrets are masked.
fn location(source: &SourceView) -> String {
    let command = source.command.iter().chain(source.args.iter().flatten()).map(String::as_str);
    let command = command.collect::<Vec<_>>().join(" ");
    source.url.clone().unwrap_or(command)
}
