//! Reading the configuration again: when a file of it changes, or on SIGHUP. One that is wrong changes nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use toolcrib::config_file::{self, Found};
use toolcrib::core::config::Config;
use toolcrib::{Code, Error, Result};
use toolcrib_server::{House, Surface};

use crate::desk::{Desk, find};
use crate::exit::HangUp;

/// How often the files are looked at.
const TICK: Duration = Duration::from_secs(1);

/// When a file was written last, and its length: enough to see an edit.
type Stamps = BTreeMap<PathBuf, Option<(SystemTime, u64)>>;

/// Follows the files for as long as it is polled.
pub(super) async fn watch(desk: &Desk, surface: &Surface, house: &House, mut hang_up: HangUp) {
    let mut config = desk.found.config.clone();
    // Not stamped yet: what changed since they were read is found by the first look.
    let mut known: Stamps = paths(&desk.found).map(|path| (path, None)).collect();
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
        match read_again(desk, surface, &config).await {
            Ok(Some((found, what))) => {
                if asked || !what.is_empty() {
                    let what = if what.is_empty() { "nothing changed".to_owned() } else { what.join(", ") };
                    desk.common.hint(&format!("configuration read again: {what}"));
                }
                known = paths(&found).map(|path| (path.clone(), known.get(&path).copied().flatten())).collect();
                config = found.config.clone();
                house.reread(found);
            }
            Ok(None) if !asked => {}
            Ok(None) => {
                desk.common.hint("the project's file is still not trusted; look at it, then run `toolcrib trust`")
            }
            Err(error) => {
                desk.common.hint(&format!("error: {}; the configuration stays as it was", error.message));
            }
        }
    }
}

/// What there is now, and what changed; `None` for a project's file that is as little trusted as it was, where nothing
/// else changed.
async fn read_again(desk: &Desk, surface: &Surface, before: &Config) -> Result<Option<(Found, Vec<String>)>> {
    let found = find(&desk.common)?;
    let was_trusted = desk.registry.is_trusted();
    if let Some(project) = found.untrusted().filter(|_| was_trusted) {
        let message = format!("{}; look at it, then run `toolcrib trust`", project.not_trusted());
        return Err(Error::new(Code::Forbidden, message));
    }
    let what = difference(before, &found.config);
    if found.untrusted().is_some() && what.is_empty() {
        return Ok(None);
    }
    for warning in &found.config.warnings {
        desk.common.hint(&format!("warning: {warning}"));
    }
    desk.registry.set_trust(found.trust());
    desk.registry.reconfigure(&found.config).await?;
    surface.show(found.config.expose.clone());
    if !was_trusted || !what.is_empty() {
        // Clients hear of what is new once it is known.
        desk.registry.ensure_soon();
    }
    Ok(Some((found, what)))
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
