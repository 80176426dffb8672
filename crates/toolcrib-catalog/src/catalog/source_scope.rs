//! Visible tools of one source in an [`AccessScope`], and the verdicts of policies on them.
//!
//! Computed once per source and scope, and kept with the source. A new catalogue shares the sources that did not change,
//! and with them these results; a changed group or policy is matched again, the others are not.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use toolcrib_core::access_rules::{AccessScope, Audience, Defined, Group, Match, ScopePolicy, ToolDetails, ToolFacts};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::policy::Verdict;

use super::view_key::SourceDigests;
use super::{CatalogSource, ToolRef};

/// Maximum number of scopes that a source keeps results for. More callers with different scopes than that make each
/// other compute again.
pub(super) const MAX_CACHED_SCOPES: usize = 1_024;
/// Maximum number of groups and policies that a source keeps matches for.
const MAX_CACHED_MATCHES: usize = 4_096;

/// Sorted positions of entries, or `None` for all entries of the segment.
pub(super) type Positions = Option<Arc<[u32]>>;

/// Tools of one source in a scope.
#[derive(Debug, Default)]
pub(super) struct SourceScope {
    /// Entries that groups and other limits leave in, whatever their verdict; without shadowed ones unless it is `None`.
    pub(super) included: Positions,
    /// Those of them that the audience sees.
    pub(super) visible: Positions,
    /// Strictest verdict of all policies on each entry; `None` if it is `allow` for all.
    pub(super) policy_verdicts: Option<Arc<[Verdict]>>,
    /// Digests of what is visible.
    pub(super) digests: OnceLock<SourceDigests>,
}

/// Results of a source that are kept with it.
#[derive(Debug, Default)]
pub(super) struct ScopeCaches {
    scopes: CopyOnWriteCache<ScopeKey, SourceScope>,
    /// Entries that a group or policy matches, by the fingerprint of its definition.
    matches: CopyOnWriteCache<Fingerprint, PositionSet>,
}

/// Key of a result.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ScopeKey {
    scope: Fingerprint,
    /// Entries that are left out because built-in tools have their names, which depends on the catalogue.
    shadowed: Vec<usize>,
}

/// Set of positions in a segment, as bits.
#[derive(Debug, Clone, Default)]
struct PositionSet(Vec<u64>);

/// Bounded map whose readers take no lock: an insert copies the map. Emptied when it is full.
#[derive(Debug)]
pub(super) struct CopyOnWriteCache<K, V>(ArcSwap<HashMap<K, Arc<V>>>);

impl CatalogSource {
    /// Returns what a scope makes of this source. `shadowed` are the entries that the catalogue leaves out.
    pub(super) fn scope(&self, scope: &AccessScope, shadowed: &[usize]) -> Arc<SourceScope> {
        if !scope.only_globs().is_empty() {
            // Clients choose the globs. Their masks are kept, see `ViewCaches`, but displace no results of other scopes.
            return Arc::new(SourceScope::new(self, scope, shadowed));
        }
        let cache = &self.scope_caches.scopes;
        let key = ScopeKey { scope: scope.key(), shadowed: shadowed.to_vec() };
        cache.get_or_insert(key, MAX_CACHED_SCOPES, || SourceScope::new(self, scope, shadowed))
    }

    /// Entries that belong to a group.
    fn group_positions(&self, group: &Defined<Group>) -> Arc<PositionSet> {
        self.matching_positions(group.fingerprint, |tool| group.definition.matches(tool) == Match::Yes)
    }

    /// Entries that a policy is about.
    fn policy_positions(&self, policy: &ScopePolicy) -> Arc<PositionSet> {
        self.matching_positions(policy.fingerprint, |tool| policy.matches(tool))
    }

    fn matching_positions(&self, rule: Fingerprint, matches: impl Fn(&ToolFacts<'_>) -> bool) -> Arc<PositionSet> {
        self.scope_caches.matches.get_or_insert(rule, MAX_CACHED_MATCHES, || {
            let tools = (0..self.segment.entries().len()).map(|position| self.tool_ref(position));
            let matching = tools.enumerate().filter(|(_, tool)| tool.with_facts(&matches));
            PositionSet::from_positions(self.segment.entries().len(), matching.map(|(position, _)| position))
        })
    }

    /// The entry at a position, without policies.
    fn tool_ref(&self, position: usize) -> ToolRef<'_> {
        ToolRef { catalog_source: self, entry: &self.segment.entries()[position], policy_verdict: Verdict::Allow }
    }

    /// Whether the tool at a position belongs to a group.
    pub(super) fn is_in_group(&self, position: usize, group: &Defined<Group>) -> bool {
        self.group_positions(group).contains(position)
    }
}

impl SourceScope {
    fn new(source: &CatalogSource, scope: &AccessScope, shadowed: &[usize]) -> SourceScope {
        let count = source.segment.entries().len();
        let policy_verdicts = policy_verdicts(source, scope);
        let included: Positions = scope.limits_tools().then(|| {
            let mut set = match scope.groups() {
                Some(groups) => groups.iter().fold(PositionSet::empty(count), |mut set, group| {
                    set.add(&source.group_positions(group));
                    set
                }),
                None => PositionSet::all(count),
            };
            if let Some(group) = scope.endpoint_group() {
                set.retain(&source.group_positions(group));
            }
            let accepts_name = |position: &usize| {
                scope.only_globs().is_empty() || source.tool_ref(*position).with_facts(|tool| scope.accepts_name(tool))
            };
            let positions = set.iter().filter(|position| shadowed.binary_search(position).is_err());
            positions.filter(accepts_name).map(|position| position as u32).collect()
        });
        let visible = visible_positions(source, scope.audience(), shadowed, &included, policy_verdicts.as_deref());
        // As long as nothing is left out, the positions need not be kept.
        let is_all = |positions: &Positions| positions.as_ref().is_some_and(|positions| positions.len() == count);
        SourceScope {
            included: if is_all(&included) { None } else { included },
            visible: if is_all(&visible) { None } else { visible },
            policy_verdicts,
            digests: OnceLock::new(),
        }
    }

