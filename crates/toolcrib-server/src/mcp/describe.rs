//! `describe_tools`: what a tool takes, as short as its schema allows; the schema itself on request.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib::Error;
use toolcrib::core::json::describe_error;
use toolcrib::core::outline::{self, ArgumentList, ArgumentOutline};
use toolcrib::core::render::mcp;
use toolcrib::core::text::sanitize_truncated;
use toolcrib::core::tokens;
use toolcrib::registry::ToolView;

use super::McpService;
use super::call::invalid_arguments;
use super::listing_cache::Listings;
use super::meta_tools::{self, DESCRIBE_TOOLS};
use super::response::{error_result, text_result};

const MAX_DESCRIBED_TOOLS: usize = 20;
/// What a description may cost beyond the schema it stands for.
const MAX_EXTRA_TOKENS: usize = 55;

#[derive(Deserialize)]
struct DescribeArguments {
    #[serde(default)]
    names: Value,
    #[serde(default)]
    full: bool,
}

impl McpService {
    pub(super) async fn describe_tools(&self, arguments: Value) -> Box<RawValue> {
        let asked: DescribeArguments = match serde_json::from_value(arguments) {
            Ok(asked) => asked,
            Err(error) => return invalid_arguments(DESCRIBE_TOOLS, &describe_error(&error)),
        };
        // Agents often give one name where a list is wanted.
        let names: Option<Vec<String>> = match asked.names.as_str() {
            Some(name) => Some(vec![name.to_owned()]),
            None => serde_json::from_value(asked.names).ok(),
        };
        let Some(names) = names.filter(|names| (1..=MAX_DESCRIBED_TOOLS).contains(&names.len())) else {
            return invalid_arguments(
                DESCRIBE_TOOLS,
                &format!("`names` is a list of 1 to {MAX_DESCRIBED_TOOLS} names of tools"),
            );
        };
        let listings = self.listings();
        let mut texts = Vec::new();
        let mut unknown = Vec::new();
        for name in &names {
            if meta_tools::input_schema(name).is_some() {
                texts.push(meta_tools::signature(name).to_owned());
                continue;
            }
            let name = listings.resolve_name(name).await.map_or_else(|| name.clone(), |name| name.to_string());
            let described = self.registry.tool(&name).and_then(|tool| match asked.full {
                true => render_full(&listings, &tool),
                false => render_compact(&listings, &tool),
            });
            match described {
                Ok(text) => texts.push(text),
                Err(error) => unknown.push(error),
            }
        }
        match (&texts[..], &unknown[..]) {
            ([], [error, ..]) => error_result(error),
            _ => {
                texts.extend(unknown.into_iter().map(|error| error.message));
                text_result(&texts.join("\n\n"))
            }
        }
    }
}

/// The tool as it would be listed, with the schemas that a list leaves out.
fn render_full(listings: &Listings, tool: &ToolView) -> Result<String, Error> {
    let mut text = String::new();
    mcp::push_tool(
        tool.name.as_str(),
        &listings.view().catalog.find(tool.name.as_str())?.with_full_schemas()?,
        &mut text,
    );
    Ok(text)
}

/// A signature, what the tool does, and a line for each argument that has more to say than its name and type.
fn render_compact(listings: &Listings, tool: &ToolView) -> Result<String, Error> {
    let backing = listings.view().catalog.find(tool.name.as_str()).and_then(|tool| tool.execution_spec());
    let mut left_out = backing.is_ok_and(|backing| backing.is_some_and(|backing| backing.input_schema.is_some()));
    let schema: Value = serde_json::from_str(tool.input_schema.get()).unwrap_or_default();
    let allowed = tokens::count(tool.input_schema.get()) + MAX_EXTRA_TOKENS;
    let mut text = outline::call_signature(tool.name.as_str(), &schema);
    let mut spent = tokens::count(&text);
    let mut add = |line: String, text: &mut String| {
        let cost = tokens::count(&line) + 1;
        let fits = spent + cost <= allowed;
        if fits {
            spent += cost;
            text.push('\n');
            text.push_str(&line);
        }
        fits
    };
    // The description may be as long as the arguments leave room for, but its beginning comes before all else.
    let lines = all_argument_lines(&outline::list_arguments(&schema), 0);
    let needed: usize = lines.iter().map(|line| tokens::count(line) + 1).sum();
    let description = tool.description.trim();
    let room = allowed.saturating_sub(tokens::count(&text) + needed + 4).max(MAX_EXTRA_TOKENS / 2);
    let said = tokens::truncate_to_tokens(description, room);
    left_out |= said.len() < description.len();
    if !said.is_empty() {
        left_out |= !add(said.to_owned(), &mut text);
    }
    for line in lines {
        left_out |= !add(line, &mut text);
    }
    if left_out {
        text.push_str("\n(`full`: true tells more)");
    }
    Ok(text)
}

fn all_argument_lines(arguments: &ArgumentList, depth: usize) -> Vec<String> {
    let ending = arguments.omitted_note().map(|ending| format!("{}- {ending}", "  ".repeat(depth)));
    arguments.items.iter().flat_map(|argument| argument_lines(argument, depth)).chain(ending).collect()
}

fn argument_lines(argument: &ArgumentOutline, depth: usize) -> Vec<String> {
    let mut said = Vec::new();
    if !argument.choices.is_empty() {
        said.push(format!("one of {}", argument.choices.join(", ")));
    }
    said.extend(argument.limits.iter().cloned());
    if let Some(default) = &argument.default {
        said.push(format!("default {default}"));
    }
    if !argument.description.is_empty() {
        said.push(sanitize_truncated(&argument.description, 300));
    }
    let nested = all_argument_lines(&argument.nested, depth + 1);
    let mut all = Vec::new();
    if !said.is_empty() || !argument.nested.is_empty() {
        let required = if argument.required && depth > 0 { "*" } else { "" };
        let kind = if depth > 0 { format!(" ({})", argument.kind) } else { String::new() };
        all.push(format!("{}- {}{required}{kind}: {}", "  ".repeat(depth), argument.name, said.join("; ")));
    } else if depth > 0 {
        let required = if argument.required { "*" } else { "" };
        all.push(format!("{}- {}{required} ({})", "  ".repeat(depth), argument.name, argument.kind));
    }
    all.extend(nested);
    all
}
