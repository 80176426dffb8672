//! Renders tool lists: our own JSON, and the formats of MCP, Anthropic, OpenAI and Gemini. Deterministic: the same
//! catalogue gives the same bytes.
//!
//! A provider format is a projection of the tool: keywords that the provider does not support are dropped and reported
//! as [`Loss`]; a tool that cannot be expressed at all is skipped from that format only.
//!
//! Two paths lead to a provider format. `passthrough` copies the stored text of a schema unless the provider would
//! reject it at the top level (Anthropic, OpenAI). `strict` and `gemini` rewrite every schema: `schema` reads a node
//! into a form independent of the provider, with `merge` for `allOf` and `root` for the top level. Limits of providers
//! are data in `limits`; `projection` counts the work and collects the losses.

mod json;
mod lines;
mod page;

pub mod mcp;

mod anthropic;
mod openai;
mod passthrough;
mod strict;

mod gemini;

mod projection;

mod root;

mod schema;

mod merge;

mod limits;

use std::borrow::Cow;
use std::sync::OnceLock;

use crate::filter::ListOrder;
use crate::{ToolRef, View};
use anthropic::Loading;

pub use json::push_tool as push_json;
pub use page::{ListPosition, RenderedPage};
pub use projection::{Loss, ProjectedTool};
use toolcrib_core::error::{Code, Error, Result};
use toolcrib_core::manifest::SkippedTool;

/// Output format of a tool list.
///
/// To add a provider format, change:
///
/// - in this file: the variant, [`Format::ALL`] (otherwise it cannot be selected) and the matches that the compiler
///   names: [`Format::as_str`], [`Format::deferred`], [`View::project`]; two more are in `render/page.rs`
/// - `render/`: a module with `project(name, tool) -> ProjectedTool`, and the limits of the provider in `limits.rs`
/// - `catalog/segment.rs`: a `CachedProjection` in `SegmentEntry`, if the format rewrites every schema
/// - command line: the `value_parser` lists of `--format` in `toolcrib-cli/src/commands/tools.rs` and `describe.rs`
/// - REST: `FORMAT_NAMES` in `toolcrib-server/src/rest/tools.rs`, and `toolcrib-server/tests/rest/openapi.json`
/// - console: `PROVIDER_FORMATS` in `toolcrib-server/src/console/tool/snippets.rs`
/// - documentation: the introduction and the tables of shapes and limits in `docs/formats.md`, `GET /api/tools` in
///   `docs/rest.md`, the list of names in `docs/embedding.md`, `CHANGELOG.md`
/// - tests: `project_with` and the message with all names in `render/tests.rs`, cases in `render/tests/cases.rs`, the
///   list in `toolcrib-cli/tests/hostile_schemas.rs`, and a check of all recorded tool lists in
///   `toolcrib/tests/formats.rs`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Toolcrib's own format, with policy, state and dates. The only format that includes disabled tools.
    Json,
    /// Tools as `tools/list` shows them.
    Mcp,
    /// Anthropic's Messages API.
    Anthropic,
    /// Like `Anthropic`, with `defer_loading` on tools that are not essential: the provider's own search finds them.
    AnthropicDeferred,
    /// Functions of OpenAI's Chat Completions API.
    Openai,
    /// OpenAI with Structured Outputs.
    OpenaiStrict,
    /// Function declarations of the Gemini API.
    Gemini,
}

impl Format {
    /// All formats that can be selected by name.
    pub const ALL: [Format; 6] =
        [Format::Json, Format::Mcp, Format::Anthropic, Format::Openai, Format::OpenaiStrict, Format::Gemini];

    /// Name on the command line and in URLs.
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

    /// Parses a name.
    ///
    /// # Errors
    /// `BAD_REQUEST` for an unknown name.
    pub fn parse(text: &str) -> Result<Format> {
        let known = || Format::ALL.map(Format::as_str).join(", ");
        let unknown = || Error::new(Code::BadRequest, format!("no format named `{text}`; there are {}", known()));
        Format::ALL.into_iter().find(|format| format.as_str() == text).ok_or_else(unknown)
    }

    /// Whether a list in this format shows a tool: `json` those that people manage, `mcp` those that agents see, a
    /// provider's format those for models.
    pub(crate) fn shows(self, tool: &ToolRef<'_>) -> bool {
        match self {
            Format::Json => tool.is_listed(),
            Format::Mcp => tool.is_offered(),
            Format::Anthropic | Format::AnthropicDeferred | Format::Openai | Format::OpenaiStrict | Format::Gemini => {
                tool.is_for_models()
            }
        }
    }

    /// Returns the variant with deferred loading; `BAD_REQUEST` for formats without one.
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
    /// Renders the whole list. Provider formats are an array of the tools that agents see; `json` is an object and
    /// includes disabled tools.
    pub fn render(&self, format: Format) -> Result<String> {
        self.render_filtered(format, |_| true)
    }

