//! A tool as a provider takes it, and what is lost on the way.

use serde_json::json;
use toolcrib::Result;
use toolcrib::core::manifest::SetAside;
use toolcrib::core::render::{Format, Loss, Projected};
use toolcrib::core::text::shown_short;
use toolcrib::registry::ToolDetail;

use crate::arguments::Common;
use crate::commands::tools::hint_set_aside;
use crate::desk::Desk;
use crate::{output, paint};

/// A tool in a provider's format, and what it is called.
pub(super) type Named = (String, Projected);

pub(super) fn projected(
    desk: &Desk,
    format: &str,
    found: &[(&str, Result<ToolDetail>)],
) -> Result<(Format, Vec<Named>)> {
    let format = Format::parse(format)?;
    let view = desk.registry.view(&Desk::caller());
    let mut tools = Vec::new();
    for detail in found.iter().filter_map(|(_, found)| found.as_ref().ok()) {
        let tool = view.catalog.find(detail.view.name.as_str())?;
        tools.push((tool.name().to_string(), view.project(&tool, format)?.into_owned()));
    }
    Ok((format, tools))
}

/// The array that a provider takes.
pub(super) fn provided(common: &Common, format: Format, tools: &[Named]) -> Result<()> {
    let texts: Vec<&str> = tools.iter().filter_map(|(_, tool)| tool.text.as_deref()).collect();
    output::line(&format!("[{}]", texts.join(",")))?;
    let refused = |(name, tool): &Named| tool.set_aside.clone().map(|reason| SetAside { name: name.clone(), reason });
    hint_set_aside(common, format, &tools.iter().filter_map(refused).collect::<Vec<_>>());
    Ok(())
}

/// What a format loses of each tool.
#[derive(serde::Serialize)]
struct Explained {
    tool: String,
    losses: Vec<Loss>,
    set_aside: Option<String>,
}

pub(super) fn explain(common: &Common, format: Format, tools: Vec<Named>) -> Result<()> {
    let explained =
        tools.into_iter().map(|(tool, Projected { losses, set_aside, .. })| Explained { tool, losses, set_aside });
    let mut explained: Vec<Explained> = explained.collect();
    if common.json {
        return match explained.len() {
            1 => output::json(&explained.swap_remove(0)),
            _ => output::json(&json!({ "tools": explained })),
        };
    }
    for Explained { tool, losses, set_aside } in &explained {
        output::line(&paint::bold(tool))?;
        for Loss { path, edit } in losses {
            output::line(&format!("  {}: {}", shown_short(path, 200), edit))?;
        }
        let format = format.as_str();
        match set_aside {
            Some(reason) => output::line(&format!("  cannot be had as `{format}`: {reason}"))?,
            None if losses.is_empty() => output::line(&format!("  nothing is lost as `{format}`"))?,
            None => {}
        }
    }
    Ok(())
}
