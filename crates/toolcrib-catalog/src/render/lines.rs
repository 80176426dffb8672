//! Tools as text, one per line: name and first sentence of the description. The cheapest list that an agent can choose
//! from, without arguments.
//!
//! ```text
//! github__create_issue — Create a new issue in a GitHub repository
//! ```

use toolcrib_core::error::Result;

use super::CHUNK_BYTES;
use crate::filter::ListOrder;
use crate::outline;
use crate::token_count::{count, truncate_to_tokens};
use crate::{ToolRef, View};

/// Maximum number of tokens of a line, line break included. A name that is longer stands alone, uncut.
const MAX_LINE_TOKENS: usize = 25;

impl View {
    /// Renders a line for each tool that is offered to models and that `filter` accepts, in chunks of about 64 KiB;
    /// each line ends with a line break. Counts tokens, which loads the tokenizer on first use.
    pub fn render_lines(
        &self,
        filter: impl Fn(&ToolRef<'_>) -> bool,
        order: &ListOrder<'_>,
        mut emit: impl FnMut(&str) -> Result<()>,
    ) -> Result<()> {
        let mut out = String::with_capacity(2 * CHUNK_BYTES);
        let mut tools: Vec<ToolRef<'_>> = self.tools().filter(|tool| tool.is_for_models() && filter(tool)).collect();
        order.sort(&mut tools);
        for tool in tools {
            out.push_str(&render_line(tool.name().as_str(), &tool.tool()?.listing.description));
            if out.len() >= CHUNK_BYTES {
                emit(&out)?;
                out.clear();
            }
        }
        emit(&out)
    }
}

/// Renders one tool. A sentence that is too long is cut at a word and ends in `…`.
fn render_line(name: &str, description: &str) -> String {
    let sentence = outline::first_sentence(description);
    let line = format!("{name} — {sentence}\n");
    if sentence.is_empty() {
        return format!("{name}\n");
    }
    // A token has at least one byte, so a short line needs no count.
    if line.len() <= MAX_LINE_TOKENS || count(&line) <= MAX_LINE_TOKENS {
        return line;
    }
    let mut max_tokens = MAX_LINE_TOKENS.saturating_sub(count(&format!("{name} — …\n")));
    // The parts of a line may have fewer tokens than the whole, so it is counted again.
    while max_tokens > 0 {
        let cut = truncate_to_tokens(&sentence, max_tokens).trim_end_matches([',', ';', ':', '.', ' ', '(', '-', '…']);
        let line = format!("{name} — {cut}…\n");
        if !cut.is_empty() && count(&line) <= MAX_LINE_TOKENS {
            return line;
        }
        max_tokens -= 1;
    }
    format!("{name}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_first_sentence_cut_to_the_limit() {
        let check = |name: &str, description: &str, expected: &str| {
            assert_eq!(render_line(name, description), format!("{expected}\n"));
        };
        check("files__read", "Read a file. Then more.", "files__read — Read a file");
        check("files__read", "", "files__read");
        check("files__read", "# Usage\n\n", "files__read — Usage");
        check(
            "files__read",
            "Read the complete contents of a file from the file system as text, handling various text encodings and more",
            "files__read — Read the complete contents of a file from the file system as text, handling various text encodings and…",
        );
        let long = "x_1".repeat(40);
        check(&long, "Reads", &long);
        for description in ["很".repeat(200), "word ".repeat(90), "a".repeat(500), "🦀 ".repeat(90)] {
            let line = render_line("source__tool", &description);
            assert!(count(&line) <= MAX_LINE_TOKENS && line.starts_with("source__tool"), "{line}");
        }
    }
}
