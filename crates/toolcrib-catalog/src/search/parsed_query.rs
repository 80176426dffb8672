//! Tokenized query: its terms, related terms (synonyms) and adjacent pairs. Independent of any catalogue. A query may
//! be a tool name, some keywords, or a whole task that an agent pasted; the bounds are for the last.

use super::query_text::{self, QueryWord, StatedSource, WordKind};
use super::tokenize::{self, Word};
use super::vocabulary::vocabulary;

/// Maximum number of bytes of a query that are read, on every interface. The rest is ignored: agents paste whole
/// documents, and an error would not help them.
pub(super) const MAX_QUERY_BYTES: usize = 4096;
/// Maximum number of distinct terms; bounds the work per query. Later terms are ignored.
const MAX_QUERY_TERMS: usize = 48;
/// Maximum number of related terms.
const MAX_RELATED_TERMS: usize = 96;
/// Share of its weight that a number, a date or the extension of a file has beside words.
const NUMBER_WEIGHT: f32 = 0.6;
/// Share of its weight that a word of a path or address has beside words. Less than that of a number: most are rare
/// words, and together they would outweigh the words of the query.
const PATH_WEIGHT: f32 = 0.25;

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
    /// Whether it asks for something to be shown.
    pub(super) is_question: bool,
    /// Whether it is written in another language than English.
    pub(super) is_foreign: bool,
    /// Names that may be those of sources the query states.
    pub(super) stated_sources: Vec<StatedSource>,
}

/// A term of the query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct QueryTerm {
    pub(super) key: u64,
    /// Below 1 for words that usually frame a request, such as `want`, and for numbers, dates and paths beside words.
    pub(super) weight: f32,
    /// Whether it only occurs in paths and addresses, beside words.
    pub(super) is_in_path: bool,
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
        let words = query_text::words(parsed.text);
        parsed.add_words(&words, |word| !vocabulary().is_stop_word(word));
        if parsed.terms.is_empty() {
            // One stop word alone may be meant literally (`who`); several of them say nothing.
            parsed.add_words(&words, |_| true);
            if parsed.terms.len() > 1 {
                parsed = ParsedQuery { text: parsed.text, ..ParsedQuery::default() };
            }
        }
        parsed.add_related();
        parsed.is_question = query_text::is_question(&words);
        parsed.is_foreign = query_text::is_foreign(&words);
        parsed.stated_sources = query_text::stated_sources(&words);
        parsed
    }

    /// Adds all words that `is_significant` accepts.
    fn add_words(&mut self, words: &[QueryWord], is_significant: impl Fn(&str) -> bool) {
        let significant: Vec<&QueryWord> = words.iter().filter(|word| is_significant(word.whole())).collect();
        let has_text = significant.iter().any(|word| word.kind == WordKind::Text);
        let mut previous = None;
        for QueryWord { word: Word { whole, parts }, kind } in significant {
            if self.terms.len() >= MAX_QUERY_TERMS {
                break;
            }
            // Without other words, values are what the query is about.
            let kind = if has_text { *kind } else { WordKind::Text };
            // The parts of a compound word are terms too, but only the whole word is part of pairs.
            let key = self.add_term(whole, kind);
            parts.iter().for_each(|part| {
                self.add_term(part, kind);
            });
            self.words.push(whole.clone());
            // A path is no part of what the words around it say.
            if kind.is_in_path() {
                previous = None;
                continue;
            }
            if let Some(previous) = previous.replace(key)
                && !self.pairs.contains(&(previous, key))
            {
                self.pairs.push((previous, key));
            }
        }
    }

    /// Adds a word as a term and returns its key. Of several occurrences, the one with the largest weight counts.
    fn add_term(&mut self, word: &str, kind: WordKind) -> u64 {
        let key = tokenize::term_key(word);
        let share = match kind {
            WordKind::Text => 1.0,
            WordKind::Number | WordKind::Extension => NUMBER_WEIGHT,
            WordKind::Path => PATH_WEIGHT,
        };
        let weight = share * vocabulary().weight(key);
        match self.terms.iter_mut().find(|term| term.key == key) {
            Some(known) => {
                known.weight = known.weight.max(weight);
                known.is_in_path &= kind.is_in_path();
            }
            None => self.terms.push(QueryTerm { key, weight, is_in_path: kind.is_in_path() }),
        }
        key
    }

    /// Adds related terms of the vocabulary, except to parts of paths; of several weights for the same term, the highest
    /// counts.
    fn add_related(&mut self) {
        for (term_index, term) in self.terms.iter().enumerate().filter(|(_, term)| !term.is_in_path) {
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
    fn numbers_and_paths_count_less_beside_words() {
        let weights = |text: &str| ParsedQuery::parse(text).terms.iter().map(|term| term.weight).collect::<Vec<_>>();
        assert_eq!(weights("issue 42"), [1.0, NUMBER_WEIGHT]);
        assert_eq!(weights("merge /srv/data"), [1.0, PATH_WEIGHT, PATH_WEIGHT]);
        assert_eq!(weights("42"), [1.0]);
        assert_eq!(weights("7 issues of 7"), [NUMBER_WEIGHT, 1.0]);
    }

    #[test]
    fn a_very_long_query_is_truncated() {
        let text: String = (0..1_000_000).map(|number| format!("é{number} ")).collect();
        let parsed = ParsedQuery::parse(&text);
        assert!(parsed.text.len() <= MAX_QUERY_BYTES && parsed.terms.len() <= MAX_QUERY_TERMS + 8);
    }
}