    /// Strictest verdict of all policies on the entry at a position.
    pub(super) fn policy_verdict(&self, position: usize) -> Verdict {
        self.policy_verdicts.as_ref().and_then(|verdicts| verdicts.get(position)).copied().unwrap_or_default()
    }

    /// Whether the source is as it is without rules.
    pub(super) fn is_unrestricted(&self) -> bool {
        self.included.is_none() && self.visible.is_none() && self.policy_verdicts.is_none()
    }
}

/// Returns the strictest verdict of all policies on each entry; `None` if it is `allow` for all.
fn policy_verdicts(source: &CatalogSource, scope: &AccessScope) -> Option<Arc<[Verdict]>> {
    let mut verdicts: Vec<Verdict> = Vec::new();
    for policy in scope.policies() {
        let positions = source.policy_positions(policy);
        if verdicts.is_empty() && !positions.is_empty() {
            verdicts.resize(source.segment.entries().len(), Verdict::Allow);
        }
        for position in positions.iter() {
            verdicts[position] = verdicts[position].max(policy.verdict());
        }
    }
    (!verdicts.is_empty()).then(|| verdicts.into())
}

/// Returns the included entries that an audience sees.
fn visible_positions(
    source: &CatalogSource,
    audience: Audience,
    shadowed: &[usize],
    included: &Positions,
    policy_verdicts: Option<&[Verdict]>,
) -> Positions {
    let is_withheld_by_policy =
        policy_verdicts.is_some_and(|verdicts| verdicts.iter().any(|verdict| *verdict >= Verdict::Deny));
    if audience == Audience::Administrators || !(source.options.leaves_out_tools() || is_withheld_by_policy) {
        return included.clone();
    }
    let policy_verdict = |position: usize| policy_verdicts.map_or(Verdict::Allow, |verdicts| verdicts[position]);
    let is_shown =
        |position: &usize| source.tool_ref(*position).verdict().max(policy_verdict(*position)) < Verdict::Deny;
    Some(match included {
        Some(included) => included.iter().copied().filter(|position| is_shown(&(*position as usize))).collect(),
        None => {
            let all = (0..source.segment.entries().len()).filter(|position| shadowed.binary_search(position).is_err());
            all.filter(is_shown).map(|position| position as u32).collect()
        }
    })
}

impl<'a> ToolRef<'a> {
    /// Calls a function with what access rules know of the tool.
    pub fn with_facts<T>(&self, use_facts: impl FnOnce(&ToolFacts<'_>) -> T) -> T {
        let tags: Vec<&str> = self.tags().collect();
        let operation = self.operation();
        let details = ToolDetails {
            tags: &tags,
            method: operation.map(|operation| operation.method.as_str()),
            path: operation.map(|operation| operation.path.as_str()),
            risk: self.risk(),
        };
        use_facts(&ToolFacts {
            source: self.source().as_str(),
            names: &[self.name().as_str()],
            original_name: self.original_name(),
            details: Some(details),
        })
    }
}

impl PositionSet {
    fn empty(count: usize) -> PositionSet {
        PositionSet(vec![0; count.div_ceil(64)])
    }

    fn all(count: usize) -> PositionSet {
        PositionSet::from_positions(count, 0..count)
    }

    fn from_positions(count: usize, positions: impl Iterator<Item = usize>) -> PositionSet {
        let mut set = PositionSet::empty(count);
        for position in positions {
            set.0[position / 64] |= 1 << (position % 64);
        }
        set
    }

    fn contains(&self, position: usize) -> bool {
        self.0.get(position / 64).is_some_and(|bits| bits & (1 << (position % 64)) != 0)
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|bits| *bits == 0)
    }

    /// Adds the positions of another set.
    fn add(&mut self, other: &PositionSet) {
        self.0.iter_mut().zip(&other.0).for_each(|(bits, other)| *bits |= other);
    }

    /// Removes the positions that another set does not have.
    fn retain(&mut self, other: &PositionSet) {
        self.0.iter_mut().zip(&other.0).for_each(|(bits, other)| *bits &= other);
    }

    /// Positions in ascending order.
    fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(word, bits)| {
            let mut bits = *bits;
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                Some(word * 64 + bit)
            })
        })
    }
}

impl<K, V> Default for CopyOnWriteCache<K, V> {
    fn default() -> CopyOnWriteCache<K, V> {
        CopyOnWriteCache(ArcSwap::default())
    }
}

impl<K: Clone + Eq + Hash, V> CopyOnWriteCache<K, V> {
    /// Returns the value of a key, or computes it. Two readers that miss at the same time may both compute it.
    pub(super) fn get_or_insert(&self, key: K, capacity: usize, compute: impl FnOnce() -> V) -> Arc<V> {
        if let Some(value) = self.0.load().get(&key) {
            return value.clone();
        }
        let value = Arc::new(compute());
        self.0.rcu(|map| {
            let mut map = if map.len() < capacity { HashMap::clone(map) } else { HashMap::new() };
            map.insert(key.clone(), value.clone());
            map
        });
        value
    }
}

#[cfg(test)]
mod tests;
