//! Which tools and sources a principal may know of where no [`View`] is read: tools of disabled sources, removed tools,
//! records of the journal, outcomes of refreshes.
//!
//! A tool outside the principal's groups is left out, for everyone but administrators also a tool that is denied or hidden,
//! and so is a source that offers no other tool. Rules have no history: those in force decide about the past as well, and
//! those of the last declaration about a removed source. Of a tool that is not in the catalogue only its names are known;
//! what groups select by other properties does not have it then.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use toolcrib_catalog::{CatalogSource, Segment, View};
use toolcrib_core::access::Role;
use toolcrib_core::access_rules::{AccessScope, Audience, ToolFacts};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::history::ToolMatcher;
use toolcrib_core::inventory::{Event, Inventory, Record, ToolState};
use toolcrib_core::manifest::SkippedTool;
use toolcrib_core::policy::Verdict;
use toolcrib_core::principal::Principal;
use toolcrib_core::source::SourceKind;
use toolcrib_core::text::{WithheldNames, sanitize_truncated};
use toolcrib_core::tool::{ToolName, name_prefix};
use toolcrib_core::{Code, Error, Result, SourceId, ToolId};

use super::Registry;
use crate::call::CallFinished;
use crate::notice::SourceTransitionNotice;
use crate::refresh::{RefreshOutcome, RefreshStatus};
use crate::state::Snapshot;
use crate::store::ErrorSummary;

/// Message of an error whose own message is about tools that the reader may not know of.
const WITHHELD_ERROR: &str = "the reason is not available to this caller";

/// Tools and sources that a principal may know of, at one state of the registry. Cheap to make; see [`Registry::visibility`].
#[derive(Debug, Clone)]
pub struct Visibility {
    snapshot: Arc<Snapshot>,
    view: View,
    scope: Arc<AccessScope>,
    role: Role,
    /// Result of [`Visibility::leaves_out_tools`], which looks at every source.
    leaves_out_tools: OnceLock<bool>,
}

impl Registry {
    /// Returns what a principal may know of, now.
    pub fn visibility(&self, principal: &Principal) -> Visibility {
        Visibility::new(self.state.snapshot(), principal)
    }
}

impl Visibility {
    pub(crate) fn new(snapshot: Arc<Snapshot>, principal: &Principal) -> Visibility {
        let scope = snapshot.scope(principal);
        let view = View::for_scope(snapshot.catalog.clone(), &scope);
        Visibility { view, scope, snapshot, role: principal.role(), leaves_out_tools: OnceLock::new() }
    }

    /// Whether nothing is left out.
    pub fn is_full(&self) -> bool {
        self.scope.audience() == Audience::Administrators && !self.scope.limits_tools()
    }

    /// Whether the principal may read groups, access rules, policies and tokens.
    pub fn shows_rules(&self) -> bool {
        self.role == Role::Admin
    }

    /// The catalogue, as the principal may see it.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Sources of the catalogue that the principal may know of, also those without tools.
    pub fn sources(&self) -> impl Iterator<Item = &Arc<CatalogSource>> {
        self.snapshot.catalog.sources().filter(|source| self.shows_source(source.segment.source()))
    }

    /// The state that it was made from.
    pub(crate) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Returns the verdict on a tool that its source offers or offered, by the source's own name for it. A tool outside the
    /// principal's groups is hidden.
    pub(crate) fn verdict(&self, source: &SourceId, original_name: &str) -> Verdict {
        self.included_verdict(source, original_name).unwrap_or(Verdict::Hide)
    }

    /// Whether the principal may know of a tool, by the source's own name for it.
    pub fn shows_tool(&self, source: &SourceId, original_name: &str) -> bool {
        self.is_full()
            || self.included_verdict(source, original_name).is_some_and(|verdict| self.scope.shows_verdict(verdict))
    }

    /// Returns the verdict on a tool; `None` if it is outside the principal's groups.
    fn included_verdict(&self, source: &SourceId, original_name: &str) -> Option<Verdict> {
        let catalog_source = self.snapshot.catalog.source(source);
        let is_listed =
            |catalog_source: &&Arc<CatalogSource>| catalog_source.segment.position_of_original(original_name).is_some();
        if catalog_source.filter(is_listed).is_some() {
            let included = self.view.included_tool(source, original_name);
            // Without limits, only a tool that a built-in one shadows is not included.
            if included.is_some() || self.scope.limits_tools() {
                return included.map(|tool| tool.verdict());
            }
        }
        let source_verdict = self.unlisted_verdict(source, original_name);
        if !self.scope.has_rules() {
            return Some(source_verdict);
        }
        let inventory = &self.snapshot.inventory;
        let state = inventory.source(source).or_else(|| inventory.removed_source(source));
        let prefix = name_prefix(source, state.map_or("", |state| &state.kind));
        let plain = ToolName::from_original(&prefix, original_name);
        let hashed = ToolName::with_hash(&prefix, original_name);
        let facts = ToolFacts {
            source: source.as_str(),
            names: &[plain.as_str(), hashed.as_str()],
            original_name,
            details: None,
        };
        self.scope.includes(&facts).then(|| source_verdict.max(self.scope.policy_verdict(&facts)))
    }

