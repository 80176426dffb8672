//! Shortens descriptions for agents: strips markup and link URLs, and truncates at the end of a sentence.
//!
//! Descriptions of operations are often pages of Markdown or HTML; an agent reads one or two sentences in a list:
//!
//! ```text
//! "**Creates** a [pet](https://…).<br>For more information, see …"  ->  "Creates a pet."
//! ```

use std::collections::HashMap;

use toolcrib_core::text::sanitize;

/// Maximum number of bytes of a text to read. Thousands of operations may share one of megabytes.
const MAX_TEXT_LEN: usize = 16 * 1024;

/// Returns a text as one line of at most about `limit` characters. The ellipsis of a text that is cut within a sentence
/// comes in addition.
pub(super) fn shorten(text: &str, limit: usize) -> String {
    truncate_at_sentence(strip_markup(&text[..text.floor_char_boundary(MAX_TEXT_LEN)]), limit)
}

/// Truncates a line at the end of a sentence or word.
pub(super) fn truncate_at_sentence(line: String, limit: usize) -> String {
    // The length in bytes is an upper bound, and free.
    if line.len() <= limit || line.chars().count() <= limit {
        return line;
    }
    let truncated: String = line.chars().take(limit).collect();
    // At a sentence, unless that leaves too little; else at a word.
    let sentence = truncated
        .rmatch_indices(['.', '!', '?'])
        .map(|(offset, _)| offset + 1)
        .find(|&offset| truncated[offset..].starts_with(' '));
    if let Some(end) = sentence.filter(|&end| end * 2 > truncated.len() || end > 60) {
        return truncated[..end].to_owned();
    }
    let word = truncated.rfind(' ').unwrap_or(truncated.len());
    format!("{}…", truncated[..word].trim_end_matches([',', ';', ':', '(', '-', ' ']))
}

/// Returns a text without markup, as one line.
pub(super) fn strip_markup(text: &str) -> String {
    // Hidden and control characters first, so that they cannot break up the markup.
    let mut text = sanitize(text);
    if text.contains("](") {
        text = strip_links(&text);
    }
    if text.contains('<') && text.contains('>') {
        text = strip_tags(&text);
    }
    // Joining words also removes line breaks and indentation of lists.
    let words: Vec<&str> = text.split_whitespace().filter(|word| !is_horizontal_rule(word)).collect();
    let line = words.join(" ").replace("**", "").replace("> [!NOTE] ", "").replace("> [!WARNING] ", "");
    // A cheap test for "for more …", in either case of the first letter, before sentences are split.
    if line.contains("or more ") { strip_more_info_sentences(&line) } else { line }
}

/// Removes sentences such as "For more information, see …": the link is gone already.
fn strip_more_info_sentences(line: &str) -> String {
    let is_reference = |sentence: &&str| {
        let sentence = sentence.trim_start().to_ascii_lowercase();
        ["for more information", "for more info", "for more details"].iter().any(|words| sentence.starts_with(words))
    };
    let sentences_kept: Vec<&str> = sentences(line).filter(|sentence| !is_reference(sentence)).map(str::trim).collect();
    sentences_kept.join(" ")
}

/// Splits a text after each sentence.
fn sentences(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        // A dot within a number or a name does not end a sentence.
        let is_end = |offset: &usize| rest[*offset..].starts_with(' ') || rest[*offset..].is_empty();
        let end = rest.match_indices(['.', '!', '?', '"']).map(|(offset, _)| offset + 1).find(|offset| {
            let stops = rest[..*offset].ends_with(['.', '!', '?']) || rest[..*offset].ends_with(".\"");
            stops && is_end(offset)
        });
        let (sentence, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after;
        Some(sentence)
    })
}

/// Returns a description without its first sentence, if that only repeats the summary.
pub(super) fn remainder<'t>(summary: &str, description: &'t str) -> &'t str {
    let Some(first) = sentences(description).next() else { return description };
    // Comparing the first four letters of longer words ignores inflection: "List pets" and "Lists the pets".
    let stem = |word: &str| -> String { word.chars().take(4).flat_map(char::to_lowercase).collect() };
    let words = |text: &str| -> Vec<String> {
        text.split(|character: char| !character.is_alphanumeric()).filter(|word| word.len() > 3).map(stem).collect()
    };
    let summary_words = words(summary);
    if words(first).iter().all(|word| summary_words.contains(word)) {
        description[first.len()..].trim_start()
    } else {
        description
    }
}

