//! Configuration: a file's text becomes sources, defaults and what is exposed, with the line of everything, and with
//! every mistake named at once. Finding and reading files, and resolving references, is left to others.

pub mod client;
pub mod fault;
pub mod overrides;
pub mod show;
pub mod size;

mod address;
mod auth;
mod declare;
mod definition;
mod export;
mod header;
mod mask;
mod narrowing;
pub(crate) mod node;
mod openapi;
mod path;
mod reader;
mod settings;
mod source;
mod trust;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

pub use client::Client;
pub use declare::declare;
pub use definition::Secrets;
pub use export::{export, export_json, masked_keys};
pub use fault::Fault;
pub use narrowing::Narrowing;
pub use overrides::{Override, Overrides, overrides};
pub use trust::{LocalDocument, TrustedFile, settings_to_trust};

use crate::source::{Settings, Source, SourceId};
use node::{Node, joined};
use reader::Reader;

/// What one file says, or several laid over each other.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Config {
    pub sources: Vec<Declaration>,
    /// What the file restricts without declaring it: sources of the configuration that it is laid over.
    pub narrowings: Vec<Narrowing>,
    pub defaults: Settings,
    pub expose: Expose,
    /// Whether requests over HTTP may declare sources that start programs.
    pub allow_commands: bool,
    /// Whether an administrator may declare sources at private addresses over the network.
    pub allow_private_sources: bool,
    pub identity: Identity,
    pub warm: Warm,
    /// Advice that stops nothing.
    pub warnings: Vec<Fault>,
    /// Where each key of `defaults`, `expose` and `identity`, and each single value at the top, was set, by its path such
    /// as `defaults.ttl`.
    pub origins: BTreeMap<String, Origin>,
}

/// A source as a file declares it. One that is invalid is kept with its faults and takes no other down.
#[derive(Debug, Clone, PartialEq)]
pub struct Declaration {
    pub id: SourceId,
    pub name_given: String,
    pub source: Result<Source, Vec<Fault>>,
    pub file: String,
    pub line: usize,
}

/// What agents are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expose {
    pub mode: Mode,
    /// In `Auto`, a catalogue below this many tokens is listed in full.
    pub full_below_tokens: u32,
    /// Globs on tool names that are always listed.
    pub essential: Vec<String>,
    /// Whether names carry their source: `source__tool`.
    pub prefix: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Auto,
    Search,
    Full,
}

impl Mode {
    pub const ALL: [Mode; 3] = [Mode::Auto, Mode::Search, Mode::Full];

    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Auto => "auto",
            Mode::Search => "search",
            Mode::Full => "full",
        }
    }

    pub fn parse(text: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.as_str() == text)
    }
}

/// When `serve` and `mcp` discover what is missing or stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Warm {
    /// At the first list or search.
    #[default]
    Demand,
    /// When a client connects.
    Client,
    /// As soon as they run.
    Start,
}

impl Warm {
    pub const ALL: [Warm; 3] = [Warm::Demand, Warm::Client, Warm::Start];

    pub fn as_str(self) -> &'static str {
        match self {
            Warm::Demand => "demand",
            Warm::Client => "client",
            Warm::Start => "start",
        }
    }
}

/// How callers are identified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Identity {
    pub loopback: Loopback,
}

/// Which processes on this machine may read and call without a token, from the widest to the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Loopback {
    /// Every local process.
    Open,
    /// Processes of the same user and of root, except those that Toolcrib itself started.
    #[default]
    Owner,
    /// None.
    Token,
}

impl Loopback {
    pub const ALL: [Loopback; 3] = [Loopback::Owner, Loopback::Open, Loopback::Token];

