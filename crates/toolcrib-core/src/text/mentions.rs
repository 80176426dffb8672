//! Removes the sentences of a text that name certain tools: the instructions of a server may name tools that its reader
//! must not know of.
//!
//! A name is matched as a whole word, whatever its case, also behind its source (`git/push`, `mcp__git__push`). A name that
//! could be an ordinary word, such as `list`, counts only where it is marked: in quotes, in backticks, emphasised, before a
//! parenthesis, or as the label of a line; otherwise it would cost many sentences that are about something else.

use std::collections::HashSet;

use crate::tool::SEPARATOR;

/// Names of tools that a text must not mention.
#[derive(Debug, Default)]
pub struct WithheldNames {
    /// Names that are no ordinary words, in lower case.
    identifiers: HashSet<String>,
    /// Names that may be ordinary words, in lower case.
    words: HashSet<String>,
    /// Names with spaces and the like, in lower case.
    phrases: Vec<String>,
}

impl FromIterator<String> for WithheldNames {
    fn from_iter<I: IntoIterator<Item = String>>(all: I) -> WithheldNames {
        let mut names = WithheldNames::default();
        for name in all.into_iter().filter(|name| !name.is_empty()) {
            let lower = name.to_lowercase();
            // Other spellings of a name in the catalogue.
            if let Some((source, tool)) = lower.split_once(SEPARATOR) {
                names.identifiers.extend(['/', ':', '.'].map(|separator| format!("{source}{separator}{tool}")));
            }
            if !name.chars().all(is_name_char) {
                names.phrases.push(lower);
            } else if is_identifier(&name) {
                names.identifiers.insert(lower);
            } else {
                names.words.insert(lower);
            }
        }
        names
    }
}

impl WithheldNames {
    /// Returns a text without the sentences that mention one of the names. Lines without any other sentence are left out.
    pub fn remove_mentions(&self, text: &str) -> String {
        let lines = text.lines().filter_map(|line| {
            let mut kept = String::with_capacity(line.len());
            kept.extend(split_sentences(line).filter(|sentence| !self.is_mentioned_in(sentence)));
            (!kept.trim().is_empty() || line.trim().is_empty()).then_some(kept)
        });
        let text = lines.collect::<Vec<String>>().join("\n");
        text.trim().to_owned()
    }

    fn is_mentioned_in(&self, sentence: &str) -> bool {
        let sentence = sentence.to_lowercase();
        name_runs(&sentence).any(|(start, run)| self.is_mentioned_by(&sentence, start, run))
            || self.phrases.iter().any(|phrase| contains_phrase(&sentence, phrase))
    }

    /// Whether a run of name characters at a position of a sentence is one of the names, or ends with one, or has one as a
    /// part.
    fn is_mentioned_by(&self, sentence: &str, start: usize, run: &str) -> bool {
        let is_marked = is_marked(sentence, start, run);
        let separators = run.match_indices(['.', '/', ':']).chain(run.match_indices(SEPARATOR));
        let suffixes = separators.map(|(at, separator)| &run[at + separator.len()..]);
        let mut candidates = [run, run.trim_matches('_')].into_iter().chain(suffixes).chain(run.split(['.', '/', ':']));
        candidates.any(|name| self.identifiers.contains(name) || (is_marked && self.words.contains(name)))
    }
}

/// Whether a run at a position of a sentence is marked as a name.
fn is_marked(sentence: &str, start: usize, run: &str) -> bool {
    let before = &sentence[..start];
    let after = sentence[start + run.len()..].chars().next();
    let is_quoted = before.chars().next_back().is_some_and(is_mark) && after.is_some_and(is_mark);
    let is_emphasised = run.len() > 2 && run.starts_with('_') && run.ends_with('_');
    // `- push: sends commits`
    let is_label = after == Some(':') && before.chars().all(|character| !character.is_alphanumeric());
    is_quoted || is_emphasised || is_label || after == Some('(')
}

/// Whether a sentence contains a phrase that is not a part of longer words.
fn contains_phrase(sentence: &str, phrase: &str) -> bool {
    let continues = |outside: Option<char>, inside: Option<char>| {
        outside.is_some_and(char::is_alphanumeric) && inside.is_some_and(char::is_alphanumeric)
    };
    sentence.match_indices(phrase).any(|(at, _)| {
        let before = sentence[..at].chars().next_back();
        let after = sentence[at + phrase.len()..].chars().next();
        !continues(before, phrase.chars().next()) && !continues(after, phrase.chars().next_back())
    })
}

