//! Other clients' configuration files: where they are, where their servers stand in them, and reading them as ours.

mod rewrite;
mod variables;

use std::path::{Path, PathBuf};

use super::node::{self, Node, joined};
use super::reader::Reader;
use super::{Config, Declaration, Dialect, Fault, Syntax, declarations};

pub(super) use rewrite::rewrite;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Client {
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    Vscode,
    Codex,
    Gemini,
    Windsurf,
    Zed,
}

/// What a client's file declares. A server whose name cannot be used is a fault and keeps no other out.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Imported {
    pub config: Config,
    pub faults: Vec<Fault>,
}

/// The system whose conventions say where files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Os {
    Linux,
    MacOs,
    Windows,
}

/// Every place where some client keeps its servers, for files that are not where they should be.
const PLACES: [&[&str]; 7] = [
    &["mcpServers"],
    &["servers"],
    &["mcp", "servers"],
    &["mcp.servers"],
    &["mcp_servers"],
    &["context_servers"],
    &["sources"],
];

impl Client {
    pub const ALL: [Client; 8] = [
        Client::ClaudeDesktop,
        Client::ClaudeCode,
        Client::Cursor,
        Client::Vscode,
        Client::Codex,
        Client::Gemini,
        Client::Windsurf,
        Client::Zed,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Client::ClaudeDesktop => "claude-desktop",
            Client::ClaudeCode => "claude-code",
            Client::Cursor => "cursor",
            Client::Vscode => "vscode",
            Client::Codex => "codex",
            Client::Gemini => "gemini",
            Client::Windsurf => "windsurf",
            Client::Zed => "zed",
        }
    }

    pub fn parse(name: &str) -> Option<Client> {
        Client::ALL.into_iter().find(|client| client.as_str() == name)
    }

    /// Where its files usually are, the project's before the user's: the first that declares a server wins.
    pub fn paths(self, home: &Path, project: &Path, os: Os) -> Vec<PathBuf> {
        let data = match os {
            Os::Linux => home.join(".config"),
            Os::MacOs => home.join("Library/Application Support"),
            Os::Windows => home.join("AppData/Roaming"),
        };
        match self {
            Client::ClaudeDesktop => vec![data.join("Claude/claude_desktop_config.json")],
            Client::ClaudeCode => vec![project.join(".mcp.json"), home.join(".claude.json")],
            Client::Cursor => vec![project.join(".cursor/mcp.json"), home.join(".cursor/mcp.json")],
            Client::Vscode => vec![
                project.join(".vscode/mcp.json"),
                data.join("Code/User/mcp.json"),
                data.join("Code/User/settings.json"),
            ],
            Client::Codex => vec![project.join(".codex/config.toml"), home.join(".codex/config.toml")],
            Client::Gemini => vec![project.join(".gemini/settings.json"), home.join(".gemini/settings.json")],
            Client::Windsurf => vec![home.join(".codeium/windsurf/mcp_config.json")],
            Client::Zed => {
                let user = match os {
                    Os::Linux | Os::MacOs => home.join(".config/zed/settings.json"),
                    Os::Windows => data.join("Zed/settings.json"),
                };
                vec![project.join(".zed/settings.json"), user]
            }
        }
    }

    /// Reads one of its files. `project` is the directory for which servers are wanted: Claude Code keeps those of
    /// every project in one file. Keys that are not about servers are not looked at.
    pub fn read(self, text: &str, file: &str, base_dir: &Path, project: &Path) -> Result<Imported, Vec<Fault>> {
        let root = node::parse(text, file, self.syntax(file))?;
        Ok(self.read_node(&root, file, base_dir, project))
    }

    /// Reads a file of unknown origin: ours, or any client's.
    pub fn read_any(text: &str, file: &str, base_dir: &Path, project: &Path) -> Result<Imported, Vec<Fault>> {
        let root = node::parse(text, file, Syntax::of(file))?;
        if root.get("sources").is_some() {
            let config = Config::of_node(&root, file, base_dir, Dialect::Own)?;
            return Ok(Imported { config, faults: Vec::new() });
        }
        Ok(Client::of(file, &root).read_node(&root, file, base_dir, project))
    }

    /// Whose file it most likely is, by its name and its keys.
    pub fn guess(text: &str, file: &str) -> Client {
        let root = node::parse(text, file, Syntax::of(file)).unwrap_or(Node::null(1));
        Client::of(file, &root)
    }

    fn read_node(self, root: &Node, file: &str, base_dir: &Path, project: &Path) -> Imported {
        // A file in `.vscode/` and the like speaks of the directory around it.
        let in_dot_directory = base_dir.parent() == Some(project)
            && base_dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let base = if in_dot_directory { project } else { base_dir };
        let mut reader = Reader::new(file, base, Dialect::Client);
        if let Some(inputs) = root.get("inputs") {
            reader.warn(inputs.line, "inputs", "are not asked for; use `${env:NAME}` where one is needed");
        }
        let places = self.places(root, project);
        if places.is_empty() {
            reader.warn(1, "", format!("no servers found; {} keeps them under `{}`", self.as_str(), self.home_key()));
        }
        let mut sources: Vec<Declaration> = Vec::new();
        for (path, servers) in places {
            // A client's file stands alone when it is imported, so it narrows nothing.
            let (found, _) = declarations(&mut reader, servers, &path, Some(self));
            super::forbid_equal_ids(&mut reader, &found);
            let known: Vec<_> = sources.iter().map(|declaration| declaration.id.clone()).collect();
            sources.extend(found.into_iter().filter(|declaration| !known.contains(&declaration.id)));
        }
        let config = Config { sources, warnings: reader.warnings, ..Config::default() };
        Imported { config, faults: reader.faults }
    }

    /// The maps of servers in a file, those that win first.
    fn places<'n>(self, root: &'n Node, project: &Path) -> Vec<(String, &'n Node)> {
        let at = |path: &[&str]| {
            let node = path.iter().try_fold(root, |node, key| node.get(key))?;
            Some((path.join("."), node))
        };
        let own: Vec<_> = match self {
            Client::ClaudeDesktop | Client::Cursor | Client::Gemini | Client::Windsurf => {
                at(&["mcpServers"]).into_iter().collect()
            }
            Client::ClaudeCode => {
                let local = root.get("projects").and_then(|projects| {
                    let entry = projects.entries().iter().find(|entry| Path::new(&entry.key) == project)?;
                    let path = joined(&joined("projects", &entry.key), "mcpServers");
                    Some((path, entry.node.get("mcpServers")?))
                });
                local.into_iter().chain(at(&["mcpServers"])).collect()
            }
            Client::Vscode => {
                let paths: [&[&str]; 3] = [&["servers"], &["mcp", "servers"], &["mcp.servers"]];
                paths.into_iter().filter_map(at).collect()
            }
            Client::Codex => at(&["mcp_servers"]).into_iter().collect(),
            Client::Zed => at(&["context_servers"]).into_iter().collect(),
        };
        if own.is_empty() { PLACES.into_iter().filter_map(at).take(1).collect() } else { own }
    }

    fn home_key(self) -> &'static str {
        match self {
            Client::ClaudeDesktop | Client::ClaudeCode | Client::Cursor | Client::Gemini | Client::Windsurf => {
                "mcpServers"
            }
            Client::Vscode => "servers",
            Client::Codex => "mcp_servers",
            Client::Zed => "context_servers",
        }
    }

    fn syntax(self, file: &str) -> Syntax {
        match (self, Syntax::of(file)) {
            (Client::Codex, Syntax::Yaml | Syntax::Toml) => Syntax::Toml,
            (_, Syntax::Yaml | Syntax::Json) => Syntax::Json,
            (_, syntax) => syntax,
        }
    }

    fn of(file: &str, root: &Node) -> Client {
        let file = file.replace('\\', "/");
        let name = file.rsplit('/').next().unwrap_or_default();
        let servers = || root.get("mcpServers").into_iter().flat_map(Node::entries);
        let any_server_has = |key: &str| servers().any(|server| server.node.get(key).is_some());
        match name {
            _ if root.get("mcp_servers").is_some() => Client::Codex,
            _ if root.get("context_servers").is_some() => Client::Zed,
            _ if root.get("servers").is_some() || root.get("mcp.servers").is_some() => Client::Vscode,
            "claude_desktop_config.json" => Client::ClaudeDesktop,
            ".mcp.json" | ".claude.json" => Client::ClaudeCode,
            "mcp_config.json" => Client::Windsurf,
            _ if file.contains(".gemini/") || any_server_has("httpUrl") => Client::Gemini,
            _ if any_server_has("serverUrl") => Client::Windsurf,
            _ if file.contains(".cursor/") => Client::Cursor,
            _ => Client::ClaudeDesktop,
        }
    }
}

impl Os {
    /// The one this was built for.
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
