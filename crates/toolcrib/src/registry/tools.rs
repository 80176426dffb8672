//! Tools for embedders: a list that discovers missing sources first, a tool by name, and recording a list or a
//! tool that the host discovered.
//!
//! Servers and commands do not use these lists: they render the catalogue to JSON directly, without a copy of each
//! tool.

use std::sync::Arc;

use serde_json::value::{RawValue, to_raw_value};
use toolcrib_catalog::ToolRef;
use toolcrib_catalog::filter::ToolFilter;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::Actor;
use toolcrib_core::manifest::{Manifest, PackedManifest};
use toolcrib_core::principal::Principal;
use toolcrib_core::{Code, Error, Result, ResultExt, Source, SourceId};

use super::{Registry, Sources, ToolView, Visibility};
use crate::call::{CallContext, find_readable_tool, find_tool};
use crate::connector::{Discovered, run_blocking};
use crate::refresh::{RecordCondition, RefreshOutcome, Requester, RequiredFreshness};
use crate::store::{DiscoveryCheck, SourceStatus, SourceTransition};

impl Registry {
    /// Returns the tools that agents may be offered, in name order. Discovers sources that were never discovered first,
    /// each within its timeout; a failing source does not affect the tools of the others. Denied, hidden, internal and
    /// disabled tools are not among them.
    pub async fn tools(&self, filter: ToolFilter) -> Result<Vec<ToolView>> {
        let among = filter.source.as_ref().map(std::slice::from_ref);
        self.refresher.ensure_freshness(RequiredFreshness::Discovered, among, Requester::default()).await;
        let visibility = self.visibility(&Principal::local("embedder"));
        let tools = visibility.view().offered_tools().filter(|tool| filter.accepts(tool));
        tools.map(|tool| self.view_tool(&visibility, &tool)).collect()
    }

    /// Returns a tool by any spelling of its name, from what is known. Makes no requests. Fails like a call of a host
    /// program that finds no tool; a denied or disabled tool is found.
    pub fn tool(&self, name: &str) -> Result<ToolView> {
        let caller = Principal::default();
        let visibility = self.visibility(&caller);
        let tool = find_tool(visibility.snapshot(), visibility.view(), &caller, name, self.state.now())?;
        self.view_tool(&visibility, &tool)
    }

    /// Like [`Registry::tool`], as a principal may see it.
    ///
    /// # Errors
    /// `FORBIDDEN` for a denied tool, unless the principal is an administrator, who sees hidden tools too.
    pub fn tool_for(&self, principal: &Principal, name: &str) -> Result<ToolView> {
        let visibility = self.visibility(principal);
        let tool = find_readable_tool(visibility.snapshot(), visibility.view(), principal, name, self.state.now())?;
        self.view_tool(&visibility, &tool)
    }

    fn view_tool(&self, visibility: &Visibility, tool: &ToolRef<'_>) -> Result<ToolView> {
        let snapshot = visibility.snapshot();
        let source = tool.source();
        let mut usage = self.dispatcher.monitoring.usage.tool_count(&tool.id());
        let error = usage.last_error.take();
        usage.last_error = error.map(|error| visibility.restrict_call_error(source, Some(tool.original_name()), error));
        let declaration = snapshot.effective_sources.get(source).cloned();
        ToolView::from_catalog(tool, snapshot.catalog.source(source).cloned(), declaration, usage)
    }
}

impl Registry {
    /// Records one tool that the host discovered, beside the tools of the source that are known: for hosts whose SDK
    /// reports tools one by one. `tool` is a definition as in an MCP list and replaces the known tool of that name. A
    /// known definition writes no event. Fails with `TOOL_INVALID_INPUT`, and records nothing, if the tool cannot be
    /// offered; [`Sources::record_tools`] records a whole list and skips such tools.
    pub async fn record_tool(&self, id: &SourceId, tool: Box<RawValue>) -> Result<RefreshOutcome> {
        // Each attempt that fails means that another process recorded a list; 20 in a row are a livelock.
        const MAX_ATTEMPTS: usize = 20;
        let sources = self.sources();
        sources.require_effective(id)?;
        let _recording = self.refresher.discoverer.recording.lock().await;
        let offered = Manifest::new(id, std::slice::from_ref(&tool), Vec::new(), &self.options.tool_limits);
        let [(offered, _)] = offered.tools.as_slice() else {
            let reason = offered.skipped.first().map_or("it is not a tool", |skipped| skipped.reason.as_str());
            return Err(Error::new(Code::ToolInvalidInput, format!("the tool cannot be offered: {reason}")));
        };
        for _ in 0..MAX_ATTEMPTS {
            let source = sources.require_effective(id)?;
            let status = self.state.snapshot().source_status(id);
            let (fingerprint, known) = self.current_manifest(id).await?;
            let condition = RecordCondition::Replacing(fingerprint);
            let (name, tool) = (offered.name.clone(), tool.clone());
            let discovered = run_blocking(move || merge_tool(known.as_deref(), &name, tool)).await?;
            match sources.record_discovered(&source, discovered, condition, status).await {
                // Merged with an outdated list: the write refused it.
                Err(error) if error.code == Code::Conflict => self.state.catch_up().await?,
                outcome => return outcome,
            }
        }
        let message = format!("other processes keep recording tools of `{id}`; try again");
        Err(Error::new(Code::Conflict, message))
    }