/// Returns the runs of characters of names in a text with their positions, without punctuation around them.
fn name_runs(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut position = 0;
    text.split(|character| !is_name_char(character)).filter_map(move |run| {
        // The separator may have several bytes, so the position is that of the slice.
        let start = position + text[position..].find(run)?;
        position = start + run.len();
        let trimmed = run.trim_start_matches(is_punctuation);
        let start = start + run.len() - trimmed.len();
        let trimmed = trimmed.trim_end_matches(is_punctuation);
        (!trimmed.is_empty()).then_some((start, trimmed))
    })
}

/// Splits a line after the end of each sentence. The parts together are the line.
fn split_sentences(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut characters = rest.char_indices().peekable();
        let mut end = rest.len();
        while let Some((_, character)) = characters.next() {
            let Some((next, after)) = characters.peek() else { break };
            if matches!(character, '。' | '！' | '？')
                || (matches!(character, '.' | '!' | '?' | ';') && after.is_whitespace())
            {
                end = *next;
                break;
            }
        }
        let (sentence, others) = rest.split_at(end);
        rest = others;
        Some(sentence)
    })
}

/// Whether a name cannot be an ordinary word: `git_push`, `list-files`, `v2`, `listFiles`.
fn is_identifier(name: &str) -> bool {
    let has_inner_capital = name.chars().skip(1).any(char::is_uppercase) && name.chars().any(char::is_lowercase);
    has_inner_capital || name.chars().any(|character| !character.is_alphabetic())
}

fn is_name_char(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '-' | '.' | '/' | ':')
}

fn is_punctuation(character: char) -> bool {
    matches!(character, '-' | '.' | '/' | ':')
}

/// Whether a character quotes or emphasises a name.
fn is_mark(character: char) -> bool {
    matches!(character, '`' | '*' | '"' | '\'' | '“' | '”' | '‘' | '’' | '«' | '»')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(names: &[&str], text: &str, expected: &str) {
        let names: WithheldNames = names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(names.remove_mentions(text), expected);
    }

    #[test]
    fn sentences_that_name_a_withheld_tool_are_removed() {
        check(&["secret_wipe"], "Use it. Call secret_wipe last. Done.", "Use it. Done.");
        check(&["secret_wipe"], "One\n- `secret_wipe`: wipes\n\n- two", "One\n\n- two");
        check(&["secret_wipe"], "Never Secret_Wipe!", "");
        check(
            &["secret_wipe", "fx__secret_wipe"],
            "Call fx__secret_wipe. Or fx/secret_wipe. Or fx:secret_wipe(1).",
            "",
        );
        check(&["listFiles", "v2"], "a listFiles\nb listfiles.\nc v2\nd v20", "d v20");
        check(&["files.delete"], "a (files.delete)\nb files.delete_all", "b files.delete_all");
        check(&["files.delete"], "a fx/files.delete\nb fx:files.delete\nc fx/files", "c fx/files");
        check(&["secret_wipe"], "a mcp__fx__secret_wipe\nb _secret_wipe_\nc secret_wipes", "c secret_wipes");
        check(&["wipe", "fx__wipe"], "a `fx/wipe` b\nc fx:wipe\nd fx.wipe\ne **wipe**\n- wipe: erases", "");
        check(&["delete all"], "Then delete all. Or not.", "Or not.");
        check(&["do it", "+"], "Undo items. Redo itself. Add a + b.", "Undo items. Redo itself.");
        check(&["删除"], "请用“删除”。其他。", "其他。");
    }

    #[test]
    fn names_that_are_ordinary_words_count_as_names_only_where_they_are_marked() {
        check(&["list"], "The list is long. Call `list` first. Then \"list\". Then list().", "The list is long.");
        check(&["List", "READ"], "Read the List.", "Read the List.");
        check(&["write", "or"], "It can read/write and/or list: all.", "It can read/write and/or list: all.");
        check(&["wipe"], "secret_wipe and wipes stay", "secret_wipe and wipes stay");
        check(&[], "All stays.\n\n  As it is.", "All stays.\n\n  As it is.");
    }
}
