//! [`Snapshot`]: the immutable state that readers see, and the questions it answers about sources.
//!
//! Everything here is decided in memory, from one version of the state: which sources are enabled, how fresh their
//! lists are, whether they may be contacted. Time is an argument.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use toolcrib_catalog::{Catalog, View};
use toolcrib_config::{ConfigDiagnostic, OverridableSource, Override, Overrides, overrides_from_env, resolve_settings};
use toolcrib_core::access::Role;
use toolcrib_core::access_rules::{AccessScope, NamedRule};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::freshness::{Freshness, MAX_BACKOFF};
use toolcrib_core::inventory::{Inventory, Origin, SourceState};
use toolcrib_core::principal::Principal;
use toolcrib_core::source::SourceKind;
use toolcrib_core::text::closest_match;
use toolcrib_core::{Code, Error, Result, Source, SourceId, Timestamp};

use super::connection_fingerprints::ConnectionFingerprint;
use super::damage::JournalDamage;
use super::journal::Journal;
use super::newer_records::NewerRecord;
use crate::secret::resolve_variables;
use crate::store::{ErrorSummary, JournalPosition, RememberedHead, SourceStatus};

/// Time after which prompts and resources of a source have been read, or have failed. With a margin: the connector ends
/// at the timeout, and the result is recorded after it.
pub(crate) fn list_timeout(source: &Source) -> Duration {
    const MARGIN: Duration = Duration::from_secs(10);
    source.settings.discovery_timeout().saturating_add(MARGIN)
}

/// Immutable state that readers see; replaced as a whole.
///
/// More than twelve fields, because readers need one consistent state of all of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) inventory: Arc<Inventory>,
    /// Each source as it was declared.
    pub(crate) declared_sources: Arc<BTreeMap<SourceId, Arc<Source>>>,
    /// Each source with the default settings and this process's overrides applied.
    pub(crate) effective_sources: Arc<BTreeMap<SourceId, Arc<Source>>>,
    /// Result of the latest discoveries of each source.
    pub(crate) statuses: Arc<BTreeMap<SourceId, SourceStatus>>,
    /// Connection data of each trusted source, as a hash.
    pub(super) connection_fingerprints: Arc<BTreeMap<SourceId, ConnectionFingerprint>>,
    /// Sources whose configuration is invalid, or that are blocked and unknown to the store.
    pub(crate) invalid_sources: Arc<BTreeMap<SourceId, ErrorSummary>>,
    /// Newest records of the journal, up to the inventory's version.
    pub(crate) journal: Arc<Journal>,
    /// A critical record that only a newer Toolcrib understands. While it is set, calls and writes are refused.
    pub(crate) newer_record: Option<Arc<NewerRecord>>,
    /// Whether a critical record about groups, access rules or policies is among those that only a newer Toolcrib
    /// understands.
    pub(crate) has_newer_rules: bool,
    /// Rules of the configuration that could not be written to the journal yet.
    pub(crate) pending_rules: Option<Arc<Vec<NamedRule>>>,
    /// Damage of the journal. While it is set, calls and writes are refused.
    pub(crate) damage: Option<Arc<JournalDamage>>,
    /// Sequence number and checksum of the last record that was applied.
    pub(crate) position: JournalPosition,
    /// Sources that must not be contacted, each with the reason; derived from the trust and the declared sources.
    pub(crate) blocked_sources: Arc<BTreeMap<SourceId, String>>,
    /// Overrides of single sources by the environment of this process.
    pub(crate) environment: EnvironmentOverrides,
    /// Label of this node, which decides which sources it may start.
    pub(crate) node_label: Arc<str>,
}

/// Overrides of single sources by the environment of this process. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct EnvironmentOverrides {
    /// Variables named `TOOLCRIB_SOURCE_…`.
    variables: Arc<[(String, String)]>,
    /// Overrides of the declared sources, and errors for variables that cannot be used.
    overrides: Arc<Overrides>,
    /// `enabled` of the sources that refer to a variable for it, as long as no command says otherwise.
    resolved_enabled: Arc<BTreeMap<SourceId, bool>>,
    /// Sources that only the environment declares, each with a state as if it had been declared.
    declared: Arc<BTreeMap<SourceId, (Arc<Source>, SourceState)>>,
}

