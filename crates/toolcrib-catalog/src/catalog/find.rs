//! Finds a tool by name and, if there is none, suggests similar names.
//!
//! Agents write names in several ways, and an exactly named tool must always be found. Attempts in this order:
//!
//! ```text
//! github__push   the name in the catalogue, or the source's own name behind the prefix
//! GitHub/push    a qualified name whose source is normalised first
//! push           the original name, if one source alone has it
//! a:b            the whole text as an original name, which may contain separators
//! ```

use serde_json::json;
use toolcrib_core::error::{Code, Error, Result};
use toolcrib_core::policy::Verdict;
use toolcrib_core::source::SourceId;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::tool::{ParsedToolName, parse_tool_name};

use super::view::VisibleTools;
use super::{Catalog, ToolRef};

/// Maximum number of names in "did you mean". The text is read by agents, and each name costs tokens.
const MAX_SUGGESTIONS: usize = 3;
/// Minimum similarity of a suggested name, from 0 to 1.
/// Names that only contain the requested text score 0.7 and pass.
const MIN_SIMILARITY: f64 = 0.6;

impl Catalog {
    /// Finds a tool by its name in the catalogue, by `source__tool`, `source/tool` or `source:tool`, or by its original
    /// name if that is unique. Among all tools, whatever a principal may see: for the registry itself and for
    /// administration. What is shown to a client is found by [`View::find`](super::View::find).
    ///
    /// Shadowed tools are not found. Disabled and hidden ones are: the caller decides what to answer for them.
    /// # Errors
    /// `TOOL_INVALID_INPUT` for malformed and ambiguous names, `TOOL_NOT_IMPLEMENTED` for unknown ones.
    pub fn find(&self, name: &str) -> Result<ToolRef<'_>> {
        VisibleTools::all(self).find(name)
    }

    /// Error for an unknown name, with suggestions among all tools, whatever a principal may see.
    pub fn unknown_tool_error(&self, name: &str) -> Error {
        VisibleTools::all(self).unknown_tool_error(name)
    }
}

impl<'a> VisibleTools<'a> {
    /// Finds a tool by any spelling of its name.
    pub(super) fn find(self, name: &str) -> Result<ToolRef<'a>> {
        self.find_known(name)?.ok_or_else(|| self.unknown_tool_error(name))
    }

    /// Like [`VisibleTools::find`]; `None` for an unknown name, whose error would look at every tool.
    pub(super) fn find_known(self, name: &str) -> Result<Option<ToolRef<'a>>> {
        let found = match parse_tool_name(name)? {
            ParsedToolName::Qualified { source, tool } => self.find_qualified(source, tool),
            ParsedToolName::Bare(tool) => match &self.find_by_bare_name(tool)[..] {
                [] => None,
                [only] => Some(*only),
                several => return Err(ambiguous_name_error(tool, several)),
            },
        };
        // The original name of a tool may contain a separator, so try the whole text as a bare name.
        // Only if it is unique: a guess between several tools would call the wrong one.
        Ok(found.or_else(|| match &self.find_by_bare_name(name)[..] {
            [only] => Some(*only),
            _ => None,
        }))
    }

    /// Error for an unknown name, with suggestions. The code is `TOOL_INVALID_INPUT` if no tool could have that name.
    /// The suggestions are in the details too, as `near`, for programs.
    pub(super) fn unknown_tool_error(self, name: &str) -> Error {
        let near = self.similar_names(name);
        let shown = sanitize_truncated(name, 80);
        let is_illegal =
            |letter: char| letter.is_whitespace() || (letter.is_ascii_punctuation() && !"_-.:/".contains(letter));
        let code = if name.contains(is_illegal) { Code::ToolInvalidInput } else { Code::ToolNotImplemented };
        let error = match &near[..] {
            [] => {
                let error = Error::new(code, format!("no tool named `{shown}`"));
                let error = error.with_next_step("toolcrib search WORDS", "GET /api/search?q=WORDS", "finds tools");
                error.with_meta_tool("search_tools")
            }
            names => {
                let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                Error::new(code, format!("no tool named `{shown}`; did you mean {}?", names.join(" or ")))
            }
        };
        error.with_details(json!({ "near": near }))
    }

    /// Finds a tool of a given source by its name without prefix or its original name.
    fn find_qualified(self, source: &str, tool: &str) -> Option<ToolRef<'a>> {
        // Try the id as written before normalising it: agents mostly use the exact id.
        let visible =
            self.find_source(source).or_else(|| self.find_source(SourceId::normalize_name(source).ok()?.as_str()))?;
        let segment = &visible.source.segment;
        let name = format!("{}{tool}", segment.prefix());
        let position = segment.position_of_name(&name).or_else(|| segment.position_of_original(tool))?;
        visible.shows(position).then(|| visible.tool(position))
    }

    /// Returns all visible tools with this original name, or only the built-in one if there is one.
    /// A built-in tool is what agents see under the bare name, so it is not ambiguous with others of that name. Hidden
    /// tools are found only if no other has the name.
    fn find_by_bare_name(self, tool: &str) -> Vec<ToolRef<'a>> {
        let mut found = Vec::new();
        for visible in self.sources() {
            let segment = &visible.source.segment;
            let name = format!("{}{tool}", segment.prefix());
            let position = segment.position_of_original(tool).or_else(|| segment.position_of_name(&name));
            let Some(position) = position.filter(|position| visible.shows(*position)) else { continue };
            let tool = visible.tool(position);
            if visible.source.options.builtin && tool.verdict() != Verdict::Hide {
                return vec![tool];
            }
            found.push(tool);
        }
        if found.iter().any(|tool| tool.verdict() != Verdict::Hide) {
            found.retain(|tool| tool.verdict() != Verdict::Hide);
        }
        found
    }

    /// Returns up to [`MAX_SUGGESTIONS`] names of tools that agents see, most similar first.
    /// Looks at every visible tool, which is why [`NameMatcher`] avoids most exact comparisons.
    fn similar_names(self, name: &str) -> Vec<String> {
        let matcher = NameMatcher::new(name);
        let candidates = self.iter().filter(ToolRef::is_offered);
        let mut nearest: Vec<(f64, &str)> = Vec::with_capacity(MAX_SUGGESTIONS + 1);
        for tool in candidates {
            // Once the list is full, names less similar than its last need no exact comparison.
            let floor = nearest.get(MAX_SUGGESTIONS - 1).map_or(MIN_SIMILARITY, |(score, _)| *score);
            let full_name_score = matcher.similarity(tool.name().as_str(), floor);
            let score = full_name_score.max(matcher.similarity(tool.original_name(), floor));
            if score > MIN_SIMILARITY {
                // Equal scores are sorted by name, so that the message does not depend on the order of the sources.
                let position = nearest.partition_point(|(other_score, name)| {
                    other_score.total_cmp(&score).reverse().then((*name).cmp(tool.name().as_str())).is_lt()
                });
                nearest.insert(position, (score, tool.name().as_str()));
                nearest.truncate(MAX_SUGGESTIONS);
            }
        }
        nearest.into_iter().map(|(_, name)| name.to_owned()).collect()
    }
}

