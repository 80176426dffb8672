//! Reading the configuration again: when a file of it changes, or on SIGHUP. One that is wrong changes nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use toolcrib::config_file::{self, LoadedConfig};
use toolcrib::core::ResultExt;
use toolcrib::core::config::Config;
use toolcrib::{Code, Result};
use toolcrib_server::{AppState, McpService};

use crate::exit::HangupSignal;
use crate::session::{CliSession, load_config};

/// How often the files are looked at.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// When a file was written last, and its length: enough to see an edit.
type FileStamps = BTreeMap<PathBuf, Option<(SystemTime, u64)>>;

/// Follows the files for as long as it is polled.
pub(super) async fn watch_config(
    session: &CliSession,
    surface: &McpService,
    house: &AppState,
    mut hang_up: HangupSignal,
) {
    let mut current = session.loaded_config.clone();
    // Not stamped yet: what changed since they were read is found by the first look.
    let mut known: FileStamps = watched_paths(&current).map(|path| (path, None)).collect();
    loop {
        let asked = tokio::select! {
            () = hang_up.wait() => true,
            () = tokio::time::sleep(POLL_INTERVAL) => false,
        };
        // Stamped before they are read, so that a change in between is seen next time.
        let now = read_stamps(known.keys()).await;
        if !asked && now == known {
            continue;
        }
        known = now;
        let found = match reload_config(session, &current).await {
            Ok(found) => found,
            Err(error) => {
                session.common.hint(&format!("error: {}; the configuration stays as it was", error.message));
                continue;
            }
        };
        let what = describe_changes(&current.config, &found.config);
        let trusted_now = found.untrusted_project().is_none() && !session.registry.is_trusted();
        if what.is_empty() && !trusted_now {
            if asked {
                session.common.hint("configuration read again: nothing changed");
            }
            continue;
        }
        if let Err(error) = apply_config(session, surface, house, &found).await {
            session.common.hint(&format!("error: {}; it is tried again", error.message));
            known.values_mut().for_each(|stamp| *stamp = None);
            continue;
        }
        // Clients hear of what is new once it is known.
        session.registry.refresh_in_background();
        let what = if what.is_empty() { "the project's file is trusted".to_owned() } else { what.join(", ") };
        session.common.hint(&format!("configuration read again: {what}"));
        known = watched_paths(&found).map(|path| (path.clone(), known.get(&path).copied().flatten())).collect();
        current = found;
    }
}

/// What the files say now. A project's file that is no longer trusted stays as it was trusted, so that changes of the
/// user's own file hold nevertheless.
async fn reload_config(session: &CliSession, current: &LoadedConfig) -> Result<LoadedConfig> {
    let common = session.common.clone();
    // Documents of a project may be large.
    let found = tokio::task::spawn_blocking(move || load_config(&common)).await;
    let found = found.context(Code::Internal, "the configuration could not be read")??;
    let was_trusted = current.untrusted_project().is_none();
    let Some(project) = found.untrusted_project() else { return Ok(found) };
    if was_trusted && current.project.is_some() {
        let message = project.untrusted_reason();
        session.common.hint(&format!(
            "hint: {message}; it holds as it was trusted until then; look at it, then run `toolcrib trust`"
        ));
        return Ok(found.with_trusted_project(current));
    }
    Ok(found)
}

async fn apply_config(
    session: &CliSession,
    surface: &McpService,
    house: &AppState,
    found: &LoadedConfig,
) -> Result<()> {
    for warning in &found.config.warnings {
        session.common.hint(&format!("warning: {warning}"));
    }
    // What local processes may do comes first: it needs no store.
    house.set_config(found.clone());
    session.registry.set_trust(found.trust());
    session.registry.reconfigure(&found.config).await?;
    surface.set_expose(found.config.expose.clone());
    Ok(())
}

/// What changed, piece by piece.
fn describe_changes(before: &Config, after: &Config) -> Vec<String> {
    let sources = |config: &Config| -> BTreeMap<String, _> {
        config.sources.iter().map(|declared| (declared.id.to_string(), declared.source.clone())).collect()
    };
    let old = sources(before);
    let new = sources(after);
    let added = new.keys().filter(|id| !old.contains_key(*id)).map(|id| format!("`{id}` added"));
    let changed = new.iter().filter(|(id, source)| old.get(*id).is_some_and(|old| old != *source));
    let changed = changed.map(|(id, _)| format!("`{id}` changed"));
    let removed = old.keys().filter(|id| !new.contains_key(*id)).map(|id| format!("`{id}` removed"));
    let mut said: Vec<String> = added.chain(changed).chain(removed).collect();
    if before.defaults != after.defaults {
        said.push("`defaults` changed".into());
    }
    if before.expose != after.expose {
        said.push("`expose` changed".into());
    }
    for (key, differs) in [
        ("warm", before.warm != after.warm),
        ("identity", before.identity != after.identity),
        ("allow_commands", before.allow_commands != after.allow_commands),
        ("allow_private_sources", before.allow_private_sources != after.allow_private_sources),
    ] {
        if differs {
            said.push(format!("`{key}` changed"));
        }
    }
    said
}

/// The files that were read, the user's own, which may appear, and the list of those that are trusted.
fn watched_paths(found: &LoadedConfig) -> impl Iterator<Item = PathBuf> {
    found.files.iter().cloned().chain(config_file::user_config_file()).chain(config_file::trust_file().ok())
}

async fn read_stamps(paths: impl Iterator<Item = &PathBuf>) -> FileStamps {
    let mut stamps = FileStamps::new();
    for path in paths {
        let metadata = tokio::fs::metadata(path).await.ok();
        let stamp = metadata.and_then(|metadata| Some((metadata.modified().ok()?, metadata.len())));
        stamps.insert(path.clone(), stamp);
    }
    stamps
}
