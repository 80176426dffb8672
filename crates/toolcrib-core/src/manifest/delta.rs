//! What differs between two manifests of one source.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Packed, PackedTool};
use crate::error::Result;
use crate::json;
use crate::tool::Tool;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Delta {
    pub added: Vec<String>,
    pub changed: Vec<Change>,
    pub removed: Vec<String>,
    pub unchanged: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub name: String,
    /// The fields that differ, in MCP's own names.
    pub fields: Vec<String>,
}

impl Delta {
    /// One walk over both sorted lists; only tools whose fingerprints differ are parsed.
    pub fn between(before: Option<&Packed>, after: &Packed) -> Result<Delta> {
        let mut delta = Delta::default();
        let empty: &[PackedTool] = &[];
        let mut old = before.map_or(empty, |before| &before.tools).iter().peekable();
        for new in &after.tools {
            while let Some(gone) = old.next_if(|old| old.name < new.name) {
                delta.removed.push(gone.name.clone());
            }
            match (old.next_if(|old| old.name == new.name), before) {
                (Some(old), _) if old.fingerprint == new.fingerprint => delta.unchanged += 1,
                (Some(old), Some(before)) => {
                    let fields = changed_fields(&before.tool(old)?, &after.tool(new)?);
                    delta.changed.push(Change { name: new.name.clone(), fields });
                }
                _ => delta.added.push(new.name.clone()),
            }
        }
        delta.removed.extend(old.map(|gone| gone.name.clone()));
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
    ];
    let mut fields: Vec<String> =
        pairs.into_iter().filter(|(_, old, new)| old != new).map(|(name, _, _)| name.to_owned()).collect();
    for (name, value) in new.extra.iter() {
        if canonical(old.extra.get(name)) != canonical(Some(value)) {
            fields.push(name.to_owned());
        }
    }
    fields.extend(old.extra.iter().filter(|(name, _)| new.extra.get(name).is_none()).map(|(name, _)| name.to_owned()));
    fields
}

/// The text as the source gave it.
fn given(tool: &Tool, field: &str, shown: Option<&str>) -> Option<String> {
    canonical(tool.original.get(field)).or_else(|| canonical(shown.map(json::string).as_deref()))
}

fn given_schema(tool: &Tool) -> Option<String> {
    canonical(tool.original.get("inputSchema").or(Some(&tool.face.input_schema)))
}

fn canonical(raw: Option<&RawValue>) -> Option<String> {
    let mut canonical = String::new();
    json::canonical(raw?, &mut canonical);
    Some(canonical)
}