    /// Renders the tools that `filter` accepts.
    pub fn render_filtered(&self, format: Format, filter: impl Fn(&ToolRef<'_>) -> bool) -> Result<String> {
        let mut text = String::new();
        self.render_chunks(format, filter, &ListOrder::Name, |chunk| {
            text.push_str(chunk);
            Ok(())
        })?;
        Ok(text)
    }

    /// Renders the tools that `filter` accepts, ordered by `order`, in chunks of about 64 KiB, so that long lists need
    /// not be held in memory. Returns the tools that the format cannot express.
    pub fn render_chunks(
        &self,
        format: Format,
        filter: impl Fn(&ToolRef<'_>) -> bool,
        order: &ListOrder<'_>,
        mut emit: impl FnMut(&str) -> Result<()>,
    ) -> Result<Vec<SkippedTool>> {
        let mut out = String::with_capacity(CHUNK_BYTES * 2);
        let mut tools: Vec<ToolRef<'_>> = self.tools().filter(|tool| format.shows(tool) && filter(tool)).collect();
        order.sort(&mut tools);
        // The own format copies stored texts and includes disabled tools; provider formats project what agents see.
        let mut skipped = Vec::new();
        if format == Format::Json {
            out.push_str("{\"tools\":");
            push_array(tools.into_iter(), &mut out, &mut emit, CHUNK_BYTES, |tool, out| {
                json::push_with_tokens(tool, order.tokens(tool), out);
                Ok(PushOutcome::Appended)
            })?;
            out.push_str(&format!(",\"inventory_hash\":\"{}\"}}", self.hash()));
        } else {
            push_array(tools.into_iter(), &mut out, &mut emit, CHUNK_BYTES, |tool, out| {
                let projected = self.project(tool, format)?;
                match (&projected.text, &projected.unsupported_reason) {
                    (Some(text), _) => out.push_str(text),
                    (None, reason) => {
                        let reason = reason.clone().unwrap_or_default();
                        skipped.push(SkippedTool { name: tool.name().to_string(), reason });
                        return Ok(PushOutcome::Skipped);
                    }
                }
                Ok(PushOutcome::Appended)
            })?;
        }
        emit(&out)?;
        Ok(skipped)
    }

    /// Projects one tool to a format.
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
                let loading = if self.is_essential(tool) { Loading::Now } else { Loading::Deferred };
                anthropic::project(name, &tool.tool()?, loading)
            }
            Format::Openai => openai::project(name, &tool.tool()?),
            // These two rewrite every schema, so the result is cached in the segment.
            Format::OpenaiStrict => {
                return tool.entry.openai_strict.get_or_project(|| Ok(openai::project_strict(name, &tool.tool()?)));
            }
            Format::Gemini => return tool.entry.gemini.get_or_project(|| Ok(gemini::project(name, &tool.tool()?))),
        };
        Ok(Cow::Owned(projected))
    }
}

/// Size of a chunk: the capacity of a pipe on Linux.
const CHUNK_BYTES: usize = 64 * 1024;

/// Whether [`push_array`]'s callback wrote a tool.
enum PushOutcome {
    Appended,
    /// Nothing was written; the separator is taken back.
    Skipped,
}

/// Writes a JSON array of tools to `out`, and emits and clears `out` whenever it exceeds `chunk_bytes`.
fn push_array<'a>(
    tools: impl Iterator<Item = ToolRef<'a>>,
    out: &mut String,
    emit: &mut impl FnMut(&str) -> Result<()>,
    chunk_bytes: usize,
    mut push: impl FnMut(&ToolRef<'a>, &mut String) -> Result<PushOutcome>,
) -> Result<()> {
    out.push('[');
    let mut separator = "";
    for tool in tools {
        // The separator is written first, so a skipped tool must take it back.
        let length_before = out.len();
        out.push_str(separator);
        match push(&tool, out)? {
            PushOutcome::Appended => separator = ",",
            PushOutcome::Skipped => out.truncate(length_before),
        }
        if out.len() >= chunk_bytes {
            emit(out)?;
            out.clear();
        }
    }
    out.push(']');
    Ok(())
}

/// Projection of a tool, computed on first use.
#[derive(Debug, Default)]
pub(crate) struct CachedProjection(OnceLock<Box<ProjectedTool>>);

impl CachedProjection {
    /// Returns the cached projection or computes it. Errors are not cached.
    fn get_or_project(&self, project: impl FnOnce() -> Result<ProjectedTool>) -> Result<Cow<'_, ProjectedTool>> {
        if let Some(projected) = self.0.get() {
            return Ok(Cow::Borrowed(projected));
        }
        // Two threads may compute it at the same time; the first result stays, and both are equal.
        let projected = Box::new(project()?);
        Ok(Cow::Borrowed(self.0.get_or_init(|| projected)))
    }
}

#[cfg(test)]
mod tests;
