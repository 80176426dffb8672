//! Lists as bytes: our own JSON, and the plain forms that MCP, Anthropic and OpenAI take.
//! The same catalogue gives the same bytes.

pub mod mcp;

use crate::catalog::{State, ToolRef, View};
use crate::error::{Code, Error, Result};
use crate::json;
use crate::text::shown;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    Mcp,
    Anthropic,
    Openai,
}

impl Format {
    pub const ALL: [Format; 4] = [Format::Json, Format::Mcp, Format::Anthropic, Format::Openai];

    pub fn as_str(self) -> &'static str {
        match self {
            Format::Json => "json",
            Format::Mcp => "mcp",
            Format::Anthropic => "anthropic",
            Format::Openai => "openai",
        }
    }

    pub fn parse(text: &str) -> Result<Format> {
        let known = || Format::ALL.map(Format::as_str).join(", ");
        let unknown = || Error::new(Code::BadRequest, format!("no format named `{text}`; there are {}", known()));
        Format::ALL.into_iter().find(|format| format.as_str() == text).ok_or_else(unknown)
    }
}

impl View {
    /// The whole list. Providers get what an agent may be offered, as an array; `json` has disabled tools too.
    pub fn render(&self, format: Format) -> Result<String> {
        self.render_where(format, |_| true)
    }

    /// The tools that `wanted` picks.
    pub fn render_where(&self, format: Format, wanted: impl Fn(&ToolRef<'_>) -> bool) -> Result<String> {
        let mut whole = String::new();
        self.render_pieces(format, wanted, |piece| {
            whole.push_str(piece);
            Ok(())
        })?;
        Ok(whole)
    }

    /// The same in pieces, for whoever passes them on: a long list need not be held whole.
    pub fn render_pieces(
        &self,
        format: Format,
        wanted: impl Fn(&ToolRef<'_>) -> bool,
        mut emit: impl FnMut(&str) -> Result<()>,
    ) -> Result<()> {
        let mut out = String::with_capacity(PIECE * 2);
        match format {
            Format::Json => {
                out.push_str("{\"tools\":");
                push_array(self.listed().filter(wanted), &mut out, &mut emit, |tool, out| {
                    push_json(tool, out);
                    Ok(())
                })?;
                out.push_str(&format!(",\"inventory_hash\":\"{}\"}}", self.catalog.hash()));
            }
            Format::Mcp | Format::Anthropic | Format::Openai => {
                let tools = self.offered().filter(wanted);
                push_array(tools, &mut out, &mut emit, |tool, out| push_for_provider(tool, format, out))?;
            }
        }
        emit(&out)
    }
}

/// What a pipe holds.
const PIECE: usize = 64 * 1024;

fn push_array<'a>(
    tools: impl Iterator<Item = ToolRef<'a>>,
    out: &mut String,
    emit: &mut impl FnMut(&str) -> Result<()>,
    mut push: impl FnMut(&ToolRef<'a>, &mut String) -> Result<()>,
) -> Result<()> {
    out.push('[');
    for (index, tool) in tools.enumerate() {
        if index > 0 {
            out.push(',');
        }
        push(&tool, out)?;
        if out.len() >= PIECE {
            emit(out)?;
            out.clear();
        }
    }
    out.push(']');
    Ok(())
}

/// The source's own name where it can be shown as it is, else the one made of it: an id must be unique.
fn id(tool: &ToolRef<'_>, original: &str) -> String {
    let name = tool.name().as_str();
    let made = name.strip_prefix(tool.part.segment.prefix()).unwrap_or(name);
    let own = if original == tool.original() { original } else { made };
    format!("{}:{own}", tool.source())
}

/// A tool as our own lists show it: stored text, framed by what may change without it.
pub fn push_json(tool: &ToolRef<'_>, out: &mut String) {
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

pub fn push_for_provider(tool: &ToolRef<'_>, format: Format, out: &mut String) -> Result<()> {
    let content = tool.tool()?;
    let (name, face) = (tool.name().as_str(), &content.face);
    let mut field = |prefix: &str, name: &str, raw: &str| {
        out.push_str(prefix);
        json::push_string(name, out);
        out.push(':');
        out.push_str(raw);
    };
    let text = |text: &str| json::string(text).get().to_owned();
    match format {
        Format::Json => push_json(tool, out),
        Format::Mcp => mcp::push(name, &content, out),
        Format::Anthropic => {
            field("{", "name", &text(name));
            field(",", "description", &text(&face.description));
            field(",", "input_schema", face.input_schema.get());
            out.push('}');
        }
        Format::Openai => {
            field("{\"type\":\"function\",\"function\":{", "name", &text(name));
            field(",", "description", &text(&face.description));
            field(",", "parameters", face.input_schema.get());
            out.push_str("}}");
        }
    }
    Ok(())
}
