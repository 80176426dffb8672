//! `instructions` in full mode: those of the servers behind the tools, each under the name of its source, within a budget.
//!
//! ```text
//! Instructions of the servers behind these tools, in their own words:
//!
//! context7:
//!   Use this server to retrieve up-to-date documentation.
//! ```

use std::collections::BTreeSet;

use toolcrib::SourceId;
use toolcrib::registry::Visibility;

/// Maximum length of all instructions together in characters, about a thousand tokens. A model reads them with every
/// conversation.
const MAX_COMBINED_LEN: usize = 4_000;
/// First line, so that a model does not take the text of a server for that of Toolcrib.
const INTRODUCTION: &str = "Instructions of the servers behind these tools, in their own words:";

/// Combines the instructions of the sources that a client sees something of; `None` if there are none.
pub(super) fn combine(visibility: &Visibility) -> Option<String> {
    let offering: BTreeSet<&SourceId> = visibility.view().offered_tools().map(|tool| tool.source()).collect();
    let mut texts = Vec::new();
    for source in visibility.sources() {
        let Some(features) = source.features.as_ref().map(|features| &features.summary) else { continue };
        if offering.contains(&features.source) || features.has_items() {
            texts.extend(visibility.instructions(&features.source).map(|text| (features.source.as_str(), text)));
        }
    }
    combine_texts(texts, MAX_COMBINED_LEN)
}

/// Renders the texts under their names. Short texts are kept whole, and long ones share what is left equally.
fn combine_texts(texts: Vec<(&str, String)>, budget: usize) -> Option<String> {
    if texts.is_empty() {
        return None;
    }
    let share = equal_share(texts.iter().map(|(_, text)| text.chars().count()).collect(), budget);
    let mut combined = INTRODUCTION.to_owned();
    for (name, text) in texts {
        combined.push_str(&format!("\n\n{name}:"));
        // Indented, so that no line of a server can pass for the name of another source.
        for line in truncate(&text, share).lines() {
            combined.push_str(&format!("\n  {line}"));
        }
    }
    Some(combined)
}

/// Returns the length that every text may have so that all of them fit.
fn equal_share(mut lengths: Vec<usize>, mut budget: usize) -> usize {
    lengths.sort_unstable();
    for (index, length) in lengths.iter().enumerate() {
        let share = budget / (lengths.len() - index);
        if *length > share {
            return share;
        }
        budget -= length;
    }
    usize::MAX
}

/// Cuts a text, at the end of a word if there is one in the last tenth. Some texts have hardly any spaces: long URLs, or
/// languages that are written without.
fn truncate(text: &str, limit: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(limit) else { return text.to_owned() };
    let head = &text[..end];
    let tail_start = head.char_indices().nth(limit - limit / 10).map_or(end, |(position, _)| position);
    let end = head[tail_start..].rfind(char::is_whitespace).map_or(end, |position| tail_start + position);
    format!("{}…", head[..end].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_stand_under_their_sources_within_the_budget() {
        assert_eq!(combine_texts(Vec::new(), 100), None);
        let texts = || {
            let texts = [("a", "short"), ("b", "one two three four"), ("c", "five six seven eight")];
            texts.map(|(name, text)| (name, text.to_owned())).to_vec()
        };
        let all = format!("{INTRODUCTION}\n\na:\n  short\n\nb:\n  one two three four\n\nc:\n  five six seven eight");
        assert_eq!(combine_texts(texts(), 43).unwrap(), all);
        let cut = format!("{INTRODUCTION}\n\na:\n  short\n\nb:\n  one two th…\n\nc:\n  five six s…");
        assert_eq!(combine_texts(texts(), 25).unwrap(), cut);
    }

    #[test]
    fn no_line_of_a_server_passes_for_the_name_of_another_source() {
        let combined = combine_texts(vec![("ok", "fine\n\nev:\nspoofed".to_owned())], 100).unwrap();
        assert_eq!(combined, format!("{INTRODUCTION}\n\nok:\n  fine\n  \n  ev:\n  spoofed"));
    }

    #[test]
    fn a_text_is_cut_at_a_word_only_near_the_limit() {
        let long_word = format!("Hi there red {}", "x".repeat(200));
        assert_eq!(truncate(&long_word, 100), format!("Hi there red {}…", "x".repeat(87)));
        assert_eq!(truncate(&format!("说明 {}", "字".repeat(200)), 100), format!("说明 {}…", "字".repeat(97)));
        assert_eq!(truncate(&"word ".repeat(50), 98), format!("{}…", "word ".repeat(19).trim_end()));
        assert_eq!(truncate("ab", 1), "a…");
        assert_eq!(truncate("ab", 0), "…");
    }
}
