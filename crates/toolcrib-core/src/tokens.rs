//! Tokens, counted with o200k_base and never guessed. The first count loads the tokenizer, which takes longer than a
//! start may: whoever will count soon calls [`warm`] on another thread, and nothing on the way to a list counts at all.

use tiktoken_rs::o200k_base_singleton;

/// How many tokens a text is.
pub fn count(text: &str) -> usize {
    let tokenizer = o200k_base_singleton();
    split_long_whitespace(text).map(|piece| tokenizer.count_ordinary(piece)).sum()
}

/// The beginning of a text, of at most so many tokens, ending with a word where it can.
pub fn truncate_to_tokens(text: &str, most: usize) -> &str {
    // No token is longer than a word, and few words are longer than this: what lies beyond need not be counted.
    const MAX_TOKEN_BYTES: usize = 64;
    let all = text.floor_char_boundary(most.saturating_mul(MAX_TOKEN_BYTES));
    let fits = |end: usize| count(text[..end].trim_end()) <= most;
    // Halved, not scaled by how much is too much: dense text before a long thin tail would take a thousand counts.
    let (mut end, mut too_far) = (0, all + 1);
    while end + 1 < too_far {
        let middle = if too_far > all { all } else { end.midpoint(too_far) };
        if fits(text.floor_char_boundary(middle)) {
            end = middle;
        } else {
            too_far = middle;
        }
    }
    let end = text.floor_char_boundary(end);
    match text[..end].rfind(char::is_whitespace) {
        Some(word) if end < text.len() && !text[end..].starts_with(char::is_whitespace) => text[..word].trim_end(),
        _ => &text[..end],
    }
}

/// Loads the tokenizer, unless it is loaded already.
pub fn load_tokenizer() {
    o200k_base_singleton();
}

/// The tokenizer looks back over a whole run of white space and gives up, with a panic, on one that is very long.
const MAX_WHITESPACE_RUN: usize = 8 * 1024;

/// The text, cut only where white space goes on for too long.
fn split_long_whitespace(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, after) = rest.split_at(next_split(rest));
        rest = after;
        Some(piece)
    })
}

fn next_split(text: &str) -> usize {
    let mut blank = 0;
    for (position, character) in text.char_indices() {
        if text.len() - position + blank <= MAX_WHITESPACE_RUN {
            break;
        }
        blank = if character.is_whitespace() { blank + character.len_utf8() } else { 0 };
        if blank >= MAX_WHITESPACE_RUN {
            return position + character.len_utf8();
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_those_of_o200k_base() {
        for (text, tokens) in [("", 0), ("hello world", 2), ("{\"type\":\"object\"}", 5), ("<|endoftext|>", 7)] {
            assert_eq!(count(text), tokens, "{text}");
        }
    }

    #[test]
    fn a_cut_ends_with_a_word_and_within_its_bound() {
        assert_eq!(truncate_to_tokens("one two three", 3), "one two three");
        assert_eq!(truncate_to_tokens("one two three", 2), "one two");
        assert_eq!(truncate_to_tokens("one", 0), "");
        let text = "größte Wörter überall und noch mehr davon";
        for most in 0..20 {
            assert!(count(truncate_to_tokens(text, most)) <= most, "{most}");
        }
    }

    #[test]
    fn a_dense_text_before_a_long_thin_tail_is_cut_in_few_steps() {
        let text = format!("{}{}", "a ".repeat(50_010), "-".repeat(900_000));
        let cut = truncate_to_tokens(&text, 50_000);
        assert!(count(cut) <= 50_000 && cut.len() > 99_000, "{}", cut.len());
    }

    #[test]
    fn a_long_text_is_counted_whole_unless_its_white_space_has_no_end() {
        let text = "Reads a file.\n  And a bit more, with schemas: {\"type\": \"string\"}\n".repeat(2_000);
        assert_eq!(split_long_whitespace(&text).count(), 1);
        assert_eq!(split_long_whitespace(&" ".repeat(MAX_WHITESPACE_RUN)).count(), 1);
        assert_eq!(split_long_whitespace(&format!("a{}b", "\u{2003}".repeat(MAX_WHITESPACE_RUN))).count(), 3);
    }

    #[test]
    fn no_text_is_too_much() {
        for (run, bytes) in [(" ", 1_000_000), (" \n", 1_000_000), ("\u{2003}", 1_000_000)]
            .into_iter()
            .chain(["a", "a\u{300}", "!", "7", "日", "aB3/", "'", "\u{0}", "👩\u{200d}"].map(|run| (run, 100_000)))
        {
            assert!(count(&run.repeat(bytes / run.len())) > 0, "{run:?}");
        }
    }
}
