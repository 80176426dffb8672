//! Configuration files: parses YAML, TOML or JSON text into sources, defaults and settings of the server.
//!
//! Every value keeps its file and line, and all errors of a file are reported at once. An invalid source does not
//! invalidate the file: it is listed with its errors. This module does no I/O: finding and reading files and resolving
//! `${env:…}` references is done by the library.
//!
//! Three layers, each in its own modules:
//!
//! 1. `node` turns the text into one syntax tree for all syntaxes, in which every value knows its line.
//! 2. `reader` takes typed values out of the tree and collects diagnostics; `source`, `settings`, `identity`, `auth`,
//!    `openapi` and `narrowing` say which keys exist and what they mean; `rules` those of groups, access rules and
//!    policies.
//! 3. [`Config::merge_over`] combines the project's file with the user's. `overrides` changes single sources
//!    afterwards, for one process.
//!
//! The other direction, from a source to the keys of a file, is `source_keys`; `show` and `export` use it, and
//! `secret_mask` hides literals in it. `trust` decides which changes of a project's file need approval.
//!
//! ```text
//! sources:
//!   github: { command: npx, args: [-y, server-github], env: { TOKEN: "${env:GITHUB_TOKEN}" } }
//! defaults: { ttl: 10m }
//! ```

pub mod client_import;
pub mod diagnostic;
pub mod overrides;
pub mod reference;
pub mod show;
pub mod size;

mod auth;
mod export;
mod header;
mod identity;
mod inline_source;
mod narrowing;
mod openapi;
mod path;
mod reader;
mod rules;
mod secret_mask;
mod settings;
mod source;
mod source_keys;
mod store;
pub(crate) mod syntax;
mod trust;
mod url_check;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

pub use client_import::McpClientKind;
pub use diagnostic::ConfigDiagnostic;
pub use export::{export, export_json, masked_keys};
pub use identity::{
    Identity, IssuerConfig, JwksLocation, JwtAlgorithm, LoopbackAccess, RoleMapping, find_role, is_https_or_loopback,
};
pub use inline_source::{parse_source, parse_source_resolved};
pub use narrowing::Narrowing;
pub use overrides::{OverridableSource, Override, Overrides, overrides_from_env};
pub use reader::ReferenceLookup;
pub use rules::{ConfiguredRule, GroupReference, ParsedRule, REQUEST_BODY, parse_rule, rule_to_json};
pub use settings::resolve_settings;
pub use source_keys::Secrets;
pub use store::{ConfiguredStore, mask_store_location, store_kind};
pub use syntax::yaml_to_json;
pub use trust::{LocalDocument, TrustedFile, settings_to_trust};

use reader::ConfigReader;
use syntax::{ConfigNode, NodeEntry, NodeValue, join_key};
pub use toolcrib_core::expose::ExposeMode;
use toolcrib_core::limits::CallLimits;
use toolcrib_core::name_variants;
use toolcrib_core::policy::DEFAULT_ESSENTIAL_PATTERNS;
use toolcrib_core::source::{Source, SourceId, SourceSettings};

