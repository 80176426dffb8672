//! The meta tool `describe_tools`: the arguments of a tool in fewer tokens than its schema, or the full schema on
//! request.
//!
//! ```text
//! git__commit(message*: string, amend: boolean)
//! Record changes in the repository.
//! - amend: default false; Replace the last commit
//! ```

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib::Error;
use toolcrib::catalog::outline::{self, ArgumentList, ArgumentOutline};
use toolcrib::catalog::render::mcp;
use toolcrib::catalog::token_count;
use toolcrib::core::json::{describe_error, parse_exact};
use toolcrib::core::text::sanitize_truncated;
use toolcrib::core::tool::TaskMode;
use toolcrib::registry::{FoundTool, RemovedTool, ToolView};
use toolcrib_mcp::server::McpRequest;

use super::call::invalid_arguments;
use super::listing_cache::Listings;
use super::meta_tools::{self, DESCRIBE_TOOLS};
use super::response::{error_result, text_result};
use super::{McpService, reading_principal};

/// Maximum number of tools per request. More names are refused with an error that states the limit.
const MAX_DESCRIBED_TOOLS: usize = 20;
/// Tokens that a compact description may cost more than the schema it replaces: space for the description.
const MAX_EXTRA_TOKENS: usize = 55;

/// Arguments of `describe_tools`.
#[derive(Deserialize)]
struct DescribeArguments {
    /// A list of names; a single string is accepted too.
    #[serde(default)]
    names: Value,
    #[serde(default)]
    full: bool,
}

impl McpService {
    /// Handles the meta tool `describe_tools`. Unknown names are reported beside the descriptions of the others.
    pub(super) async fn describe_tools(&self, request: &McpRequest, arguments: Value) -> Box<RawValue> {
        let arguments: DescribeArguments = match serde_json::from_value(arguments) {
            Ok(arguments) => arguments,
            Err(error) => return invalid_arguments(DESCRIBE_TOOLS, &describe_error(&error)),
        };
        // Agents often pass one name where a list is expected.
        let names: Option<Vec<String>> = match arguments.names.as_str() {
            Some(name) => Some(vec![name.to_owned()]),
            None => serde_json::from_value(arguments.names).ok(),
        };
        let Some(names) = names.filter(|names| (1..=MAX_DESCRIBED_TOOLS).contains(&names.len())) else {
            return invalid_arguments(
                DESCRIBE_TOOLS,
                &format!("`names` is a list of 1 to {MAX_DESCRIBED_TOOLS} tool names"),
            );
        };
        let listings = self.listings(&request.extensions);
        let mut texts = Vec::new();
        let mut unknown = Vec::new();
        for name in &names {
            if meta_tools::input_schema(name).is_some() {
                texts.push(meta_tools::signature(name).to_owned());
                continue;
            }
            let name = listings.resolve_name(name).await.map_or_else(|| name.clone(), |name| name.to_string());
            let found = self.registry.history().find_tool(&reading_principal(&request.extensions), &name).await;
            match found.and_then(|found| render_found(&listings, &found, arguments.full)) {
                Ok(text) => texts.push(text),
                Err(error) => unknown.push(error),
            }
        }
        match (&texts[..], &unknown[..]) {
            // Nothing to show: the first error stands for all. Otherwise the messages are appended to the descriptions.
            ([], [error, ..]) => error_result(error),
            _ => {
                texts.extend(unknown.iter().map(Error::agent_message));
                text_result(&texts.join("\n\n"))
            }
        }
    }
}

/// Renders a tool; of a removed one the last definition, after a line that says when it was removed.
fn render_found(listings: &Listings, found: &FoundTool, full: bool) -> Result<String, Error> {
    match found {
        FoundTool::Offered(tool) if full => render_full(listings, tool),
        FoundTool::Offered(tool) => Ok(render_compact(tool)),
        FoundTool::Removed(removed) => {
            let RemovedTool { name, source, history, definition, .. } = &**removed;
            let note =
                format!("`{name}` was removed at {}: its source `{source}` no longer offers it", history.updated_at);
            Ok(match definition {
                Some(tool) => format!("{note}; it was:\n{}", render_compact(tool)),
                None => note,
            })
        }
    }
}

