//! Recognises tool names in a query, in any spelling, inside a sentence or misspelled, and ranks those tools first.
//!
//! ```text
//! "github__create_issue"          Exact
//! "Create issue", "createIssue"   Normalized
//! "creating issues"               SameStems
//! "craete_issue"                  Typo, if nothing else matches
//! ```

use std::collections::HashMap;

use super::index::SearchIndex;
use super::parsed_query::ParsedQuery;
use super::query_text;
use super::rank::{ScoredTool, compare_scores};
use super::tokenize::{self, Word};
use super::vocabulary::vocabulary;

/// Minimum and maximum length of a name for typo matching. Shorter names are too close to each other; longer ones
/// exceed the maximum length of tool names.
const MIN_GUESSED_LEN: usize = 5;
const MAX_GUESSED_LEN: usize = 64;
/// Minimum length of a name for an edit distance of 2.
const MIN_TWO_TYPOS_LEN: usize = 9;
/// Maximum number of words in a query that is compared with names as a whole; longer ones are sentences.
const MAX_NAME_WORDS: usize = 6;
/// Maximum number of words of a query that are looked up as names. As many as terms of a query.
const MAX_IDENTIFIERS: usize = 48;
/// Score added for a name match; larger than any sum of term scores.
const NAME_MATCH_SCORE: f32 = 1000.0;

/// How a tool's name matches the query. Ordered from weak to strong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NameMatch {
    /// Same words in other inflections; the query may just use these words.
    SameStems,
    /// Within a small edit distance.
    Typo,
    /// Equal after removal of case and punctuation.
    Normalized,
    /// Equal character by character.
    Exact,
}

impl NameMatch {
    /// Whether the query means this very name, so that the tool must not be collapsed into a duplicate.
    pub(super) fn is_certain(self) -> bool {
        match self {
            NameMatch::Exact | NameMatch::Normalized | NameMatch::Typo => true,
            NameMatch::SameStems => false,
        }
    }
}

/// Returns the tools whose names occur in the query.
pub(super) fn match_names(index: &SearchIndex, parsed: &ParsedQuery<'_>) -> HashMap<u32, NameMatch> {
    let mut named: HashMap<u32, NameMatch> = HashMap::new();
    let mut add = |tools: &[u32], text: &str, match_kind: NameMatch| {
        for tool in tools {
            // Either the name in the catalogue or the one that the source uses.
            let is_exact =
                index.tool(*tool).is_some_and(|tool| tool.name().as_str() == text || tool.original_name() == text);
            let match_kind = if is_exact { NameMatch::Exact } else { match_kind };
            named.entry(*tool).and_modify(|current| *current = match_kind.max(*current)).or_insert(match_kind);
        }
    };
    // The whole query as a name, then each word that is written like an identifier, then by stems.
    let normalized = tokenize::normalize_name(parsed.text);
    add(index.name_index().find_normalized(&normalized), parsed.text.trim(), NameMatch::Normalized);
    for names in written_names(parsed.text) {
        for name in names {
            let tools = index.name_index().find_normalized(&tokenize::normalize_name(name));
            add(tools, name, NameMatch::Normalized);
            if !tools.is_empty() {
                break;
            }
        }
    }
    if parsed.words.len() <= MAX_NAME_WORDS {
        add(index.name_index().find_by_stems(parsed.text), parsed.text, NameMatch::SameStems);
    }
    if named.is_empty() && parsed.words.len() <= MAX_NAME_WORDS && !parsed.is_foreign {
        named = typo_matches(index, parsed.text);
    }
    if named.is_empty() {
        for mut names in written_names(parsed.text) {
            let found = names.find_map(|name| Some(typo_matches(index, name)).filter(|found| !found.is_empty()));
            named.extend(found.unwrap_or_default());
        }
    }
    named
}

/// Parts of a query that are written like the name of a tool, each with the names that it may stand for, the likeliest
/// first. Bounded, because thousands of tools may share one name and a query may repeat it a thousand times.
fn written_names(text: &str) -> impl Iterator<Item = impl Iterator<Item = &str>> {
    let identifiers = text.split_whitespace().filter(|word| is_identifier(word)).map(trim_punctuation);
    let written = query_text::quoted_names(text).chain(identifiers).take(MAX_IDENTIFIERS);
    // A client shows a tool as `mcp__SERVER__TOOL`: the server may be a source, or Toolcrib itself.
    written.map(|word| std::iter::once(word).chain(client_name_suffixes(word)))
}

