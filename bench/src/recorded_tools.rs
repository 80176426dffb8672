//! Recorded tools of real servers in any number, and sources that offer them.
//!
//! Recorded tools have realistic sizes, schemas and descriptions, which generated ones would not have. Where more are
//! needed than were recorded, they are repeated: under their own names in further sources, or under new names in one
//! list.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use toolcrib::SourceId;
use toolcrib::config::Config;
use toolcrib_testkit::programs;

use crate::Result;

/// Tool list of a server with the name of its recording, shortened to fit a source id.
pub(crate) struct RecordedServer {
    pub(crate) name: String,
    pub(crate) tools: Vec<Map<String, Value>>,
}

/// Tools of one source.
pub(crate) struct SourceTools {
    pub(crate) id: SourceId,
    /// The tools as a server would send them.
    pub(crate) tools: Vec<Box<RawValue>>,
}

/// Returns all recorded lists in the order of their names.
pub(crate) fn recorded_servers() -> Result<Vec<RecordedServer>> {
    let lists = programs::recorded_tool_lists().ok_or("no recorded data; set TOOLCRIB_TEST_DATA")?;
    let recordings = lists.into_iter().map(|list| {
        let tools = list.tools.into_iter().filter_map(|tool| match tool {
            Value::Object(tool) => Some(tool),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
        });
        let name = list.file.file_stem().unwrap_or_default().to_string_lossy();
        // The scope of an npm package would make the name too long for a source id.
        let name =
            name.strip_prefix("modelcontextprotocol__").or(name.strip_prefix("browserbasehq__")).unwrap_or(&name);
        RecordedServer { name: name.to_owned(), tools: tools.collect() }
    });
    Ok(recordings.collect())
}

/// Returns all recorded lists, plus sources with repeated tools up to the given numbers of sources and tools.
pub(crate) fn extend_recorded(sources: usize, tools: usize) -> Result<Vec<RecordedServer>> {
    let mut servers = recorded_servers()?;
    let all: Vec<Map<String, Value>> = servers.iter().flat_map(|recording| recording.tools.clone()).collect();
    let mut missing = tools.checked_sub(all.len()).ok_or("there are more recorded tools than requested")?;
    let mut repeating = all.iter().cycle();
    for number in servers.len()..sources {
        // An equal share of the rest; the last source takes what rounding left over.
        let share = missing / (sources - number);
        let mut repeated = Vec::new();
        let mut names = BTreeSet::new();
        while repeated.len() < share {
            let tool = repeating.next().ok_or("no recorded tools")?;
            // A manifest sets the second of two equal names aside.
            if names.insert(tool.get("name").cloned().unwrap_or_default().to_string()) {
                repeated.push(tool.clone());
            }
        }
        missing -= share;
        servers.push(RecordedServer { name: format!("again {number}"), tools: repeated });
    }
    Ok(servers)
}

/// Returns `count` recorded tools with unique names. Large and small ones are mixed evenly, so that lists of any length
/// have the same average size.
pub(crate) fn renamed_tools(count: usize) -> Result<Vec<Box<RawValue>>> {
    // A prime, so that steps of this size cycle through all tools.
    const STRIDE: usize = 617;
    let all: Vec<Map<String, Value>> = recorded_servers()?.into_iter().flat_map(|recording| recording.tools).collect();
    let renamed = (0..count).map(|index| {
        let mut tool = all.get(index * STRIDE % all.len()).ok_or("no recorded tools")?.clone();
        let name = format!("{}_{index}", tool.get("name").and_then(Value::as_str).unwrap_or("tool"));
        tool.insert("name".into(), json!(name));
        Ok(to_raw_value(&tool)?)
    });
    renamed.collect()
}

/// Splits a list into sources of at most `tools_per_source` tools.
pub(crate) fn split_into_sources(tools: &[Box<RawValue>], tools_per_source: usize) -> Result<Vec<SourceTools>> {
    let sources = tools.chunks(tools_per_source).enumerate();
    sources.map(|(number, tools)| Ok(SourceTools { id: source_id(number)?, tools: tools.to_vec() })).collect()
}

/// Id of the n-th generated source.
pub(crate) fn source_id(number: usize) -> Result<SourceId> {
    Ok(SourceId::parse(&format!("source_{number:03}"))?)
}

/// Returns a configuration file from the name and the command of each source, in the format of `.mcp.json`.
pub(crate) fn config_json(commands: &[(String, Vec<String>)]) -> String {
    json!({"mcpServers": sources_json(commands)}).to_string()
}

/// Parses a configuration with these sources and further keys.
pub(crate) fn parse_config(commands: &[(String, Vec<String>)], settings: &Map<String, Value>) -> Result<Config> {
    let mut config = settings.clone();
    config.insert("sources".into(), sources_json(commands));
    let errors = |errors: Vec<toolcrib::config::ConfigDiagnostic>| format!("{errors:?}");
    Ok(Config::read(&Value::Object(config).to_string(), "bench.json", Path::new("/")).map_err(errors)?)
}

fn sources_json(commands: &[(String, Vec<String>)]) -> Value {
    let source = |(name, command): &(String, Vec<String>)| {
        (name.clone(), json!({"command": command.first(), "args": command.get(1..)}))
    };
    Value::Object(commands.iter().map(source).collect())
}

/// Returns the command line of the scripted server with flags.
pub(crate) fn scripted_command(flags: &[&str]) -> Vec<String> {
    let program = programs::scripted_server().to_string_lossy().into_owned();
    std::iter::once(program).chain(flags.iter().map(|flag| (*flag).to_owned())).collect()
}
