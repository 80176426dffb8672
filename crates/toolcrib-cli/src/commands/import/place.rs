//! Where other clients keep their servers, and what stands there.

use std::path::{Path, PathBuf};

use toolcrib::config_file;
use toolcrib::core::ResultExt;
use toolcrib::core::config::client::{Imported, Os};
use toolcrib::core::config::{Client, Declaration, Fault};
use toolcrib::{Code, Error, Result};

use crate::arguments::Common;
use crate::desk;

/// One file, read.
pub(super) struct Place {
    pub(super) file: String,
    pub(super) declarations: Vec<Declaration>,
    /// What could not be read; it keeps nothing else out.
    pub(super) faults: Vec<Fault>,
    pub(super) warnings: Vec<Fault>,
}

impl Place {
    /// A file that somebody named must be there and legible.
    pub(super) fn named(file: &Path, client: Option<Client>) -> Result<Place> {
        let text = config_file::text(file)?;
        let imported = parse(file, &text, client, &project()?).map_err(|faults| Fault::into_error(&faults))?;
        Ok(Place::new(file, imported))
    }

    /// The files of one client, or of all, where they usually are. The configuration's own is none of them.
    pub(super) fn usual(common: &Common, client: Option<Client>) -> Result<Vec<Place>> {
        let (home, project) = (home()?, project()?);
        let unnamed = client.is_none();
        let clients = client.map_or_else(|| Client::ALL.to_vec(), |client| vec![client]);
        let paths = clients
            .iter()
            .flat_map(|client| client.paths(&home, &project, Os::current()).into_iter().map(|path| (*client, path)));
        let paths: Vec<(Client, PathBuf)> = paths.collect();
        let configured = desk::find(common)?.files;
        let mut places = Vec::new();
        for (client, path) in paths.iter().filter(|(_, path)| path.is_file()) {
            if configured.contains(path) {
                common.hint(&format!("`{}` is read as the configuration already", path.display()));
                continue;
            }
            // What a project brings along runs nothing before somebody names it.
            if unnamed && path.starts_with(&project) && project != home {
                let path = path.display();
                common.hint(&format!("hint: `{path}` is this project's; `toolcrib import {path}` brings it along"));
                continue;
            }
            let place = Place::found(path, *client, &project);
            // Clients keep other settings in the same files.
            if !place.declarations.is_empty() || !place.faults.is_empty() {
                places.push(place);
            }
        }
        if places.is_empty() {
            return Err(nothing(&paths));
        }
        Ok(places)
    }

    /// A file that happens to be there; one that cannot be read keeps the others in.
    fn found(path: &Path, client: Client, project: &Path) -> Place {
        let unreadable = |error: Error| vec![Fault::new(&path.display().to_string(), 0, "", error.message)];
        let imported = config_file::text(path)
            .map_err(unreadable)
            .and_then(|text| parse(path, &text, Some(client), project))
            .unwrap_or_else(|faults| Imported { faults, ..Imported::default() });
        Place::new(path, imported)
    }

    fn new(path: &Path, imported: Imported) -> Place {
        let Imported { config, faults } = imported;
        let (declarations, warnings) = (config.sources, config.warnings);
        Place { file: path.display().to_string(), declarations, faults, warnings }
    }
}

fn parse(path: &Path, text: &str, client: Option<Client>, project: &Path) -> Result<Imported, Vec<Fault>> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (base, file) = (absolute.parent().unwrap_or(Path::new("/")), path.display().to_string());
    match client {
        Some(client) => client.read(text, &file, base, project),
        None => Client::read_any(text, &file, base, project),
    }
}

fn project() -> Result<PathBuf> {
    std::env::current_dir().context(Code::ConfigInvalid, "the working directory cannot be read")
}

fn home() -> Result<PathBuf> {
    let homeless = || Error::new(Code::ConfigInvalid, "there is no home directory to look in; name a FILE");
    std::env::home_dir().filter(|home| home.is_absolute()).ok_or_else(homeless)
}

fn nothing(paths: &[(Client, PathBuf)]) -> Error {
    let looked: Vec<String> =
        paths.iter().map(|(client, path)| format!("\n  {}: {}", client.as_str(), path.display())).collect();
    Error::new(Code::NotFound, format!("no servers of another client found; looked at{}", looked.concat()))
}