    /// Returns the current manifest of a source with its fingerprint; without content if that is lost. The catalogue
    /// does not have the manifest of a disabled source.
    async fn current_manifest(&self, id: &SourceId) -> Result<(Option<Fingerprint>, Option<Arc<PackedManifest>>)> {
        let snapshot = self.state.snapshot();
        if let Some(source) = snapshot.catalog.source(id) {
            return Ok((Some(source.segment.fingerprint()), Some(source.segment.packed().clone())));
        }
        let Some(manifest) = snapshot.inventory.source(id).and_then(|state| state.manifest) else {
            return Ok((None, None));
        };
        let packed = self.state.store.manifests(&[manifest]).await?.pop();
        Ok((Some(manifest), packed.map(Arc::new)))
    }
}

impl Sources<'_> {
    /// Records a tool list that the host discovered by other means, as if the source had been contacted now. `tools`
    /// are definitions as in an MCP list; those that cannot be offered are skipped with a reason.
    /// [`Registry::record_tool`] records a single tool.
    pub async fn record_tools(&self, id: &SourceId, tools: Vec<Box<RawValue>>) -> Result<RefreshOutcome> {
        let source = self.require_effective(id)?;
        let _recording = self.registry.refresher.discoverer.recording.lock().await;
        let discovered = Discovered { tools, ..Discovered::default() };
        self.record_discovered(&source, discovered, RecordCondition::Always, SourceStatus::default()).await
    }

    /// Returns a source with default settings and overrides applied, or the error for an unknown one.
    fn require_effective(&self, id: &SourceId) -> Result<Arc<Source>> {
        self.effective(id).ok_or_else(|| self.registry.state.snapshot().unknown_source_error(id.as_str(), |_| true))
    }

    /// Records a list as after a discovery of this process: fresh, without failures. `status` has what is still known
    /// of the source besides.
    async fn record_discovered(
        &self,
        source: &Source,
        discovered: Discovered,
        condition: RecordCondition<'_>,
        status: SourceStatus,
    ) -> Result<RefreshOutcome> {
        let now = self.registry.state.now();
        let references = self.registry.connectors.secret_files().read_for(&source.kind).await;
        let fingerprint = self.registry.state.publish_values(source, &references);
        let status = SourceStatus {
            started_at: now,
            checked_at: Some(now),
            connection_fingerprint: fingerprint,
            attempted_fingerprint: fingerprint,
            failures: 0,
            failing_since: None,
            last_error: None,
            not_before: None,
            invalidated: false,
            ..status
        };
        let before = self.registry.state.snapshot().source_status(&source.id);
        let transition = SourceTransition::between(&before, &status);
        let check = |count| DiscoveryCheck {
            source: source.id.clone(),
            at: now,
            duration_ms: 0,
            tool_count: Some(count),
            error: None,
            transition,
        };
        let actor = self.registry.options.actor.clone().unwrap_or_else(Actor::system);
        self.registry.refresher.discoverer.record_tools(source, discovered, condition, status, check, &actor).await
    }

    /// Discovers the source in a tool name ahead of a call if it was never discovered. Waits at most as long as the
    /// call may take. A failed discovery is not an error here: the call explains it when it does not find the tool.
    pub async fn discover_for_call(&self, name: &str, context: &CallContext) -> Result<()> {
        self.registry.dispatcher.discover_for_call(name, context, context.trace.as_ref()).await
    }

    /// Like [`Sources::discover_for_call`], for a request to a known source; `item` is the requested prompt or resource.
    pub async fn discover_for_request(&self, id: &SourceId, item: &str, context: &CallContext) -> Result<()> {
        let requester = Requester { actor: context.actor.clone(), trace: context.trace.clone() };
        self.registry.dispatcher.discover_source(id, item, context, requester).await
    }
}

/// Returns the known tools of a source as they were offered, with one of them added or replaced.
fn merge_tool(known: Option<&PackedManifest>, name: &str, tool: Box<RawValue>) -> Result<Discovered> {
    let Some(known) = known else { return Ok(Discovered { tools: vec![tool], ..Discovered::default() }) };
    let others = known.tools.iter().filter(|packed| packed.name != name).map(|packed| {
        let offered = known.tool(packed)?.to_offered_fields();
        to_raw_value(&offered).context(Code::Internal, format!("cannot write the stored tool `{}`", packed.name))
    });
    let mut tools = others.collect::<Result<Vec<_>>>()?;
    tools.push(tool);
    let skipped = known.skipped.iter().filter(|skipped| skipped.name != name).cloned().collect();
    Ok(Discovered { tools, skipped, about: known.about.clone(), ..Discovered::default() })
}
