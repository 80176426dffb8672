//! A query, read: the terms it asks for, those related to them, and which stood side by side.

use super::vocabulary::vocabulary;
use super::words::{self, Word};

/// A query is read so far, in bytes. More says less, and an agent may paste a book.
const LONGEST: usize = 4096;
const MOST_TERMS: usize = 48;
const MOST_RELATED: usize = 96;

#[derive(Debug, Default)]
pub(super) struct Question<'a> {
    /// As it was written, cut to a bearable length.
    pub(super) text: &'a str,
    /// Every term once: a word that is repeated is not meant twice.
    pub(super) terms: Vec<Term>,
    /// Terms that nobody wrote and that mean nearly the same as one that was written.
    pub(super) related: Vec<Related>,
    /// Terms that stood side by side, but for words that say nothing.
    pub(super) pairs: Vec<(u64, u64)>,
    /// The words, lower-cased, as they were written.
    pub(super) words: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Term {
    pub(super) key: u64,
    pub(super) weight: f32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Related {
    pub(super) key: u64,
    pub(super) weight: f32,
    /// Position of the term it stands for.
    pub(super) to: usize,
}

impl<'a> Question<'a> {
    pub(super) fn read(text: &'a str) -> Question<'a> {
        let mut question = Question { text: beginning(text), ..Question::default() };
        question.read_words(|word| !vocabulary().is_silent(word));
        if question.terms.is_empty() {
            // A single one that usually says nothing may be meant; several say nothing together.
            question.read_words(|_| true);
            if question.terms.len() > 1 {
                question = Question { text: question.text, ..Question::default() };
            }
        }
        question.relate();
        question
    }

    fn read_words(&mut self, speaks: impl Fn(&str) -> bool) {
        let text = self.text;
        let mut before = None;
        words::each(text, |Word { whole, parts }| {
            if self.terms.len() >= MOST_TERMS || !speaks(&whole) {
                return;
            }
            let key = self.add(&whole);
            parts.iter().for_each(|part| {
                self.add(part);
            });
            if let Some(before) = before.replace(key)
                && !self.pairs.contains(&(before, key))
            {
                self.pairs.push((before, key));
            }
            self.words.push(whole);
        });
    }

    fn add(&mut self, word: &str) -> u64 {
        let key = words::term(word);
        if self.terms.iter().all(|term| term.key != key) {
            self.terms.push(Term { key, weight: vocabulary().weight(key) });
        }
        key
    }

    fn relate(&mut self) {
        for (to, term) in self.terms.iter().enumerate() {
            for &(key, weight) in vocabulary().related(term.key) {
                let weight = weight * term.weight;
                if self.terms.iter().any(|term| term.key == key) {
                    continue;
                }
                match self.related.iter().position(|related| related.key == key) {
                    Some(known) if self.related[known].weight >= weight => {}
                    Some(known) => self.related[known] = Related { key, weight, to },
                    None if self.related.len() < MOST_RELATED => self.related.push(Related { key, weight, to }),
                    None => return,
                }
            }
        }
    }
}

/// Cut between characters.
fn beginning(text: &str) -> &str {
    let mut end = LONGEST.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let found: Vec<u64> = Question::read(text).terms.iter().map(|term| term.key).collect();
        let expected: Vec<u64> = expected.iter().map(|word| words::term(word)).collect();
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
        let question = Question::read(&text);
        assert!(question.text.len() <= LONGEST && question.terms.len() <= MOST_TERMS + 8);
    }
}
