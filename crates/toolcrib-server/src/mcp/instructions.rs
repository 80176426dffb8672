//! `instructions` in full mode: those of the servers behind the tools, each under the name of its source, within a budget.
//!
//! ```text
//! Instructions of the servers behind these tools, in their own words:
//!
//! context7:
//! Use this server to retrieve up-to-date documentation.
//! ```

use std::collections::BTreeSet;

use toolcrib::SourceId;
use toolcrib::catalog::View;

/// Maximum length of all instructions together in characters, about a thousand tokens. A model reads them with every
/// conversation.
const MAX_COMBINED_LEN: usize = 4_000;
/// First line, so that a model does not take the text of a server for that of Toolcrib.
const INTRODUCTION: &str = "Instructions of the servers behind these tools, in their own words:";

/// Combines the instructions of the sources that a client sees something of; `None` if there are none.
pub(super) fn combine(view: &View) -> Option<String> {
    let offering: BTreeSet<&SourceId> = view.offered_tools().map(|tool| tool.source()).collect();
    let texts = view.sources().filter_map(|source| {
        let features = &source.features.as_ref()?.summary;
        let is_seen = offering.contains(&features.source) || features.has_items();
        let text = features.instructions.as_deref().filter(|_| is_seen)?;
        Some((features.source.as_str(), text))
    });
    combine_texts(texts.collect(), MAX_COMBINED_LEN)
}

/// Renders the texts under their names. Short texts are kept whole, and long ones share what is left equally.
fn combine_texts(texts: Vec<(&str, &str)>, budget: usize) -> Option<String> {
    if texts.is_empty() {
        return None;
    }
    let share = equal_share(texts.iter().map(|(_, text)| text.chars().count()).collect(), budget);
    let mut combined = INTRODUCTION.to_owned();
    for (name, text) in texts {
        combined.push_str(&format!("\n\n{name}:\n{}", truncate(text, share)));
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

/// Cuts a text at the end of a word.
fn truncate(text: &str, limit: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(limit) else { return text.to_owned() };
    let head = &text[..end];
    let end = head.rfind(char::is_whitespace).unwrap_or(head.len());
    format!("{}…", head[..end].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_stand_under_their_sources_within_the_budget() {
        assert_eq!(combine_texts(Vec::new(), 100), None);
        let texts = || vec![("a", "short"), ("b", "one two three four"), ("c", "five six seven eight")];
        let all = format!("{INTRODUCTION}\n\na:\nshort\n\nb:\none two three four\n\nc:\nfive six seven eight");
        assert_eq!(combine_texts(texts(), 43).unwrap(), all);
        let cut = format!("{INTRODUCTION}\n\na:\nshort\n\nb:\none two…\n\nc:\nfive six…");
        assert_eq!(combine_texts(texts(), 25).unwrap(), cut);
    }
}
