//! `toolcrib export`: prints all sources, groups, access rules and policies, configured or declared at run time, as a
//! configuration file.
//!
//! The output can be used as `toolcrib.yaml` once masked values are replaced. Sources are as they were declared, with
//! the state that `enable` and `disable` left, without defaults and without overrides by variables; `toolcrib config`
//! shows those.

use clap::Args;
use toolcrib::config::{Secrets, export, export_json, masked_keys};
use toolcrib::registry::SourceView;
use toolcrib::{Result, Source};

use crate::arguments::CommonArguments;
use crate::session::CliSession;

/// Print all sources and rules as a configuration file
///
/// References such as `${env:NAME}` are written as they are. Literal values that may be secret are masked as `***`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib export > toolcrib.yaml
  toolcrib export --json > toolcrib.json
  toolcrib export --secrets > toolcrib.yaml      with the values themselves: keep the file safe")]
pub(crate) struct Arguments {
    /// Write literal values that may be secret as they are
    #[arg(long)]
    secrets: bool,
}

/// Prints the configuration to stdout, and hints about masked or literal secrets to stderr.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<()> {
    let session = CliSession::open_read_only(common).await?;
    // Read everything before closing; an invalid declaration cannot be exported, only named.
    let declarations = session.registry.sources().declarations();
    let rules = session.registry.inventory().rules().clone();
    let mut unusable = session.registry.sources().list();
    unusable.retain(|source| source.transport.is_none());
    session.close().await;
    let sources: Vec<&Source> = declarations.iter().map(|(_, source)| source).collect();
    let secrets = if arguments.secrets { Secrets::Plain } else { Secrets::Masked };
    common.print(&export_json(&sources, &rules, secrets), || export(&sources, &rules, secrets))?;
    for SourceView { id, .. } in unusable {
        common.hint(&format!(
            "warning: `{id}` has an invalid declaration and is left out; `toolcrib sources` shows the error"
        ));
    }
    for source in sources {
        let keys = masked_keys(source);
        if keys.is_empty() {
            continue;
        }
        let id = &source.id;
        let be = if keys.len() == 1 { "is" } else { "are" };
        let keys = keys.join("`, `");
        common.hint(&match secrets {
            Secrets::Masked => format!(
                "hint: `{keys}` of `{id}` may be secret and {be} masked; replace each `***` by `${{env:NAME}}` or \
                 `${{file:PATH}}`, or use `--secrets`"
            ),
            Secrets::Plain => format!(
                "hint: `{keys}` of `{id}` may be secret and {be} written in clear text; keep the file safe, or use \
                 `${{env:NAME}}`"
            ),
        });
    }
    Ok(())
}
