//! A source as shown to people and programs: declaration, status, health, tool count. Secrets are masked; references
//! stay as written.
//!
//! A view is derived from four places: the inventory (declared, enabled, tools), the effective declaration (command,
//! address, settings), the status in the store (last discoveries of any process), and the connector slot (connection
//! and breaker of this process). Building one makes no requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use toolcrib_config::show::{mask_args, mask_text, mask_url};
use toolcrib_config::{ConfigDiagnostic, Override};
use toolcrib_core::features::{FeatureKind, FeatureList, RecordedFeatures};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::freshness::Freshness;
use toolcrib_core::inventory::{Origin, SourceState};
use toolcrib_core::manifest::SkippedTool;
use toolcrib_core::principal::Principal;
use toolcrib_core::source::SourceKind;
use toolcrib_core::tool::ToolName;
use toolcrib_core::{Code, Error, Result, Source, SourceId, Timestamp};

use super::{Precondition, Registry, UNRESTRICTED, Visibility};
use crate::breaker::{BreakerState, BreakerView, FailedCall};
use crate::call::{McpCapability, explain_source, parse_extension};
use crate::connectors::SlotStatus;
use crate::store::{ErrorSummary, SourceStatus};

/// A source as `sources`, REST and the console show it. Serialized as is. Field names are part of the REST interface.
///
/// More than twelve fields, because the REST interface has them side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SourceView {
    /// Name in the configuration, and prefix of its tools.
    pub id: SourceId,
    /// Display name from its settings.
    pub title: Option<String>,
    /// `mcp`, `openapi`, `workflow` or `builtin`; `unknown` for an invalid declaration.
    pub kind: String,
    /// Place of the declaration: the configuration or a command.
    pub origin: Origin,
    /// `stdio`, `http`, `sse` and so on; `None` for an invalid declaration.
    pub transport: Option<&'static str>,
    /// Command line of a stdio server.
    pub command: Option<String>,
    /// Arguments of the command, with secrets masked.
    pub args: Option<Vec<String>>,
    /// URL of a server, or location of a document.
    pub url: Option<String>,
    /// Whether the source is enabled in this process.
    pub enabled: bool,
    /// Outcome of the last discovery.
    pub status: DiscoveryStatus,
    /// Whether the tool list is fresh, stale or missing.
    pub freshness: Freshness,
    /// Summary of discoveries and calls.
    pub health: SourceHealth,
    /// Number of tools that the reader may see; for a disabled source, the number it would have.
    pub tool_count: usize,
    /// Number of prompts in the last list; 0 for a disabled source, here and below.
    pub prompt_count: usize,
    /// Number of resources in the last list.
    pub resource_count: usize,
    /// Number of resource templates in the last list.
    pub resource_template_count: usize,
    /// Instructions of an MCP server for models. Only of a single source, see [`Sources::get`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Fingerprint of the current manifest.
    pub inventory_hash: Option<Fingerprint>,
    /// Keyed hash of what the source connects to.
    pub config_hash: Option<Fingerprint>,
    /// Last successful discovery, or the last attempt if none succeeded.
    pub last_checked: Option<Timestamp>,
    /// Error of the declaration, of the last discovery, or of the last calls, in this order.
    pub last_error: Option<ErrorSummary>,
    /// Labels of the nodes that may start it; empty for every node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Time for which a list is fresh.
    pub ttl_ms: u64,
    /// Time limit of a discovery.
    pub discovery_timeout_ms: u64,
    /// Connection of this process to the source.
    pub connection: ConnectionState,
    /// Number of discoveries and calls that failed in a row.
    pub failures: u32,
    /// Start of the current series of failures.
    pub failing_since: Option<Timestamp>,
    /// Circuit breaker of this process.
    pub breaker: BreakerView,
    /// Tools, prompts and resources that were skipped, and lists of them that could not be read, each with the reason.
    #[serde(rename = "set_aside")]
    pub skipped: Vec<SkippedTool>,
    /// Names of the tools that `tool_count` counts; only where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<ToolName>>,
}

