//! Configuration: a file's text becomes sources, defaults and what is exposed, with the line of everything, and with
//! every mistake named at once. Finding and reading files, and resolving references, is left to others.

pub mod client;
pub mod diagnostic;
pub mod overrides;
pub mod show;
pub mod size;

mod auth;
mod export;
mod header;
mod inline_source;
mod narrowing;
pub(crate) mod node;
mod openapi;
mod path;
mod reader;
mod secret_mask;
mod settings;
mod source;
mod source_keys;
mod trust;
mod url_check;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

pub use client::McpClientKind;
pub use diagnostic::ConfigDiagnostic;
pub use export::{export, export_json, masked_keys};
pub use inline_source::parse_source;
pub use narrowing::Narrowing;
pub use overrides::{Override, Overrides, overrides_from_env};
pub use source_keys::Secrets;
pub use trust::{LocalDocument, TrustedFile, settings_to_trust};

use crate::source::{Source, SourceId, SourceSettings};
use node::{ConfigNode, join_key};
use reader::ConfigReader;

/// What one file says, or several laid over each other.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Config {
    pub sources: Vec<ConfiguredSource>,
    /// What the file restricts without declaring it: sources of the configuration that it is laid over.
    pub narrowings: Vec<Narrowing>,
    pub defaults: SourceSettings,
    pub expose: Expose,
    /// Whether requests over HTTP may declare sources that start programs.
    pub allow_commands: bool,
    /// Whether an administrator may declare sources at private addresses over the network.
    pub allow_private_sources: bool,
    pub identity: Identity,
    pub warm: WarmPolicy,
    /// Advice that stops nothing.
    pub warnings: Vec<ConfigDiagnostic>,
    /// Where each key of `defaults`, `expose` and `identity`, and each single value at the top, was set, by its path such
    /// as `defaults.ttl`.
    pub origins: BTreeMap<String, ConfigOrigin>,
}

/// A source as a file declares it. One that is invalid is kept with its faults and takes no other down.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfiguredSource {
    pub id: SourceId,
    pub original_name: String,
    pub source: Result<Source, Vec<ConfigDiagnostic>>,
    pub file: String,
    pub line: usize,
}

/// What agents are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expose {
    pub mode: ExposeMode,
    /// In `Auto`, a catalogue below this many tokens is listed in full.
    pub full_below_tokens: u32,
    /// Globs on tool names that are always listed.
    pub essential: Vec<String>,
    /// Whether names carry their source: `source__tool`.
    pub prefix: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExposeMode {
    Auto,
    Search,
    Full,
}

impl ExposeMode {
    pub const ALL: [ExposeMode; 3] = [ExposeMode::Auto, ExposeMode::Search, ExposeMode::Full];

    pub fn as_str(self) -> &'static str {
        match self {
            ExposeMode::Auto => "auto",
            ExposeMode::Search => "search",
            ExposeMode::Full => "full",
        }
    }

    pub fn parse(text: &str) -> Option<ExposeMode> {
        ExposeMode::ALL.into_iter().find(|mode| mode.as_str() == text)
    }
}

/// When `serve` and `mcp` discover what is missing or stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WarmPolicy {
    /// At the first list or search.
    #[default]
    Demand,
    /// When a client connects.
    Client,
    /// As soon as they run.
    Start,
}

impl WarmPolicy {
    pub const ALL: [WarmPolicy; 3] = [WarmPolicy::Demand, WarmPolicy::Client, WarmPolicy::Start];

    pub fn as_str(self) -> &'static str {
        match self {
            WarmPolicy::Demand => "demand",
            WarmPolicy::Client => "client",
            WarmPolicy::Start => "start",
        }
    }
}

/// How callers are identified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Identity {
    pub loopback: LoopbackAccess,
}

/// Which processes on this machine may read and call without a token, from the widest to the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum LoopbackAccess {
    /// Every local process.
    Open,
    /// Processes of the same user and of root, except those that Toolcrib itself started.
    #[default]
    Owner,
    /// None.
    Token,
}