impl EnvironmentOverrides {
    pub(crate) fn new(variables: &[(String, String)]) -> EnvironmentOverrides {
        EnvironmentOverrides { variables: variables.into(), ..EnvironmentOverrides::default() }
    }

    /// Returns the overrides for these sources: those that the journal declares, with their definitions. `names` are the
    /// names that the configuration gives them.
    pub(crate) fn for_sources<'a>(
        &self,
        definitions: impl Iterator<Item = &'a Arc<Source>> + Clone,
        names: &BTreeMap<SourceId, String>,
    ) -> EnvironmentOverrides {
        let referring = definitions.clone().filter(|source| source.settings.references.contains_key("enabled"));
        let enabled = referring.map(|source| {
            let (settings, _) = resolve_settings(&source.settings, &resolve_variables);
            // A source is not started on a guess.
            (source.id.clone(), settings.enabled.unwrap_or(false))
        });
        // Usually there are no variables, and then nothing has to be looked up.
        let overrides = if self.variables.is_empty() {
            Overrides::default()
        } else {
            let sources = definitions.map(|source| OverridableSource {
                id: &source.id,
                kind: &source.kind,
                name: names.get(&source.id).map(String::as_str),
            });
            overrides_from_env(self.variables.iter().cloned(), sources)
        };
        let declared = overrides.declared.iter().map(|(id, source)| {
            let definition = Fingerprint::digest(id.as_str());
            let enabled = source.settings.enabled;
            let state = SourceState::new(source.kind.name(), Origin::Runtime, definition, enabled);
            (id.clone(), (Arc::new(source.clone()), state))
        });
        EnvironmentOverrides {
            variables: self.variables.clone(),
            resolved_enabled: Arc::new(enabled.collect()),
            declared: Arc::new(declared.collect()),
            overrides: Arc::new(overrides),
        }
    }

    /// Returns the sources that only the environment declares.
    pub(crate) fn declared(&self) -> &BTreeMap<SourceId, (Arc<Source>, SourceState)> {
        &self.declared
    }

    /// Fails for a source that only the environment declares, which no command can change.
    pub(crate) fn ensure_not_declared(&self, id: &SourceId) -> Result<()> {
        let Some((source, _)) = self.declared.get(id) else { return Ok(()) };
        let setting = if matches!(source.kind, SourceKind::Stdio(_)) { "COMMAND" } else { "URL" };
        let variable = format!("TOOLCRIB_SOURCE_{}_{setting}", id.as_str().to_ascii_uppercase());
        let message = format!("`{id}` is declared by the environment variable `{variable}`; change that instead");
        Err(Error::new(Code::Conflict, message).with_retryable(false))
    }

    /// Returns what the environment overrides of a source.
    pub(crate) fn get(&self, id: &SourceId) -> Option<&Override> {
        self.overrides.by_source.get(id)
    }

    /// Whether a source is enabled in this process: by its variable, else by the last command, else by its declaration.
    pub(crate) fn is_enabled(&self, id: &SourceId, state: &SourceState) -> bool {
        let by_variable = self.get(id).and_then(|overrides| overrides.enabled);
        by_variable.unwrap_or_else(|| match self.resolved_enabled.get(id) {
            Some(resolved) => state.switched.unwrap_or(*resolved),
            None => state.enabled,
        })
    }

    /// Whether the URL, the command or the token of a source is overridden, so that its discoveries hold for this
    /// process alone.
    pub(crate) fn changes_connection(&self, id: &SourceId) -> bool {
        self.get(id).is_some_and(Override::changes_connection)
    }

    /// Returns an error for each variable that cannot be used, such as one with a misspelt name.
    pub(crate) fn errors(&self) -> &[ConfigDiagnostic] {
        &self.overrides.errors
    }
}

impl Snapshot {
    /// Returns the enabled sources, ordered by id.
    pub(crate) fn enabled_sources(&self) -> impl Iterator<Item = (&SourceId, &Arc<SourceState>)> {
        self.inventory.sources().filter(|(id, state)| self.environment.is_enabled(id, state))
    }

    /// Whether a source is known and enabled in this process.
    pub(crate) fn is_enabled(&self, id: &SourceId) -> bool {
        self.inventory.source(id).is_some_and(|state| self.environment.is_enabled(id, state))
    }