/// Outcome of the last discovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DiscoveryStatus {
    /// No discovery has ended yet.
    Never,
    /// A process holds the lease of the source.
    Discovering,
    /// The last discovery returned a tool list.
    Success,
    /// The last discovery failed; an earlier list may still be served.
    Failed,
}

/// Health of a source, from its discoveries and calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceHealth {
    /// The last discovery succeeded, and calls do not fail.
    Ok,
    /// Some failures, but a tool list is known.
    Degraded,
    /// Circuit breaker open, three or more failed discoveries in a row, or failures without a known tool list.
    Down,
    /// Never discovered.
    Unknown,
}

/// State of the connection to a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionState {
    /// No connection is open; the next call opens one.
    None,
    /// A connection is open.
    Connected,
    /// The circuit breaker is open because too many calls failed.
    #[serde(rename = "resting")]
    BreakerOpen,
}

/// The sources of a registry: reads, declares and switches them; see [`Registry::sources`].
///
/// More than twenty methods, because every question about a source and every change of one is asked here.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    pub(super) registry: &'a Registry,
    /// Condition on which declarations, removals and switches are made.
    pub(super) precondition: Precondition<'a>,
}

impl<'a> Sources<'a> {
    /// Returns the sources for changes that are made only if a condition holds.
    #[must_use]
    pub fn only_if(self, precondition: Precondition<'a>) -> Sources<'a> {
        Sources { precondition, ..self }
    }
}

impl Sources<'_> {
    /// Returns every source, ordered by id, with all its tools. Makes no requests.
    pub fn list(&self) -> Vec<SourceView> {
        self.list_for(&UNRESTRICTED)
    }

    /// Returns every source that a principal may know of, ordered by id, with the tools that it may see. Makes no
    /// requests.
    pub fn list_for(&self, principal: &Principal) -> Vec<SourceView> {
        let visibility = self.registry.visibility(principal);
        let snapshot = visibility.snapshot();
        let visible = snapshot.inventory.sources().map(|(id, _)| id).filter(|id| visibility.shows_source(id));
        let mut views: Vec<SourceView> = visible.filter_map(|id| self.build_source_view(&visibility, id)).collect();
        let undeclared = snapshot
            .invalid_sources
            .iter()
            .filter(|(id, _)| snapshot.inventory.source(id).is_none() && visibility.shows_source(id));
        views.extend(undeclared.map(|(id, error)| invalid_source_view(&visibility, id, error)));
        views.sort_by(|a, b| a.id.cmp(&b.id));
        views
    }

    /// Returns one source, with all its tools and the instructions of an MCP server.
    pub fn get(&self, id: &SourceId) -> Option<SourceView> {
        self.get_for(&UNRESTRICTED, id)
    }

    /// Returns one source, with the tools that a principal may see; `None` if it may not know of the source.
    pub fn get_for(&self, principal: &Principal, id: &SourceId) -> Option<SourceView> {
        let visibility = self.registry.visibility(principal);
        let snapshot = visibility.snapshot();
        if !visibility.shows_source(id) {
            return None;
        }
        let instructions = visibility.instructions(id);
        self.build_source_view(&visibility, id)
            .map(|view| SourceView { instructions, ..view })
            .or_else(|| snapshot.invalid_sources.get(id).map(|error| invalid_source_view(&visibility, id, error)))
    }

    /// Returns the prompts and resources of a source. The first reader after a start reads them from the store; later
    /// ones find them in memory. `None` if the store has lost them.
    pub async fn feature_list(&self, features: &RecordedFeatures) -> Result<Option<Arc<FeatureList>>> {
        self.registry.state.feature_list(features).await
    }

    /// Adds the names of the tools that a principal may see to sources: those that `tool_count` counts.
    pub fn add_tool_names(&self, principal: &Principal, sources: &mut [SourceView]) {
        let visibility = self.registry.visibility(principal);
        let mut names: BTreeMap<&SourceId, Vec<ToolName>> = BTreeMap::new();
        for tool in visibility.view().listed_tools() {
            names.entry(tool.source()).or_default().push(tool.name().clone());
        }
        for source in sources {
            let known = || {
                let state = visibility.snapshot().inventory.source(&source.id);
                state.map(|state| known_tools(&visibility, &source.id, state)).unwrap_or_default()
            };
            source.tools = Some(if source.enabled { names.remove(&source.id).unwrap_or_default() } else { known() });
        }
    }

