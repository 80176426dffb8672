//! A source as people and programs see it: what it is, how it stands, what it offers. Secrets are shown as references.

use serde::Serialize;
use toolcrib_core::config::Override;
use toolcrib_core::config::show::{shown_args, shown_text, shown_url};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::freshness::Freshness;
use toolcrib_core::inventory::{Origin, SourceState};
use toolcrib_core::manifest::SetAside;
use toolcrib_core::policy::Verdict;
use toolcrib_core::source::Kind;
use toolcrib_core::{Code, Source, SourceId, Timestamp};

use super::{Registry, Shared, Snapshot};
use crate::breaker::{BreakerState, BreakerView};
use crate::connections::Link;
use crate::store::{Failure, Standing};

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
    pub status: Status,
    pub freshness: Freshness,
    pub health: Health,
    pub tool_count: usize,
    pub inventory_hash: Option<Fingerprint>,
    pub config_hash: Option<Fingerprint>,
    pub last_checked: Option<Timestamp>,
    pub last_error: Option<Failure>,
    pub ttl_ms: u64,
    pub discovery_timeout_ms: u64,
    pub connection: Connection,
    /// Discoveries and calls in a row that failed, and since when.
    pub failures: u32,
    pub failing_since: Option<Timestamp>,
    pub breaker: BreakerView,
    pub set_aside: Vec<SetAside>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Never,
    Discovering,
    Success,
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    Ok,
    Degraded,
    Down,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Connection {
    None,
    Connected,
    /// Too many calls failed: its breaker is open.
    Resting,
}

impl Registry {
    /// Every source, in the order of their ids. Contacts nobody.
    pub fn sources(&self) -> Vec<SourceView> {
        let now = self.shared.now.load_full();
        let mut views: Vec<SourceView> =
            now.inventory.sources().filter_map(|(id, _)| self.shared.view(&now, id)).collect();
        let undeclared = now.invalid.iter().filter(|(id, _)| now.inventory.source(id).is_none());
        views.extend(undeclared.map(|(id, failure)| invalid(id, failure)));
        views.sort_by(|one, other| one.id.cmp(&other.id));
        views
    }

    pub fn source(&self, id: &SourceId) -> Option<SourceView> {
        let now = self.shared.now.load_full();
        self.shared.view(&now, id).or_else(|| now.invalid.get(id).map(|failure| invalid(id, failure)))
    }

    /// The declaration of a source as it is used here, with defaults and overrides.
    pub fn definition(&self, id: &SourceId) -> Option<std::sync::Arc<Source>> {
        self.shared.now.load().sources.get(id).cloned()
    }

    /// What the environment of this process says of a source.
    pub fn overriding(&self, id: &SourceId) -> Option<Override> {
        self.shared.overriding(id)
    }
}