/// Compares one name with many. Counts letters for a cheap upper bound of the similarity before the exact computation.
struct NameMatcher {
    /// Lower case.
    text: String,
    /// In characters.
    length: usize,
    /// Number of occurrences by character code modulo [`LETTER_BUCKETS`].
    letter_counts: [i32; LETTER_BUCKETS],
}

/// Number of counters. ASCII letters have one each; other letters share them, which makes the bound looser but never
/// wrong.
const LETTER_BUCKETS: usize = 128;

impl NameMatcher {
    fn new(name: &str) -> NameMatcher {
        let text = name.to_lowercase();
        let mut letter_counts = [0; LETTER_BUCKETS];
        text.chars().for_each(|letter| letter_counts[letter as usize % LETTER_BUCKETS] += 1);
        NameMatcher { length: text.chars().count(), text, letter_counts }
    }

    /// Similarity from 0 to 1: normalised edit distance, or 0.7 for a name that contains the text. Exact only if it is
    /// at least `floor`; below that, the result may be lower.
    fn similarity(&self, name: &str, floor: f64) -> f64 {
        let name = name.to_lowercase();
        // Very short texts are contained in too many names to be a useful hint.
        let substring_score = if self.length > 3 && name.contains(&self.text) { 0.7 } else { 0.0 };
        if self.max_similarity(&name) < floor {
            return substring_score;
        }
        strsim::normalized_damerau_levenshtein(&self.text, &name).max(substring_score)
    }

    /// Upper bound of the similarity: one edit corrects at most one surplus and one missing letter.
    fn max_similarity(&self, name: &str) -> f64 {
        let mut surplus = self.letter_counts;
        let mut length = 0;
        for letter in name.chars() {
            surplus[letter as usize % LETTER_BUCKETS] -= 1;
            length += 1;
        }
        let too_many: i32 = surplus.iter().map(|count| (*count).max(0)).sum();
        let too_few: i32 = surplus.iter().map(|count| (-count).max(0)).sum();
        1.0 - f64::from(too_many.max(too_few)) / self.length.max(length).max(1) as f64
    }
}

/// Error for a bare name that several sources have.
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
        fn max_similarity_is_an_upper_bound(name in "[a-cé_]{0,12}", candidate in "[A-Ca-cé_]{0,12}") {
            let exact = strsim::normalized_damerau_levenshtein(&name, &candidate.to_lowercase());
            let matcher = NameMatcher::new(&name);
            prop_assert!(matcher.max_similarity(&candidate.to_lowercase()) >= exact);
            prop_assert!(matcher.similarity(&candidate, exact) >= exact);
        }
    }
}