    /// Returns the verdict of a source's own rules on a tool that is not in the catalogue.
    fn unlisted_verdict(&self, source: &SourceId, original_name: &str) -> Verdict {
        if let Some(catalog_source) = self.snapshot.catalog.source(source) {
            return catalog_source.options.unlisted_verdict(original_name, catalog_source.segment.prefix());
        }
        let inventory = &self.snapshot.inventory;
        let Some(state) = inventory.source(source) else {
            let is_withheld =
                inventory.removed_source(source).is_some_and(|state| state.withheld.contains(original_name));
            return if is_withheld { Verdict::Hide } else { Verdict::Allow };
        };
        let rules = self.snapshot.effective_sources.get(source).map(|source| &source.settings.tools);
        let prefix = name_prefix(source, &state.kind);
        rules.map_or(Verdict::Allow, |rules| rules.unlisted_verdict(&prefix, original_name, Verdict::Allow))
    }

    /// Returns the skipped tools of a source, without those that a rule keeps from the principal.
    pub(crate) fn skipped_tools(&self, id: &SourceId) -> Vec<SkippedTool> {
        // A skipped tool belongs to no group: nothing but its name is known.
        if self.scope.limits_tools() {
            return Vec::new();
        }
        let mut skipped = View::full(self.snapshot.catalog.clone()).skipped_tools(id);
        skipped.retain(|tool| self.shows_tool(id, &tool.name));
        skipped
    }

    /// Whether the principal may know of a source. One without any tools is shown, so that its state can be seen, unless its
    /// rules exclude every tool or the principal sees only the tools of groups. Of a removed source all tools count that
    /// it ever offered.
    pub fn shows_source(&self, id: &SourceId) -> bool {
        if self.is_full() || !self.restricts(id) {
            return true;
        }
        if self.snapshot.catalog.tool_count(id) > 0 {
            return self.view.source(id).is_some();
        }
        let inventory = &self.snapshot.inventory;
        let Some(state) = inventory.source(id) else {
            let removed = inventory.removed_source(id);
            return removed
                .map_or(!self.scope.limits_tools(), |state| state.tools.keys().any(|tool| self.shows_tool(id, tool)));
        };
        let mut known = state.tools.iter().filter(|(_, tool)| !tool.deprecated).map(|(name, _)| name).peekable();
        if known.peek().is_none() {
            if self.scope.limits_tools() {
                return false;
            }
            let source = self.snapshot.effective_sources.get(id);
            return source.is_none_or(|source| !source.settings.tools.exclude_everything())
                && !self.scope.withholds_source(id.as_str());
        }
        known.any(|name| self.shows_tool(id, name))
    }

    /// Finds the tool of an inventory, current or past, that a name means, among those that `filter` accepts. Tools that the
    /// principal may not know of do not exist for it.
    ///
    /// # Errors
    /// `FORBIDDEN` if the name means a denied tool and no other.
    pub(crate) fn match_tool(
        &self,
        inventory: &Inventory,
        name: &str,
        filter: impl Fn(&ToolState) -> bool,
    ) -> Result<ToolMatcher> {
        let is_visible = |id: &SourceId, tool: &str, state: &ToolState| filter(state) && self.shows_tool(id, tool);
        let found = ToolMatcher::find(inventory, name, is_visible)?;
        if self.is_full() || matches!(found, ToolMatcher::Tool(_)) {
            return Ok(found);
        }
        let is_denied =
            |id: &SourceId, tool: &str, state: &ToolState| filter(state) && self.verdict(id, tool) == Verdict::Deny;
        match ToolMatcher::find(inventory, name, is_denied) {
            Ok(ToolMatcher::Tool(ToolId { source, name })) => {
                let message = format!("`{}` of `{source}` is denied", sanitize_truncated(&name, 80));
                Err(Error::new(Code::Forbidden, message))
            }
            Ok(ToolMatcher::Name(_)) | Err(_) => Ok(found),
        }
    }

