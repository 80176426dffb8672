//! Lists as bytes: our own JSON, and the forms that MCP, Anthropic, OpenAI and Gemini take. The same catalogue gives the
//! same bytes. A provider's form is a projection with known limits: what it loses is told, and a tool that cannot be had
//! in it is set aside for that form alone.

pub mod mcp;

mod anthropic;
mod gemini;
mod json;
mod limits;
mod merge;
mod openai;
mod page;
mod passthrough;
mod projection;
mod root;
mod schema;
mod strict;

use std::borrow::Cow;
use std::sync::OnceLock;

use crate::catalog::{ToolRef, View};
use crate::error::{Code, Error, Result};
use crate::manifest::SetAsideTool;
use anthropic::Loading;

pub use json::push_tool as push_json;
pub use page::RenderedPage;
pub use projection::{Loss, ProjectedTool};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    Mcp,
    Anthropic,
    /// What is not essential is left to the provider's own search.
    AnthropicDeferred,
    Openai,
    OpenaiStrict,
    Gemini,
}

impl Format {
    /// Those that have a name of their own.
    pub const ALL: [Format; 6] =
        [Format::Json, Format::Mcp, Format::Anthropic, Format::Openai, Format::OpenaiStrict, Format::Gemini];

    pub fn as_str(self) -> &'static str {
        match self {
            Format::Json => "json",
            Format::Mcp => "mcp",
            Format::Anthropic | Format::AnthropicDeferred => "anthropic",
            Format::Openai => "openai",
            Format::OpenaiStrict => "openai-strict",
            Format::Gemini => "gemini",
        }
    }

    pub fn parse(text: &str) -> Result<Format> {
        let known = || Format::ALL.map(Format::as_str).join(", ");
        let unknown = || Error::new(Code::BadRequest, format!("no format named `{text}`; there are {}", known()));
        Format::ALL.into_iter().find(|format| format.as_str() == text).ok_or_else(unknown)
    }

    /// The same, with what is not essential left to be searched for.
    pub fn deferred(self) -> Result<Format> {
        match self {
            Format::Anthropic | Format::AnthropicDeferred => Ok(Format::AnthropicDeferred),
            Format::Json | Format::Mcp | Format::Openai | Format::OpenaiStrict | Format::Gemini => {
                let message = format!("tools can be deferred in the format `anthropic`, not in `{}`", self.as_str());
                Err(Error::new(Code::BadRequest, message))
            }
        }
    }
}

impl View {
    /// The whole list. Providers get what an agent may be offered, as an array; `json` has disabled tools too.
    pub fn render(&self, format: Format) -> Result<String> {
        self.render_filtered(format, |_| true)
    }

    /// The tools that `wanted` picks.
    pub fn render_filtered(&self, format: Format, wanted: impl Fn(&ToolRef<'_>) -> bool) -> Result<String> {
        let mut whole = String::new();
        self.render_chunks(format, wanted, |piece| {
            whole.push_str(piece);
            Ok(())
        })?;
        Ok(whole)
    }

    /// The same in pieces, for whoever passes them on: a long list need not be held whole. Returns what is not in it.
    pub fn render_chunks(
        &self,
        format: Format,
        wanted: impl Fn(&ToolRef<'_>) -> bool,
        mut emit: impl FnMut(&str) -> Result<()>,
    ) -> Result<Vec<SetAsideTool>> {
        let mut out = String::with_capacity(CHUNK_BYTES * 2);
        let mut set_aside = Vec::new();
        if format == Format::Json {
            out.push_str("{\"tools\":");
            push_array(self.listed_tools().filter(wanted), &mut out, &mut emit, CHUNK_BYTES, |tool, out| {
                json::push_tool(tool, out);
                Ok(PushOutcome::Appended)
            })?;
            out.push_str(&format!(",\"inventory_hash\":\"{}\"}}", self.catalog.hash()));
        } else {
            push_array(self.offered_tools().filter(wanted), &mut out, &mut emit, CHUNK_BYTES, |tool, out| {
                let projected = self.project(tool, format)?;
                match (&projected.text, &projected.unsupported_reason) {
                    (Some(text), _) => out.push_str(text),
                    (None, reason) => {
                        let reason = reason.clone().unwrap_or_default();
                        set_aside.push(SetAsideTool { name: tool.name().to_string(), reason });
                        return Ok(PushOutcome::Skipped);
                    }
                }
                Ok(PushOutcome::Appended)
            })?;
        }
        emit(&out)?;
        Ok(set_aside)
    }

    /// One tool as a provider takes it.
    pub fn project<'a>(&self, tool: &ToolRef<'a>, format: Format) -> Result<Cow<'a, ProjectedTool>> {
        let name = tool.name().as_str();
        let projected = match format {
            Format::Json => {
                let mut text = String::new();
                json::push_tool(tool, &mut text);
                ProjectedTool { text: Some(text), ..ProjectedTool::default() }
            }
            Format::Mcp => {
                let mut text = String::new();
                mcp::push_tool(name, &tool.tool()?, &mut text);
                ProjectedTool { text: Some(text), ..ProjectedTool::default() }
            }
            Format::Anthropic => anthropic::project(name, &tool.tool()?, Loading::Now),
            Format::AnthropicDeferred => {
                let essential = self.catalog.essentials().contains(tool);
                let loading = if essential { Loading::Now } else { Loading::Deferred };
                anthropic::project(name, &tool.tool()?, loading)
            }
            Format::Openai => openai::project(name, &tool.tool()?),
            // These two rewrite every schema: once, and then it is kept.
            Format::OpenaiStrict => {
                return tool.entry.openai_strict.get_or_project(|| Ok(openai::project_strict(name, &tool.tool()?)));
            }
            Format::Gemini => return tool.entry.gemini.get_or_project(|| Ok(gemini::project(name, &tool.tool()?))),
        };
        Ok(Cow::Owned(projected))
    }
}

/// What a pipe holds.
const CHUNK_BYTES: usize = 64 * 1024;

enum PushOutcome {
    Appended,
    Skipped,
}

fn push_array<'a>(
    tools: impl Iterator<Item = ToolRef<'a>>,
    out: &mut String,
    emit: &mut impl FnMut(&str) -> Result<()>,
    piece: usize,
    mut push: impl FnMut(&ToolRef<'a>, &mut String) -> Result<PushOutcome>,
) -> Result<()> {
    out.push('[');
    let mut separator = "";
    for tool in tools {
        let before = out.len();
        out.push_str(separator);
        match push(&tool, out)? {
            PushOutcome::Appended => separator = ",",
            PushOutcome::Skipped => out.truncate(before),
        }
        if out.len() >= piece {
            emit(out)?;
            out.clear();
        }
    }
    out.push(']');
    Ok(())
}

/// A projection that is made when somebody first asks for it.
#[derive(Debug, Default)]
pub(crate) struct CachedProjection(OnceLock<Box<ProjectedTool>>);

impl CachedProjection {
    fn get_or_project(&self, project: impl FnOnce() -> Result<ProjectedTool>) -> Result<Cow<'_, ProjectedTool>> {
        if let Some(projected) = self.0.get() {
            return Ok(Cow::Borrowed(projected));
        }
        let projected = Box::new(project()?);
        Ok(Cow::Borrowed(self.0.get_or_init(|| projected)))
    }
}

#[cfg(test)]
mod tests;
