//! Exact token counts with the tokenizer o200k_base. The first count loads the tokenizer, which takes about 200 ms,
//! longer than a startup may: callers that will count soon call [`load_tokenizer`] on another thread, and no list needs
//! a count.
//!
//! Builds without the feature `tokens` estimate instead; estimates are not stored.
//!
//! Models of other vendors count differently; one tokenizer for all makes sources comparable with each other.

#[cfg(feature = "tokens")]
use tiktoken_rs::o200k_base_singleton;

/// Number of tokens of a text. Special tokens such as `<|endoftext|>` count as ordinary text. May block for the time of
/// loading.
#[cfg(feature = "tokens")]
pub fn count(text: &str) -> usize {
    let tokenizer = o200k_base_singleton();
    split_long_whitespace(text).map(|piece| tokenizer.count_ordinary(piece)).sum()
}

/// Estimated number of tokens of a text, for builds without a tokenizer: three bytes each. English text and
/// JSON have fewer tokens than that; digits and encoded data may have more.
#[cfg(not(feature = "tokens"))]
pub fn count(text: &str) -> usize {
    text.len().div_ceil(3)
}

/// Truncates a text to a number of tokens, at the end of a word if possible.
/// The result is a prefix of the text. Without white space it may end inside of a word.
pub fn truncate_to_tokens(text: &str, max_tokens: usize) -> &str {
    // Assumes at most 64 bytes per token on average, so that the rest of a long text is not counted.
    const MAX_TOKEN_BYTES: usize = 64;
    let upper_bound = text.floor_char_boundary(max_tokens.saturating_mul(MAX_TOKEN_BYTES));
    let fits = |end: usize| count(text[..end].trim_end()) <= max_tokens;
    // Binary search. Scaling by the excess instead would take a thousand counts for dense text before a long thin tail.
    let mut end = 0;
    let mut too_long = upper_bound + 1;
    while end + 1 < too_long {
        let middle = if too_long > upper_bound { upper_bound } else { end.midpoint(too_long) };
        if fits(text.floor_char_boundary(middle)) {
            end = middle;
        } else {
            too_long = middle;
        }
    }
    let end = text.floor_char_boundary(end);
    match text[..end].rfind(char::is_whitespace) {
        Some(word_end) if end < text.len() && !text[end..].starts_with(char::is_whitespace) => {
            text[..word_end].trim_end()
        }
        _ => &text[..end],
    }
}

/// Loads the tokenizer unless it is loaded already.
/// Blocks; meant for a thread of its own.
pub fn load_tokenizer() {
    #[cfg(feature = "tokens")]
    o200k_base_singleton();
}

/// Maximum run of white space in bytes that the tokenizer gets: it backtracks over the whole run and panics on a very
/// long one.
#[cfg(feature = "tokens")]
const MAX_WHITESPACE_RUN: usize = 8 * 1024;

/// Splits a text only inside runs of white space that are too long.
#[cfg(feature = "tokens")]
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

/// Byte position of the next split, or the end of the text.
#[cfg(feature = "tokens")]
fn next_split(text: &str) -> usize {
    let mut whitespace_run = 0;
    for (position, character) in text.char_indices() {
        // The rest is too short for a run that must be split.
        if text.len() - position + whitespace_run <= MAX_WHITESPACE_RUN {
            break;
        }
        whitespace_run = if character.is_whitespace() { whitespace_run + character.len_utf8() } else { 0 };
        if whitespace_run >= MAX_WHITESPACE_RUN {
            return position + character.len_utf8();
        }
    }
    text.len()
}

#[cfg(all(test, feature = "tokens"))]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_those_of_o200k_base() {
        for (text, tokens) in [("", 0), ("hello world", 2), ("{\"type\":\"object\"}", 5), ("<|endoftext|>", 7)] {
            assert_eq!(count(text), tokens, "{text}");
        }
    }

    #[test]
    fn a_truncated_text_ends_with_a_word_and_within_the_limit() {
        assert_eq!(truncate_to_tokens("one two three", 3), "one two three");
        assert_eq!(truncate_to_tokens("one two three", 2), "one two");
        assert_eq!(truncate_to_tokens("one", 0), "");
        let text = "größte Wörter überall und noch mehr davon";
        for max_tokens in 0..20 {
            assert!(count(truncate_to_tokens(text, max_tokens)) <= max_tokens, "{max_tokens}");
        }
    }

    #[test]
    fn dense_text_before_a_long_thin_tail_is_truncated_in_few_steps() {
        let text = format!("{}{}", "a ".repeat(50_010), "-".repeat(900_000));
        let cut = truncate_to_tokens(&text, 50_000);
        assert!(count(cut) <= 50_000 && cut.len() > 99_000, "{}", cut.len());
    }

    #[test]
    fn a_text_is_split_only_in_very_long_white_space() {
        let text = "Reads a file.\n  And a bit more, with schemas: {\"type\": \"string\"}\n".repeat(2_000);
        assert_eq!(split_long_whitespace(&text).count(), 1);
        assert_eq!(split_long_whitespace(&" ".repeat(MAX_WHITESPACE_RUN)).count(), 1);
        assert_eq!(split_long_whitespace(&format!("a{}b", "\u{2003}".repeat(MAX_WHITESPACE_RUN))).count(), 3);
    }

    #[test]
    fn very_long_texts_can_be_counted() {
        for (run, bytes) in [(" ", 1_000_000), (" \n", 1_000_000), ("\u{2003}", 1_000_000)]
            .into_iter()
            .chain(["a", "a\u{300}", "!", "7", "日", "aB3/", "'", "\u{0}", "👩\u{200d}"].map(|run| (run, 100_000)))
        {
            assert!(count(&run.repeat(bytes / run.len())) > 0, "{run:?}");
        }
    }
}
