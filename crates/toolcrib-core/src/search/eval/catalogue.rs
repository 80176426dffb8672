//! A labelled set's tools as a catalogue: one source for each server, through the same door as any list.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::ToolRecord;
use crate::catalog::{Caller, Catalog, CatalogSource, Segment, SourceOptions, View};
use crate::error::{Code, Error, Result, ResultExt};
use crate::fingerprint::Fingerprint;
use crate::inventory::{Origin, SourceState, ToolState};
use crate::manifest::{Manifest, PackedManifest, ToolLimits};
use crate::source::SourceId;

/// The view, and the position of each tool by the name that agents see.
pub(super) fn build(tools: &[(usize, ToolRecord)]) -> Result<(View, HashMap<String, usize>)> {
    // A list with one name twice would lose the second: it goes to a source of its own, beside the first.
    let mut lists: BTreeMap<(&str, usize), BTreeMap<&str, usize>> = BTreeMap::new();
    for (position, (_, tool)) in tools.iter().enumerate() {
        let server = tool.server.as_deref().unwrap_or_default();
        let copy =
            (0..).find(|copy| lists.get(&(server, *copy)).is_none_or(|list| !list.contains_key(tool.name.as_str())));
        lists.entry((server, copy.unwrap_or_default())).or_default().insert(&tool.name, position);
    }
    let (mut taken, mut parts, mut positions) = (BTreeSet::new(), Vec::new(), HashMap::new());
    for ((server, _), list) in &lists {
        let id = free_id(server, &mut taken)?;
        let part = build_source(&id, server, tools, list)?;
        for entry in part.segment.entries() {
            if let Some(position) = list.get(part.segment.original_name(entry)) {
                positions.insert(entry.name.to_string(), *position);
            }
        }
        parts.push(Arc::new(part));
    }
    let catalog = Arc::new(Catalog::build(1, parts));
    Ok((View { catalog, caller: Caller { name: "eval".into() } }, positions))
}

/// An id made of a server's name, and a number when others have it.
fn free_id(server: &str, taken: &mut BTreeSet<SourceId>) -> Result<SourceId> {
    let words: Vec<String> = server
        .split(|character: char| !character.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let mut base = if words.is_empty() { "tools".to_owned() } else { words.join("_") };
    base.truncate(26);
    let base = base.trim_end_matches('_');
    let numbered = (2..100_000).map(|number| format!("{base}_{number}"));
    let free = std::iter::once(base.to_owned()).chain(numbered).filter_map(|name| SourceId::parse(&name).ok());
    let id = free.into_iter().find(|id| !taken.contains(id));
    let id = id.ok_or_else(|| Error::new(Code::BadRequest, format!("no source can be named after `{server}`")))?;
    taken.insert(id.clone());
    Ok(id)
}

fn build_source(
    id: &SourceId,
    server: &str,
    tools: &[(usize, ToolRecord)],
    list: &BTreeMap<&str, usize>,
) -> Result<CatalogSource> {
    let lines: Vec<&ToolRecord> = list.values().map(|position| &tools[*position].1).collect();
    let offered = |with_schema: &dyn Fn(&str) -> bool| -> Result<Vec<Box<RawValue>>> {
        lines.iter().map(|line| to_raw_tool(line, with_schema(&line.name))).collect()
    };
    let mut manifest = Manifest::new(id, &offered(&|_| true)?, Vec::new(), &ToolLimits::default());
    if !manifest.set_aside.is_empty() {
        // A schema that no agent could be given still comes with a name and a description to be found by.
        let unusable: BTreeSet<String> = manifest.set_aside.into_iter().map(|refused| refused.name).collect();
        manifest = Manifest::new(id, &offered(&|name| !unusable.contains(name))?, Vec::new(), &ToolLimits::default());
    }
    let description = lines.iter().find_map(|line| line.server_description.as_deref()).unwrap_or_default();
    // An id has little room; the rest of a long name is what a server says about itself.
    let about = if server.len() > id.as_str().len() { format!("{server}. {description}") } else { description.into() };
    let packed = PackedManifest::new(&manifest.with_about(Some(&about)))?;
    let state = SourceState {
        kind: "mcp".into(),
        origin: Origin::Runtime,
        definition: Fingerprint::digest(id.as_str()),
        declared_enabled: None,
        enabled: true,
        removed: false,
        manifest: Some(packed.fingerprint),
        tools: packed.tools.iter().map(|tool| (tool.name.clone(), ToolState::default())).collect(),
    };
    let manner = SourceOptions { kind: "mcp".into(), ..SourceOptions::default() };
    Ok(CatalogSource::new(Arc::new(Segment::with_prefix(Arc::new(packed))), Arc::new(state), manner))
}

fn to_raw_tool(line: &ToolRecord, with_schema: bool) -> Result<Box<RawValue>> {
    let mut tool = json!({"name": line.name});
    if let Some(description) = &line.description {
        tool["description"] = json!(description);
    }
    if let Some(schema) = line.input_schema.as_ref().filter(|_| with_schema) {
        tool["inputSchema"] = serde_json::from_str(schema.get()).context(Code::BadRequest, "read a schema")?;
    }
    to_raw_value(&tool).context(Code::Internal, "write a tool")
}