impl Shared {
    fn view(&self, now: &Snapshot, id: &SourceId) -> Option<SourceView> {
        let (state, source) = (now.inventory.source(id)?, now.sources.get(id)?);
        let standing = now.standings.get(id).cloned().unwrap_or_default();
        // What a file that is not trusted declares under the same name is nothing that is wrong here.
        let wrong = now.invalid.get(id).filter(|failure| failure.code != Code::Forbidden).cloned();
        let part = now.catalog.part(id);
        let enabled = self.enabled_here(id, state.enabled);
        let link = self.connections.link(id);
        let (command, args, url) = match &source.kind {
            Kind::Stdio(stdio) => (Some(shown_text(&stdio.command)), Some(shown_args(&stdio.args)), None),
            Kind::Http(remote) | Kind::Sse(remote) => (None, None, Some(shown_url(&remote.url))),
            Kind::OpenApi(openapi) => (None, None, Some(shown_url(&openapi.document))),
            Kind::Workflow(workflow) => (None, None, Some(shown_text(&workflow.document))),
            Kind::Builtin(_) => (None, None, None),
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
            status: if wrong.is_some() { Status::Failed } else { Shared::status(&standing) },
            freshness: self.freshness(now, id),
            health: health(&standing, state.manifest.is_some() || part.is_some(), &link),
            // Nobody is shown the tools of a disabled source, but they are known.
            tool_count: if enabled { now.catalog.listed_count(id) } else { known_count(state, source) },
            inventory_hash: part.map(|part| part.segment.fingerprint()).or(state.manifest),
            config_hash: now.connects_to.get(id).copied().flatten().or(standing.connects_to),
            last_checked: standing.checked_at.or(tried_at(&standing)),
            last_error: wrong.or_else(|| last_error(&standing, &link)),
            ttl_ms: source.settings.ttl().as_millis() as u64,
            discovery_timeout_ms: source.settings.discovery_timeout().as_millis() as u64,
            connection: if link.breaker.state == BreakerState::Open {
                Connection::Resting
            } else if link.connected {
                Connection::Connected
            } else {
                Connection::None
            },
            failures: standing.failures.saturating_add(link.failures),
            failing_since: failing_since(&standing, &link),
            breaker: link.breaker,
            set_aside: now.catalog.set_aside(id),
        })
    }

    fn status(standing: &Standing) -> Status {
        if standing.is_being_discovered() {
            return Status::Discovering;
        }
        match (&standing.last_error, standing.checked_at) {
            (Some(_), _) => Status::Failed,
            (None, Some(_)) => Status::Success,
            (None, None) => Status::Never,
        }
    }

    /// By age alone; a source that connects to something else now, or was invalidated, is stale whatever its age.
    pub(crate) fn freshness(&self, now: &Snapshot, id: &SourceId) -> Freshness {
        let (Some(source), Some(state)) = (now.sources.get(id), now.inventory.source(id)) else {
            return Freshness::Missing;
        };
        let standing = now.standings.get(id);
        // A list that was recorded and cannot be read any more is as good as none.
        let asleep = state.manifest.is_some() && !self.enabled_here(id, state.enabled);
        let checked_at =
            standing.and_then(|standing| standing.checked_at).filter(|_| asleep || now.catalog.part(id).is_some());
        if source.kind.is_builtin() && checked_at.is_some() {
            return Freshness::Fresh;
        }
        let freshness = Freshness::of(checked_at, source.settings.ttl(), self.options.clock.now());
        match freshness {
            Freshness::Fresh if standing.is_some_and(|standing| standing.invalidated) || now.moved(id) => {
                Freshness::Stale
            }
            Freshness::Fresh | Freshness::Stale | Freshness::Missing => freshness,
        }
    }
}

impl Snapshot {
    /// Whether what a source connects to is known to have changed since it was discovered.
    pub(crate) fn moved(&self, id: &SourceId) -> bool {
        let then = self.standings.get(id).and_then(|standing| standing.connects_to);
        self.connects_to.get(id).copied().flatten().is_some_and(|here| then != Some(here))
    }
}

/// How many tools of a source were offered at last, without those that a rule hides.
fn known_count(state: &SourceState, source: &Source) -> usize {
    let rules = &source.settings.tools;
    let hidden = |name: &str| rules.verdict(&[name], Verdict::Allow) == Verdict::Hide;
    state.tools.iter().filter(|(name, tool)| !tool.deprecated && !hidden(name)).count()
}

fn health(standing: &Standing, has_list: bool, link: &Link) -> Health {
    match (standing.failures, has_list) {
        _ if link.breaker.state == BreakerState::Open => Health::Down,
        (0, true) if link.failures > 0 => Health::Degraded,
        (0, true) => Health::Ok,
        (0, false) => Health::Unknown,
        (1 | 2, true) => Health::Degraded,
        _ => Health::Down,
    }
}

/// When the newest discovery began, if one ended at all.
fn tried_at(standing: &Standing) -> Option<Timestamp> {
    // One that a reader gave up has begun none that ended.
    let started_at = Some(standing.started_at).filter(|at| *at != Timestamp::default());
    started_at.or(standing.failing_since).filter(|_| standing.last_error.is_some())
}

/// The error of the last discovery, or of the last call that found the source ailing.
fn last_error(standing: &Standing, link: &Link) -> Option<Failure> {
    let of_calls = || link.failing.as_ref().map(|failing| failing.last_error.clone());
    standing.last_error.clone().or_else(of_calls)
}

fn failing_since(standing: &Standing, link: &Link) -> Option<Timestamp> {
    let of_calls = link.failing.as_ref().map(|failing| failing.since);
    standing.failing_since.into_iter().chain(of_calls).min()
}

/// A source whose declaration cannot be used: listed, with its reason.
fn invalid(id: &SourceId, failure: &Failure) -> SourceView {
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
        status: Status::Failed,
        freshness: Freshness::Missing,
        health: Health::Down,
        tool_count: 0,
        inventory_hash: None,
        config_hash: None,
        last_checked: None,
        last_error: Some(failure.clone()),
        ttl_ms: 0,
        discovery_timeout_ms: 0,
        connection: Connection::None,
        failures: 0,
        failing_since: None,
        breaker: BreakerView { state: BreakerState::Closed, retry_at: None },
        set_aside: Vec::new(),
    }
}
