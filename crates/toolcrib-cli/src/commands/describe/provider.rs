//! A tool as a provider takes it, and what is lost on the way.

use serde_json::json;
use toolcrib::Result;
use toolcrib::core::manifest::SetAsideTool;
use toolcrib::core::render::{Format, Loss, ProjectedTool};
use toolcrib::core::text::sanitize_truncated;
use toolcrib::registry::ToolDetail;

use crate::arguments::CommonArguments;
use crate::commands::tools::hint_excluded;
use crate::session::CliSession;
use crate::{color, output};

/// A tool in a provider's format, and what it is called.
pub(super) type NamedProjection = (String, ProjectedTool);

pub(super) fn project_tools(
    session: &CliSession,
    format: &str,
    found: &[(&str, Result<ToolDetail>)],
) -> Result<(Format, Vec<NamedProjection>)> {
    let format = Format::parse(format)?;
    let view = session.registry.view(&CliSession::caller());
    let mut tools = Vec::new();
    for detail in found.iter().filter_map(|(_, found)| found.as_ref().ok()) {
        let tool = view.catalog.find(detail.view.name.as_str())?;
        tools.push((tool.name().to_string(), view.project(&tool, format)?.into_owned()));
    }
    Ok((format, tools))
}

/// The array that a provider takes.
pub(super) fn print_provider_array(common: &CommonArguments, format: Format, tools: &[NamedProjection]) -> Result<()> {
    let texts: Vec<&str> = tools.iter().filter_map(|(_, tool)| tool.text.as_deref()).collect();
    output::print_line(&format!("[{}]", texts.join(",")))?;
    let refused = |(name, tool): &NamedProjection| {
        tool.unsupported_reason.clone().map(|reason| SetAsideTool { name: name.clone(), reason })
    };
    hint_excluded(common, format, &tools.iter().filter_map(refused).collect::<Vec<_>>());
    Ok(())
}

/// What a format loses of each tool.
#[derive(serde::Serialize)]
struct ToolLosses {
    tool: String,
    losses: Vec<Loss>,
    set_aside: Option<String>,
}

pub(super) fn print_losses(common: &CommonArguments, format: Format, tools: Vec<NamedProjection>) -> Result<()> {
    let explained = tools.into_iter().map(|(tool, ProjectedTool { losses, unsupported_reason: set_aside, .. })| {
        ToolLosses { tool, losses, set_aside }
    });
    let mut explained: Vec<ToolLosses> = explained.collect();
    if common.json {
        return match explained.len() {
            1 => output::print_json(&explained.swap_remove(0)),
            _ => output::print_json(&json!({ "tools": explained })),
        };
    }
    for ToolLosses { tool, losses, set_aside } in &explained {
        output::print_line(&color::bold(tool))?;
        for Loss { path, edit } in losses {
            output::print_line(&format!("  {}: {}", sanitize_truncated(path, 200), edit))?;
        }
        let format = format.as_str();
        match set_aside {
            Some(reason) => output::print_line(&format!("  cannot be had as `{format}`: {reason}"))?,
            None if losses.is_empty() => output::print_line(&format!("  nothing is lost as `{format}`"))?,
            None => {}
        }
    }
    Ok(())
}
