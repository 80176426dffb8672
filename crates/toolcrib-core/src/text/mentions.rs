//! Removes the sentences of a text that name certain tools: the instructions of a server may name tools that its reader
//! must not know of.
//!
//! A name is matched as a whole word, whatever its case. A name that could be an ordinary word, such as `list`, counts only
//! in quotes, in backticks or before a parenthesis; otherwise it would cost many sentences that are about something else.

use std::collections::HashSet;

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
        let has_name = name_runs(&sentence).any(|(start, run)| {
            // Also the parts of `source/tool` and `source:tool`, each with its place in the run.
            let parts = run.split(['.', '/', ':']).scan(0, |offset, part| {
                let at = *offset;
                *offset += part.len() + 1;
                Some((start + at, part))
            });
            parts.chain([(start, run)]).any(|(start, name)| self.is_mentioned_at(&sentence, start, name))
        });
        has_name || self.phrases.iter().any(|phrase| sentence.contains(phrase))
    }

    /// Whether `name`, which stands at a position of a sentence, is one of the names.
    fn is_mentioned_at(&self, sentence: &str, start: usize, name: &str) -> bool {
        let before = sentence[..start].chars().next_back();
        let after = sentence[start + name.len()..].chars().next();
        let is_quoted = before.is_some_and(is_quote) && after.is_some_and(is_quote);
        self.identifiers.contains(name) || ((is_quoted || after == Some('(')) && self.words.contains(name))
    }
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

fn is_quote(character: char) -> bool {
    matches!(character, '`' | '"' | '\'' | '“' | '”' | '‘' | '’' | '«' | '»')
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
        check(&["delete all"], "Then delete all. Or not.", "Or not.");
        check(&["删除"], "请用“删除”。其他。", "其他。");
    }

    #[test]
    fn names_that_are_ordinary_words_count_as_names_only_where_they_are_marked() {
        check(&["list"], "The list is long. Call `list` first. Then \"list\". Then list().", "The list is long.");
        check(&["List", "READ"], "Read the List.", "Read the List.");
        check(&["wipe"], "secret_wipe and wipes stay", "secret_wipe and wipes stay");
        check(&[], "All stays.\n\n  As it is.", "All stays.\n\n  As it is.");
    }
}
