//! A source as people and programs see it: what it is, how it stands, what it offers. Secrets are shown as references.

use serde::Serialize;
use toolcrib_core::config::Override;
use toolcrib_core::config::show::{mask_args, mask_text, mask_url};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::freshness::Freshness;
use toolcrib_core::inventory::{Origin, SourceState};
use toolcrib_core::manifest::SetAsideTool;
use toolcrib_core::policy::Verdict;
use toolcrib_core::source::SourceKind;
use toolcrib_core::{Code, Source, SourceId, Timestamp};

use super::{Registry, RegistryInner, Snapshot};
use crate::breaker::{BreakerState, BreakerView};
use crate::connections::SlotStatus;
use crate::store::{ErrorSummary, SourceStatus};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SourceView {
    pub id: SourceId,
    pub title: Option<String>,
    pub kind: String,
    pub origin: Origin,
    pub transport: Option<&'static str>,
    pub command: Option<String>,
    pub args: Option<Vec<String>>,
    pub url: Option<String>,
    pub enabled: bool,
    pub status: DiscoveryStatus,
    pub freshness: Freshness,
    pub health: SourceHealth,
    pub tool_count: usize,
    pub inventory_hash: Option<Fingerprint>,
    pub config_hash: Option<Fingerprint>,
    pub last_checked: Option<Timestamp>,
    pub last_error: Option<ErrorSummary>,
    pub ttl_ms: u64,
    pub discovery_timeout_ms: u64,
    pub connection: ConnectionState,
    /// Discoveries and calls in a row that failed, and since when.
    pub failures: u32,
    pub failing_since: Option<Timestamp>,
    pub breaker: BreakerView,
    pub set_aside: Vec<SetAsideTool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DiscoveryStatus {
    Never,
    Discovering,
    Success,
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceHealth {
    Ok,
    Degraded,
    Down,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionState {
    None,
    Connected,
    /// Too many calls failed: its breaker is open.
    #[serde(rename = "resting")]
    BreakerOpen,
}

impl Registry {
    /// Every source, in the order of their ids. Contacts nobody.
    pub fn sources(&self) -> Vec<SourceView> {
        let snapshot = self.shared.snapshot.load_full();
        let mut views: Vec<SourceView> =
            snapshot.inventory.sources().filter_map(|(id, _)| self.shared.source_view(&snapshot, id)).collect();
        let undeclared = snapshot.invalid_sources.iter().filter(|(id, _)| snapshot.inventory.source(id).is_none());
        views.extend(undeclared.map(|(id, failure)| invalid_source_view(id, failure)));
        views.sort_by(|a, b| a.id.cmp(&b.id));
        views
    }

    pub fn source(&self, id: &SourceId) -> Option<SourceView> {
        let snapshot = self.shared.snapshot.load_full();
        self.shared
            .source_view(&snapshot, id)
            .or_else(|| snapshot.invalid_sources.get(id).map(|failure| invalid_source_view(id, failure)))
    }

    /// The declaration of a source as it is used here, with defaults and overrides.
    pub fn effective_source(&self, id: &SourceId) -> Option<std::sync::Arc<Source>> {
        self.shared.snapshot.load().effective_sources.get(id).cloned()
    }

    /// What the environment of this process says of a source.
    pub fn source_override(&self, id: &SourceId) -> Option<Override> {
        self.shared.source_override(id)
    }
}

impl RegistryInner {
    fn source_view(&self, snapshot: &Snapshot, id: &SourceId) -> Option<SourceView> {
        let (state, source) = (snapshot.inventory.source(id)?, snapshot.effective_sources.get(id)?);
        let status = snapshot.statuses.get(id).cloned().unwrap_or_default();
        // What a file that is not trusted declares under the same name is nothing that is wrong here.
        let wrong = snapshot.invalid_sources.get(id).filter(|failure| failure.code != Code::Forbidden).cloned();
        let part = snapshot.catalog.source(id);
        let enabled = self.is_enabled(id, state.enabled);
        let link = self.connectors.slot_status(id);
        let (command, args, url) = match &source.kind {
            SourceKind::Stdio(stdio) => (Some(mask_text(&stdio.command)), Some(mask_args(&stdio.args)), None),
            SourceKind::Http(remote) | SourceKind::Sse(remote) => (None, None, Some(mask_url(&remote.url))),
            SourceKind::OpenApi(openapi) => (None, None, Some(mask_url(&openapi.document))),
            SourceKind::Workflow(workflow) => (None, None, Some(mask_text(&workflow.document))),
            SourceKind::Builtin(_) => (None, None, None),
        };
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
            status: if wrong.is_some() { DiscoveryStatus::Failed } else { RegistryInner::discovery_status(&status) },
            freshness: self.freshness(snapshot, id),
            health: source_health(&status, state.manifest.is_some() || part.is_some(), &link),
            // Nobody is shown the tools of a disabled source, but they are known.
            tool_count: if enabled { snapshot.catalog.listed_count(id) } else { known_tool_count(state, source) },
            inventory_hash: part.map(|part| part.segment.fingerprint()).or(state.manifest),
            config_hash: snapshot.connection_fingerprints.get(id).copied().flatten().or(status.connection_fingerprint),
            last_checked: status.checked_at.or(last_attempt_at(&status)),
            last_error: wrong.or_else(|| last_error(&status, &link)),
            ttl_ms: source.settings.ttl().as_millis() as u64,
            discovery_timeout_ms: source.settings.discovery_timeout().as_millis() as u64,
            connection: if link.breaker.state == BreakerState::Open {
                ConnectionState::BreakerOpen
            } else if link.connected {
                ConnectionState::Connected
            } else {
                ConnectionState::None
            },
            failures: status.failures.saturating_add(link.failures),
            failing_since: failing_since(&status, &link),
            breaker: link.breaker,
            set_aside: snapshot.catalog.excluded_tools(id),
        })
    }

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

    /// By age alone; a source that connects to something else now, or was invalidated, is stale whatever its age.
    pub(crate) fn freshness(&self, snapshot: &Snapshot, id: &SourceId) -> Freshness {
        let (Some(source), Some(state)) = (snapshot.effective_sources.get(id), snapshot.inventory.source(id)) else {
            return Freshness::Missing;
        };
        let status = snapshot.statuses.get(id);
        // A list that was recorded and cannot be read any more is as good as none.
        let asleep = state.manifest.is_some() && !self.is_enabled(id, state.enabled);
        let checked_at =
            status.and_then(|status| status.checked_at).filter(|_| asleep || snapshot.catalog.source(id).is_some());
        if source.kind.is_builtin() && checked_at.is_some() {
            return Freshness::Fresh;
        }
        let freshness = Freshness::evaluate(checked_at, source.settings.ttl(), self.options.clock.now());
        match freshness {
            Freshness::Fresh
                if status.is_some_and(|status| status.invalidated) || snapshot.has_connection_changed(id) =>
            {
                Freshness::Stale
            }
            Freshness::Fresh | Freshness::Stale | Freshness::Missing => freshness,
        }
    }
}

impl Snapshot {
    /// Whether what a source connects to is known to have changed since it was discovered.
    pub(crate) fn has_connection_changed(&self, id: &SourceId) -> bool {
        let then = self.statuses.get(id).and_then(|status| status.connection_fingerprint);
        self.connection_fingerprints.get(id).copied().flatten().is_some_and(|here| then != Some(here))
    }
}

/// How many tools of a source were offered at last, without those that a rule hides.
fn known_tool_count(state: &SourceState, source: &Source) -> usize {
    let rules = &source.settings.tools;
    let hidden = |name: &str| rules.verdict(&[name], Verdict::Allow) == Verdict::Hide;
    state.tools.iter().filter(|(name, tool)| !tool.deprecated && !hidden(name)).count()
}

fn source_health(status: &SourceStatus, has_list: bool, link: &SlotStatus) -> SourceHealth {
    match (status.failures, has_list) {
        _ if link.breaker.state == BreakerState::Open => SourceHealth::Down,
        (0, true) if link.failures > 0 => SourceHealth::Degraded,
        (0, true) => SourceHealth::Ok,
        (0, false) => SourceHealth::Unknown,
        (1 | 2, true) => SourceHealth::Degraded,
        _ => SourceHealth::Down,
    }
}

/// When the newest discovery began, if one ended at all.
fn last_attempt_at(status: &SourceStatus) -> Option<Timestamp> {
    // One that a reader gave up has begun none that ended.
    let started_at = Some(status.started_at).filter(|at| *at != Timestamp::default());
    started_at.or(status.failing_since).filter(|_| status.last_error.is_some())
}

/// The error of the last discovery, or of the last call that found the source ailing.
fn last_error(status: &SourceStatus, link: &SlotStatus) -> Option<ErrorSummary> {
    let of_calls = || link.failure_streak.as_ref().map(|failing| failing.last_error.clone());
    status.last_error.clone().or_else(of_calls)
}

fn failing_since(status: &SourceStatus, link: &SlotStatus) -> Option<Timestamp> {
    let of_calls = link.failure_streak.as_ref().map(|failing| failing.since);
    status.failing_since.into_iter().chain(of_calls).min()
}

/// A source whose declaration cannot be used: listed, with its reason.
fn invalid_source_view(id: &SourceId, failure: &ErrorSummary) -> SourceView {
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
        inventory_hash: None,
        config_hash: None,
        last_checked: None,
        last_error: Some(failure.clone()),
        ttl_ms: 0,
        discovery_timeout_ms: 0,
        connection: ConnectionState::None,
        failures: 0,
        failing_since: None,
        breaker: BreakerView { state: BreakerState::Closed, retry_at: None },
        set_aside: Vec::new(),
    }
}
