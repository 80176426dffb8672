//! `toolcrib explain`: prints the verdict on a tool for a caller, and every rule that had a part in it.
//!
//! Makes no network requests: a tool of a source that was never discovered is unknown.

use clap::Args;
use toolcrib::core::access_rules::{ExplainedRule, Explanation};
use toolcrib::core::text::sanitize;
use toolcrib::registry::CallerVerdict;
use toolcrib::{Principal, Result};

use crate::arguments::CommonArguments;
use crate::preview::PreviewArguments;
use crate::session::CliSession;
use crate::table::Table;
use crate::{color, output};

/// Explain whether a caller sees a tool and may call it, and which rules decide that
///
/// Without `--token` or `--claims`, for `local`: agents on this machine that have no token, and `toolcrib mcp`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib explain github__delete_repository
  toolcrib explain github__delete_repository --token ci
  toolcrib explain delete_repository --claims '{\"realm_access\":{\"roles\":[\"support\"]}}'
  toolcrib explain delete_repository --claims @claims.json --json
  toolcrib explain delete_repository --callers")]
pub(crate) struct Arguments {
    /// `source__tool`, `source/tool`, `source:tool`, or the tool's own name when it is unique
    #[arg(value_name = "TOOL")]
    tool: String,
    #[command(flatten)]
    preview: PreviewArguments,
    /// Print the verdict for every known caller: local processes and the holders of tokens
    #[arg(long, conflicts_with_all = ["token", "claims"])]
    callers: bool,
}

/// Prints the explanation.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<()> {
    let session = CliSession::open_read_only(common).await?;
    session.run_and_close(async |session| explain(session, &arguments)).await
}

fn explain(session: &CliSession, arguments: &Arguments) -> Result<()> {
    let (registry, common) = (&session.registry, &session.common);
    if arguments.callers {
        let access = registry.rules().access_to(&arguments.tool, &[])?;
        return common.print(&access, || render_callers(&access.callers));
    }
    let selected = arguments.preview.caller(registry)?;
    let caller = selected.unwrap_or_else(|| Principal::local("local"));
    let explanation = registry.rules().explain(&CliSession::caller(), &caller, &arguments.tool)?;
    if common.json {
        return output::print_json(&explanation);
    }
    let tool = registry.tool_for(&CliSession::caller(), &arguments.tool)?.name;
    output::print_line(&render_explanation(tool.as_str(), &caller, &explanation))
}

/// Renders the verdict and the rules that led to it, in the order in which they are applied.
fn render_explanation(tool: &str, caller: &Principal, explanation: &Explanation) -> String {
    let Explanation { verdict, visible, rules } = explanation;
    let seen = if *visible { "visible" } else { "not visible" };
    let mut text = format!("{} for {}: {}, {seen}\n", color::bold(tool), describe_caller(caller), verdict.as_str());
    if rules.is_empty() {
        text.push_str("  no rule restricts it\n");
        return text;
    }
    let width = rules.iter().map(|rule| rule.name.chars().count()).max().unwrap_or_default();
    for ExplainedRule { kind, name, effect } in rules {
        let name = sanitize(name);
        text.push_str(&format!("  {kind:<6}  {name:<width$}  {}\n", sanitize(effect)));
    }
    text
}

fn describe_caller(caller: &Principal) -> String {
    let role = caller.role();
    match caller.identity().kind() {
        "local" => format!("local processes without a token ({role})"),
        "token" => format!("the token `{}` ({role})", caller.original_name()),
        _ => format!("a caller with these claims ({role})"),
    }
}

/// Renders a row per caller.
fn render_callers(callers: &[CallerVerdict]) -> String {
    let mut table = Table::new(&["caller", "kind", "role", "verdict", "visible", "rules"]);
    for CallerVerdict { caller, kind, role, explanation } in callers {
        let rules = explanation.rules.iter().map(|ExplainedRule { kind, name, effect }| match name.as_str() {
            "" => effect.clone(),
            name => format!("{kind} {name}: {effect}"),
        });
        let rules = rules.collect::<Vec<_>>().join("; ");
        let visible = if explanation.visible { "yes" } else { "no" };
        let verdict = explanation.verdict.as_str();
        let cells = [caller, *kind, role.as_str(), verdict, visible, &sanitize(&rules)];
        table.add_row(cells.map(str::to_owned).to_vec());
    }
    table.render()
}
