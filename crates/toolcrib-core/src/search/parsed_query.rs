//! A query, read: the terms it asks for, those related to them, and which stood side by side.

use super::tokenize::{self, Word};
use super::vocabulary::vocabulary;

/// A query is read so far, in bytes. More says less, and an agent may paste a book.
const MAX_QUERY_BYTES: usize = 4096;
const MAX_QUERY_TERMS: usize = 48;
const MAX_RELATED_TERMS: usize = 96;

#[derive(Debug, Default)]
pub(super) struct ParsedQuery<'a> {
    /// As it was written, cut to a bearable length.
    pub(super) text: &'a str,
    /// Every term once: a word that is repeated is not meant twice.
    pub(super) terms: Vec<QueryTerm>,
    /// Terms that nobody wrote and that mean nearly the same as one that was written.
    pub(super) related: Vec<RelatedTerm>,
    /// Terms that stood side by side, but for words that say nothing.
    pub(super) pairs: Vec<(u64, u64)>,
    /// The words, lower-cased, as they were written.
    pub(super) words: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct QueryTerm {
    pub(super) key: u64,
    pub(super) weight: f32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RelatedTerm {
    pub(super) key: u64,
    pub(super) weight: f32,
    /// Position of the term it stands for.
    pub(super) term_index: usize,
}

impl<'a> ParsedQuery<'a> {
    pub(super) fn parse(text: &'a str) -> ParsedQuery<'a> {
        let mut question = ParsedQuery { text: truncate_query(text), ..ParsedQuery::default() };
        question.add_words(|word| !vocabulary().is_stop_word(word));
        if question.terms.is_empty() {
            // A single one that usually says nothing may be meant; several say nothing together.
            question.add_words(|_| true);
            if question.terms.len() > 1 {
                question = ParsedQuery { text: question.text, ..ParsedQuery::default() };
            }
        }
        question.add_related();
        question
    }

    fn add_words(&mut self, speaks: impl Fn(&str) -> bool) {
        let text = self.text;
        let mut before = None;
        tokenize::for_each_word(text, |Word { whole, parts }| {
            if self.terms.len() >= MAX_QUERY_TERMS || !speaks(&whole) {
                return;
            }
            let key = self.add_term(&whole);
            parts.iter().for_each(|part| {
                self.add_term(part);
            });
            if let Some(before) = before.replace(key)
                && !self.pairs.contains(&(before, key))
            {
                self.pairs.push((before, key));
            }
            self.words.push(whole);
        });
    }

    fn add_term(&mut self, word: &str) -> u64 {
        let key = tokenize::term_key(word);
        if self.terms.iter().all(|term| term.key != key) {
            self.terms.push(QueryTerm { key, weight: vocabulary().weight(key) });
        }
        key
    }

    fn add_related(&mut self) {
        for (to, term) in self.terms.iter().enumerate() {
            for &(key, weight) in vocabulary().related(term.key) {
                let weight = weight * term.weight;
                if self.terms.iter().any(|term| term.key == key) {
                    continue;
                }
                match self.related.iter().position(|related| related.key == key) {
                    Some(known) if self.related[known].weight >= weight => {}
                    Some(known) => self.related[known] = RelatedTerm { key, weight, term_index: to },
                    None if self.related.len() < MAX_RELATED_TERMS => {
                        self.related.push(RelatedTerm { key, weight, term_index: to })
                    }
                    None => return,
                }
            }
        }
    }
}

/// Cut between characters.
fn truncate_query(text: &str) -> &str {
    let mut end = MAX_QUERY_BYTES.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
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
    fn words_that_say_nothing_are_left_out_unless_there_are_no_others() {
        check("What is the weather in Rome?", &["weather", "rome"]);
        check("who", &["who"]);
        check("the of a please", &[]);
        check("", &[]);
    }

    #[test]
    fn a_word_counts_once() {
        check("issue issues ISSUE", &["issue"]);
        check("GitHub git", &["github", "git", "hub"]);
    }

    #[test]
    fn however_long_it_is_it_is_read_to_an_end() {
        let text: String = (0..1_000_000).map(|number| format!("é{number} ")).collect();
        let question = ParsedQuery::parse(&text);
        assert!(question.text.len() <= MAX_QUERY_BYTES && question.terms.len() <= MAX_QUERY_TERMS + 8);
    }
}
