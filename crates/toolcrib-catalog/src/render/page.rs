//! Pages of a tool list, positioned by the last tool of the page before, so that a page needs no state on the server.

use std::cmp::Reverse;

use toolcrib_core::error::Result;

use super::{Format, PushOutcome, json, push_array};
use crate::filter::ListOrder;
use crate::{ToolRef, View};

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedPage {
    /// JSON array of the tools.
    pub array: String,
    /// The last tool, if more follow; the position for the next page.
    pub last: Option<ListPosition>,
}

/// Position of a tool in an ordered list. It stays valid when the list changes, even if the tool disappears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPosition {
    /// The tokens or calls that the list is ordered by; 0 in name order.
    pub rank: u64,
    /// Name of the tool.
    pub name: String,
}

impl ListPosition {
    /// Whether a tool with this rank and name comes behind the position.
    pub fn is_before(&self, rank: u64, name: &str) -> bool {
        (Reverse(rank), name) > (Reverse(self.rank), self.name.as_str())
    }
}

impl View {
    /// Renders at most `limit` of the tools that `filter` accepts, ordered by `order`, behind the position `after`.
    /// Provider formats contain the tools for models; `json` includes denied and disabled tools.
    pub fn render_page(
        &self,
        format: Format,
        filter: impl Fn(&ToolRef<'_>) -> bool,
        order: &ListOrder<'_>,
        after: Option<&ListPosition>,
        limit: usize,
    ) -> Result<RenderedPage> {
        let mut tools: Vec<ToolRef<'_>> = match order {
            // Most lists are in name order: the filters run for the tools of the page alone, and for one more, so that
            // the last page is known to be the last.
            ListOrder::Name => {
                let following =
                    self.tools().filter(|tool| after.is_none_or(|after| after.is_before(0, tool.name().as_str())));
                let following = following.filter(|tool| format.shows(tool) && filter(tool));
                following.take(limit.saturating_add(1)).collect()
            }
            ListOrder::Tokens | ListOrder::Calls(_) => {
                let tools = self.tools().filter(|tool| format.shows(tool) && filter(tool));
                let mut tools: Vec<ToolRef<'_>> = tools
                    .filter(|tool| after.is_none_or(|after| after.is_before(order.rank(tool), tool.name().as_str())))
                    .collect();
                order.sort(&mut tools);
                tools
            }
        };
        let has_more = tools.len() > limit;
        tools.truncate(limit);
        let position = |tool: &ToolRef<'_>| ListPosition { rank: order.rank(tool), name: tool.name().to_string() };
        let last = tools.last().filter(|_| has_more).map(position);
        let mut array = String::new();
        // A tool that the format cannot express counts for the limit, so a page may be shorter than asked for.
        push_array(tools.into_iter(), &mut array, &mut |_| Ok(()), usize::MAX, |tool, out| {
            if format == Format::Json {
                json::push_with_tokens(tool, order.tokens(tool), out);
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
