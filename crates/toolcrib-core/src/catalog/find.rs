//! Finding the tool somebody asked for by name, or saying which they may have meant.

use serde_json::json;

use super::{Catalog, ToolRef, ToolStatus};
use crate::error::{Code, Error, Result};
use crate::policy::Verdict;
use crate::source::SourceId;
use crate::text::sanitize_truncated;
use crate::tool::{ParsedToolName, parse_tool_name};

const MAX_SUGGESTIONS: usize = 3;
/// How close a name must be to be worth mentioning, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.6;

impl Catalog {
    /// By the name agents see, by `source__tool`, `source/tool` or `source:tool`, or bare when it is unique.
    pub fn find(&self, name: &str) -> Result<ToolRef<'_>> {
        let found = match parse_tool_name(name)? {
            ParsedToolName::Qualified { source, tool } => self.find_qualified(source, tool),
            ParsedToolName::Bare(tool) => match &self.find_by_bare_name(tool)[..] {
                [] => None,
                [only] => Some(*only),
                several => return Err(ambiguous_name_error(tool, several)),
            },
        };
        // A tool's own name may hold a separator too.
        let found = found.or_else(|| match &self.find_by_bare_name(name)[..] {
            [only] => Some(*only),
            _ => None,
        });
        found.ok_or_else(|| self.unknown_tool_error(name))
    }

    /// `TOOL_NOT_IMPLEMENTED`, with the names that come nearest; what can be no name at all is a wrong one.
    pub fn unknown_tool_error(&self, name: &str) -> Error {
        let near = self.similar_names(name);
        let shown = sanitize_truncated(name, 80);
        let message = match &near[..] {
            [] => format!("no tool named `{shown}`"),
            names => {
                let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                format!("no tool named `{shown}`; did you mean {}?", names.join(" or "))
            }
        };
        let odd = |letter: char| letter.is_whitespace() || (letter.is_ascii_punctuation() && !"_-.:/".contains(letter));
        let code = if name.contains(odd) { Code::ToolInvalidInput } else { Code::ToolNotImplemented };
        Error::new(code, message).with_details(json!({ "near": near }))
    }

    fn find_qualified(&self, source: &str, tool: &str) -> Option<ToolRef<'_>> {
        // Most write the id as it is; any other spelling is made one first.
        let placed =
            self.find_source(source).or_else(|| self.find_source(SourceId::normalise_name(source).ok()?.as_str()))?;
        let segment = &placed.source.segment;
        let name = format!("{}{tool}", segment.prefix());
        let position = segment.position_of_name(&name).or_else(|| segment.position_of_original(tool))?;
        let entry = &segment.entries()[position];
        placed.masked.binary_search(&position).is_err().then_some(ToolRef { catalog_source: &placed.source, entry })
    }

    /// Every tool whose own name this is; a built-in goes before all others.
    fn find_by_bare_name(&self, tool: &str) -> Vec<ToolRef<'_>> {
        let mut found = Vec::new();
        for placed in self.positioned_sources() {
            let segment = &placed.source.segment;
            let name = format!("{}{tool}", segment.prefix());
            let position = segment.position_of_original(tool).or_else(|| segment.position_of_name(&name));
            let Some(position) = position.filter(|position| placed.masked.binary_search(position).is_err()) else {
                continue;
            };
            let entry = &segment.entries()[position];
            let tool = ToolRef { catalog_source: &placed.source, entry };
            if placed.source.options.builtin {
                return vec![tool];
            }
            if tool.verdict() != Verdict::Hide {
                found.push(tool);
            }
        }
        found
    }

    fn similar_names(&self, name: &str) -> Vec<String> {
        let wanted = NameMatcher::new(name);
        let seen = self.tools().filter(|tool| {
            tool.verdict() != Verdict::Hide && !tool.is_internal() && tool.status() == ToolStatus::Active
        });
        let mut nearest: Vec<(f64, &str)> = Vec::with_capacity(MAX_SUGGESTIONS + 1);
        for tool in seen {
            // Whoever is farther than the last of a full list need not be measured.
            let floor = nearest.get(MAX_SUGGESTIONS - 1).map_or(MIN_SIMILARITY, |(score, _)| *score);
            let full = wanted.similarity(tool.name().as_str(), floor);
            let score = full.max(wanted.similarity(tool.original_name(), floor));
            if score > MIN_SIMILARITY {
                let place = nearest.partition_point(|(better, name)| {
                    better.total_cmp(&score).reverse().then((*name).cmp(tool.name().as_str())).is_lt()
                });
                nearest.insert(place, (score, tool.name().as_str()));
                nearest.truncate(MAX_SUGGESTIONS);
            }
        }
        nearest.into_iter().map(|(_, name)| name.to_owned()).collect()
    }
}

/// A name that somebody asked for, to be compared with every name there is: hence the quick look before the exact one.
struct NameMatcher {
    text: String,
    length: usize,
    letter_counts: [i32; LETTER_BUCKETS],
}

const LETTER_BUCKETS: usize = 128;

impl NameMatcher {
    fn new(name: &str) -> NameMatcher {
        let text = name.to_lowercase();
        let mut letters = [0; LETTER_BUCKETS];
        text.chars().for_each(|letter| letters[letter as usize % LETTER_BUCKETS] += 1);
        NameMatcher { length: text.chars().count(), text, letter_counts: letters }
    }

    /// A slip of the finger is close; so is a name that holds all that was asked for. Below `floor` it may be any less.
    fn similarity(&self, name: &str, floor: f64) -> f64 {
        let name = name.to_lowercase();
        let held = if self.length > 3 && name.contains(&self.text) { 0.7 } else { 0.0 };
        if self.max_similarity(&name) < floor {
            return held;
        }
        strsim::normalized_damerau_levenshtein(&self.text, &name).max(held)
    }

    /// No edit makes up for more than one letter too many and one too few.
    fn max_similarity(&self, name: &str) -> f64 {
        let (mut letters, mut length) = (self.letter_counts, 0);
        for letter in name.chars() {
            letters[letter as usize % LETTER_BUCKETS] -= 1;
            length += 1;
        }
        let too_many: i32 = letters.iter().map(|surplus| (*surplus).max(0)).sum();
        let too_few: i32 = letters.iter().map(|surplus| (-surplus).max(0)).sum();
        1.0 - f64::from(too_many.max(too_few)) / self.length.max(length).max(1) as f64
    }
}

fn ambiguous_name_error(tool: &str, several: &[ToolRef<'_>]) -> Error {
    let names: Vec<&str> = several.iter().map(|tool| tool.name().as_str()).collect();
    let message = format!("`{}` is offered by several sources: {}", sanitize_truncated(tool, 80), names.join(", "));
    Error::new(Code::ToolInvalidInput, message).with_details(json!({ "candidates": names }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_quick_look_never_rules_out_what_is_close(wanted in "[a-cé_]{0,12}", name in "[A-Ca-cé_]{0,12}") {
            let exact = strsim::normalized_damerau_levenshtein(&wanted, &name.to_lowercase());
            let wanted = NameMatcher::new(&wanted);
            prop_assert!(wanted.max_similarity(&name.to_lowercase()) >= exact);
            prop_assert!(wanted.similarity(&name, exact) >= exact);
        }
    }
}
