//! Tools for embedders: a list that discovers missing sources first, a tool by name, and recording a list that the host
//! discovered.
//!
//! Servers and commands do not use these lists: they render the catalogue to JSON directly, without a copy of each
//! tool.

use std::sync::Arc;

use serde_json::value::RawValue;
use toolcrib_catalog::filter::ToolFilter;
use toolcrib_catalog::{CatalogSource, ToolRef};
use toolcrib_core::access::Role;
use toolcrib_core::policy::Verdict;
use toolcrib_core::principal::Principal;
use toolcrib_core::{Result, SourceId};

use super::{Registry, Sources, ToolView};
use crate::call::{CallContext, denied_error, find_tool};
use crate::connector::Discovered;
use crate::refresh::{RefreshOutcome, RequiredFreshness};
use crate::store::{DiscoveryCheck, SourceStatus};

impl Registry {
    /// Returns the tools that agents may be offered, in name order. Discovers sources that were never discovered first,
    /// each within its timeout; a failing source does not affect the tools of the others. Denied, hidden, internal and
    /// disabled tools are not among them.
    pub async fn tools(&self, filter: ToolFilter) -> Result<Vec<ToolView>> {
        let among = filter.source.as_ref().map(std::slice::from_ref);
        self.refresher.ensure_freshness(RequiredFreshness::Discovered, among).await;
        let view = self.view(&Principal::local("embedder"));
        let tools = view.offered_tools().filter(|tool| filter.accepts(tool));
        tools.map(|tool| self.view_tool(&tool, view.source(tool.source()))).collect()
    }

    /// Returns a tool by any spelling of its name, from what is known. Makes no requests. Fails like a call that finds
    /// no tool; a denied or disabled tool is found.
    pub fn tool(&self, name: &str) -> Result<ToolView> {
        let snapshot = self.state.snapshot();
        let tool = find_tool(&snapshot, name, self.state.now())?;
        self.view_tool(&tool, snapshot.catalog.source(tool.source()))
    }

    /// Like [`Registry::tool`], as a principal may see it.
    ///
    /// # Errors
    /// `FORBIDDEN` for a denied tool, unless the principal is an administrator.
    pub fn tool_for(&self, principal: &Principal, name: &str) -> Result<ToolView> {
        let snapshot = self.state.snapshot();
        let tool = find_tool(&snapshot, name, self.state.now())?;
        if principal.role() != Role::Admin && tool.verdict() == Verdict::Deny {
            return Err(denied_error(&tool));
        }
        self.view_tool(&tool, snapshot.catalog.source(tool.source()))
    }

    fn view_tool(&self, tool: &ToolRef<'_>, catalog_source: Option<&Arc<CatalogSource>>) -> Result<ToolView> {
        let usage = self.dispatcher.monitoring.usage.tool_count(&tool.id());
        ToolView::from_catalog(tool, catalog_source.cloned(), self.sources().effective(tool.source()), usage)
    }
}

impl Sources<'_> {
    /// Records a tool list that the host discovered by other means, as if the source had been contacted now. `tools`
    /// are definitions as in an MCP list; those that cannot be offered are skipped with a reason.
    pub async fn record_tools(&self, id: &SourceId, tools: Vec<Box<RawValue>>) -> Result<RefreshOutcome> {
        let source =
            self.effective(id).ok_or_else(|| self.registry.state.snapshot().unknown_source_error(id.as_str()))?;
        let now = self.registry.state.now();
        let references = self.registry.connectors.secret_files().read_for(&source.kind).await;
        let fingerprint = self.registry.state.publish_values(&source, &references);
        // As after a discovery of this process: fresh, without failures.
        let status = SourceStatus {
            started_at: now,
            checked_at: Some(now),
            connection_fingerprint: fingerprint,
            attempted_fingerprint: fingerprint,
            ..SourceStatus::default()
        };
        let discovered = Discovered { tools, ..Discovered::default() };
        let check = |count| DiscoveryCheck {
            source: id.clone(),
            at: now,
            duration_ms: 0,
            tool_count: Some(count),
            error: None,
        };
        self.registry.refresher.discoverer.record_tools(&source, discovered, status, check).await
    }

    /// Discovers the source in a tool name ahead of a call if it was never discovered. Waits at most as long as the
    /// call may take. A failed discovery is not an error here: the call explains it when it does not find the tool.
    pub async fn discover_for_call(&self, name: &str, context: &CallContext) -> Result<()> {
        self.registry.dispatcher.discover_for_call(name, context, context.trace.as_ref()).await
    }
}
