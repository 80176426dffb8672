//! Compares a tool with its entry in a lockfile, for when the old version itself is not in the store.
//!
//! An entry contains fingerprints of the parts of a tool, and the normal forms of schemas that are short enough. The
//! classes are those of a comparison of whole tools as far as the parts allow; notes are less detailed.

use serde_json::Value;
use toolcrib_schema::WorkBudget;

use super::execution::TaskSupport;
use super::hints::EffectHints;
use super::notes::SchemaRole;
use super::{ChangeClass, Comparison, Findings, ToolComparison};
use crate::lockfile::ToolParts;

/// Compares the stored parts of two versions. Parts without a stored schema are only known to differ.
pub(crate) fn compare_parts(old: &ToolParts, new: &ToolParts, budget: &mut WorkBudget) -> ToolComparison {
    let mut comparison = Comparison { budget, findings: Findings::default() };
    for note in EffectHints::parse_names(&old.hints).describe_flips(EffectHints::parse_names(&new.hints)) {
        comparison.findings.add(ChangeClass::HintFlipped, || note.to_owned());
    }
    if old.execution != new.execution {
        comparison.findings.add(ChangeClass::Execution, || "its execution changed".to_owned());
    }
    // A fingerprint tells that a schema changed, the stored normal form how. A tool may have no output schema.
    if old.input != new.input {
        comparison.compare_locked_schemas(&old.input_schema, &new.input_schema, SchemaRole::Input);
    }
    if comparison.have_both(old.output.is_some(), new.output.is_some()) && old.output != new.output {
        comparison.compare_locked_schemas(&old.output_schema, &new.output_schema, SchemaRole::Output);
    }
    let mut findings = comparison.findings;
    // Older lockfiles have neither `tasks` nor `rest`.
    if old.rest.is_some() {
        // A missing value means forbidden.
        let tasks = |parts: &ToolParts| TaskSupport::from_name(parts.tasks.as_deref());
        if let Some((class, note)) = tasks(old).classify_change(tasks(new)) {
            findings.add(class, || note.to_owned());
        }
        if old.rest != new.rest {
            findings.add(ChangeClass::Other, || {
                "other fields changed; the lockfile stores only their fingerprint".to_owned()
            });
        }
    }
    // Which text changed is not stored.
    if old.text != new.text {
        findings.add(ChangeClass::Text, || "its title or descriptions changed".to_owned());
    }
    findings.into_comparison()
}

impl Comparison<'_> {
    /// Compares the stored schemas, if both are short enough to be in a lockfile.
    fn compare_locked_schemas(&mut self, old: &Option<Value>, new: &Option<Value>, role: SchemaRole) {
        if let (Some(old), Some(new)) = (old, new) {
            return self.compare_schemas(old.clone(), new.clone(), role);
        }
        let role = role.as_str();
        self.findings.add(ChangeClass::Other, || {
            format!(
                "its {role} schema changed; it is too long to be stored in the lockfile, \
                 run `toolcrib diff` with the store that was locked to see how"
            )
        });
    }
}
