//! Configuration files of other MCP clients: their usual paths, where they keep their servers, and their import as
//! Toolcrib sources.
//!
//! A file is parsed into the same tree as Toolcrib's own; `rewrite` translates the keys of each server, and the
//! ordinary reader does the rest. This module only names paths: which of them exist is found out by the caller.
//!
//! ```text
//! Claude Desktop, Claude Code, Cursor, Gemini, Windsurf    mcpServers
//! VS Code                                                  servers, mcp.servers in its settings
//! Codex                                                    mcp_servers (TOML)
//! Zed                                                      context_servers
//! ```

mod rewrite;
mod variables;

use std::path::{Path, PathBuf};

use super::reader::ConfigReader;
use super::syntax::{self, ConfigNode, join_key};
use super::{Config, ConfigDiagnostic, ConfigDialect, ConfiguredSource, Syntax, read_sources};

pub(super) use rewrite::rewrite;

/// MCP client whose configuration files can be imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum McpClientKind {
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    Vscode,
    Codex,
    Gemini,
    Windsurf,
    Zed,
}

/// Content of a client's file. Servers that cannot be imported are errors and do not affect the others.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ImportedConfig {
    /// Imported sources and warnings.
    pub config: Config,
    /// Errors that concern no single source, such as duplicate names.
    pub errors: Vec<ConfigDiagnostic>,
}

/// Operating system, for its conventions on where configuration files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Os {
    Linux,
    MacOs,
    Windows,
}

/// Key paths under which some client keeps its servers, tried in this order where a file has none at its own path.
const SERVER_MAP_PATHS: [&[&str]; 7] = [
    &["mcpServers"],
    &["servers"],
    &["mcp", "servers"],
    &["mcp.servers"],
    &["mcp_servers"],
    &["context_servers"],
    &["sources"],
];

// Names on the command line, as in `toolcrib import cursor`, in the order in which the command tries the clients.
toolcrib_core::name_variants!(McpClientKind {
    ClaudeDesktop => "claude-desktop",
    ClaudeCode => "claude-code",
    Cursor => "cursor",
    Vscode => "vscode",
    Codex => "codex",
    Gemini => "gemini",
    Windsurf => "windsurf",
    Zed => "zed",
});

impl McpClientKind {
    /// Returns the usual paths of its files, the project's before the user's. The first that declares a server takes
    /// precedence. The files need not exist.
    pub fn config_paths(self, home: &Path, project: &Path, os: Os) -> Vec<PathBuf> {
        // Directory of application data by platform convention.
        let data = match os {
            Os::Linux => home.join(".config"),
            Os::MacOs => home.join("Library/Application Support"),
            Os::Windows => home.join("AppData/Roaming"),
        };
        match self {
            McpClientKind::ClaudeDesktop => vec![data.join("Claude/claude_desktop_config.json")],
            McpClientKind::ClaudeCode => vec![project.join(".mcp.json"), home.join(".claude.json")],
            McpClientKind::Cursor => vec![project.join(".cursor/mcp.json"), home.join(".cursor/mcp.json")],
            McpClientKind::Vscode => vec![
                project.join(".vscode/mcp.json"),
                data.join("Code/User/mcp.json"),
                data.join("Code/User/settings.json"),
            ],
            McpClientKind::Codex => vec![project.join(".codex/config.toml"), home.join(".codex/config.toml")],
            McpClientKind::Gemini => vec![project.join(".gemini/settings.json"), home.join(".gemini/settings.json")],
            McpClientKind::Windsurf => vec![home.join(".codeium/windsurf/mcp_config.json")],
            McpClientKind::Zed => {
                let user = match os {
                    Os::Linux | Os::MacOs => home.join(".config/zed/settings.json"),
                    Os::Windows => data.join("Zed/settings.json"),
                };
                vec![project.join(".zed/settings.json"), user]
            }
        }
    }

    /// Reads one of its files. `project` selects the servers of one project where the file has those of all, as Claude
    /// Code's does. Keys that are not about servers are ignored.
    pub fn read(
        self,
        text: &str,
        file: &str,
        base_dir: &Path,
        project: &Path,
    ) -> Result<ImportedConfig, Vec<ConfigDiagnostic>> {
        let root = syntax::parse(text, file, self.syntax(file))?;
        Ok(self.read_node(&root, file, base_dir, project))
    }

    /// Reads a file of unknown origin: Toolcrib's own, or any client's.
    pub fn read_any(
        text: &str,
        file: &str,
        base_dir: &Path,
        project: &Path,
    ) -> Result<ImportedConfig, Vec<ConfigDiagnostic>> {
        let root = syntax::parse(text, file, Syntax::from_file_name(file))?;
        // `sources` is a key that only Toolcrib's own files have.
        if root.get("sources").is_some() {
            let config = Config::from_node(&root, file, base_dir, ConfigDialect::Toolcrib, None)?;
            return Ok(ImportedConfig { config, errors: Vec::new() });
        }
        Ok(McpClientKind::detect_from_node(file, &root).read_node(&root, file, base_dir, project))
    }

    /// Detects the client of a file by its name and its keys. A text that does not parse counts as empty.
    /// Falls back to Claude Desktop, which keeps its servers under `mcpServers` like most clients.
    pub fn detect(text: &str, file: &str) -> McpClientKind {
        let root = syntax::parse(text, file, Syntax::from_file_name(file)).unwrap_or(ConfigNode::null(1));
        McpClientKind::detect_from_node(file, &root)
    }

