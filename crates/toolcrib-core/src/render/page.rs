//! A page of a list: so many tools from a name on.

use super::{Format, PushOutcome, json, push_array};
use crate::catalog::{ToolRef, View};
use crate::error::Result;
use crate::tool::ToolName;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedPage {
    /// A JSON array.
    pub array: String,
    /// The last of them, where others follow.
    pub last: Option<ToolName>,
}

impl View {
    /// At most `limit` of the tools that `wanted` picks, those whose names come after `after`. The position is a name,
    /// so that it holds when the list changes. Providers get what an agent may be offered; `json` has disabled tools
    /// too.
    pub fn render_page(
        &self,
        format: Format,
        wanted: impl Fn(&ToolRef<'_>) -> bool,
        after: Option<&str>,
        limit: usize,
    ) -> Result<RenderedPage> {
        let shown = |tool: &ToolRef<'_>| match format {
            Format::Json => tool.is_listed(),
            Format::Mcp
            | Format::Anthropic
            | Format::AnthropicDeferred
            | Format::Openai
            | Format::OpenaiStrict
            | Format::Gemini => tool.is_offered(),
        };
        let following = self.catalog.tools().filter(|tool| after.is_none_or(|after| tool.name().as_str() > after));
        let mut following = following.filter(shown).filter(wanted);
        let page: Vec<ToolRef<'_>> = following.by_ref().take(limit).collect();
        let last = page.last().map(|tool| tool.name().clone()).filter(|_| following.next().is_some());
        let mut array = String::new();
        push_array(page.into_iter(), &mut array, &mut |_| Ok(()), usize::MAX, |tool, out| match format {
            Format::Json => {
                json::push_tool(tool, out);
                Ok(PushOutcome::Appended)
            }
            Format::Mcp
            | Format::Anthropic
            | Format::AnthropicDeferred
            | Format::Openai
            | Format::OpenaiStrict
            | Format::Gemini => Ok(match &self.project(tool, format)?.text {
                Some(text) => {
                    out.push_str(text);
                    PushOutcome::Appended
                }
                None => PushOutcome::Skipped,
            }),
        })?;
        Ok(RenderedPage { array, last })
    }
}