/// Returns whether a word is a horizontal rule or part of a table frame.
fn is_horizontal_rule(word: &str) -> bool {
    word.len() > 2 && word.chars().all(|character| matches!(character, '-' | '=' | '*' | '_' | '|' | ':' | '#'))
}

/// Replaces `[text](url)` by its text.
fn strip_links(text: &str) -> String {
    let parentheses = matching_parentheses(text);
    let mut output = String::with_capacity(text.len());
    let mut from = 0;
    while let Some(middle) = text[from..].find("](").map(|offset| from + offset) {
        // The opening bracket nearest to `](`; without both ends it is not a link.
        let open = text[from..middle].rfind('[').map(|offset| from + offset);
        match (open, parentheses.get(&(middle + 1))) {
            (Some(open), Some(close)) => {
                // `!` marks an image.
                output.push_str(text[from..open].trim_end_matches('!'));
                output.push_str(&text[open + 1..middle]);
                from = close + 1;
            }
            _ => {
                output.push_str(&text[from..middle + 2]);
                from = middle + 2;
            }
        }
    }
    output.push_str(&text[from..]);
    output
}

/// Returns the offset of the closing parenthesis for each opening one in a line; URLs may contain parentheses. Computed
/// in one pass, since a text of many `](` would take quadratic time otherwise.
fn matching_parentheses(text: &str) -> HashMap<usize, usize> {
    let mut open = Vec::new();
    let mut parentheses = HashMap::new();
    for (offset, character) in text.char_indices() {
        match character {
            '(' => open.push(offset),
            ')' => parentheses.extend(open.pop().map(|opened| (opened, offset))),
            // Links do not span lines.
            '\n' => open.clear(),
            _ => {}
        }
    }
    parentheses
}

/// Removes HTML tags. Keeps `a < b`, code and placeholders such as `<url>`.
fn strip_tags(text: &str) -> String {
    // Common tags of descriptions. Anything else in angle brackets is a placeholder.
    const TAGS: [&str; 24] = [
        "p", "br", "b", "i", "em", "strong", "a", "ul", "ol", "li", "code", "pre", "div", "span", "table", "tr", "td",
        "th", "tbody", "thead", "h1", "h2", "h3", "h4",
    ];
    let mut output = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        let (before, tag) = rest.split_at(start);
        output.push_str(before);
        let name: String = tag[1..]
            .trim_start_matches('/')
            .chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect::<String>()
            .to_lowercase();
        if !TAGS.contains(&name.as_str()) {
            output.push('<');
            rest = &tag[1..];
            continue;
        }
        rest = tag;
        // No later tag is closed either; searching for each would take quadratic time.
        let Some(end) = tag.find('>') else { break };
        // Tags such as `<br>` separate words.
        output.push(' ');
        rest = &tag[end + 1..];
    }
    output.push_str(rest);
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_stripped_and_words_stay() {
        for (text, expected) in [
            ("See [the docs](https://x/y(z)) now.", "See the docs now."),
            ("**Note**: a < b and `x > y`\n\n- one\n- two", "Note: a < b and `x > y` - one - two"),
            ("<p>Creates a <b>thing</b>.</p><br/>Really", "Creates a thing . Really"),
            ("[a](b\n[c](d)", "[a](b c"),
            ("![image](x) [y]", "image [y]"),
            ("[a](b(c [d](e) f", "[a](b(c d f"),
            ("<p>a <b c <i d", "a <b c <i d"),
            ("The page. For more information, see \"[Pages](x).\" Really.", "The page. Really."),
            ("One. For more information about v1.2, see x", "One."),
        ] {
            assert_eq!(strip_markup(text), expected);
        }
    }

    #[test]
    fn unclosed_markup_takes_linear_time() {
        for (text, begins) in [("](".repeat(500_000), "]("), (format!("a>{}", "<p".repeat(500_000)), "a><p")] {
            assert!(strip_markup(&text).starts_with(begins));
        }
    }

    #[test]
    fn a_description_does_not_repeat_the_summary() {
        for (summary, description, rest) in [
            ("List pets of a user", "Lists the user's pets. Sorted by name.", "Sorted by name."),
            ("List pets", "Lists pets of one owner.", "Lists pets of one owner."),
            ("List pets", "List pets", ""),
        ] {
            assert_eq!(remainder(summary, description), rest);
        }
    }

    #[test]
    fn a_long_text_ends_with_a_sentence_or_a_word() {
        assert_eq!(shorten("One two. Three four five six", 12), "One two.");
        assert_eq!(shorten("One two three four", 10), "One two…");
        assert_eq!(shorten("short", 10), "short");
    }
}
