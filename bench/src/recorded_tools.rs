//! Recorded tools of real servers, as many as wanted, and sources that offer them.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use toolcrib::SourceId;
use toolcrib::core::config::Config;
use toolcrib_testkit::programs;

use crate::Result;

/// What one server offered, and under which name it was recorded.
pub(crate) struct RecordedServer {
    pub(crate) name: String,
    pub(crate) tools: Vec<Map<String, Value>>,
}

/// One source's name and its list.
pub(crate) struct SourceTools {
    pub(crate) id: SourceId,
    pub(crate) tools: Vec<Box<RawValue>>,
}

/// Every recorded list, none left out, in the order of their names.
pub(crate) fn recorded_servers() -> Result<Vec<RecordedServer>> {
    let lists =
        programs::recorded_tool_lists().ok_or("there is no recorded material; TOOLCRIB_TEST_DATA says where it is")?;
    let recordings = lists.into_iter().map(|list| {
        let tools = list.tools.into_iter().filter_map(|tool| match tool {
            Value::Object(tool) => Some(tool),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
        });
        let name = list.file.file_stem().unwrap_or_default().to_string_lossy();
        // With its scope, a package may be called longer than a source.
        let name =
            name.strip_prefix("modelcontextprotocol__").or(name.strip_prefix("browserbasehq__")).unwrap_or(&name);
        RecordedServer { name: name.to_owned(), tools: tools.collect() }
    });
    Ok(recordings.collect())
}

/// Every recorded list as a source, and as many more that repeat recorded tools as make the numbers come out.
pub(crate) fn extend_recorded(sources: usize, tools: usize) -> Result<Vec<RecordedServer>> {
    let mut spread = recorded_servers()?;
    let all: Vec<Map<String, Value>> = spread.iter().flat_map(|recording| recording.tools.clone()).collect();
    let mut missing = tools.checked_sub(all.len()).ok_or("there are more recorded tools than wanted")?;
    let mut again = all.iter().cycle();
    for number in spread.len()..sources {
        let share = missing / (sources - number);
        let (mut repeated, mut names) = (Vec::new(), BTreeSet::new());
        while repeated.len() < share {
            let tool = again.next().ok_or("no tool was recorded")?;
            // A source that offers a name twice would lose the second.
            if names.insert(tool.get("name").cloned().unwrap_or_default().to_string()) {
                repeated.push(tool.clone());
            }
        }
        missing -= share;
        spread.push(RecordedServer { name: format!("again {number}"), tools: repeated });
    }
    Ok(spread)
}

/// So many recorded tools, renamed so that no two are called the same. Large and small ones are mixed evenly,
/// so that lists of any length have tools of about the same size.
pub(crate) fn renamed_tools(count: usize) -> Result<Vec<Box<RawValue>>> {
    const STRIDE: usize = 617;
    let all: Vec<Map<String, Value>> = recorded_servers()?.into_iter().flat_map(|recording| recording.tools).collect();
    let renamed = (0..count).map(|index| {
        let mut tool = all.get(index * STRIDE % all.len()).ok_or("no tool was recorded")?.clone();
        let name = format!("{}_{index}", tool.get("name").and_then(Value::as_str).unwrap_or("tool"));
        tool.insert("name".into(), json!(name));
        Ok(to_raw_value(&tool)?)
    });
    renamed.collect()
}

/// A list cut into sources of at most `each` tools.
pub(crate) fn split_into_sources(tools: &[Box<RawValue>], each: usize) -> Result<Vec<SourceTools>> {
    let sources = tools.chunks(each).enumerate();
    sources.map(|(number, tools)| Ok(SourceTools { id: source_id(number)?, tools: tools.to_vec() })).collect()
}

pub(crate) fn source_id(number: usize) -> Result<SourceId> {
    Ok(SourceId::parse(&format!("source_{number:03}"))?)
}

/// A configuration as people write it, from the name and the command of each source.
pub(crate) fn config_json(commands: &[(String, Vec<String>)]) -> String {
    let sources: Map<String, Value> = commands
        .iter()
        .map(|(name, words)| (name.clone(), json!({"command": words.first(), "args": words.get(1..)})))
        .collect();
    json!({"mcpServers": sources}).to_string()
}

pub(crate) fn parse_config(commands: &[(String, Vec<String>)]) -> Result<Config> {
    let faults = |faults: Vec<toolcrib::core::config::ConfigDiagnostic>| format!("{faults:?}");
    Ok(Config::read(&config_json(commands), "bench.json", Path::new("/")).map_err(faults)?)
}

/// The scripted server with flags, as a command.
pub(crate) fn scripted_command(flags: &[&str]) -> Vec<String> {
    let program = programs::scripted_server().to_string_lossy().into_owned();
    std::iter::once(program).chain(flags.iter().map(|flag| (*flag).to_owned())).collect()
}