impl LoopbackAccess {
    pub const ALL: [LoopbackAccess; 3] = [LoopbackAccess::Owner, LoopbackAccess::Open, LoopbackAccess::Token];

    pub fn as_str(self) -> &'static str {
        match self {
            LoopbackAccess::Open => "open",
            LoopbackAccess::Owner => "owner",
            LoopbackAccess::Token => "token",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigOrigin {
    pub file: String,
    pub line: usize,
}

/// Whose file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigDialect {
    Toolcrib,
    /// Another client's: keys that we do not know only warn; `disabled` and `${workspaceFolder}` are understood.
    Client,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    Yaml,
    Toml,
    Json,
}

/// The names of the map of sources: ours, most clients', and VS Code's.
const SOURCE_MAP_KEYS: [&str; 3] = ["sources", "mcpServers", "servers"];
/// The keys of a file that only Toolcrib has.
const TOOLCRIB_KEYS: [&str; 7] =
    ["sources", "defaults", "expose", "allow_commands", "allow_private_sources", "identity", "warm"];
const TOP_LEVEL_KEYS: [&str; 10] = [
    "sources",
    "mcpServers",
    "servers",
    "defaults",
    "expose",
    "allow_commands",
    "allow_private_sources",
    "identity",
    "warm",
    "$schema",
];

impl Config {
    /// Parses a file, taking syntax and dialect from its name and its keys.
    pub fn read(text: &str, file: &str, base_dir: &Path) -> Result<Config, Vec<ConfigDiagnostic>> {
        let syntax = Syntax::from_file_name(file);
        let root = node::parse(text, file, syntax)?;
        Config::from_node(&root, file, base_dir, ConfigDialect::detect(file, &root))
    }

    /// `file` is the name that messages show; relative paths are taken against `base_dir`. All mistakes at top level,
    /// in `defaults` and in `expose` are returned at once; those of a source are kept in its declaration.
    pub fn parse(
        text: &str,
        file: &str,
        base_dir: &Path,
        syntax: Syntax,
        dialect: ConfigDialect,
    ) -> Result<Config, Vec<ConfigDiagnostic>> {
        Config::from_node(&node::parse(text, file, syntax)?, file, base_dir, dialect)
    }

    fn from_node(
        root: &ConfigNode,
        file: &str,
        base_dir: &Path,
        dialect: ConfigDialect,
    ) -> Result<Config, Vec<ConfigDiagnostic>> {
        let mut reader = ConfigReader::new(file, base_dir, dialect);
        let mut config = Config::default();
        let Some(top) = reader.as_section(root, "") else { return Err(reader.errors) };
        for entry in top.entries {
            match entry.key.as_str() {
                key if SOURCE_MAP_KEYS.contains(&key) => {
                    let (declared, narrowings) = read_sources(&mut reader, &entry.node, key, None);
                    config.sources.extend(declared);
                    config.narrowings.extend(narrowings);
                }
                "defaults" => {
                    let Some(section) = reader.as_section(&entry.node, "defaults") else { continue };
                    config.defaults = settings::read_defaults(&mut reader, &section);
                    config.origins.extend(collect_origins(file, &entry.node, "defaults"));
                }
                "expose" => {
                    let Some(section) = reader.as_section(&entry.node, "expose") else { continue };
                    config.expose = settings::read_expose(&mut reader, &section);
                    config.origins.extend(collect_origins(file, &entry.node, "expose"));
                }
                key @ ("allow_commands" | "allow_private_sources") => {
                    let allowed = reader.read_bool(&top, key).unwrap_or(false);
                    if key == "allow_commands" {
                        config.allow_commands = allowed;
                    } else {
                        config.allow_private_sources = allowed;
                    }
                    let origin = ConfigOrigin { file: file.to_owned(), line: entry.line };
                    config.origins.extend((!entry.node.is_null()).then(|| (entry.key.clone(), origin)));
                }
                "identity" => {
                    let Some(section) = reader.as_section(&entry.node, "identity") else { continue };
                    config.identity = settings::read_identity(&mut reader, &section);
                    config.origins.extend(collect_origins(file, &entry.node, "identity"));
                }
                "warm" => {
                    let choices = WarmPolicy::ALL.map(|warm| (warm.as_str(), warm));
                    let given = top.get("warm").and_then(|node| reader.read_choice(node, "warm", &choices));
                    config.warm = given.unwrap_or_default();
                    let origin = ConfigOrigin { file: file.to_owned(), line: entry.line };
                    config.origins.extend((!entry.node.is_null()).then(|| (entry.key.clone(), origin)));
                }
                "inputs" if dialect == ConfigDialect::Client => {
                    reader.warn(entry.line, "inputs", "are not asked for; use `${env:NAME}` where one is needed");
                }
                key if TOP_LEVEL_KEYS.contains(&key) => {}
                key => {
                    let near = crate::text::did_you_mean(key, TOP_LEVEL_KEYS);
                    reader.error_or_warn(entry.line, "", format!("unknown key `{key}`{near}"));
                }
            }
        }
        reject_duplicate_ids(&mut reader, &config.sources);
        config.warnings = reader.warnings;
        if reader.errors.is_empty() { Ok(config) } else { Err(reader.errors) }
    }

