//! Reload of the configuration when one of its files changes, or on SIGHUP. An invalid configuration changes nothing.
//!
//! The files are polled. A reload changes sources, defaults, exposure, search, identity and permissions; the address
//! and the data directory belong to the command line and stay. A project file that changed and is not trusted any more
//! keeps its last trusted content in effect.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use toolcrib::config::{Config, JwksLocation};
use toolcrib::config_file::{self, LoadedConfig};
use toolcrib::core::ResultExt;
use toolcrib::core::access_rules::{NamedRule, RuleKind};
use toolcrib::core::text::sanitize_truncated;
use toolcrib::{Code, Requester, Result, Trace};
use toolcrib_server::{AppState, McpService};
use tracing::Instrument;

use crate::exit::HangupSignal;
use crate::session::{CliSession, load_config};

/// Time between checks of the files, and so the longest delay of an edit. A check reads the metadata of a handful of
/// files.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of characters of a public reason. A file may have many faults.
const MAX_REASON_LEN: usize = 2_000;

/// Modification time and length by path, which suffice to notice an edit; `None` for a missing or not yet checked file.
type FileStamps = BTreeMap<PathBuf, Option<(SystemTime, u64)>>;

/// Watches the files and applies changes, as long as the future is polled.
pub(super) async fn watch_config(
    session: &CliSession,
    mcp_service: &McpService,
    app_state: &AppState,
    mut hangup_signal: HangupSignal,
) {
    let mut current = session.loaded_config.clone();
    // No stamps yet, so that the first check also finds changes made since the files were loaded.
    let mut known: FileStamps = watched_paths(&current).map(|path| (path, None)).collect();
    // False after a failed attempt, which may have applied a part.
    let mut is_applied = true;
    // Reason of the last refusal, which is printed once.
    let mut refusal = None;
    loop {
        // SIGHUP reloads even if no stamp has changed.
        let is_requested = tokio::select! {
            () = hangup_signal.wait() => true,
            () = tokio::time::sleep(POLL_INTERVAL) => false,
        };
        // Read the stamps before the files, so that a change in between is noticed by the next check.
        let now = read_stamps(known.keys()).await;
        if !is_requested && now == known {
            continue;
        }
        known = now;
        app_state.reload_key_files().await;
        let reloaded = reload_config(session, &current).await;
        let checked = reloaded.and_then(|loaded| app_state.check_config(&loaded).map(|()| loaded));
        let fits = checked.as_ref().map_or(Ok(()), |loaded| session.registry.configuration().check(&loaded.config));
        if fits.is_err() {
            // Rules that were defined at run time are in the way. They may change although no file does, so the next
            // check tries again.
            known.values_mut().for_each(|stamp| *stamp = None);
        }
        let loaded = match fits.and(checked) {
            Ok(loaded) => loaded,
            Err(error) => {
                if is_requested || refusal.as_ref() != Some(&error.message) {
                    session.common.hint(&format!("error: {}; the configuration stays as it was", error.message));
                }
                app_state.set_config_error(Some(public_reason(&error.message, known.keys())));
                refusal = Some(error.message);
                continue;
            }
        };
        app_state.set_config_error(None);
        refusal = None;
        let local_had_none = session.registry.rules().leave_local_without_tools();
        // Compared by content, so that touching a file or changing a comment applies nothing.
        let changes = describe_changes(&current.config, &loaded.config);
        let became_trusted = loaded.untrusted_project().is_none() && !session.registry.configuration().is_trusted();
        if changes.is_empty() && !became_trusted && is_applied {
            if is_requested {
                session.common.hint("configuration reloaded: nothing changed");
            }
            continue;
        }
        let span = tracing::info_span!("reload", trace_id = %Trace::log_only().id());
        let applied = apply_config(session, mcp_service, app_state, &loaded).instrument(span).await;
        is_applied = applied.is_ok();
        if let Err(error) = applied {
            session.common.hint(&format!("error: {}; the reload is tried again", error.message));
            // Forget the stamps, so that the next check applies the files again.
            known.values_mut().for_each(|stamp| *stamp = None);
            continue;
        }
        // Discover new sources, so that clients are notified of their tools.
        session.registry.refresher().refresh_in_background(Requester::default());
        let changes = if !changes.is_empty() {
            changes.join(", ")
        } else if became_trusted {
            "the project file is trusted".to_owned()
        } else {
            "as before the failed attempt".to_owned()
        };
        session.common.hint(&format!("configuration reloaded: {changes}"));
        if loaded.config.store != current.config.store {
            warn_about_store(session, &loaded);
        }
        if !local_had_none {
            session.warn_without_local_tools();
        }
        // Watch the new set of files, keeping the stamps of those that stay.
        known = watched_paths(&loaded).map(|path| (path.clone(), known.get(&path).copied().flatten())).collect();
        current = loaded;
    }
}

/// Prints a warning if the configuration names another store than the one in use, which stays open until the end.
fn warn_about_store(session: &CliSession, loaded: &LoadedConfig) {
    let started_with = &session.loaded_config.config.store;
    if session.common.store.is_none() && loaded.config.store != *started_with {
        let message = "`store` has changed, but the store of the start stays in use; restart to use the other one";
        session.common.hint(&format!("warning: {message}"));
    }
}