/// Raises the scores of tools matched by name above all others and sorts `best` again.
pub(super) fn boost_named(named: &HashMap<u32, NameMatch>, best: &mut [ScoredTool]) {
    if named.is_empty() {
        return;
    }
    for scored in best.iter_mut() {
        match named.get(&scored.tool) {
            Some(NameMatch::Exact) => scored.score += 3.0 * NAME_MATCH_SCORE,
            Some(NameMatch::Normalized) => scored.score += 2.0 * NAME_MATCH_SCORE,
            Some(NameMatch::Typo | NameMatch::SameStems) => scored.score += NAME_MATCH_SCORE,
            None => {}
        }
    }
    best.sort_by(compare_scores);
}

/// Names that `mcp__SERVER__TOOL` may stand for, longest first: without `mcp`, and without the server.
fn client_name_suffixes(word: &str) -> impl Iterator<Item = &str> {
    let mut rest = word.strip_prefix("mcp__");
    std::iter::from_fn(move || {
        let name = rest?;
        rest = name.split_once("__").map(|(_, tool)| tool);
        Some(name)
    })
}

/// Whether a word is written like an identifier: `create_issue`, `github/create_issue`, `create-issue`, `createIssue`.
fn is_identifier(word: &str) -> bool {
    let inner = trim_punctuation(word);
    let mut neighbours = inner.chars().zip(inner.chars().skip(1));
    inner.contains(['_', '/', ':', '-', '.']) || neighbours.any(|(a, b)| a.is_lowercase() && b.is_uppercase())
}

/// Strips punctuation from both ends of a word.
fn trim_punctuation(word: &str) -> &str {
    word.trim_matches(|character: char| !character.is_alphanumeric())
}

/// Returns the tools with the smallest edit distance between their names and a text, at most 1 or 2. Only for texts with
/// an unknown word: `get_user` is a name of its own and no misspelling of `set_user`.
fn typo_matches(index: &SearchIndex, text: &str) -> HashMap<u32, NameMatch> {
    let normalized = &tokenize::normalize_name(text);
    let length = normalized.chars().count();
    if !(MIN_GUESSED_LEN..=MAX_GUESSED_LEN).contains(&length) || !has_unknown_word(index, text) {
        return HashMap::new();
    }
    let max_distance = if length < MIN_TWO_TYPOS_LEN { 1 } else { 2 };
    let mut nearest: HashMap<u32, NameMatch> = HashMap::new();
    let mut min_distance = max_distance;
    for (tool, is_full_name) in index.name_index().find_within_distance(normalized, max_distance) {
        let Some(card) = index.card(tool) else { continue };
        let name = if is_full_name { &card.normalized_full_name } else { &card.normalized_name };
        let distance = strsim::osa_distance(normalized, name);
        if distance > min_distance {
            continue;
        }
        if distance < min_distance {
            nearest.clear();
            min_distance = distance;
        }
        nearest.insert(tool, NameMatch::Typo);
    }
    nearest
}

/// Whether a text has a word that no tool has.
fn has_unknown_word(index: &SearchIndex, text: &str) -> bool {
    let is_unknown = |word: &String| index.document_frequency(tokenize::term_key(word)) == 0;
    let mut has_unknown = false;
    tokenize::for_each_word(text, |Word { whole, parts }| {
        let is_word = !vocabulary().is_stop_word(&whole);
        has_unknown |= is_word && parts.iter().chain(parts.is_empty().then_some(&whole)).any(is_unknown);
    });
    has_unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_recognised_by_separators_and_camel_case() {
        for word in ["create_issue", "`github__create_issue`", "github/create", "createIssue,", "a:b", "get-user."] {
            assert!(is_identifier(word), "{word}");
        }
        for word in ["issue", "Issue", "ISSUE", "end.", "(so)", "_", "-"] {
            assert!(!is_identifier(word), "{word}");
        }
    }
}