    /// This configuration laid over a lower one. A source wins whole, except that the `tools` rules of the lower one
    /// go on to restrict it; one that is only narrowed stays the lower one's. `defaults` and `expose` win key by key.
    pub fn merge_over(mut self, mut lower: Config) -> Config {
        let mut warnings = std::mem::take(&mut self.warnings);
        warnings.append(&mut lower.warnings);
        warnings.extend(narrowing::apply(&self.narrowings, &mut lower.sources));
        let narrowed = |id: &SourceId| self.narrowings.iter().any(|narrowing| narrowing.id == *id);
        let is_below = |id: &SourceId| lower.sources.iter().any(|below| below.id == *id);
        let mut sources: Vec<ConfiguredSource> =
            self.sources.into_iter().filter(|above| !(narrowed(&above.id) && is_below(&above.id))).collect();
        for below in lower.sources {
            let Some(above) = sources.iter_mut().find(|above| above.id == below.id) else {
                sources.push(below);
                continue;
            };
            match (&mut above.source, below.source) {
                (Ok(redefined), Ok(below)) => {
                    let rules = std::mem::take(&mut redefined.settings.tools);
                    redefined.settings.tools = rules.restricted_by(below.settings.tools);
                }
                // Its rules are not known, so that nothing can be restricted by them.
                (Ok(_), Err(faults)) => above.source = Err(faults),
                (Err(_), Ok(_) | Err(_)) => {}
            }
        }
        let set = |key: &str| self.origins.contains_key(&format!("expose.{key}"));
        let expose = Expose {
            mode: if set("mode") { self.expose.mode } else { lower.expose.mode },
            full_below_tokens: if set("full_below_tokens") {
                self.expose.full_below_tokens
            } else {
                lower.expose.full_below_tokens
            },
            essential: if set("essential") { self.expose.essential } else { lower.expose.essential },
            prefix: if set("prefix") { self.expose.prefix } else { lower.expose.prefix },
        };
        let has = |key: &str| self.origins.contains_key(key);
        let allow_commands = if has("allow_commands") { self.allow_commands } else { lower.allow_commands };
        let allow_private_sources =
            if has("allow_private_sources") { self.allow_private_sources } else { lower.allow_private_sources };
        let identity = if has("identity.loopback") { self.identity } else { lower.identity };
        let warm = if has("warm") { self.warm } else { lower.warm };
        let mut origins = lower.origins;
        origins.extend(self.origins);
        Config {
            sources,
            narrowings: Vec::new(),
            defaults: self.defaults.with_defaults(&lower.defaults),
            expose,
            allow_commands,
            allow_private_sources,
            identity,
            warm,
            warnings,
            origins,
        }
    }