    /// Whether tools of a source may be left out, because the principal sees only groups, or a rule is against some.
    pub fn restricts(&self, id: &SourceId) -> bool {
        if self.is_full() {
            return false;
        }
        if self.scope.limits_tools() || self.scope.withholds_by_policy() {
            return true;
        }
        if self.scope.audience() == Audience::Administrators {
            return false;
        }
        if let Some(catalog_source) = self.snapshot.catalog.source(id) {
            return catalog_source.options.leaves_out_tools();
        }
        match self.snapshot.effective_sources.get(id) {
            Some(source) => source.settings.tools.lists().flatten().any(|rule| rule.verdict >= Verdict::Deny),
            None => self.snapshot.inventory.removed_source(id).is_some_and(|state| !state.withheld.is_empty()),
        }
    }

    /// Whether tools of any source may be left out; see [`Visibility::restricts`].
    pub fn leaves_out_tools(&self) -> bool {
        *self.leaves_out_tools.get_or_init(|| {
            let declared = self.snapshot.inventory.all_source_ids();
            let mut sources = declared.chain(self.snapshot.catalog.sources().map(|source| source.segment.source()));
            !self.is_full() && (self.scope.limits_tools() || sources.any(|id| self.restricts(id)))
        })
    }

    /// Returns the error for an unknown source, with a suggestion among those that the principal may know of.
    pub fn unknown_source_error(&self, name: &str) -> Error {
        self.snapshot.unknown_source_error(name, |id| self.shows_source(id))
    }

    /// Returns the fingerprint of the tools of a source, as far as the principal sees them.
    pub(crate) fn inventory_hash(&self, id: &SourceId) -> Option<Fingerprint> {
        let catalog_source = self.snapshot.catalog.source(id);
        let manifest = catalog_source
            .map(|source| source.segment.fingerprint())
            .or_else(|| self.snapshot.inventory.source(id)?.manifest)?;
        if !self.restricts(id) {
            return Some(manifest);
        }
        // The list of a disabled source is not loaded.
        catalog_source.map(|source| source.segment.packed().restrict(|name| self.shows_tool(id, name)).fingerprint)
    }

    /// Returns the tools of a segment that the principal may know of.
    pub(crate) fn restrict_segment(&self, segment: &Arc<Segment>) -> Arc<Segment> {
        let id = segment.source();
        if !self.restricts(id) {
            return segment.clone();
        }
        Arc::new(segment.restrict(|name| self.shows_tool(id, name)))
    }

