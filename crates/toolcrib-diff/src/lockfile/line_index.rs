//! Finds the line of each source and tool in the text of a lockfile, however the file is formatted.
//!
//! For reports that point into the file, such as annotations in a code review. A tool that is new has no line, so its
//! source's line stands for it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use toolcrib_core::source::SourceId;

/// Line numbers of a lockfile, counted from 1.
#[derive(Debug, Clone, Default)]
pub struct LockfileLines {
    sources: BTreeMap<String, SourceLines>,
}

/// Lines of one source and its tools.
#[derive(Debug, Clone)]
struct SourceLines {
    /// Line of the source itself.
    line: usize,
    tools: BTreeMap<String, usize>,
}

/// The sources of a lockfile as slices of its text.
#[derive(Deserialize)]
struct LockfileDocument<'a> {
    #[serde(borrow, default)]
    sources: BTreeMap<String, &'a RawValue>,
}

/// The tools of a source as slices of its text.
#[derive(Deserialize)]
struct LockfileSource<'a> {
    #[serde(borrow, default)]
    tools: BTreeMap<String, &'a RawValue>,
}

impl LockfileLines {
    /// Indexes the text of a lockfile. Text that is none has no lines.
    pub fn parse(text: &str) -> LockfileLines {
        let Ok(document) = serde_json::from_str::<LockfileDocument<'_>>(text) else { return LockfileLines::default() };
        let line_ends: Vec<usize> = text.match_indices('\n').map(|(offset, _)| offset).collect();
        // Borrowed raw values are slices of `text`, so their addresses yield their offsets. The name precedes the
        // value.
        let line = |value: &RawValue| {
            let before = &text[..value.get().as_ptr().addr().saturating_sub(text.as_ptr().addr())];
            let name_end = before.trim_end().trim_end_matches(':').trim_end().len();
            1 + line_ends.partition_point(|line_end| *line_end < name_end)
        };
        let source_lines = |(id, source): (String, &RawValue)| {
            let tools =
                serde_json::from_str::<LockfileSource<'_>>(source.get()).map(|source| source.tools).unwrap_or_default();
            let tools = tools.into_iter().map(|(name, tool)| (name, line(tool))).collect();
            (id, SourceLines { line: line(source), tools })
        };
        LockfileLines { sources: document.sources.into_iter().map(source_lines).collect() }
    }

    /// Returns the line of a tool, else of its source, else 1.
    pub fn find_line(&self, source: &SourceId, tool: &str) -> usize {
        let Some(source_lines) = self.sources.get(source.as_str()) else { return 1 };
        source_lines.tools.get(tool).copied().unwrap_or(source_lines.line)
    }
}