/// Content of one configuration file, or of several merged with [`Config::merge_over`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Config {
    /// Declared sources, invalid ones included, in file order.
    pub sources: Vec<ConfiguredSource>,
    /// Restrictions on sources that this file does not declare itself, applied when it is merged over another.
    pub narrowings: Vec<Narrowing>,
    /// Settings for sources that do not set them.
    pub defaults: SourceSettings,
    /// How the catalogue is presented to MCP clients.
    pub expose: Expose,
    /// Whether HTTP requests may declare sources that start programs.
    pub allow_commands: bool,
    /// Whether an administrator may declare sources at private addresses over the network.
    pub allow_private_sources: bool,
    /// Local processes that may connect without a token, and identity providers.
    pub identity: Identity,
    /// Address of this server as clients know it, without a slash at its end (key `public_url`).
    pub public_url: Option<String>,
    /// Location of the store, unless the command line gives one.
    pub store: Option<ConfiguredStore>,
    /// Limits on the calls of each caller.
    pub limits: CallLimits,
    /// When missing and stale tool lists are fetched.
    pub warm: WarmPolicy,
    /// Directory of the model for semantic search (key `search.model`).
    pub search_model: Option<String>,
    /// Groups, access rules and policies, in this order, and within each kind in file order.
    pub rules: Vec<ConfiguredRule>,
    /// Whether rules of an earlier configuration that this one does not have are removed. False without a file: a command
    /// that is run without one must not lift the rules of a running server.
    pub replaces_rules: bool,
    /// Whether sources of a configuration that was read before stay although this one does not have them.
    pub retains_sources: bool,
    /// Groups that access rules and policies refer to; see [`Config::check_rules`].
    pub group_references: Vec<GroupReference>,
    /// Problems that do not prevent the configuration from being used.
    pub warnings: Vec<ConfigDiagnostic>,
    /// Where each key of `defaults`, `expose`, `identity` and `limits`, and each scalar at top level, was set, by its
    /// key path such as `defaults.ttl`. A key without an entry has its default value.
    pub origins: BTreeMap<String, ConfigOrigin>,
}

/// Source declared in a file. An invalid one keeps its errors, so that it can be listed without affecting the others.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfiguredSource {
    /// Normalised name, or a placeholder if the name cannot be normalised.
    pub id: SourceId,
    /// Name in the file, of which `id` is the normalised form.
    /// Messages use it, because users search for it in their file.
    pub original_name: String,
    /// The source, or its errors.
    pub source: Result<Source, Vec<ConfigDiagnostic>>,
    /// Display name of the file that declares it.
    pub file: String,
    /// Line of its name in that file, counted from one.
    pub line: usize,
}

/// How the catalogue is exposed to agents (key `expose`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expose {
    /// Which tools `tools/list` returns.
    pub mode: ExposeMode,
    /// In [`ExposeMode::Auto`], a catalogue of fewer tokens than this is listed in full.
    /// Counted for the tools as MCP lists them.
    pub full_below_tokens: u32,
    /// Globs of tool names that are listed in every mode.
    /// They are added to the globs of single sources.
    pub essential: Vec<String>,
    /// Words and globs on tool names that come first in summaries, after those of `essential`.
    pub essential_patterns: Vec<String>,
    /// Whether tool names have the prefix of their source: `source__tool`.
    pub prefix: bool,
}

/// When `serve` and `mcp` discover sources whose tool list is missing or stale (key `warm`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WarmPolicy {
    /// At the first tool list or search.
    #[default]
    Demand,
    /// When an MCP client connects.
    Client,
    /// At startup.
    Start,
}

name_variants!(WarmPolicy { Demand => "demand", Client => "client", Start => "start" });

/// File and line where a key was set, for messages and `toolcrib config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigOrigin {
    /// Display name of the file.
    pub file: String,
    /// Line of the key, counted from one.
    pub line: usize,
}

/// Which program a configuration file was written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigDialect {
    /// Unknown keys are errors.
    Toolcrib,
    /// Another MCP client: unknown keys are warnings; `disabled` and `${workspaceFolder}` are understood.
    Client,
}

/// File format. JSON allows comments and trailing commas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    Yaml,
    Toml,
    Json,
}

/// Top-level keys that hold the map of sources: Toolcrib's, most clients', and VS Code's.
/// All three are accepted in every file, so that a client's file can be used as it is.
const SOURCE_MAP_KEYS: [&str; 3] = ["sources", "mcpServers", "servers"];
/// Top-level keys for settings, which occur only in Toolcrib's own files, like `sources`.
/// One of them marks a file as Toolcrib's, in which a misspelled key is an error.
const SETTING_KEYS: [&str; 10] = [
    "defaults",
    "expose",
    "allow_commands",
    "allow_private_sources",
    "identity",
    "public_url",
    "store",
    "limits",
    "warm",
    "search",
];

/// Returns all known top-level keys, for "did you mean".
fn top_level_keys() -> impl Iterator<Item = &'static str> {
    SOURCE_MAP_KEYS.into_iter().chain(SETTING_KEYS).chain(rules::RULE_SECTION_KEYS).chain(["$schema"])
}

