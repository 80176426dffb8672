//! Finds the line of each source and tool in the text of a lockfile, however the file is formatted.
//!
//! For reports that point into the file, such as annotations in a code review. A tool that is new has no line, so its
//! source's line stands for it.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use toolcrib_core::source::SourceId;

/// Line numbers of a lockfile, counted from 1.
#[derive(Debug, Clone, Default)]
pub struct LockfileLines {
    /// Line of each source, and of each of its tools.
    sources: BTreeMap<String, (usize, BTreeMap<String, usize>)>,
}

/// The members of a JSON object as slices of its text.
type RawMembers<'a> = BTreeMap<String, &'a RawValue>;

impl LockfileLines {
    /// Indexes the text of a lockfile. Text that is none has no lines.
    pub fn parse(text: &str) -> LockfileLines {
        let line_ends: Vec<usize> = text.match_indices('\n').map(|(offset, _)| offset).collect();
        // Borrowed raw values are slices of `text`, so their addresses yield their offsets. The name precedes the
        // value.
        let line = |value: &RawValue| {
            let before = &text[..value.get().as_ptr().addr().saturating_sub(text.as_ptr().addr())];
            let name_end = before.trim_end().trim_end_matches(':').trim_end().len();
            1 + line_ends.partition_point(|line_end| *line_end < name_end)
        };
        let source_lines = |(id, source): (String, &RawValue)| {
            let tools = members_of(source.get(), "tools");
            (id, (line(source), tools.into_iter().map(|(name, tool)| (name, line(tool))).collect()))
        };
        LockfileLines { sources: members_of(text, "sources").into_iter().map(source_lines).collect() }
    }

    /// Returns the line of a tool, else of its source, else 1.
    pub fn find_line(&self, source: &SourceId, tool: &str) -> usize {
        let Some((line, tools)) = self.sources.get(source.as_str()) else { return 1 };
        tools.get(tool).copied().unwrap_or(*line)
    }
}

/// Returns the members of the object under `key`; none if there is no such object.
fn members_of<'a>(object: &'a str, key: &str) -> RawMembers<'a> {
    let object: RawMembers<'a> = serde_json::from_str(object).unwrap_or_default();
    object.get(key).and_then(|member| serde_json::from_str(member.get()).ok()).unwrap_or_default()
}