    pub fn as_str(self) -> &'static str {
        match self {
            Loopback::Open => "open",
            Loopback::Owner => "owner",
            Loopback::Token => "token",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub file: String,
    pub line: usize,
}

/// Whose file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Own,
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
const SOURCES: [&str; 3] = ["sources", "mcpServers", "servers"];
/// The keys of a file that only Toolcrib has.
const OWN_KEYS: [&str; 7] =
    ["sources", "defaults", "expose", "allow_commands", "allow_private_sources", "identity", "warm"];
const TOP_LEVEL: [&str; 10] = [
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
    pub fn read(text: &str, file: &str, base_dir: &Path) -> Result<Config, Vec<Fault>> {
        let syntax = Syntax::of(file);
        let root = node::parse(text, file, syntax)?;
        Config::of_node(&root, file, base_dir, Dialect::of(file, &root))
    }

    /// `file` is the name that messages show; relative paths are taken against `base_dir`. All mistakes at top level,
    /// in `defaults` and in `expose` are returned at once; those of a source are kept in its declaration.
    pub fn parse(
        text: &str,
        file: &str,
        base_dir: &Path,
        syntax: Syntax,
        dialect: Dialect,
    ) -> Result<Config, Vec<Fault>> {
        Config::of_node(&node::parse(text, file, syntax)?, file, base_dir, dialect)
    }

    fn of_node(root: &Node, file: &str, base_dir: &Path, dialect: Dialect) -> Result<Config, Vec<Fault>> {
        let mut reader = Reader::new(file, base_dir, dialect);
        let mut config = Config::default();
        let Some(top) = reader.section(root, "") else { return Err(reader.faults) };
        for entry in top.entries {
            match entry.key.as_str() {
                key if SOURCES.contains(&key) => {
                    let (declared, narrowings) = declarations(&mut reader, &entry.node, key, None);
                    config.sources.extend(declared);
                    config.narrowings.extend(narrowings);
                }
                "defaults" => {
                    let Some(section) = reader.section(&entry.node, "defaults") else { continue };
                    config.defaults = settings::read_defaults(&mut reader, &section);
                    config.origins.extend(origins(file, &entry.node, "defaults"));
                }
                "expose" => {
                    let Some(section) = reader.section(&entry.node, "expose") else { continue };
                    config.expose = settings::read_expose(&mut reader, &section);
                    config.origins.extend(origins(file, &entry.node, "expose"));
                }
                key @ ("allow_commands" | "allow_private_sources") => {
                    let allowed = reader.flag(&top, key).unwrap_or(false);
                    if key == "allow_commands" {
                        config.allow_commands = allowed;
                    } else {
                        config.allow_private_sources = allowed;
                    }
                    let origin = Origin { file: file.to_owned(), line: entry.line };
                    config.origins.extend((!entry.node.is_null()).then(|| (entry.key.clone(), origin)));
                }
                "identity" => {
                    let Some(section) = reader.section(&entry.node, "identity") else { continue };
                    config.identity = settings::read_identity(&mut reader, &section);
                    config.origins.extend(origins(file, &entry.node, "identity"));
                }
                "warm" => {
                    let choices = Warm::ALL.map(|warm| (warm.as_str(), warm));
                    let given = top.get("warm").and_then(|node| reader.choice(node, "warm", &choices));
                    config.warm = given.unwrap_or_default();
                    let origin = Origin { file: file.to_owned(), line: entry.line };
                    config.origins.extend((!entry.node.is_null()).then(|| (entry.key.clone(), origin)));
                }
                "inputs" if dialect == Dialect::Client => {
                    reader.warn(entry.line, "inputs", "are not asked for; use `${env:NAME}` where one is needed");
                }
                key if TOP_LEVEL.contains(&key) => {}
                key => {
                    let near = crate::text::did_you_mean(key, TOP_LEVEL);
                    reader.complain(entry.line, "", format!("unknown key `{key}`{near}"));
                }
            }
        }
        forbid_equal_ids(&mut reader, &config.sources);
        config.warnings = reader.warnings;
        if reader.faults.is_empty() { Ok(config) } else { Err(reader.faults) }
    }

    /// This configuration laid over a lower one. A source wins whole, except that the `tools` rules of the lower one
    /// go on to restrict it; one that is only narrowed stays the lower one's. `defaults` and `expose` win key by key.
    pub fn over(mut self, mut lower: Config) -> Config {
        let mut warnings = std::mem::take(&mut self.warnings);
        warnings.append(&mut lower.warnings);
        warnings.extend(narrowing::apply(&self.narrowings, &mut lower.sources));
        let narrowed = |id: &SourceId| self.narrowings.iter().any(|narrowing| narrowing.id == *id);
        let is_below = |id: &SourceId| lower.sources.iter().any(|below| below.id == *id);
        let mut sources: Vec<Declaration> =
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
            defaults: self.defaults.over(&lower.defaults),
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
fn declarations(
    reader: &mut Reader<'_>,
    node: &Node,
    path: &str,
    client: Option<Client>,
) -> (Vec<Declaration>, Vec<Narrowing>) {
    let mut declarations = Vec::new();
    let mut narrowings = Vec::new();
    let Some(section) = reader.section(node, path) else { return (declarations, narrowings) };
    for entry in section.entries {
        let path = joined(path, &entry.key);
        let id = match SourceId::from_name(&entry.key) {
            Ok(id) => id,
            Err(error) => {
                let fault = Fault::new(reader.file, entry.line, &section.path, &error.message);
                let (name_given, file) = (entry.key.clone(), reader.file.to_owned());
                let (id, source) = (SourceId::stand_in(&entry.key), Err(vec![fault]));
                declarations.push(Declaration { id, name_given, source, file, line: entry.line });
                continue;
            }
        };
        let mut one = Reader::new(reader.file, reader.base, reader.dialect);
        let rewritten;
        let node = match reader.dialect {
            Dialect::Own => &entry.node,
            Dialect::Client => {
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
        let source = source.filter(|_| one.faults.is_empty()).ok_or(one.faults);
        let (name_given, file) = (entry.key.clone(), reader.file.to_owned());
        declarations.push(Declaration { id, name_given, source, file, line: entry.line });
    }
    (declarations, narrowings)
}

fn forbid_equal_ids(reader: &mut Reader<'_>, declarations: &[Declaration]) {
    let mut seen: BTreeMap<&SourceId, &Declaration> = BTreeMap::new();
    for declaration in declarations {
        let Some(first) = seen.insert(&declaration.id, declaration) else { continue };
        let message = format!(
            "`{}` and `{}` (line {}) both become the source `{}`; rename one",
            declaration.name_given, first.name_given, first.line, declaration.id
        );
        reader.fault(declaration.line, "sources", message);
    }
}

fn origins(file: &str, node: &Node, path: &str) -> Vec<(String, Origin)> {
    let set = node.entries().iter().filter(|entry| !entry.node.is_null());
    set.map(|entry| (joined(path, &entry.key), Origin { file: file.to_owned(), line: entry.line })).collect()
}

impl Default for Expose {
    fn default() -> Expose {
        Expose { mode: Mode::Auto, full_below_tokens: 4000, essential: Vec::new(), prefix: true }
    }
}

impl Syntax {
    /// By the ending of a file's name; YAML, which JSON is a part of, when it says nothing.
    pub fn of(file: &str) -> Syntax {
        let ending = file.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
        match ending.as_str() {
            "json" | "jsonc" | "json5" => Syntax::Json,
            "toml" => Syntax::Toml,
            _ => Syntax::Yaml,
        }
    }
}

impl Dialect {
    /// A file called `toolcrib.…` is ours; another is a client's if it has their keys and none of ours.
    fn of(file: &str, root: &Node) -> Dialect {
        let name = file.rsplit(['/', '\\']).next().unwrap_or_default();
        let has = |keys: &[&str]| keys.iter().any(|key| root.entries().iter().any(|entry| entry.key == *key));
        let clients = has(&["mcpServers", "servers"]) && !has(&OWN_KEYS);
        if name == ".mcp.json" || (clients && !name.starts_with("toolcrib.")) { Dialect::Client } else { Dialect::Own }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

#[cfg(test)]
mod tests;