impl Config {
    /// Parses a file, detecting syntax and dialect from its name and its keys.
    /// Fails with all errors outside of single sources; a source with errors is part of the result.
    /// References outside of texts are errors, except those of settings of a source, which stay as they are.
    pub fn read(text: &str, file: &str, base_dir: &Path) -> Result<Config, Vec<ConfigDiagnostic>> {
        Config::read_file(text, file, base_dir, None)
    }

    /// Like [`Config::read`], with `lookup` for references outside of texts: booleans, numbers, durations, words, globs.
    /// References in texts that are sent, such as headers, stay as they are.
    pub fn read_resolved(
        text: &str,
        file: &str,
        base_dir: &Path,
        lookup: ReferenceLookup<'_>,
    ) -> Result<Config, Vec<ConfigDiagnostic>> {
        Config::read_file(text, file, base_dir, Some(lookup))
    }

    fn read_file(
        text: &str,
        file: &str,
        base_dir: &Path,
        lookup: Option<ReferenceLookup<'_>>,
    ) -> Result<Config, Vec<ConfigDiagnostic>> {
        let syntax = Syntax::from_file_name(file);
        let root = syntax::parse(text, file, syntax)?;
        Config::from_node(&root, file, base_dir, ConfigDialect::detect(file, &root), lookup)
    }

    /// Parses a file of known syntax and dialect.
    ///
    /// `file` is the name shown in messages; relative paths are resolved against `base_dir`. All errors at top level,
    /// in `defaults` and in `expose` are returned together; errors of a source are stored in its [`ConfiguredSource`].
    pub fn parse(
        text: &str,
        file: &str,
        base_dir: &Path,
        syntax: Syntax,
        dialect: ConfigDialect,
    ) -> Result<Config, Vec<ConfigDiagnostic>> {
        Config::from_node(&syntax::parse(text, file, syntax)?, file, base_dir, dialect, None)
    }

    /// Reads all top-level keys. Continues after errors, so that one pass reports them all.
    fn from_node(
        root: &ConfigNode,
        file: &str,
        base_dir: &Path,
        dialect: ConfigDialect,
        lookup: Option<ReferenceLookup<'_>>,
    ) -> Result<Config, Vec<ConfigDiagnostic>> {
        let mut reader = ConfigReader::new(file, base_dir, dialect).with_lookup(lookup);
        let mut config = Config { replaces_rules: true, ..Config::default() };
        let Some(top) = reader.as_section(root, "") else { return Err(reader.errors) };
        for entry in top.entries {
            match entry.key.as_str() {
                key if SOURCE_MAP_KEYS.contains(&key) => {
                    let (sources, narrowings) = read_sources(&mut reader, &entry.node, key, None);
                    config.sources.extend(sources);
                    config.narrowings.extend(narrowings);
                }
                "defaults" => {
                    let section = reader.as_section(&entry.node, "defaults");
                    config.defaults =
                        section.map(|section| settings::read_defaults(&mut reader, &section)).unwrap_or_default();
                }
                "expose" => {
                    let section = reader.as_section(&entry.node, "expose");
                    config.expose =
                        section.map(|section| settings::read_expose(&mut reader, &section)).unwrap_or_default();
                }
                "identity" => {
                    let section = reader.as_section(&entry.node, "identity");
                    config.identity =
                        section.map(|section| identity::read_identity(&mut reader, &section)).unwrap_or_default();
                }
                "public_url" => config.public_url = identity::read_public_url(&mut reader, &top),
                "store" => config.store = store::read_store(&mut reader, &top),
                "limits" => {
                    let section = reader.as_section(&entry.node, "limits");
                    config.limits =
                        section.map(|section| settings::read_limits(&mut reader, &section)).unwrap_or_default();
                }
                key @ "allow_commands" => config.allow_commands = reader.read_bool(&top, key).unwrap_or(false),
                key @ "allow_private_sources" => {
                    config.allow_private_sources = reader.read_bool(&top, key).unwrap_or(false);
                }
                "warm" => {
                    let choices = WarmPolicy::ALL.map(|warm| (warm.as_str(), warm));
                    config.warm = reader.read_choice_at(&top, "warm", &choices).unwrap_or_default();
                }
                "search" => {
                    let section = reader.as_section(&entry.node, "search");
                    config.search_model = section.and_then(|section| settings::read_search(&mut reader, &section));
                }
                key if rules::RULE_SECTION_KEYS.contains(&key) => {
                    let read = rules::read_section(&mut reader, entry);
                    config.rules.extend(read.rules);
                    config.group_references.extend(read.references);
                }
                "$schema" => {}
                "inputs" if dialect == ConfigDialect::Client => {
                    reader.warn(
                        entry.line,
                        "inputs",
                        "prompting is not supported; use `${env:NAME}` instead of an input",
                    );
                }
                key => {
                    let near = toolcrib_core::text::did_you_mean(key, top_level_keys());
                    reader.error_or_warn(entry.line, "", format!("unknown key `{key}`{near}"));
                }
            }
        }
        let settings = top.entries.iter().filter(|entry| SETTING_KEYS.contains(&entry.key.as_str()));
        config.origins = settings.flat_map(|entry| collect_origins(file, entry)).collect();
        config.rules.sort_by_key(|configured| configured.rule.kind());
        reject_duplicate_ids(&mut reader, &config.sources);
        config.warnings = reader.warnings;
        if reader.errors.is_empty() { Ok(config) } else { Err(reader.errors) }
    }