/// Renders a tool as in `tools/list`, with all fields of its source and the complete schemas that a list may omit.
fn render_full(listings: &Listings, tool: &ToolView) -> Result<String, Error> {
    let mut text = String::new();
    mcp::push_definition(
        tool.name.as_str(),
        &listings.view().find(tool.name.as_str())?.with_full_schemas()?,
        &mut text,
    );
    Ok(text)
}

/// Renders the signature, the description, and a line for each argument with more than a name and a type, within the
/// token cost of the schema plus [`MAX_EXTRA_TOKENS`].
fn render_compact(tool: &ToolView) -> String {
    let listing = &tool.tool.listing;
    let mut is_incomplete = tool.is_pruned();
    let schema: Value = parse_exact(listing.input_schema.get()).unwrap_or_default();
    let budget = token_count::count(listing.input_schema.get()) + MAX_EXTRA_TOKENS;
    let mut text = outline::call_signature(tool.name.as_str(), &schema);
    let mut spent = token_count::count(&text);
    // Adds a line if it fits into the budget. A shorter line after one that did not fit may still be added.
    let mut add = |line: String, text: &mut String| {
        let cost = token_count::count(&line) + 1;
        let fits = spent + cost <= budget;
        if fits {
            spent += cost;
            text.push('\n');
            text.push_str(&line);
        }
        fits
    };
    // The description gets what the arguments leave of the budget, but at least half of the extra tokens.
    let lines = all_argument_lines(&outline::list_arguments(&schema), 0);
    let argument_cost: usize = lines.iter().map(|line| token_count::count(line) + 1).sum();
    let description = listing.description.trim();
    let description_budget =
        budget.saturating_sub(token_count::count(&text) + argument_cost + 4).max(MAX_EXTRA_TOKENS / 2);
    let truncated = token_count::truncate_to_tokens(description, description_budget);
    is_incomplete |= truncated.len() < description.len();
    if !truncated.is_empty() {
        is_incomplete |= !add(truncated.to_owned(), &mut text);
    }
    for line in lines {
        is_incomplete |= !add(line, &mut text);
    }
    if tool.tool.task_support() == TaskMode::Required {
        text.push_str("\n(runs as a task; the call returns when it has ended)");
    }
    // Not part of the budget: without this line an agent would take the short form for all there is.
    if is_incomplete {
        text.push_str("\n(`full`: true shows all)");
    }
    text
}

/// Renders the lines of all arguments at one level, and of those nested in them.
fn all_argument_lines(arguments: &ArgumentList, depth: usize) -> Vec<String> {
    let note_line = |note: String| format!("{}- {note}", "  ".repeat(depth));
    let mut lines: Vec<String> = arguments.items.iter().flat_map(|argument| argument_lines(argument, depth)).collect();
    lines.extend(arguments.omitted_note().map(note_line));
    for variant in &arguments.variants {
        lines.push(note_line(format!("variant {}:", variant.label)));
        lines.extend(all_argument_lines(&variant.fields, depth + 1));
    }
    lines.extend(arguments.omitted_variants_note().map(note_line));
    lines
}

/// Renders one argument. At the top level the signature already has its name and type, so a line without anything else is
/// omitted there.
fn argument_lines(argument: &ArgumentOutline, depth: usize) -> Vec<String> {
    let mut details = Vec::new();
    if !argument.choices.is_empty() {
        details.push(format!("one of {}", argument.choices.join(", ")));
    }
    details.extend(argument.limits.iter().cloned());
    if let Some(default) = &argument.default {
        details.push(format!("default {default}"));
    }
    if !argument.description.is_empty() {
        details.push(sanitize_truncated(&argument.description, 300));
    }
    let nested = all_argument_lines(&argument.nested, depth + 1);
    let mut lines = Vec::new();
    if !details.is_empty() || !argument.nested.is_empty() {
        let required = if argument.required && depth > 0 { "*" } else { "" };
        let kind = if depth > 0 { format!(" ({})", argument.kind) } else { String::new() };
        lines.push(format!("{}- {}{required}{kind}: {}", "  ".repeat(depth), argument.name, details.join("; ")));
    } else if depth > 0 {
        let required = if argument.required { "*" } else { "" };
        lines.push(format!("{}- {}{required} ({})", "  ".repeat(depth), argument.name, argument.kind));
    }
    lines.extend(nested);
    lines
}