    /// Returns a source with default settings and overrides applied.
    pub fn effective(&self, id: &SourceId) -> Option<Arc<Source>> {
        self.registry.state.snapshot().effective_sources.get(id).cloned()
    }

    /// Returns what the environment of this process overrides of a source.
    pub fn environment_override(&self, id: &SourceId) -> Option<Override> {
        self.registry.state.snapshot().environment.get(id).cloned()
    }

    /// Returns an error for each environment variable that should override a source and cannot be used.
    pub fn environment_errors(&self) -> Vec<ConfigDiagnostic> {
        self.registry.state.snapshot().environment.errors().to_vec()
    }

    /// Returns the sources that must not be contacted, each with the reason.
    pub fn blocked(&self) -> Arc<BTreeMap<SourceId, String>> {
        self.registry.state.snapshot().blocked_sources.clone()
    }
    /// Fails with `TOOL_UNAVAILABLE` if other nodes start a source and this one does not.
    pub fn ensure_may_start(&self, id: &SourceId) -> Result<()> {
        self.registry.state.snapshot().ensure_may_start(id)
    }
    /// Returns the error for an unknown source, with the most similar known name.
    pub fn unknown_error(&self, name: &str) -> Error {
        self.registry.state.snapshot().unknown_source_error(name, |_| true)
    }
    /// Returns why the tools of a source are unknown, or `None` if they are known.
    pub fn failure(&self, id: &SourceId) -> Option<Error> {
        explain_source(&self.registry.state.snapshot(), id, self.registry.state.now())
    }
    /// Returns the source that a tool name refers to: the source it names if that exists, or for a bare name the source
    /// of the known tool. `None` means that no discovery could find the tool.
    pub fn find_by_tool_name(&self, name: &str) -> Result<Option<SourceId>> {
        self.registry.dispatcher.source_for_tool_name(name)
    }
    /// Returns the enabled sources that announced a capability at their last discovery, ordered by id. Reads the
    /// snapshot only; sources of an untrusted file are left out, because they must not be contacted.
    pub fn with_capability(&self, capability: McpCapability) -> Vec<SourceId> {
        self.with_capability_for(&UNRESTRICTED, capability)
    }
    /// Like [`Sources::with_capability`], without the sources that the principal may not know of.
    pub fn with_capability_for(&self, principal: &Principal, capability: McpCapability) -> Vec<SourceId> {
        let visibility = self.registry.visibility(principal);
        let snapshot = visibility.snapshot();
        let trusted = snapshot.enabled_sources().map(|(id, _)| id).filter(|id| snapshot.ensure_trusted(id).is_ok());
        let has_capability = |id: &&SourceId| {
            let status = snapshot.statuses.get(*id);
            status.is_some_and(|status| status.capabilities.iter().any(|name| name == capability.name()))
        };
        trusted.filter(has_capability).filter(|id| visibility.shows_source(id)).cloned().collect()
    }

    /// Whether an enabled source that the principal may know of is an API, whose results may link to held binaries.
    pub fn can_hold_binaries_for(&self, principal: &Principal) -> bool {
        let visibility = self.registry.visibility(principal);
        let snapshot = visibility.snapshot();
        let is_api = |id: &SourceId| {
            let source = snapshot.effective_sources.get(id);
            source.is_some_and(|source| matches!(source.kind, SourceKind::OpenApi(_)))
        };
        snapshot.enabled_sources().any(|(id, _)| is_api(id) && visibility.shows_source(id))
    }

