//! Builds a catalogue from the tools of a labelled set: one source per server, through the regular manifest code. Tools
//! pass the same normalisation and limits as those of a real server.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use toolcrib_core::error::{Code, Error, Result, ResultExt};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::{Origin, SourceState, ToolState};
use toolcrib_core::manifest::{Manifest, PackedManifest, ToolLimits};
use toolcrib_core::source::SourceId;

use super::ToolRecord;
use crate::{Catalog, CatalogSource, Segment, SourceOptions, View};

/// Returns the view of the catalogue, and the position of each tool by its name in the catalogue.
pub(super) fn build(tools: &[(usize, ToolRecord)]) -> Result<(View, HashMap<String, usize>)> {
    // A manifest keeps one tool per name. Further tools of the same name go to additional sources of that server.
    let mut lists: BTreeMap<(&str, usize), BTreeMap<&str, usize>> = BTreeMap::new();
    for (position, (_, tool)) in tools.iter().enumerate() {
        let server = tool.server.as_deref().unwrap_or_default();
        let copy =
            (0..).find(|copy| lists.get(&(server, *copy)).is_none_or(|list| !list.contains_key(tool.name.as_str())));
        lists.entry((server, copy.unwrap_or_default())).or_default().insert(&tool.name, position);
    }
    let mut taken = BTreeSet::new();
    let mut sources = Vec::new();
    let mut positions = HashMap::new();
    for ((server, _), list) in &lists {
        let id = free_id(server, &mut taken)?;
        let source = build_source(&id, server, tools, list)?;
        for entry in source.segment.entries() {
            if let Some(position) = list.get(source.segment.original_name(entry)) {
                positions.insert(entry.name.to_string(), *position);
            }
        }
        sources.push(Arc::new(source));
    }
    // The version of a catalogue that is never replaced does not matter.
    let catalog = Arc::new(Catalog::build(1, sources));
    Ok((View::full(catalog), positions))
}

/// Derives a source id from a server's name, with a number appended if the id is taken.
fn free_id(server: &str, taken: &mut BTreeSet<SourceId>) -> Result<SourceId> {
    let words: Vec<String> = server
        .split(|character: char| !character.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let mut base = if words.is_empty() { "tools".to_owned() } else { words.join("_") };
    // Leaves room for `_` and a number within the maximum length of a source id.
    base.truncate(26);
    let base = base.trim_end_matches('_');
    let numbered = (2..100_000).map(|number| format!("{base}_{number}"));
    let free = std::iter::once(base.to_owned()).chain(numbered).filter_map(|name| SourceId::parse(&name).ok());
    let id = free.into_iter().find(|id| !taken.contains(id));
    let id = id.ok_or_else(|| Error::new(Code::BadRequest, format!("no source can be named after `{server}`")))?;
    taken.insert(id.clone());
    Ok(id)
}

/// Builds one source from the tools in `list` (name to position in `tools`).
fn build_source(
    id: &SourceId,
    server: &str,
    tools: &[(usize, ToolRecord)],
    list: &BTreeMap<&str, usize>,
) -> Result<CatalogSource> {
    let records: Vec<&ToolRecord> = list.values().map(|position| &tools[*position].1).collect();
    let offered = |with_schema: &dyn Fn(&str) -> bool| -> Result<Vec<Box<RawValue>>> {
        records.iter().map(|record| to_raw_tool(record, with_schema(&record.name))).collect()
    };
    // First with all schemas; tools that are skipped because of theirs are offered again without it.
    let mut manifest = Manifest::new(id, &offered(&|_| true)?, Vec::new(), &ToolLimits::default());
    if !manifest.skipped.is_empty() {
        // Keep tools with an unusable schema searchable by name and description: list them without the schema.
        let unusable: BTreeSet<String> = manifest.skipped.into_iter().map(|refused| refused.name).collect();
        manifest = Manifest::new(id, &offered(&|name| !unusable.contains(name))?, Vec::new(), &ToolLimits::default());
    }
    let description = records.iter().find_map(|record| record.server_description.as_deref()).unwrap_or_default();
    // A source id is short; put a longer server name into the description, so that its words are searchable.
    let about = if server.len() > id.as_str().len() { format!("{server}. {description}") } else { description.into() };
    let packed = PackedManifest::new(&manifest.with_about(Some(&about)))?;
    let state = SourceState {
        manifest: Some(packed.fingerprint),
        tools: packed.tools.iter().map(|tool| (tool.name.clone(), ToolState::default())).collect(),
        ..SourceState::new("mcp", Origin::Runtime, Fingerprint::digest(id.as_str()), None)
    };
    let options = SourceOptions { kind: "mcp".into(), ..SourceOptions::default() };
    Ok(CatalogSource::new(Arc::new(Segment::with_prefix(Arc::new(packed))), Arc::new(state), options))
}

/// Converts a record to a tool as MCP servers list it.
fn to_raw_tool(record: &ToolRecord, with_schema: bool) -> Result<Box<RawValue>> {
    let mut tool = json!({"name": record.name});
    if let Some(description) = &record.description {
        tool["description"] = json!(description);
    }
    if let Some(schema) = record.input_schema.as_ref().filter(|_| with_schema) {
        tool["inputSchema"] = serde_json::from_str(schema.get()).context(Code::BadRequest, "read a schema")?;
    }
    to_raw_value(&tool).context(Code::Internal, "write a tool")
}