    /// Returns the status of a source; the default if it was never discovered.
    pub(crate) fn source_status(&self, id: &SourceId) -> SourceStatus {
        self.statuses.get(id).cloned().unwrap_or_default()
    }

    /// Fails while the journal is damaged.
    pub(crate) fn ensure_undamaged(&self) -> Result<()> {
        match &self.damage {
            Some(damage) => Err(damage.to_error()),
            None => Ok(()),
        }
    }

    /// Fails while the journal is damaged or holds a critical record that this build does not understand.
    pub(crate) fn ensure_usable(&self) -> Result<()> {
        self.ensure_undamaged()?;
        match &self.newer_record {
            Some(newer) => Err(newer.to_error()),
            None => Ok(()),
        }
    }

    /// Whether rules may exist that are not among those of the inventory, or that cannot be read as they are now.
    pub(crate) fn may_lack_rules(&self) -> bool {
        let is_incomplete = self.damage.is_some() || self.newer_record.is_some();
        self.has_newer_rules
            || self.pending_rules.is_some()
            || self.damage.as_ref().is_some_and(|damage| damage.may_hide_rules())
            // A lost record, or a newer one of another type, may be about the rules that exist.
            || (is_incomplete && !self.inventory.rules().is_empty())
    }

    /// Returns what the head file has to tell about this state.
    pub(crate) fn remembered_head(&self) -> RememberedHead {
        RememberedHead { position: self.position.clone(), has_rules: !self.inventory.rules().is_empty() }
    }

    /// Returns what holds for a principal. Where rules may exist that cannot be read, only administrators see tools.
    pub(crate) fn scope(&self, principal: &Principal) -> Arc<AccessScope> {
        if self.may_lack_rules() && principal.role() != Role::Admin {
            return AccessScope::nothing();
        }
        self.inventory.rules().scope(principal)
    }

    /// Returns the catalogue as a principal may see it.
    pub(crate) fn view(&self, principal: &Principal) -> View {
        View::for_scope(self.catalog.clone(), &self.scope(principal))
    }

    /// Fails when a source is blocked because its configuration file is not trusted.
    pub(crate) fn ensure_trusted(&self, id: &SourceId) -> Result<()> {
        let Some(reason) = self.blocked_sources.get(id) else { return Ok(()) };
        // A source of the same name that was added by command is the user's own: the untrusted file must not disable
        // it.
        if self.inventory.source(id).is_some_and(|state| state.origin == Origin::Runtime) {
            return Ok(());
        }
        Err(Error::new(Code::Forbidden, reason.clone()))
    }

    /// Fails when other nodes start a source and this one does not. Retryable, since a load balancer may send the next
    /// attempt to one of them.
    pub(crate) fn ensure_may_start(&self, id: &SourceId) -> Result<()> {
        let Some(source) = self.effective_sources.get(id) else { return Ok(()) };
        let nodes = &source.settings.nodes;
        if source.settings.is_allowed_on(&self.node_label) {
            return Ok(());
        }
        let (noun, this) = (if nodes.len() == 1 { "node" } else { "nodes" }, &self.node_label);
        let labels: Vec<String> = nodes.iter().map(|label| format!("`{label}`")).collect();
        let message = format!("`{id}` runs on the {noun} {} only; this node is `{this}`", labels.join(", "));
        let details = json!({ "nodes": nodes, "node": **this });
        Err(Error::new(Code::ToolUnavailable, message).with_details(details))
    }

    /// Fails when a source must not be contacted: the journal is unusable, the source is not trusted, or it runs on
    /// other nodes.
    pub(crate) fn ensure_can_contact(&self, id: &SourceId) -> Result<()> {
        self.ensure_usable()?;
        self.ensure_trusted(id)?;
        self.ensure_may_start(id)
    }

    /// Whether this process may read what a source connects with: it is trusted, and may run on this node.
    pub(super) fn may_read_references(&self, source: &Source) -> bool {
        self.ensure_trusted(&source.id).is_ok() && source.settings.is_allowed_on(&self.node_label)
    }