    /// Returns the extensions of MCP that enabled sources announced at their last discovery, with their settings, without
    /// the sources that the principal may not know of. Sources that announce one with different settings leave it
    /// without.
    pub fn extensions_for(&self, principal: &Principal) -> BTreeMap<String, Box<RawValue>> {
        let visibility = self.registry.visibility(principal);
        let snapshot = visibility.snapshot();
        let mut merged = BTreeMap::<String, Box<RawValue>>::new();
        let trusted = snapshot.enabled_sources().map(|(id, _)| id).filter(|id| snapshot.ensure_trusted(id).is_ok());
        let visible = trusted.filter(|id| visibility.shows_source(id));
        let statuses = visible.filter_map(|id| snapshot.statuses.get(id));
        for (id, settings) in
            statuses.flat_map(|status| status.capabilities.iter()).filter_map(|name| parse_extension(name))
        {
            let known = merged.entry(id.to_owned()).or_insert_with(|| settings.to_owned());
            if known.get() != settings.get() {
                *known = RawValue::from_string("{}".to_owned()).unwrap_or_default();
            }
        }
        merged
    }

    /// Builds the view of a declared source, with the tools that a principal may see.
    fn build_source_view(&self, visibility: &Visibility, id: &SourceId) -> Option<SourceView> {
        let (snapshot, view) = (visibility.snapshot(), visibility.view());
        let state = snapshot.inventory.source(id)?;
        let source = snapshot.effective_sources.get(id)?;
        let status = snapshot.statuses.get(id).cloned().unwrap_or_default();
        // `Forbidden` marks a declaration of an untrusted file under the same name, which says nothing about this
        // source.
        let config_error = snapshot.invalid_sources.get(id).filter(|error| error.code != Code::Forbidden).cloned();
        let config_error = config_error.map(|error| visibility.restrict_config_error(id, error));
        let catalog_source = view.source(id);
        let enabled = snapshot.environment.is_enabled(id, state);
        let slot_status = self.registry.connectors.slot_status(id);
        // Command lines and URLs may contain secrets: masked.
        let (command, args, url) = match &source.kind {
            SourceKind::Stdio(stdio) => (Some(mask_text(&stdio.command)), Some(mask_args(&stdio.args)), None),
            SourceKind::Http(remote) | SourceKind::Sse(remote) => (None, None, Some(mask_url(&remote.url))),
            SourceKind::OpenApi(openapi) => (None, None, Some(mask_url(&openapi.document))),
            SourceKind::Workflow(workflow) => (None, None, Some(mask_text(&workflow.document))),
            SourceKind::Builtin(_) => (None, None, None),
        };
        let features = catalog_source.and_then(|source| source.features.as_ref()).map(|features| &features.summary);
        let count = |kind| features.map_or(0, |features| *features.counts.get(kind));
        let skipped_features = features.into_iter().flat_map(|features| &features.skipped).chain(&status.failed_lists);
        Some(SourceView {
            id: id.clone(),
            title: source.settings.title.clone(),
            kind: state.kind.clone(),
            origin: state.origin,
            transport: Some(source.kind.transport()),
            command,
            args,
            url,
            enabled,
            status: if config_error.is_some() { DiscoveryStatus::Failed } else { discovery_status(&status) },
            freshness: snapshot.freshness(id, self.registry.state.now()),
            health: source_health(&status, state.manifest.is_some() || catalog_source.is_some(), &slot_status),
            // The tools of a disabled source are not listed, but known.
            tool_count: if enabled { view.listed_count(id) } else { known_tools(visibility, id, state).len() },
            prompt_count: count(FeatureKind::Prompt),
            resource_count: count(FeatureKind::Resource),
            resource_template_count: count(FeatureKind::ResourceTemplate),
            instructions: None,
            inventory_hash: visibility.inventory_hash(id),
            config_hash: snapshot.connection_fingerprint(id).or(status.connection_fingerprint),
            last_checked: status.checked_at.or(last_attempt_at(&status)),
            last_error: config_error.or_else(|| last_error(visibility, id, &status, &slot_status)),
            nodes: source.settings.nodes.clone(),
            ttl_ms: source.settings.ttl().as_millis() as u64,
            discovery_timeout_ms: source.settings.discovery_timeout().as_millis() as u64,
            connection: if slot_status.breaker.state == BreakerState::Open {
                ConnectionState::BreakerOpen
            } else if slot_status.connected {
                ConnectionState::Connected
            } else {
                ConnectionState::None
            },
            failures: status.failures.saturating_add(slot_status.failures),
            failing_since: failing_since(&status, &slot_status),
            breaker: slot_status.breaker,
            skipped: visibility.skipped_tools(id).into_iter().chain(skipped_features.cloned()).collect(),
            tools: None,
        })
    }
}

