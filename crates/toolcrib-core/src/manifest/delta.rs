//! What differs between two manifests of one source.

use serde::{Deserialize, Serialize};

use super::{Packed, PackedTool};
use crate::compare::{
    Allowance, Class, Comparison, Renamed, canonical, compare, different_extras, given, likely_renames,
};
use crate::error::Result;
use crate::text::shown_short;
use crate::tool::Tool;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Delta {
    pub added: Vec<String>,
    pub changed: Vec<Change>,
    pub removed: Vec<String>,
    /// Of those removed and added, which are most likely one tool under two names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub renamed: Vec<Renamed>,
    pub unchanged: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub name: String,
    /// The fields that differ, in MCP's own names.
    pub fields: Vec<String>,
    /// How it bears on who calls it; unknown of what was recorded before there were classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// What changed, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Change {
    /// What changed of a tool from one version to the next.
    pub fn between(old: &Tool, new: &Tool, allowance: &mut Allowance) -> Change {
        let Comparison { class, notes } = compare(old, new, allowance);
        Change { name: new.name.clone(), fields: changed_fields(old, new), class: Some(class), notes }
    }
}

impl Delta {
    /// One walk over both sorted lists; only tools whose fingerprints differ are parsed.
    pub fn between(before: Option<&Packed>, after: &Packed) -> Result<Delta> {
        let (mut delta, mut allowance) = (Delta::default(), Allowance::default());
        let empty: &[PackedTool] = &[];
        let mut old = before.map_or(empty, |before| &before.tools).iter().peekable();
        for new in &after.tools {
            while let Some(gone) = old.next_if(|old| old.name < new.name) {
                delta.removed.push(gone.name.clone());
            }
            match (old.next_if(|old| old.name == new.name), before) {
                (Some(old), _) if old.fingerprint == new.fingerprint => delta.unchanged += 1,
                (Some(old), Some(before)) => {
                    delta.changed.push(Change::between(&before.tool(old)?, &after.tool(new)?, &mut allowance));
                }
                _ => delta.added.push(new.name.clone()),
            }
        }
        delta.removed.extend(old.map(|gone| gone.name.clone()));
        if let Some(before) = before {
            delta.renamed = likely_renames(before, after, &delta.removed, &delta.added)?;
        }
        Ok(delta)
    }

    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

fn changed_fields(old: &Tool, new: &Tool) -> Vec<String> {
    let pairs = [
        ("title", given(old, "title", old.face.title.as_deref()), given(new, "title", new.face.title.as_deref())),
        (
            "description",
            given(old, "description", Some(&old.face.description)),
            given(new, "description", Some(&new.face.description)),
        ),
        ("inputSchema", given_schema(old), given_schema(new)),
        ("outputSchema", canonical(old.output_schema.as_deref()), canonical(new.output_schema.as_deref())),
        ("annotations", canonical(old.face.annotations.as_deref()), canonical(new.face.annotations.as_deref())),
        // Ours, and no list shows it: the request of an operation, and what its document says beyond the tool.
        ("backing", canonical(old.backing.as_deref()), canonical(new.backing.as_deref())),
    ];
    let mut fields: Vec<String> =
        pairs.into_iter().filter(|(_, old, new)| old != new).map(|(name, _, _)| name.to_owned()).collect();
    fields.extend(different_extras(old, new).into_iter().map(|name| shown_short(name, 80)));
    fields
}

fn given_schema(tool: &Tool) -> Option<String> {
    canonical(tool.original.get("inputSchema").or(Some(&tool.face.input_schema)))
}