    /// Returns a record without the tools that the principal may not know of; `None` if it is about nothing else.
    pub fn restrict_record<'r>(&self, record: &'r Record) -> Option<Cow<'r, Record>> {
        Some(match self.restrict_event(&record.event)? {
            Cow::Borrowed(_) => Cow::Borrowed(record),
            Cow::Owned(event) => {
                let Record { seq, at, actor, .. } = record;
                Cow::Owned(Record { seq: *seq, at: *at, actor: actor.clone(), event })
            }
        })
    }

    fn restrict_event<'e>(&self, event: &'e Event) -> Option<Cow<'e, Event>> {
        // Definitions of rules name tools. Those of tokens name groups, which tell of rules.
        if event.rule().is_some() && !self.shows_rules() {
            return None;
        }
        if matches!(event, Event::TokenCreated { .. } | Event::TokenChanged { .. } | Event::TokenRevoked { .. })
            && self.scope.limits_tools()
            && !self.shows_rules()
        {
            return None;
        }
        let Some(source) = event.source().filter(|source| self.restricts(source)) else {
            return Some(Cow::Borrowed(event));
        };
        let is_visible = |name: &String| self.shows_tool(source, name);
        match event {
            _ if !self.shows_source(source) => None,
            Event::ToolEnabled { tool, .. } | Event::ToolDisabled { tool, .. } => {
                is_visible(tool).then_some(Cow::Borrowed(event))
            }
            Event::SourceRemoved { source, .. } => {
                Some(Cow::Owned(Event::SourceRemoved { source: source.clone(), withheld: Vec::new() }))
            }
            Event::InventoryRecorded { source, fingerprint, added, changed, removed, renamed } => {
                let mut added = added.clone();
                added.retain(is_visible);
                let mut changed = changed.clone();
                changed.retain(|change| is_visible(&change.name));
                let mut removed = removed.clone();
                removed.retain(is_visible);
                let mut renamed = renamed.clone();
                renamed.retain(|renamed| is_visible(&renamed.from) && is_visible(&renamed.to));
                let is_empty = added.is_empty() && changed.is_empty() && removed.is_empty();
                let (source, fingerprint) = (source.clone(), *fingerprint);
                let event = Event::InventoryRecorded { source, fingerprint, added, changed, removed, renamed };
                (!is_empty).then_some(Cow::Owned(event))
            }
            Event::SourceDeclared { .. }
            | Event::SourceChanged { .. }
            | Event::SourceEnabled { .. }
            | Event::SourceDisabled { .. }
            | Event::FeaturesRecorded { .. }
            | Event::TokenCreated { .. }
            | Event::TokenChanged { .. }
            | Event::TokenRevoked { .. }
            | Event::GroupDefined { .. }
            | Event::GroupRemoved { .. }
            | Event::AccessRuleDefined { .. }
            | Event::AccessRuleRemoved { .. }
            | Event::PolicyDefined { .. }
            | Event::PolicyRemoved { .. }
            | Event::DamageAccepted { .. }
            | Event::Unknown => Some(Cow::Borrowed(event)),
        }
    }

    /// Returns the outcome of a refresh without the tools that the principal may not know of; `None` for a source that it
    /// may not know of.
    pub fn restrict_outcome(&self, mut outcome: RefreshOutcome) -> Option<RefreshOutcome> {
        let id = outcome.source.clone();
        if !self.restricts(&id) {
            return Some(outcome);
        }
        if !self.shows_source(&id) {
            return None;
        }
        let left_out = self.left_out_names(&id);
        let changed = outcome.changed.iter().map(|change| change.name.as_str());
        let new: HashSet<&str> = outcome.added.iter().map(String::as_str).chain(changed).collect();
        let listed = self.snapshot.catalog.source(&id).map(|source| &source.segment);
        let listed = listed.into_iter().flat_map(|segment| segment.entries()).map(|entry| entry.name.as_str());
        let unchanged = listed.filter(|name| left_out.contains(*name) && !new.contains(name)).count();
        outcome.unchanged = outcome.unchanged.saturating_sub(unchanged);
        outcome.added.retain(|name| !left_out.contains(name));
        outcome.changed.retain(|change| !left_out.contains(&change.name));
        outcome.removed.retain(|name| !left_out.contains(name));
        outcome.renamed.retain(|renamed| !left_out.contains(&renamed.from) && !left_out.contains(&renamed.to));
        outcome.inventory_hash = self.inventory_hash(&id);
        outcome.error = outcome.error.map(|error| self.restrict_error(&id, error));
        let has_changes = !outcome.added.is_empty() || !outcome.changed.is_empty() || !outcome.removed.is_empty();
        if outcome.status == RefreshStatus::Success && !has_changes && outcome.features.is_none() {
            outcome.status = RefreshStatus::Unchanged;
        }
        Some(outcome)
    }

    /// Returns the error of a discovery without the sentences that name a tool that the principal may not know of.
    pub(crate) fn restrict_error(&self, id: &SourceId, error: ErrorSummary) -> ErrorSummary {
        if !self.restricts(id) {
            return error;
        }
        let message = self.withheld_names(id).remove_mentions(&error.message);
        let message = if message.is_empty() { WITHHELD_ERROR.to_owned() } else { message };
        ErrorSummary { message, ..error }
    }

    /// Returns the error of an invalid declaration, without its text if that may quote the name of a withheld tool.
    pub(crate) fn restrict_config_error(&self, id: &SourceId, error: ErrorSummary) -> ErrorSummary {
        if error.code == Code::ConfigInvalid && self.restricts(id) {
            return ErrorSummary { message: WITHHELD_ERROR.to_owned(), ..error };
        }
        error
    }

    /// Returns the error of a call. Its text is left out if the principal may not know of the tool, by the source's own
    /// name, or if it may name tools of other sources: that of a workflow names those of its steps.
    pub(crate) fn restrict_call_error(&self, id: &SourceId, tool: Option<&str>, error: ErrorSummary) -> ErrorSummary {
        let source = self.snapshot.effective_sources.get(id);
        let is_workflow = source.is_some_and(|source| matches!(source.kind, SourceKind::Workflow(_)));
        if tool.is_some_and(|tool| !self.shows_tool(id, tool)) || (is_workflow && self.leaves_out_tools()) {
            return ErrorSummary { message: WITHHELD_ERROR.to_owned(), ..error };
        }
        error
    }

    /// Returns a change of a source between working and failing, with its error as far as the principal may read it;
    /// `None` for a source that it may not know of.
    pub fn restrict_transition<'n>(
        &self,
        notice: &'n SourceTransitionNotice,
    ) -> Option<Cow<'n, SourceTransitionNotice>> {
        let source = &notice.source;
        if !self.shows_source(source) {
            return None;
        }
        if !self.restricts(source) {
            return Some(Cow::Borrowed(notice));
        }
        let error = notice.error.clone().map(|error| self.restrict_error(source, error));
        Some(Cow::Owned(SourceTransitionNotice::new(
            source.clone(),
            notice.transition,
            notice.at,
            error,
            notice.failing_since,
        )))
    }

    /// Whether the principal may know of a finished call. A call to a hidden tool is recorded like one to an unknown name.
    pub fn shows_call(&self, call: &CallFinished) -> bool {
        self.shows_called_tool(call.source.as_ref(), &call.tool)
    }

    /// Whether the principal may know of calls of a tool, by its source and its name as in [`CallFinished`].
    pub fn shows_called_tool(&self, source: Option<&SourceId>, tool: &str) -> bool {
        let Some(source) = source else {
            // The unknown name may be that of a tool that this principal may not know of.
            return !self.leaves_out_tools();
        };
        !self.restricts(source) || (self.shows_source(source) && self.shows_tool_name(source, tool))
    }

    /// Whether the principal may know of a current or removed tool of a source, by its name in the catalogue.
    fn shows_tool_name(&self, id: &SourceId, name: &str) -> bool {
        let segment = self.snapshot.catalog.source(id).map(|source| &source.segment);
        let position = segment.and_then(|segment| segment.position_of_name(name));
        let listed = segment.zip(position).and_then(|(segment, at)| Some((segment, segment.entries().get(at)?)));
        match listed {
            Some((segment, entry)) => self.shows_tool(id, segment.original_name(entry)),
            None => !self.left_out_names(id).contains(name),
        }
    }

    /// Returns the instructions of a source's server, without the sentences that name a tool that the principal may not
    /// know of. `None` for a source that it may not know of.
    pub fn instructions(&self, id: &SourceId) -> Option<String> {
        let features = self.snapshot.catalog.source(id).filter(|_| self.shows_source(id))?.features.as_ref()?;
        let instructions = features.summary.instructions.as_deref()?;
        if !self.restricts(id) {
            return Some(instructions.to_owned());
        }
        let instructions = self.withheld_names(id).remove_mentions(instructions);
        Some(instructions).filter(|instructions| !instructions.is_empty())
    }

    /// Names of the tools that the principal may not know of: in the catalogue, without prefix, and their own ones.
    fn withheld_names(&self, id: &SourceId) -> WithheldNames {
        let inventory = &self.snapshot.inventory;
        let state = inventory.source(id).or_else(|| inventory.removed_source(id));
        let recorded = state.into_iter().flat_map(|state| state.tools.keys()).map(String::as_str);
        let segment = self.snapshot.catalog.source(id).map(|source| &source.segment);
        let entries =
            segment.into_iter().flat_map(|segment| segment.entries().iter().map(move |entry| (segment, entry)));
        let listed = entries.map(|(segment, entry)| segment.original_name(entry));
        let own_names = recorded.chain(listed).filter(|name| !self.shows_tool(id, name)).map(str::to_owned);
        let prefix = name_prefix(id, state.map_or("", |state| &state.kind));
        let names = self.left_out_names(id).into_iter();
        let names = names.flat_map(|name| [name.strip_prefix(&prefix).unwrap_or_default().to_owned(), name]);
        names.chain(own_names).collect()
    }

    /// Names, as in the catalogue, of the current and removed tools of a source that the principal may not know of.
    fn left_out_names(&self, id: &SourceId) -> HashSet<String> {
        let inventory = &self.snapshot.inventory;
        let state = inventory.source(id).or_else(|| inventory.removed_source(id));
        let names = self.snapshot.tool_names(id);
        let recorded = state.into_iter().flat_map(|state| state.tools.keys()).filter(|name| !self.shows_tool(id, name));
        let recorded = recorded.map(|name| names.name(name).to_string());
        // The tools of a source that the environment declares are not in the inventory.
        let segment = self.snapshot.catalog.source(id).map(|source| &source.segment);
        let entries =
            segment.into_iter().flat_map(|segment| segment.entries().iter().map(move |entry| (segment, entry)));
        let listed = entries.filter(|(segment, entry)| !self.shows_tool(id, segment.original_name(entry)));
        recorded.chain(listed.map(|(_, entry)| entry.name.to_string())).collect()
    }
}
