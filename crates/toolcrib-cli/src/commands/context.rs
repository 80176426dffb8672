//! `toolcrib context`: prints the tool summary for a system prompt, and how many tokens it saves.
//!
//! The summary goes to stdout alone, so that `toolcrib context >> prompt.txt` appends nothing else. In search mode MCP
//! clients get such a summary as server instructions.

use clap::Args;
use toolcrib::catalog::summary::{Summary, SummaryBudget};
use toolcrib::catalog::token_count;
use toolcrib::{Code, Error, Result};

use crate::arguments::CommonArguments;
use crate::discovery_wait::{DiscoveryArguments, PartialResponse};
use crate::preview::PreviewArguments;
use crate::session::CliSession;

/// Print the summary for a system prompt: some tools of each source, and how to find the others
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib context
  toolcrib context --budget 200 >> prompt.txt
  toolcrib context --cached --json
  toolcrib context --token ci                    as the holder of the token `ci` gets it

Tokens are counted with o200k_base. Tools that the configuration marks as `essential` come first.")]
pub(crate) struct Arguments {
    /// Maximum number of tokens
    #[arg(long, value_name = "TOKENS", default_value_t = SummaryBudget::DEFAULT_TOKENS, value_parser = parse_budget)]
    budget: usize,
    #[command(flatten)]
    preview: PreviewArguments,
    #[command(flatten)]
    discovery: DiscoveryArguments,
}

/// Parses `--budget`, so that an invalid value is a usage error.
fn parse_budget(text: &str) -> Result<usize, String> {
    let tokens = text.parse().map_err(|_| "a budget is a number of tokens, such as 500".to_owned())?;
    SummaryBudget::from_tokens(tokens).map(SummaryBudget::tokens).map_err(|error| error.message)
}

/// Prints the summary to stdout, so that it can be appended to a prompt, and the savings to stderr.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<()> {
    let budget = SummaryBudget::from_tokens(arguments.budget)?;
    // Loading the tokenizer takes a while; do it during discovery.
    let tokenizer_load = tokio::task::spawn_blocking(token_count::load_tokenizer);
    let session = CliSession::open(common).await?;
    let reader = arguments.preview.reader(&session, None)?;
    let missing =
        session.ensure(arguments.discovery.required_freshness(), None, arguments.discovery.wait_policy()).await.missing;
    // Token counts are kept in the store; count only tools that are new since the last time.
    session.registry.statistics().count_tokens().await;
    tokenizer_load.await.map_err(|error| Error::new(Code::Internal, "cannot load the tokenizer").with_cause(error))?;
    let summary = session.registry.view(&reader).summary(budget);
    session.close().await;
    common.print(&PartialResponse { response: &summary, missing }, || summary.text.clone())?;
    // Nothing is saved without tools.
    if summary.tools > 0 {
        common.hint(&format!("hint: {}", describe_savings(&summary)));
    }
    Ok(())
}

/// Returns text such as `412 tokens instead of 61,230 (99.3 % less)`. Without a saving, as with a few small tools,
/// only the counts.
pub(crate) fn describe_savings(summary: &Summary) -> String {
    let Summary { tokens, tokens_full, .. } = *summary;
    let compared = format!("{} tokens instead of {}", group_digits(tokens), group_digits(tokens_full));
    // Round down, so that the text never claims 100 %.
    match tokens_full.checked_sub(tokens).map(|saved| saved * 1000 / tokens_full.max(1)) {
        Some(permille) if permille > 0 => format!("{compared} ({}.{} % less)", permille / 10, permille % 10),
        Some(_) | None => compared,
    }
}

/// Formats a number with thousands separators: `61,230`.
pub(crate) fn group_digits(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (position, digit) in digits.char_indices() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_savings_only_if_there_are_any() {
        let summary = |tokens, tokens_full| Summary { text: String::new(), tokens, tokens_full, tools: 1 };
        assert_eq!(describe_savings(&summary(412, 61_230)), "412 tokens instead of 61,230 (99.3 % less)");
        assert_eq!(describe_savings(&summary(1, 1_000_000)), "1 tokens instead of 1,000,000 (99.9 % less)");
        assert_eq!(describe_savings(&summary(99, 42)), "99 tokens instead of 42");
        assert_eq!(group_digits(1_234_567), "1,234,567");
    }
}
