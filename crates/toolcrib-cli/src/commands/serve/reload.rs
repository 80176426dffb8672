//! Reading the configuration again: when a file of it changes, or on SIGHUP. One that is wrong changes nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use toolcrib::config_file::{self, Found};
use toolcrib::core::ResultExt;
use toolcrib::core::config::Config;
use toolcrib::{Code, Result};
use toolcrib_server::{House, Surface};

use crate::desk::{Desk, find};
use crate::exit::HangUp;

/// How often the files are looked at.
const TICK: Duration = Duration::from_secs(1);

/// When a file was written last, and its length: enough to see an edit.
type Stamps = BTreeMap<PathBuf, Option<(SystemTime, u64)>>;

/// Follows the files for as long as it is polled.
pub(super) async fn watch(desk: &Desk, surface: &Surface, house: &House, mut hang_up: HangUp) {
    let mut current = desk.found.clone();
    // Not stamped yet: what changed since they were read is found by the first look.
    let mut known: Stamps = paths(&current).map(|path| (path, None)).collect();
    loop {
        let asked = tokio::select! {
            () = hang_up.heard() => true,
            () = tokio::time::sleep(TICK) => false,
        };
        // Stamped before they are read, so that a change in between is seen next time.
        let now = stamped(known.keys()).await;
        if !asked && now == known {
            continue;
        }
        known = now;
        let found = match read_again(desk, &current).await {
            Ok(found) => found,
            Err(error) => {
                desk.common.hint(&format!("error: {}; the configuration stays as it was", error.message));
                continue;
            }
        };
        let what = difference(&current.config, &found.config);
        let trusted_now = found.untrusted().is_none() && !desk.registry.is_trusted();
        if what.is_empty() && !trusted_now {
            if asked {
                desk.common.hint("configuration read again: nothing changed");
            }
            continue;
        }
        if let Err(error) = apply(desk, surface, house, &found).await {
            desk.common.hint(&format!("error: {}; it is tried again", error.message));
            known.values_mut().for_each(|stamp| *stamp = None);
            continue;
        }
        // Clients hear of what is new once it is known.
        desk.registry.ensure_soon();
        let what = if what.is_empty() { "the project's file is trusted".to_owned() } else { what.join(", ") };
        desk.common.hint(&format!("configuration read again: {what}"));
        known = paths(&found).map(|path| (path.clone(), known.get(&path).copied().flatten())).collect();
        current = found;
    }
}

/// What the files say now. A project's file that is no longer trusted stays as it was trusted, so that changes of the
/// user's own file hold nevertheless.
async fn read_again(desk: &Desk, current: &Found) -> Result<Found> {
    let common = desk.common.clone();
    // Documents of a project may be large.
    let found = tokio::task::spawn_blocking(move || find(&common)).await;
    let found = found.context(Code::Internal, "the configuration could not be read")??;
    let was_trusted = current.untrusted().is_none();
    let Some(project) = found.untrusted() else { return Ok(found) };
    if was_trusted && current.project.is_some() {
        let message = project.not_trusted();
        desk.common.hint(&format!(
            "hint: {message}; it holds as it was trusted until then; look at it, then run `toolcrib trust`"
        ));
        return Ok(found.with_trusted_project(current));
    }
    Ok(found)
}

async fn apply(desk: &Desk, surface: &Surface, house: &House, found: &Found) -> Result<()> {
    for warning in &found.config.warnings {
        desk.common.hint(&format!("warning: {warning}"));
    }
    // What local processes may do comes first: it needs no store.
    house.reread(found.clone());
    desk.registry.set_trust(found.trust());
    desk.registry.reconfigure(&found.config).await?;
    surface.show(found.config.expose.clone());
    Ok(())
}

/// What changed, piece by piece.
fn difference(before: &Config, after: &Config) -> Vec<String> {
    let sources = |config: &Config| -> BTreeMap<String, _> {
        config.sources.iter().map(|declared| (declared.id.to_string(), declared.source.clone())).collect()
    };
    let (old, new) = (sources(before), sources(after));
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
fn paths(found: &Found) -> impl Iterator<Item = PathBuf> {
    found.files.iter().cloned().chain(config_file::user_file()).chain(config_file::trust_file().ok())
}

async fn stamped(paths: impl Iterator<Item = &PathBuf>) -> Stamps {
    let mut stamps = Stamps::new();
    for path in paths {
        let metadata = tokio::fs::metadata(path).await.ok();
        let stamp = metadata.and_then(|metadata| Some((metadata.modified().ok()?, metadata.len())));
        stamps.insert(path.clone(), stamp);
    }
    stamps
}