    /// Reads the servers out of a parsed file. Never fails: a file without servers is an empty import with a warning.
    fn read_node(self, root: &ConfigNode, file: &str, base_dir: &Path, project: &Path) -> ImportedConfig {
        // Paths in `.vscode/mcp.json` and similar files are relative to the project, not to the dot directory.
        let in_dot_directory = base_dir.parent() == Some(project)
            && base_dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let base = if in_dot_directory { project } else { base_dir };
        let mut reader = ConfigReader::new(file, base, ConfigDialect::Client);
        if let Some(inputs) = root.get("inputs") {
            reader.warn(inputs.line, "inputs", "prompting is not supported; use `${env:NAME}` instead of an input");
        }
        let server_maps = self.server_maps(root, project);
        if server_maps.is_empty() {
            let key = self.server_map_paths()[0][0];
            reader.warn(1, "", format!("no servers found; {} keeps them under `{key}`", self.as_str()));
        }
        // Maps come in order of precedence: a server of an earlier map hides one of the same id in a later map.
        let mut sources: Vec<ConfiguredSource> = Vec::new();
        for (path, servers) in server_maps {
            // An import has no lower configuration, so there is nothing to narrow.
            let (found, _) = read_sources(&mut reader, servers, &path, Some(self));
            super::reject_duplicate_ids(&mut reader, &found);
            let known: Vec<_> = sources.iter().map(|source| source.id.clone()).collect();
            sources.extend(found.into_iter().filter(|source| !known.contains(&source.id)));
        }
        let config = Config { sources, warnings: reader.warnings, ..Config::default() };
        ImportedConfig { config, errors: reader.errors }
    }

    /// Returns the maps of servers in a file with their key paths, highest precedence first.
    /// Where the client's own key is absent, the first key of any client is used.
    fn server_maps<'n>(self, root: &'n ConfigNode, project: &Path) -> Vec<(String, &'n ConfigNode)> {
        let map_at = |path: &[&str]| {
            let node = path.iter().try_fold(root, |node, key| node.get(key))?;
            Some((path.join("."), node))
        };
        // `~/.claude.json` has the servers of each project under its path.
        let projects = root.get("projects").filter(|_| self == McpClientKind::ClaudeCode);
        let local = projects.and_then(|projects| {
            let entry = projects.entries().iter().find(|entry| Path::new(&entry.key) == project)?;
            let path = join_key(&join_key("projects", &entry.key), "mcpServers");
            Some((path, entry.node.get("mcpServers")?))
        });
        let own = self.server_map_paths().iter().filter_map(|path| map_at(path));
        let maps: Vec<_> = local.into_iter().chain(own).collect();
        if maps.is_empty() { SERVER_MAP_PATHS.into_iter().filter_map(map_at).take(1).collect() } else { maps }
    }

    /// Key paths under which the client keeps its servers, the usual one first.
    fn server_map_paths(self) -> &'static [&'static [&'static str]] {
        match self {
            McpClientKind::ClaudeDesktop
            | McpClientKind::ClaudeCode
            | McpClientKind::Cursor
            | McpClientKind::Gemini
            | McpClientKind::Windsurf => &[&["mcpServers"]],
            McpClientKind::Vscode => &[&["servers"], &["mcp", "servers"], &["mcp.servers"]],
            McpClientKind::Codex => &[&["mcp_servers"]],
            McpClientKind::Zed => &[&["context_servers"]],
        }
    }

    /// Syntax of its files. Codex writes TOML and all others JSON, whatever the extension of a renamed file.
    fn syntax(self, file: &str) -> Syntax {
        match (self, Syntax::from_file_name(file)) {
            (McpClientKind::Codex, Syntax::Yaml | Syntax::Toml) => Syntax::Toml,
            (_, Syntax::Yaml | Syntax::Json) => Syntax::Json,
            (_, syntax) => syntax,
        }
    }

    /// Keys that only one client uses decide first, then file names, then keys of single servers.
    fn detect_from_node(file: &str, root: &ConfigNode) -> McpClientKind {
        let file = file.replace('\\', "/");
        let name = file.rsplit('/').next().unwrap_or_default();
        let servers = || root.get("mcpServers").into_iter().flat_map(ConfigNode::entries);
        let any_server_has = |key: &str| servers().any(|server| server.node.get(key).is_some());
        match name {
            _ if root.get("mcp_servers").is_some() => McpClientKind::Codex,
            _ if root.get("context_servers").is_some() => McpClientKind::Zed,
            _ if root.get("servers").is_some() || root.get("mcp.servers").is_some() => McpClientKind::Vscode,
            "claude_desktop_config.json" => McpClientKind::ClaudeDesktop,
            ".mcp.json" | ".claude.json" => McpClientKind::ClaudeCode,
            "mcp_config.json" => McpClientKind::Windsurf,
            _ if file.contains(".gemini/") || any_server_has("httpUrl") => McpClientKind::Gemini,
            _ if any_server_has("serverUrl") => McpClientKind::Windsurf,
            _ if file.contains(".cursor/") => McpClientKind::Cursor,
            _ => McpClientKind::ClaudeDesktop,
        }
    }
}

impl Os {
    /// Returns the operating system this program was built for.
    pub fn current() -> Os {
        if cfg!(windows) {
            Os::Windows
        } else if cfg!(target_os = "macos") {
            Os::MacOs
        } else {
            Os::Linux
        }
    }
}

#[cfg(test)]
mod tests;