    /// Merges this configuration over one of lower precedence, such as a project's file over the user's.
    ///
    /// A source of the same id replaces the lower one as a whole, except that the `tools` rules and `limits` of the
    /// lower one still restrict it: a project cannot lift a restriction of the user. Of `limits` at top level the lower
    /// value applies. A [`Narrowing`] restricts the lower source in place. `defaults`, `expose` and top-level scalars
    /// are merged key by key. Groups, access rules and policies of both apply; [`Config::check_rules`] reports those
    /// that do not fit together.
    pub fn merge_over(mut self, mut lower: Config) -> Config {
        let mut warnings = std::mem::take(&mut self.warnings);
        warnings.append(&mut lower.warnings);
        warnings.extend(narrowing::apply(&self.narrowings, &mut lower.sources));
        let is_narrowed = |id: &SourceId| self.narrowings.iter().any(|narrowing| narrowing.id == *id);
        let is_in_lower = |id: &SourceId| lower.sources.iter().any(|source| source.id == *id);
        // A narrowing is also listed as an invalid source. Where it applied, the lower source takes its place.
        let mut sources: Vec<ConfiguredSource> =
            self.sources.into_iter().filter(|source| !(is_narrowed(&source.id) && is_in_lower(&source.id))).collect();
        for lower_source in lower.sources {
            let Some(upper_source) = sources.iter_mut().find(|source| source.id == lower_source.id) else {
                sources.push(lower_source);
                continue;
            };
            match (&mut upper_source.source, lower_source.source) {
                (Ok(redefined), Ok(lower)) => {
                    let rules = std::mem::take(&mut redefined.settings.tools);
                    redefined.settings.tools = rules.restricted_by(lower.settings.tools);
                    redefined.settings.limits = redefined.settings.limits.restricted_by(lower.settings.limits);
                }
                // The lower source cannot be read, so its restrictions are unknown. Fail closed.
                (Ok(_), Err(errors)) => upper_source.source = Err(errors),
                (Err(_), Ok(_) | Err(_)) => {}
            }
        }
        // A key takes precedence only where the upper file set it; its default does not override the lower file.
        let is_set = |key: &str| self.origins.contains_key(&format!("expose.{key}"));
        let expose = Expose {
            mode: if is_set("mode") { self.expose.mode } else { lower.expose.mode },
            full_below_tokens: if is_set("full_below_tokens") {
                self.expose.full_below_tokens
            } else {
                lower.expose.full_below_tokens
            },
            essential: if is_set("essential") { self.expose.essential } else { lower.expose.essential },
            essential_patterns: if is_set("essential_patterns") {
                self.expose.essential_patterns
            } else {
                lower.expose.essential_patterns
            },
            prefix: if is_set("prefix") { self.expose.prefix } else { lower.expose.prefix },
        };
        let has = |key: &str| self.origins.contains_key(key);
        let allow_commands = if has("allow_commands") { self.allow_commands } else { lower.allow_commands };
        let allow_private_sources =
            if has("allow_private_sources") { self.allow_private_sources } else { lower.allow_private_sources };
        let loopback = if has("identity.loopback") { &self.identity } else { &lower.identity }.loopback;
        let issuers = if has("identity.issuers") { self.identity.issuers } else { lower.identity.issuers };
        let public_url = if has("public_url") { self.public_url } else { lower.public_url };
        let store = if has("store") { self.store } else { lower.store };
        let warm = if has("warm") { self.warm } else { lower.warm };
        let search_model = if has("search.model") { self.search_model } else { lower.search_model };
        let mut rules: Vec<ConfiguredRule> = self.rules.into_iter().chain(lower.rules).collect();
        rules.sort_by_key(|configured| configured.rule.kind());
        let group_references = self.group_references.into_iter().chain(lower.group_references).collect();
        let limits = self.limits.restricted_by(lower.limits);
        // The origin of a limit is the file whose value applies.
        if limits.calls_per_minute != self.limits.calls_per_minute {
            self.origins.remove("limits.calls_per_minute");
        }
        if limits.concurrent_calls != self.limits.concurrent_calls {
            self.origins.remove("limits.concurrent_calls");
        }
        let mut origins = lower.origins;
        origins.extend(self.origins);
        Config {
            sources,
            // All of them have been applied to the sources below.
            narrowings: Vec::new(),
            defaults: self.defaults.with_defaults(&lower.defaults),
            expose,
            allow_commands,
            allow_private_sources,
            identity: Identity { loopback, issuers },
            public_url,
            store,
            limits,
            warm,
            search_model,
            rules,
            replaces_rules: self.replaces_rules || lower.replaces_rules,
            retains_sources: self.retains_sources || lower.retains_sources,
            group_references,
            warnings,
            origins,
        }
    }