/// Returns the reason of an error for clients without credentials: on one line, and without the directories of files.
fn public_reason<'a>(message: &str, files: impl Iterator<Item = &'a PathBuf>) -> String {
    let mut reason = message.to_owned();
    let mut directories: Vec<&Path> = files.filter_map(|file| file.parent()).collect();
    // A directory in another one first, or its name would stay.
    directories.sort_by_key(|directory| Reverse(directory.as_os_str().len()));
    for directory in directories.into_iter().filter(|directory| directory.parent().is_some()) {
        reason = reason.replace(&format!("{}/", directory.display()), "");
    }
    sanitize_truncated(&reason, MAX_REASON_LEN)
}

/// Loads the files. If the project file is no longer trusted, keeps its last trusted content, so that changes of the
/// user's own file still apply.
async fn reload_config(session: &CliSession, current: &LoadedConfig) -> Result<LoadedConfig> {
    let common = session.common.clone();
    // Off the async workers: computing trust reads the documents of the project, which may be large.
    let loaded = tokio::task::spawn_blocking(move || load_config(&common)).await;
    let loaded = loaded.context(Code::Internal, "the configuration could not be read")??;
    let was_trusted = current.untrusted_project().is_none();
    let Some(project) = loaded.untrusted_project() else { return Ok(loaded) };
    if was_trusted && current.project.is_some() {
        let message = project.untrusted_reason();
        session.common.hint(&format!(
            "hint: {message}; its last trusted content stays in effect; review it, then run `toolcrib trust`"
        ));
        return loaded.with_trusted_project(current);
    }
    Ok(loaded)
}

/// Applies a loaded configuration to HTTP server, registry and MCP service. Fails if the store cannot be written; the
/// caller then tries again. Until then no client is admitted that was not before: the rules for it are not in force.
async fn apply_config(
    session: &CliSession,
    mcp_service: &McpService,
    app_state: &AppState,
    loaded: &LoadedConfig,
) -> Result<()> {
    for warning in &loaded.config.warnings {
        session.common.hint(&format!("warning: {warning}"));
    }
    // What it takes away must not depend on a working store.
    app_state.restrict(loaded);
    session.registry.configuration().set_trust(loaded.trust());
    session.registry.configuration().apply(&loaded.config).await?;
    app_state.set_config(loaded.clone());
    mcp_service.set_expose(loaded.config.expose.clone());
    Ok(())
}

/// Returns a phrase for each changed source and section.
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
    let mut changes: Vec<String> = added.chain(changed).chain(removed).collect();
    // Names every field, so that a new one cannot be forgotten here.
    let Config {
        sources: _,
        // Applied to the sources when the files were merged.
        narrowings: _,
        defaults,
        expose,
        allow_commands,
        allow_private_sources,
        identity,
        public_url,
        store,
        limits,
        warm,
        search_model,
        rules: _,
        replaces_rules: _,
        retains_sources: _,
        // Checked when the files were merged.
        group_references: _,
        warnings: _,
        origins: _,
    } = before;
    for (key, differs) in [
        ("defaults", *defaults != after.defaults),
        ("expose", *expose != after.expose),
        ("warm", *warm != after.warm),
        ("identity", *identity != after.identity),
        ("public_url", *public_url != after.public_url),
        ("store", *store != after.store),
        ("limits", *limits != after.limits),
        ("allow_commands", *allow_commands != after.allow_commands),
        ("allow_private_sources", *allow_private_sources != after.allow_private_sources),
        ("search", *search_model != after.search_model),
    ] {
        if differs {
            changes.push(format!("`{key}` changed"));
        }
    }
    // Compared without lines, which have no effect.
    let rules = |config: &Config, kind: RuleKind| -> Vec<NamedRule> {
        config.rules.iter().map(|configured| configured.rule.clone()).filter(|rule| rule.kind() == kind).collect()
    };
    let changed = RuleKind::ALL.into_iter().filter(|kind| rules(before, *kind) != rules(after, *kind));
    changes.extend(changed.map(|kind| format!("`{}` changed", kind.plural())));
    changes
}

/// The loaded files, the user's own (which may be created later), the list of trusted files, and the keys of identity
/// providers.
fn watched_paths(loaded: &LoadedConfig) -> impl Iterator<Item = PathBuf> {
    let key_files = loaded.config.identity.issuers.iter().filter_map(|issuer| match &issuer.jwks {
        JwksLocation::File(path) => Some(PathBuf::from(path)),
        JwksLocation::Auto | JwksLocation::Url(_) => None,
    });
    let files = loaded.files.iter().cloned().chain(key_files);
    files.chain(config_file::user_config_file()).chain(config_file::trust_file().ok())
}

/// Reads modification time and length of each path.
async fn read_stamps(paths: impl Iterator<Item = &PathBuf>) -> FileStamps {
    let mut stamps = FileStamps::new();
    for path in paths {
        let metadata = tokio::fs::metadata(path).await.ok();
        let stamp = metadata.and_then(|metadata| Some((metadata.modified().ok()?, metadata.len())));
        stamps.insert(path.clone(), stamp);
    }
    stamps
}