    /// Returns the freshness of a source's tool list: by age, but stale if it was invalidated or the connection data
    /// changed. Built-in tools are part of this process and never become stale.
    pub(crate) fn freshness(&self, id: &SourceId, now: Timestamp) -> Freshness {
        let (Some(source), Some(state)) = (self.effective_sources.get(id), self.inventory.source(id)) else {
            return Freshness::Missing;
        };
        let status = self.statuses.get(id);
        // A manifest that cannot be loaded counts as missing; that of a disabled source is not loaded.
        let is_disabled = state.manifest.is_some() && !self.environment.is_enabled(id, state);
        let checked_at =
            status.and_then(|status| status.checked_at).filter(|_| is_disabled || self.catalog.source(id).is_some());
        if source.kind.is_builtin() && checked_at.is_some() {
            return Freshness::Fresh;
        }
        let freshness = Freshness::evaluate(checked_at, source.settings.ttl(), now);
        match freshness {
            Freshness::Fresh if status.is_some_and(|status| status.invalidated) || self.has_connection_changed(id) => {
                Freshness::Stale
            }
            Freshness::Fresh | Freshness::Stale | Freshness::Missing => freshness,
        }
    }

    /// Whether a source must be contacted for a reader that wants fresh lists: its tool list is not fresh, or the process
    /// that discovered it ended before it had read prompts and resources.
    pub(crate) fn is_due(&self, id: &SourceId, now: Timestamp) -> bool {
        self.freshness(id, now) != Freshness::Fresh || self.has_unread_lists(id, now)
    }

    /// Whether prompts and resources of a source were not read to the end, and no process is reading them.
    pub(crate) fn has_unread_lists(&self, id: &SourceId, now: Timestamp) -> bool {
        let Some(source) = self.effective_sources.get(id) else { return false };
        let pending_until = self.statuses.get(id).and_then(|status| status.lists_pending_until);
        // A longer time than the maximum was stored before the wall clock was set back.
        let latest = now.plus(list_timeout(source));
        pending_until.is_some_and(|until| until <= now || until > latest)
    }

    /// Whether a source's connection data (address, command, credentials) is known to have changed since its discovery.
    /// False if the current fingerprint is unknown because a reference cannot be resolved here: the list then stays as
    /// fresh as its age says.
    pub(crate) fn has_connection_changed(&self, id: &SourceId) -> bool {
        let discovered = self.statuses.get(id).and_then(|status| status.connection_fingerprint);
        self.connection_fingerprint(id).is_some_and(|current| discovered != Some(current))
    }

    /// Whether a failed source is still in its backoff period.
    pub(crate) fn is_backing_off(&self, id: &SourceId, now: Timestamp) -> bool {
        let not_before = self.statuses.get(id).and_then(|status| status.not_before);
        // A longer backoff than the maximum was stored before the wall clock was set back, and is ignored.
        let retry_at = not_before.filter(|not_before| *not_before <= now.plus(MAX_BACKOFF));
        self.has_failed_before(id) && retry_at.is_some_and(|not_before| not_before > now)
    }

    /// Whether the last discovery of a source failed. A failure with other connection data (address, credentials) than
    /// now does not count.
    pub(crate) fn has_failed_before(&self, id: &SourceId) -> bool {
        let Some(status) = self.statuses.get(id) else { return false };
        let current = self.connection_fingerprint(id);
        status.failures > 0 && current.is_none_or(|current| status.attempted_fingerprint == Some(current))
    }

    /// Returns the error for an unknown source, with a suggestion. Suggests the most similar name of those that
    /// `is_visible` accepts, or else the command that lists all.
    pub(crate) fn unknown_source_error(&self, name: &str, is_visible: impl Fn(&SourceId) -> bool) -> Error {
        // The missing source may be among the lost records of a damaged journal: report the damage instead.
        if let Err(damaged) = self.ensure_undamaged() {
            return damaged;
        }
        let visible = self.inventory.sources().map(|(id, _)| id).filter(|id| is_visible(id));
        let near = closest_match(name, visible.map(SourceId::as_str));
        let message = format!("no source named `{name}`");
        match near {
            Some(near) => Error::new(Code::NotFound, format!("{message}; did you mean `{near}`?")),
            None => {
                let error = Error::new(Code::NotFound, message);
                error.with_next_step("toolcrib sources", "GET /api/sources", "lists them")
            }
        }
    }
}