/// Returns the outcome of the last discovery, or that one is running.
fn discovery_status(status: &SourceStatus) -> DiscoveryStatus {
    if status.is_being_discovered() {
        return DiscoveryStatus::Discovering;
    }
    match (&status.last_error, status.checked_at) {
        (Some(_), _) => DiscoveryStatus::Failed,
        (None, Some(_)) => DiscoveryStatus::Success,
        (None, None) => DiscoveryStatus::Never,
    }
}

/// Returns the names of the tools at the last discovery, without those that a rule keeps from a principal. The catalogue
/// has no entry of a disabled source, so they are taken from the inventory.
fn known_tools(visibility: &Visibility, id: &SourceId, state: &SourceState) -> Vec<ToolName> {
    let names = visibility.snapshot().tool_names(id);
    let tools = state.tools.iter().filter(|(name, tool)| !tool.deprecated && visibility.shows_tool(id, name));
    let mut names: Vec<ToolName> = tools.map(|(name, _)| names.name(name)).collect();
    names.sort();
    names
}

/// Derives the health of a source. An open breaker counts as down, whatever the last discovery said.
fn source_health(status: &SourceStatus, has_list: bool, slot_status: &SlotStatus) -> SourceHealth {
    match (status.failures, has_list) {
        _ if slot_status.breaker.state == BreakerState::Open => SourceHealth::Down,
        (0, true) if slot_status.failures > 0 => SourceHealth::Degraded,
        (0, true) => SourceHealth::Ok,
        (0, false) => SourceHealth::Unknown,
        (1 | 2, true) => SourceHealth::Degraded,
        _ => SourceHealth::Down,
    }
}

/// Returns when the last failed discovery started.
fn last_attempt_at(status: &SourceStatus) -> Option<Timestamp> {
    // If a reader only stopped waiting, no discovery has ended: use the time of that failure.
    let started_at = Some(status.started_at).filter(|at| *at != Timestamp::default());
    started_at.or(status.failing_since).filter(|_| status.last_error.is_some())
}

/// Returns the error of the last discovery, or else of the calls that are failing now, as far as a principal may read it.
fn last_error(
    visibility: &Visibility,
    id: &SourceId,
    status: &SourceStatus,
    slot_status: &SlotStatus,
) -> Option<ErrorSummary> {
    if let Some(error) = &status.last_error {
        return Some(visibility.restrict_error(id, error.clone()));
    }
    let FailedCall { tool, error } = &slot_status.failure_streak.as_ref()?.last_failure;
    Some(visibility.restrict_call_error(id, tool.as_deref(), error.clone()))
}

/// Returns since when discoveries or calls have been failing.
fn failing_since(status: &SourceStatus, slot_status: &SlotStatus) -> Option<Timestamp> {
    let calls_since = slot_status.failure_streak.as_ref().map(|streak| streak.since);
    status.failing_since.into_iter().chain(calls_since).min()
}

/// Builds the view of a source whose declaration cannot be used. Only its id and the error are known.
fn invalid_source_view(visibility: &Visibility, id: &SourceId, error: &ErrorSummary) -> SourceView {
    SourceView {
        id: id.clone(),
        title: None,
        kind: "unknown".into(),
        origin: Origin::Config,
        transport: None,
        command: None,
        args: None,
        url: None,
        enabled: true,
        status: DiscoveryStatus::Failed,
        freshness: Freshness::Missing,
        health: SourceHealth::Down,
        tool_count: 0,
        prompt_count: 0,
        resource_count: 0,
        resource_template_count: 0,
        instructions: None,
        inventory_hash: None,
        config_hash: None,
        last_checked: None,
        last_error: Some(visibility.restrict_config_error(id, error.clone())),
        nodes: Vec::new(),
        ttl_ms: 0,
        discovery_timeout_ms: 0,
        connection: ConnectionState::None,
        failures: 0,
        failing_since: None,
        breaker: BreakerView { state: BreakerState::Closed, retry_at: None },
        skipped: Vec::new(),
        tools: None,
    }
}
