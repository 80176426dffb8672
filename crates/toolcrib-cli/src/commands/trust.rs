//! `toolcrib trust`: accepts the project file with everything that it currently runs, contacts and allows.
//!
//! The lines that this module prints are the basis of the decision, here and in the question that `session` asks at a
//! terminal. So they show everything that the file changes: what sources run and contact, rules, and settings. Secrets
//! are masked, and nothing in a value may be invisible. What counts as a change is decided in
//! `toolcrib_config::trust`.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use serde_json::{Value, json};
use toolcrib::config::show::show_source_keys;
use toolcrib::config::{ConfiguredSource, settings_to_trust};
use toolcrib::config_file::{ProjectFile, TrustState};
use toolcrib::core::source::SourceKind;
use toolcrib::{Code, Error, Result, Source, SourceId};

use crate::arguments::CommonArguments;
use crate::{session, source_summary};

/// Source keys that the summary line of a source already shows.
const SUMMARIZED_KEYS: [&str; 9] =
    ["command", "args", "env", "cwd", "url", "openapi", "base_url", "workflow", "builtin"];

/// Accept the project file, so that its settings apply and its sources may be run and contacted
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cd project && toolcrib trust
  toolcrib trust --json | jq .sources

A file that is found by walking up from the working directory has no effect before it is trusted.
When it would run, contact or allow anything else than what was trusted, Toolcrib asks again; it
does not ask about further restrictions. A file named by `--config` needs no trust.")]
pub(crate) struct Arguments {}

/// Records the trust and prints what it permits.
pub(crate) fn run(common: &CommonArguments, _: &Arguments) -> Result<()> {
    // No session: trust is recorded in a file of the user, and neither store nor sources are needed.
    let loaded_config = session::load_config(common)?;
    let Some(file) = loaded_config.file.clone() else {
        let message = "no project file in the working directory or its parents; `toolcrib init` writes one";
        return Err(Error::new(Code::NotFound, message));
    };
    // Without a project part the file was named with `--config`, is the user's own, or has no settings.
    let Some(project) = loaded_config.project.clone() else {
        return common.print(&json!({ "file": file, "trusted": true, "changed": false, "sources": [] }), || {
            let file = file.display();
            format!("`{file}` needs no trust: it was named with `--config`, is your user configuration, or is empty")
        });
    };
    let was_trusted = project.is_trusted();
    // Also for a file that is trusted already: the servers in its documents are recorded again.
    loaded_config.accept_project()?;
    let sources: Vec<Value> =
        project.config.sources.iter().map(|declaration| source_json(&project, declaration)).collect();
    let settings = settings_to_trust(&project.config);
    let report = json!({
        "file": file, "trusted": true, "changed": !was_trusted, "sources": sources, "settings": settings,
    });
    common.print(&report, || {
        let state = if was_trusted { "is trusted already" } else { "is trusted now" };
        format!("`{}` {state}:\n{}", file.display(), trust_lines(&project).join("\n"))
    })
}

/// Returns everything that trusting a project file permits, one line each: what each source runs or contacts, its
/// rules, and the settings for all sources. Sources and settings are indented by two spaces, the keys of a source by
/// four.
pub(crate) fn trust_lines(project: &ProjectFile) -> Vec<String> {
    let servers = project.document_servers();
    let mut lines = Vec::new();
    if let TrustState::Changed { keys, .. } = &project.trust_state {
        lines.push(format!("  changed since it was trusted: {}", keys.join(", ")));
    }
    // A project may narrow a source of the user without declaring it; those are listed with the settings below.
    let is_narrowed = |id: &SourceId| project.config.narrowings.iter().any(|narrowing| narrowing.id == *id);
    let declared = project.config.sources.iter();
    for declaration in
        declared.filter(|declared| !(is_narrowed(&declared.id) && project.replaces_user_source(&declared.id)))
    {
        match &declaration.source {
            Ok(source) => lines.extend(source_lines(project, source, &servers)),
            Err(_) => {
                let id = &declaration.id;
                lines.push(format!(
                    "  {id}: not used, because its declaration is invalid; `toolcrib sources` shows the error"
                ));
            }
        }
    }
    // Values come from an untrusted file and are shown for a decision, so nothing in them may be invisible.
    for (key, value) in settings_to_trust(&project.config) {
        let narrowed_id = key.strip_prefix("sources.");
        // A narrowing of a source that the user does not have is listed among the sources.
        let is_users = |id: &str| project.user_config.sources.iter().any(|source| source.id.as_str() == id);
        if narrowed_id.is_some_and(|id| !is_users(id)) {
            continue;
        }
        lines.push(match narrowed_id {
            Some(id) => format!("  narrows your own `{id}`: {}", source_summary::escape_invisible(&value.to_string())),
            None if key == "allow_commands" && value == json!(true) => {
                "  allow_commands: requests over HTTP may declare programs to run".to_owned()
            }
            None if key == "allow_private_sources" && value == json!(true) => {
                "  allow_private_sources: requests over HTTP may declare sources at private addresses".to_owned()
            }
            None => format!("  {key}: {}", source_summary::escape_invisible(&value.to_string())),
        });
    }
    lines
}

/// Returns the lines about one source.
fn source_lines(
    project: &ProjectFile,
    source: &Source,
    servers: &BTreeMap<&SourceId, &BTreeSet<String>>,
) -> Vec<String> {
    let id = &source.id;
    let mut lines = vec![format!("  {id}: {}", source_summary::describe_source(source))];
    // A source with the id of one of the user's takes its place.
    if project.replaces_user_source(id) {
        lines.push(format!("    replaces your own `{id}`"));
    }
    // Documents decide where requests and credentials go, so their servers are part of the trust.
    if let Some(servers) = servers.get(id) {
        let names: Vec<String> = servers.iter().map(|server| source_summary::escape_invisible(server)).collect();
        let names = names.join(", ");
        match &source.kind {
            SourceKind::Builtin(builtin) if builtin.roots.is_empty() => {}
            SourceKind::Builtin(_) if names.is_empty() => {
                lines.push("    the directories in `roots` cannot be read".to_owned());
            }
            SourceKind::Builtin(_) => lines.push(format!("    its file tools may access {names}")),
            SourceKind::OpenApi(_) | SourceKind::Workflow(_) if names.is_empty() => {
                lines.push("    its document cannot be read, or names no server".to_owned());
            }
            SourceKind::OpenApi(_) | SourceKind::Workflow(_) => {
                lines.push(format!("    its document sends requests to {names}"));
            }
            // Listed only because files of the project are part of its definition.
            SourceKind::Stdio(_) | SourceKind::Http(_) | SourceKind::Sse(_) => {}
        }
    }
    // All remaining keys: rules, timeouts, lifecycle.
    if let Value::Object(keys) = show_source_keys(source) {
        let others = keys.into_iter().filter(|(key, _)| !SUMMARIZED_KEYS.contains(&key.as_str()));
        lines.extend(
            others.map(|(key, value)| format!("    {key}: {}", source_summary::escape_invisible(&value.to_string()))),
        );
    }
    lines
}

/// Returns the declaration with masked secrets, or its errors, for `--json`. `replaces` tells whether a source of the
/// user has the same id.
fn source_json(project: &ProjectFile, declaration: &ConfiguredSource) -> Value {
    match &declaration.source {
        Ok(source) => {
            let mut keys = show_source_keys(source);
            keys["id"] = json!(source.id);
            keys["replaces"] = json!(project.replaces_user_source(&source.id));
            keys
        }
        Err(faults) => json!({ "id": declaration.id, "faults": faults }),
    }
}
