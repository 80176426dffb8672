//! On which line of a lockfile each source and each tool stands, however the file is laid out.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::source::SourceId;

/// Lines are counted from 1.
#[derive(Debug, Clone, Default)]
pub struct LockfileLines {
    sources: BTreeMap<String, SourceLines>,
}

#[derive(Debug, Clone)]
struct SourceLines {
    line: usize,
    tools: BTreeMap<String, usize>,
}

#[derive(Deserialize)]
struct LockfileDocument<'a> {
    #[serde(borrow, default)]
    sources: BTreeMap<String, &'a RawValue>,
}

#[derive(Deserialize)]
struct LockfileSource<'a> {
    #[serde(borrow, default)]
    tools: BTreeMap<String, &'a RawValue>,
}

impl LockfileLines {
    /// Of what is no lockfile, none.
    pub fn parse(text: &str) -> LockfileLines {
        let Ok(document) = serde_json::from_str::<LockfileDocument<'_>>(text) else { return LockfileLines::default() };
        let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
        // Values are parts of the text, so where they are in it is known; the name stands before the value.
        let line = |value: &RawValue| {
            let before = &text[..value.get().as_ptr().addr().saturating_sub(text.as_ptr().addr())];
            let name = before.trim_end().trim_end_matches(':').trim_end().len();
            1 + ends.partition_point(|end| *end < name)
        };
        let places = |(id, source): (String, &RawValue)| {
            let tools =
                serde_json::from_str::<LockfileSource<'_>>(source.get()).map(|source| source.tools).unwrap_or_default();
            let tools = tools.into_iter().map(|(name, tool)| (name, line(tool))).collect();
            (id, SourceLines { line: line(source), tools })
        };
        LockfileLines { sources: document.sources.into_iter().map(places).collect() }
    }

    /// Where a tool stands, else its source, else the file begins.
    pub fn find_line(&self, source: &SourceId, tool: &str) -> usize {
        let Some(places) = self.sources.get(source.as_str()) else { return 1 };
        places.tools.get(tool).copied().unwrap_or(places.line)
    }
}
