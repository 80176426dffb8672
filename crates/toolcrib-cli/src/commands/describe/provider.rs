//! `describe --format`: a tool converted for a model provider, and what the conversion loses.
//!
//! A conversion that loses something is not an error: the tool is printed, and `--explain` lists what was changed and
//! where. A tool that the format cannot express at all is left out of the array, with a hint on stderr.

use serde_json::json;
use toolcrib::catalog::render::{Format, Loss, ProjectedTool};
use toolcrib::core::manifest::SkippedTool;
use toolcrib::core::text::sanitize_truncated;
use toolcrib::registry::FoundTool;
use toolcrib::{Principal, Result};

use crate::arguments::CommonArguments;
use crate::commands::tools::hint_skipped;
use crate::session::CliSession;
use crate::{color, output};

/// A tool's name and its definition in a provider's format.
pub(super) type NamedProjection = (String, ProjectedTool);

/// Converts the tools that were found.
pub(super) fn project_tools(
    session: &CliSession,
    reader: &Principal,
    format: &str,
    lookups: &[(&str, Result<FoundTool>)],
) -> Result<(Format, Vec<NamedProjection>)> {
    let format = Format::parse(format)?;
    let view = session.registry.view(reader);
    let mut tools = Vec::new();
    // Only tools that were found; the caller reports the others.
    for found in lookups.iter().filter_map(|(_, result)| result.as_ref().ok()?.definition()) {
        // By the name that the lookup resolved, so that all spellings of a name give the same tool.
        let tool = view.find(found.name.as_str())?;
        tools.push((tool.name().to_string(), view.project(&tool, format)?.into_owned()));
    }
    Ok((format, tools))
}

/// Prints the array that the provider expects, with a hint for each tool that the format does not support.
pub(super) fn print_provider_array(common: &CommonArguments, format: Format, tools: &[NamedProjection]) -> Result<()> {
    let texts: Vec<&str> = tools.iter().filter_map(|(_, tool)| tool.text.as_deref()).collect();
    output::print_line(&format!("[{}]", texts.join(",")))?;
    let unsupported = |(name, tool): &NamedProjection| {
        tool.unsupported_reason.clone().map(|reason| SkippedTool { name: name.clone(), reason })
    };
    hint_skipped(common, format, &tools.iter().filter_map(unsupported).collect::<Vec<_>>());
    Ok(())
}

/// Losses of converting one tool; `unsupported_reason` is set if the format does not support it at all.
#[derive(serde::Serialize)]
struct ToolLosses {
    tool: String,
    /// Each edit of the schema with its JSON pointer.
    losses: Vec<Loss>,
    #[serde(rename = "set_aside")]
    unsupported_reason: Option<String>,
}

/// Prints the losses of each tool (`--explain`).
pub(super) fn print_losses(common: &CommonArguments, format: Format, tools: Vec<NamedProjection>) -> Result<()> {
    let tool_losses = tools.into_iter().map(|(tool, ProjectedTool { losses, unsupported_reason, .. })| ToolLosses {
        tool,
        losses,
        unsupported_reason,
    });
    let mut tool_losses: Vec<ToolLosses> = tool_losses.collect();
    if common.json {
        // One tool is an object, several are a list, as without `--format`.
        return match tool_losses.len() {
            1 => output::print_json(&tool_losses.swap_remove(0)),
            _ => output::print_json(&json!({ "tools": tool_losses })),
        };
    }
    for ToolLosses { tool, losses, unsupported_reason } in &tool_losses {
        output::print_line(&color::bold(tool))?;
        for Loss { path, edit } in losses {
            output::print_line(&format!("  {}: {}", sanitize_truncated(path, 200), edit))?;
        }
        let format = format.as_str();
        match unsupported_reason {
            Some(reason) => output::print_line(&format!("  not available as `{format}`: {reason}"))?,
            None if losses.is_empty() => output::print_line(&format!("  nothing is lost as `{format}`"))?,
            None => {}
        }
    }
    Ok(())
}
