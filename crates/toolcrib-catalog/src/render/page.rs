//! Pages of a tool list, positioned by name. Tools are in name order, so a page after a name needs no state on the
//! server.

use toolcrib_core::error::Result;
use toolcrib_core::tool::ToolName;

use super::{Format, PushOutcome, json, push_array};
use crate::{ToolRef, View};

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedPage {
    /// JSON array of the tools.
    pub array: String,
    /// Name of the last tool, if more follow; the position for the next page.
    pub last: Option<ToolName>,
}

impl View {
    /// Renders at most `limit` of the tools that `filter` accepts and whose names come after `after`. The position is a
    /// name, so that it stays valid when the list changes. Provider formats contain the tools that agents see; `json`
    /// includes disabled tools.
    pub fn render_page(
        &self,
        format: Format,
        filter: impl Fn(&ToolRef<'_>) -> bool,
        after: Option<&str>,
        limit: usize,
    ) -> Result<RenderedPage> {
        let is_visible = |tool: &ToolRef<'_>| if format == Format::Json { tool.is_listed() } else { tool.is_offered() };
        let following = self.tools().filter(|tool| after.is_none_or(|after| tool.name().as_str() > after));
        let mut following = following.filter(is_visible).filter(filter);
        let page: Vec<ToolRef<'_>> = following.by_ref().take(limit).collect();
        // One more tool is looked for, so that the last page is known to be the last.
        let last = page.last().map(|tool| tool.name().clone()).filter(|_| following.next().is_some());
        let mut array = String::new();
        // A tool that the format cannot express counts for the limit, so a page may be shorter than asked for.
        push_array(page.into_iter(), &mut array, &mut |_| Ok(()), usize::MAX, |tool, out| {
            if format == Format::Json {
                json::push_tool(tool, out);
                return Ok(PushOutcome::Appended);
            }
            Ok(match &self.project(tool, format)?.text {
                Some(text) => {
                    out.push_str(text);
                    PushOutcome::Appended
                }
                None => PushOutcome::Skipped,
            })
        })?;
        Ok(RenderedPage { array, last })
    }
}
