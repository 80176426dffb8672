//! Tools as our own lists show them: stored text, framed by what may change without it.

use crate::catalog::{State, ToolRef};
use crate::json;
use crate::text::shown;

/// The source's own name where it can be shown as it is, else the one made of it: an id must be unique.
fn id(tool: &ToolRef<'_>, original: &str) -> String {
    let name = tool.name().as_str();
    let made = name.strip_prefix(tool.part.segment.prefix()).unwrap_or(name);
    let own = if original == tool.original() { original } else { made };
    format!("{}:{own}", tool.source())
}

/// One tool, as our own lists show it.
pub fn push(tool: &ToolRef<'_>, out: &mut String) {
    let original = shown(tool.original());
    let field = |name: &str, value: &str, out: &mut String| {
        out.push_str(name);
        json::push_string(value, out);
    };
    field("{\"id\":", &id(tool, &original), out);
    field(",\"name\":", tool.name().as_str(), out);
    field(",\"source\":", tool.source().as_str(), out);
    field(",\"original_name\":", &original, out);
    field(",\"kind\":", &tool.part.manner.kind, out);
    out.push(',');
    out.push_str(tool.part.segment.listed(tool.entry));
    out.push_str(",\"tags\":[");
    for (index, tag) in tool.part.manner.tags.iter().enumerate() {
        field(if index > 0 { "," } else { "" }, tag, out);
    }
    let (dates, state) = (tool.dates(), tool.state());
    field("],\"policy\":", tool.verdict().as_str(), out);
    out.push_str(if state == State::Active { ",\"enabled\":true" } else { ",\"enabled\":false" });
    field(",\"state\":", state.as_str(), out);
    field(",\"fingerprint\":", &tool.part.segment.stored(tool.entry).fingerprint.to_string(), out);
    field(",\"created_at\":", &dates.created_at.to_string(), out);
    field(",\"updated_at\":", &dates.updated_at.to_string(), out);
    out.push('}');
}
