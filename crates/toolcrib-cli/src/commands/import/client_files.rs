//! Configuration files of other MCP clients: their default paths, and the servers declared in them.
//!
//! Formats and paths of the clients are in `toolcrib_config::client_import`, which is pure; this module reads the
//! files. A file that is named on the command line must be readable and valid. Files at default paths may be missing,
//! and an error in one is reported with the results.

use std::path::{Path, PathBuf};

use toolcrib::config::client_import::{ImportedConfig, Os};
use toolcrib::config::{ConfigDiagnostic, ConfiguredSource, McpClientKind};
use toolcrib::config_file::{self, working_directory};
use toolcrib::{Code, Error, Result};

use crate::arguments::CommonArguments;
use crate::session::load_config;

/// The content of one file.
pub(super) struct ClientConfigFile {
    /// Path of the file, for messages.
    pub(super) file: String,
    pub(super) declarations: Vec<ConfiguredSource>,
    /// Errors in parts of the file; the other declarations are imported all the same.
    pub(super) faults: Vec<ConfigDiagnostic>,
    pub(super) warnings: Vec<ConfigDiagnostic>,
}

impl ClientConfigFile {
    /// Reads the file named on the command line; it is an error if it cannot be read.
    pub(super) fn read_named(file: &Path, client: Option<McpClientKind>) -> Result<ClientConfigFile> {
        let text = config_file::read_text(file)?;
        let imported = parse(file, &text, client, &working_directory()?)
            .map_err(|faults| ConfigDiagnostic::combined_error(&faults))?;
        Ok(ClientConfigFile::new(file, imported))
    }

    /// Reads the files of one client, or of all, at their default paths. Skips files that Toolcrib reads as its own
    /// configuration.
    pub(super) fn read_default_paths(
        common: &CommonArguments,
        client: Option<McpClientKind>,
    ) -> Result<Vec<ClientConfigFile>> {
        let home = home_directory()?;
        let project = working_directory()?;
        let is_any_client = client.is_none();
        let clients = client.map_or_else(|| McpClientKind::ALL.to_vec(), |client| vec![client]);
        let paths = clients.iter().flat_map(|client| {
            client.config_paths(&home, &project, Os::current()).into_iter().map(|path| (*client, path))
        });
        let paths: Vec<(McpClientKind, PathBuf)> = paths.collect();
        // `.mcp.json` may be the configuration of Toolcrib already; then there is nothing to import from it.
        let configured = load_config(common)?.files;
        let mut config_files = Vec::new();
        for (client, path) in paths.iter().filter(|(_, path)| path.is_file()) {
            if configured.contains(path) {
                common.hint(&format!("`{}` is read as the configuration already", path.display()));
                continue;
            }
            // A file in a checked-out project is not the user's own, so it must be named explicitly.
            if is_any_client && path.starts_with(&project) && project != home {
                let path = path.display();
                common.hint(&format!("hint: `{path}` belongs to this project; `toolcrib import {path}` imports it"));
                continue;
            }
            let config_file = ClientConfigFile::read_existing(path, *client, &project);
            // Some clients keep their servers in a general settings file, which may declare none.
            if !config_file.declarations.is_empty() || !config_file.faults.is_empty() {
                config_files.push(config_file);
            }
        }
        if config_files.is_empty() {
            return Err(no_servers_error(&paths));
        }
        Ok(config_files)
    }

    /// Reads a file at a default path. An error is reported with the results and does not stop the other files.
    fn read_existing(path: &Path, client: McpClientKind, project: &Path) -> ClientConfigFile {
        let unreadable = |error: Error| vec![ConfigDiagnostic::new(&path.display().to_string(), 0, "", error.message)];
        let imported = config_file::read_text(path)
            .map_err(unreadable)
            .and_then(|text| parse(path, &text, Some(client), project))
            .unwrap_or_else(|faults| ImportedConfig { errors: faults, ..ImportedConfig::default() });
        ClientConfigFile::new(path, imported)
    }

    /// Takes the parts of a parsed file.
    fn new(path: &Path, imported: ImportedConfig) -> ClientConfigFile {
        let ImportedConfig { config, errors: faults } = imported;
        let declarations = config.sources;
        let warnings = config.warnings;
        ClientConfigFile { file: path.display().to_string(), declarations, faults, warnings }
    }
}

/// Parses the file of a known client, or tries the formats of all.
fn parse(
    path: &Path,
    text: &str,
    client: Option<McpClientKind>,
    project: &Path,
) -> Result<ImportedConfig, Vec<ConfigDiagnostic>> {
    // Relative paths in the file are relative to its directory.
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let base = absolute.parent().unwrap_or(Path::new("/"));
    let file = path.display().to_string();
    match client {
        Some(client) => client.read(text, &file, base, project),
        None => McpClientKind::read_any(text, &file, base, project),
    }
}

/// The home directory, below which most clients keep their files.
fn home_directory() -> Result<PathBuf> {
    let no_home = || Error::new(Code::ConfigInvalid, "there is no home directory to search; name a FILE");
    std::env::home_dir().filter(|home| home.is_absolute()).ok_or_else(no_home)
}

/// The error that lists all paths that were tried.
fn no_servers_error(paths: &[(McpClientKind, PathBuf)]) -> Error {
    let looked: Vec<String> =
        paths.iter().map(|(client, path)| format!("\n  {}: {}", client.as_str(), path.display())).collect();
    Error::new(Code::NotFound, format!("no servers of another client found; looked at{}", looked.concat()))
}