    /// The sources that are valid.
    pub fn valid_sources(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter_map(|declaration| declaration.source.as_ref().ok())
    }
}

/// Reads a map of sources. A fault stays with its source, even where its name cannot be an id. What only narrows a
/// source is a fault too, unless the configuration below has that source.
fn read_sources(
    reader: &mut ConfigReader<'_>,
    node: &ConfigNode,
    path: &str,
    client: Option<McpClientKind>,
) -> (Vec<ConfiguredSource>, Vec<Narrowing>) {
    let mut declarations = Vec::new();
    let mut narrowings = Vec::new();
    let Some(section) = reader.as_section(node, path) else { return (declarations, narrowings) };
    for entry in section.entries {
        let path = join_key(path, &entry.key);
        let id = match SourceId::from_name(&entry.key) {
            Ok(id) => id,
            Err(error) => {
                let fault = ConfigDiagnostic::new(reader.file, entry.line, &section.path, &error.message);
                let (name_given, file) = (entry.key.clone(), reader.file.to_owned());
                let (id, source) = (SourceId::placeholder(&entry.key), Err(vec![fault]));
                declarations.push(ConfiguredSource { id, original_name: name_given, source, file, line: entry.line });
                continue;
            }
        };
        let mut one = ConfigReader::new(reader.file, reader.base_dir, reader.dialect);
        let rewritten;
        let node = match reader.dialect {
            ConfigDialect::Toolcrib => &entry.node,
            ConfigDialect::Client => {
                rewritten = client::rewrite(&mut one, client, &entry.node, &path);
                &rewritten
            }
        };
        let source = if narrowing::is_narrowing(node) {
            narrowings.extend(narrowing::read(&mut one, &id, node, &path));
            None
        } else {
            source::read(&mut one, &id, node, &path)
        };
        reader.warnings.append(&mut one.warnings);
        let source = source.filter(|_| one.errors.is_empty()).ok_or(one.errors);
        let (name_given, file) = (entry.key.clone(), reader.file.to_owned());
        declarations.push(ConfiguredSource { id, original_name: name_given, source, file, line: entry.line });
    }
    (declarations, narrowings)
}

fn reject_duplicate_ids(reader: &mut ConfigReader<'_>, declarations: &[ConfiguredSource]) {
    let mut seen: BTreeMap<&SourceId, &ConfiguredSource> = BTreeMap::new();
    for declaration in declarations {
        let Some(first) = seen.insert(&declaration.id, declaration) else { continue };
        let message = format!(
            "`{}` and `{}` (line {}) both become the source `{}`; rename one",
            declaration.original_name, first.original_name, first.line, declaration.id
        );
        reader.error(declaration.line, "sources", message);
    }
}

fn collect_origins(file: &str, node: &ConfigNode, path: &str) -> Vec<(String, ConfigOrigin)> {
    let set = node.entries().iter().filter(|entry| !entry.node.is_null());
    set.map(|entry| (join_key(path, &entry.key), ConfigOrigin { file: file.to_owned(), line: entry.line })).collect()
}

impl Default for Expose {
    fn default() -> Expose {
        Expose { mode: ExposeMode::Auto, full_below_tokens: 4000, essential: Vec::new(), prefix: true }
    }
}

impl Syntax {
    /// By the ending of a file's name; YAML, which JSON is a part of, when it says nothing.
    pub fn from_file_name(file: &str) -> Syntax {
        let ending = file.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
        match ending.as_str() {
            "json" | "jsonc" | "json5" => Syntax::Json,
            "toml" => Syntax::Toml,
            _ => Syntax::Yaml,
        }
    }
}

impl ConfigDialect {
    /// A file called `toolcrib.…` is ours; another is a client's if it has their keys and none of ours.
    fn detect(file: &str, root: &ConfigNode) -> ConfigDialect {
        let name = file.rsplit(['/', '\\']).next().unwrap_or_default();
        let has = |keys: &[&str]| keys.iter().any(|key| root.entries().iter().any(|entry| entry.key == *key));
        let clients = has(&["mcpServers", "servers"]) && !has(&TOOLCRIB_KEYS);
        if name == ".mcp.json" || (clients && !name.starts_with("toolcrib.")) {
            ConfigDialect::Client
        } else {
            ConfigDialect::Toolcrib
        }
    }
}

impl fmt::Display for ConfigOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

#[cfg(test)]
mod tests;
