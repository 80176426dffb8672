//! Effects of a change of rules on callers: the tools that each gains and loses, and other verdicts.
//!
//! A preview is bounded whatever the number of tools and callers: it lists the first ones, and counts all of them.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use toolcrib_catalog::{ToolRef, View};
use toolcrib_core::access_rules::{NamedRule, RuleKind};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::policy::Verdict;
use toolcrib_core::principal::Principal;
use toolcrib_core::tool::ToolName;

/// Maximum number of callers in a preview.
const MAX_LISTED_CALLERS: usize = 100;
/// Maximum number of tools in each list of a preview.
const MAX_LISTED_TOOLS: usize = 100;

/// A change of rules, for a preview.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleChange {
    /// Define a rule at run time, or replace it.
    Define(Box<NamedRule>),
    /// Remove a rule that was defined at run time.
    Remove(RuleKind, String),
}

/// Effects of a change of rules on the callers that are known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RuleChangePreview {
    /// The first 100 callers for whom something changes.
    pub callers: Vec<CallerChange>,
    /// Number of known callers for whom something changes.
    pub changed: usize,
    /// Number of known callers for whom nothing changes.
    pub unchanged: usize,
}

/// Effects of a change of rules on one caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallerChange {
    /// Name of the caller, such as that of its token.
    pub caller: String,
    /// `local`, `token`, `console` or `jwt`.
    pub kind: &'static str,
    /// Effects on what it sees.
    #[serde(flatten)]
    pub tools: ToolChanges,
}

/// Differences between what a caller sees before and after a change. Each list has the first 100 tools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ToolChanges {
    /// Tools that it sees afterwards and not before.
    pub gains: Vec<ToolName>,
    /// Number of all of them.
    pub gains_count: usize,
    /// Tools that it sees before and not afterwards.
    pub loses: Vec<ToolName>,
    /// Number of all of them.
    pub loses_count: usize,
    /// Tools that it sees before and afterwards, with another verdict.
    pub verdicts: Vec<VerdictChange>,
    /// Number of all of them.
    pub verdicts_count: usize,
}

/// Another verdict on a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VerdictChange {
    /// Name of the tool.
    pub tool: ToolName,
    /// Verdict now.
    pub before: Verdict,
    /// Verdict after the change.
    pub after: Verdict,
}

/// Collects the effects on one caller after another. Callers with equal scopes share one comparison of views.
#[derive(Debug, Default)]
pub(super) struct PreviewBuilder {
    preview: RuleChangePreview,
    /// Effects by the keys of the scopes before and after.
    compared: HashMap<[Fingerprint; 2], ToolChanges>,
}

impl PreviewBuilder {
    /// Adds a caller, by the keys of its scopes before and after; `compare` finds out the effects.
    pub(super) fn add(&mut self, caller: &Principal, scopes: [Fingerprint; 2], compare: impl FnOnce() -> ToolChanges) {
        if scopes[0] == scopes[1] {
            self.preview.unchanged += 1;
            return;
        }
        let tools = self.compared.entry(scopes).or_insert_with(compare);
        if tools.is_empty() {
            self.preview.unchanged += 1;
            return;
        }
        self.preview.changed += 1;
        if self.preview.callers.len() < MAX_LISTED_CALLERS {
            let (name, kind) = (caller.original_name().to_owned(), caller.identity().kind());
            self.preview.callers.push(CallerChange { caller: name, kind, tools: tools.clone() });
        }
    }

    pub(super) fn finish(self) -> RuleChangePreview {
        self.preview
    }
}

impl ToolChanges {
    /// Compares what a caller sees before and after a change, among the tools that the reader of the preview may know of.
    pub(super) fn between(before: &View, after: &View, is_readable: impl Fn(&ToolRef<'_>) -> bool) -> ToolChanges {
        let old: BTreeMap<&ToolName, Verdict> = readable_verdicts(before, &is_readable).collect();
        let mut new: BTreeMap<&ToolName, Verdict> = readable_verdicts(after, &is_readable).collect();
        let mut changes = ToolChanges::default();
        for (tool, before) in old {
            match new.remove(tool) {
                Some(after) if after == before => {}
                Some(after) => {
                    changes.verdicts_count += 1;
                    push_bounded(&mut changes.verdicts, || VerdictChange { tool: tool.clone(), before, after });
                }
                None => {
                    changes.loses_count += 1;
                    push_bounded(&mut changes.loses, || tool.clone());
                }
            }
        }
        changes.gains_count = new.len();
        changes.gains = new.into_keys().take(MAX_LISTED_TOOLS).cloned().collect();
        changes
    }

    fn is_empty(&self) -> bool {
        self.gains_count == 0 && self.loses_count == 0 && self.verdicts_count == 0
    }
}

/// Returns the tools that a caller sees and the reader may know of, with their verdicts for the caller.
fn readable_verdicts(
    view: &View,
    is_readable: impl Fn(&ToolRef<'_>) -> bool,
) -> impl Iterator<Item = (&ToolName, Verdict)> {
    view.offered_tools().filter(move |tool| is_readable(tool)).map(|tool| (tool.name(), tool.verdict()))
}

fn push_bounded<T>(list: &mut Vec<T>, item: impl FnOnce() -> T) {
    if list.len() < MAX_LISTED_TOOLS {
        list.push(item());
    }
}
