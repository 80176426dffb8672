//! Tokenized query: its terms, related terms (synonyms) and adjacent pairs. Independent of any catalogue. A query may
//! be a tool name, some keywords, or a whole task that an agent pasted; the bounds are for the last.

use super::tokenize::{self, Word};
use super::vocabulary::vocabulary;

/// Maximum number of bytes of a query that are read. The rest is ignored: agents paste whole documents.
const MAX_QUERY_BYTES: usize = 4096;
/// Maximum number of distinct terms; bounds the work per query. Later terms are ignored.
const MAX_QUERY_TERMS: usize = 48;
/// Maximum number of related terms.
const MAX_RELATED_TERMS: usize = 96;

/// A query as terms.
#[derive(Debug, Default)]
pub(super) struct ParsedQuery<'a> {
    /// The original text, truncated to [`MAX_QUERY_BYTES`].
    pub(super) text: &'a str,
    /// Distinct terms: repeating a word does not raise its weight.
    pub(super) terms: Vec<QueryTerm>,
    /// Synonyms and related terms that the query does not contain itself.
    pub(super) related: Vec<RelatedTerm>,
    /// Keys of terms that are adjacent in the query, ignoring stop words.
    pub(super) pairs: Vec<(u64, u64)>,
    /// Words in lower case, not stemmed.
    pub(super) words: Vec<String>,
}

/// A term of the query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct QueryTerm {
    pub(super) key: u64,
    /// Below 1 for words that usually frame a request, such as `want`.
    pub(super) weight: f32,
}

/// A related term, weighted by the term it replaces.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RelatedTerm {
    pub(super) key: u64,
    pub(super) weight: f32,
    /// Position in [`ParsedQuery::terms`] of the term it replaces.
    pub(super) term_index: usize,
}

impl<'a> ParsedQuery<'a> {
    /// Tokenizes a query. Stop words are dropped unless the query is a single stop word.
    pub(super) fn parse(text: &'a str) -> ParsedQuery<'a> {
        let mut parsed =
            ParsedQuery { text: &text[..text.floor_char_boundary(MAX_QUERY_BYTES)], ..ParsedQuery::default() };
        parsed.add_words(|word| !vocabulary().is_stop_word(word));
        if parsed.terms.is_empty() {
            // One stop word alone may be meant literally (`who`); several of them say nothing.
            parsed.add_words(|_| true);
            if parsed.terms.len() > 1 {
                parsed = ParsedQuery { text: parsed.text, ..ParsedQuery::default() };
            }
        }
        parsed.add_related();
        parsed
    }

    /// Adds all words that `is_significant` accepts.
    fn add_words(&mut self, is_significant: impl Fn(&str) -> bool) {
        let text = self.text;
        let mut previous = None;
        tokenize::for_each_word(text, |Word { whole, parts }| {
            if self.terms.len() >= MAX_QUERY_TERMS || !is_significant(&whole) {
                return;
            }
            // The parts of a compound word are terms too, but only the whole word is part of pairs.
            let key = self.add_term(&whole);
            parts.iter().for_each(|part| {
                self.add_term(part);
            });
            if let Some(previous) = previous.replace(key)
                && !self.pairs.contains(&(previous, key))
            {
                self.pairs.push((previous, key));
            }
            self.words.push(whole);
        });
    }

    /// Adds a word as a term, unless it is known, and returns its key.
    fn add_term(&mut self, word: &str) -> u64 {
        let key = tokenize::term_key(word);
        if self.terms.iter().all(|term| term.key != key) {
            self.terms.push(QueryTerm { key, weight: vocabulary().weight(key) });
        }
        key
    }

    /// Adds related terms of the vocabulary; of several weights for the same term, the highest counts.
    fn add_related(&mut self) {
        for (term_index, term) in self.terms.iter().enumerate() {
            for &(key, weight) in vocabulary().related(term.key) {
                let weight = weight * term.weight;
                if self.terms.iter().any(|term| term.key == key) {
                    continue;
                }
                match self.related.iter().position(|related| related.key == key) {
                    Some(known) if self.related[known].weight >= weight => {}
                    Some(known) => self.related[known] = RelatedTerm { key, weight, term_index },
                    None if self.related.len() < MAX_RELATED_TERMS => {
                        self.related.push(RelatedTerm { key, weight, term_index })
                    }
                    None => return,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let found: Vec<u64> = ParsedQuery::parse(text).terms.iter().map(|term| term.key).collect();
        let expected: Vec<u64> = expected.iter().map(|word| tokenize::term_key(word)).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn stop_words_are_dropped_unless_the_query_is_a_single_one() {
        check("What is the weather in Rome?", &["weather", "rome"]);
        check("who", &["who"]);
        check("the of a please", &[]);
        check("", &[]);
    }

    #[test]
    fn a_repeated_word_is_one_term() {
        check("issue issues ISSUE", &["issue"]);
        check("GitHub git", &["github", "git", "hub"]);
    }

    #[test]
    fn a_very_long_query_is_truncated() {
        let text: String = (0..1_000_000).map(|number| format!("é{number} ")).collect();
        let parsed = ParsedQuery::parse(&text);
        assert!(parsed.text.len() <= MAX_QUERY_BYTES && parsed.terms.len() <= MAX_QUERY_TERMS + 8);
    }
}