    /// Checks groups, access rules and policies together, once all files are merged: a rule of one file may refer to a
    /// group of another. Fails with the names that two files define, and with unknown groups.
    pub fn check_rules(&self) -> Result<(), Vec<ConfigDiagnostic>> {
        let errors = rules::check_merged(&self.rules, &self.group_references);
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// Returns the sources without errors.
    pub fn valid_sources(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter_map(|configured| configured.source.as_ref().ok())
    }
}

/// Reads a map of sources. Errors stay with their source, even where its name cannot become an id. An entry that only
/// narrows a source is listed as an invalid source too, for the case that no lower configuration has that source.
/// `client` selects the keys of one MCP client; `None` where the file does not tell which client wrote it.
fn read_sources(
    reader: &mut ConfigReader<'_>,
    node: &ConfigNode,
    path: &str,
    client: Option<McpClientKind>,
) -> (Vec<ConfiguredSource>, Vec<Narrowing>) {
    let mut sources = Vec::new();
    let mut narrowings = Vec::new();
    let Some(section) = reader.as_section(node, path) else { return (sources, narrowings) };
    for entry in section.entries {
        let path = join_key(path, &entry.key);
        let id = match SourceId::from_name(&entry.key) {
            Ok(id) => id,
            Err(error) => {
                let diagnostic = ConfigDiagnostic::new(reader.file, entry.line, &section.path, &error.message);
                sources.push(ConfiguredSource {
                    // Derived from the whole name, so that two such sources do not get the same id.
                    id: SourceId::placeholder(&entry.key),
                    original_name: entry.key.clone(),
                    source: Err(vec![diagnostic]),
                    file: reader.file.to_owned(),
                    line: entry.line,
                });
                continue;
            }
        };
        // A reader per source, so that its errors can be told from those of the file.
        let source_reader = ConfigReader::new(reader.file, reader.base_dir, reader.dialect);
        let mut source_reader = source_reader.with_lookup(reader.lookup);
        let rewritten;
        let node = match reader.dialect {
            ConfigDialect::Toolcrib => &entry.node,
            ConfigDialect::Client => {
                rewritten = client_import::rewrite(&mut source_reader, client, &entry.node, &path);
                &rewritten
            }
        };
        let source = if narrowing::is_narrowing(node) {
            narrowings.extend(narrowing::read(&mut source_reader, &id, node, &path));
            None
        } else {
            source::read(&mut source_reader, &id, node, &path)
        };
        reader.warnings.append(&mut source_reader.warnings);
        let source = source.filter(|_| source_reader.errors.is_empty()).ok_or(source_reader.errors);
        let original_name = entry.key.clone();
        let file = reader.file.to_owned();
        sources.push(ConfiguredSource { id, original_name, source, file, line: entry.line });
    }
    (sources, narrowings)
}

/// Reports names that normalise to the same id, such as `My-Server` and `my_server`.
/// One of them would silently replace the other, and their tools would share a prefix.
fn reject_duplicate_ids(reader: &mut ConfigReader<'_>, sources: &[ConfiguredSource]) {
    let mut seen: BTreeMap<&SourceId, &ConfiguredSource> = BTreeMap::new();
    for source in sources {
        let Some(first) = seen.insert(&source.id, source) else { continue };
        let message = format!(
            "`{}` and `{}` (line {}) both become the source `{}`; rename one",
            source.original_name, first.original_name, first.line, source.id
        );
        reader.error(source.line, "sources", message);
    }
}

/// Returns the origin of a setting, or of each key of a section. A key that is null counts as unset.
fn collect_origins(file: &str, entry: &NodeEntry) -> Vec<(String, ConfigOrigin)> {
    let origin = |line: usize| ConfigOrigin { file: file.to_owned(), line };
    match &entry.node.value {
        NodeValue::Null => Vec::new(),
        NodeValue::Map(keys) => {
            let set = keys.iter().filter(|key| !key.node.is_null());
            set.map(|key| (join_key(&entry.key, &key.key), origin(key.line))).collect()
        }
        NodeValue::Bool(..) | NodeValue::Number(_) | NodeValue::Text(_) | NodeValue::List(_) => {
            vec![(entry.key.clone(), origin(entry.line))]
        }
    }
}

impl Default for Expose {
    fn default() -> Expose {
        Expose {
            mode: ExposeMode::Auto,
            full_below_tokens: 4000,
            essential: Vec::new(),
            essential_patterns: DEFAULT_ESSENTIAL_PATTERNS.map(str::to_owned).to_vec(),
            prefix: true,
        }
    }
}

impl Syntax {
    /// Detects the syntax by file extension; YAML, a superset of JSON, where the extension is unknown.
    /// The extension is compared without regard to case.
    pub fn from_file_name(file: &str) -> Syntax {
        let extension = file.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
        match extension.as_str() {
            "json" | "jsonc" | "json5" => Syntax::Json,
            "toml" => Syntax::Toml,
            _ => Syntax::Yaml,
        }
    }
}

impl ConfigDialect {
    /// `.mcp.json` is a client's file and `toolcrib.…` is Toolcrib's. Any other file is a client's if it has the keys
    /// of clients and none that only Toolcrib has.
    fn detect(file: &str, root: &ConfigNode) -> ConfigDialect {
        let name = file.rsplit(['/', '\\']).next().unwrap_or_default();
        let has = |keys: &[&str]| keys.iter().any(|key| root.entries().iter().any(|entry| entry.key == *key));
        let has_client_keys_only = has(&["mcpServers", "servers"])
            && !has(&["sources"])
            && !has(&SETTING_KEYS)
            && !has(&rules::RULE_SECTION_KEYS);
        if name == ".mcp.json" || (has_client_keys_only && !name.starts_with("toolcrib.")) {
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
