//! Source definitions: kind, connection parameters and settings of a declared origin of tools.
//!
//! The serialised form is stored in the database, so names of fields and variants must stay compatible.
//!
//! Reading a definition from a file is in `config::source`, connecting to it in the connectors of the library. Texts
//! may contain references such as `${env:TOKEN}`, which are resolved when a connection is made and never stored.

mod id;
mod references;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits::CallLimits;
use crate::policy::Rules;

pub use id::SourceId;
pub use references::TextRole;

/// Definition of a source from a configuration or a command. References to secrets are unresolved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Source {
    pub id: SourceId,
    pub kind: SourceKind,
    #[serde(default)]
    pub settings: SourceSettings,
}

/// Where the tools come from, with the parameters of the connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    /// A child process that speaks MCP on stdin and stdout.
    Stdio(StdioSource),
    /// Streamable HTTP.
    Http(RemoteSource),
    /// HTTP with SSE, the transport of MCP before 2025-03-26.
    Sse(RemoteSource),
    /// Operations of an OpenAPI document; Toolcrib sends the requests itself.
    #[serde(rename = "openapi")]
    OpenApi(OpenApiSource),
    /// Workflows of an Arazzo document, whose steps call other tools.
    Workflow(WorkflowSource),
    /// Tools that are part of Toolcrib or of an embedding program.
    Builtin(BuiltinSource),
}

/// MCP server that Toolcrib starts as a child process.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StdioSource {
    /// Program: a bare name that is looked up in `PATH`, or an absolute path.
    pub command: String,
    #[serde(default)]
    pub args: Vec<String>,
    /// Additional environment variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working directory; that of Toolcrib by default.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Names of variables that the server inherits from Toolcrib's environment. All others are withheld.
    #[serde(default)]
    pub inherit_env: Vec<String>,
}

/// MCP server at a URL.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RemoteSource {
    pub url: String,
    /// Additional headers of every request.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    #[serde(default)]
    pub auth: Option<Auth>,
}

/// Credentials for a remote source. Values may be references.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Auth {
    /// `Authorization: Bearer …`.
    Bearer(String),
    Basic {
        user: String,
        password: String,
    },
    /// A key under a name of the service's own. An empty name, and a missing location, are those of the document. A named
    /// key that the document does not have goes into a header.
    ApiKey {
        name: String,
        #[serde(rename = "place", default, skip_serializing_if = "Option::is_none")]
        location: Option<KeyLocation>,
        value: String,
    },
    /// OAuth 2.0 client credentials grant. An empty `token_url` stands for the one of the document.
    Oauth2 {
        token_url: String,
        client_id: String,
        client_secret: String,
        #[serde(default)]
        scopes: Vec<String>,
    },
    /// Credentials by the names of security schemes in an OpenAPI document.
    Schemes(BTreeMap<String, Auth>),
}

/// API that is described by an OpenAPI document.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenApiSource {
    /// Location of the document: a file or a URL.
    pub document: String,
    /// Base URL of requests, instead of the servers in the document.
    pub base_url: Option<String>,
    /// Globs on tool names and on `METHOD /path`.
    pub include: Vec<String>,
    pub exclude: Vec<String>,
    /// Only operations with one of these tags.
    pub include_tags: Vec<String>,
    /// Additional methods that become tools: HEAD, OPTIONS, TRACE.
    pub methods: Vec<String>,
    /// Headers of every request, including the one for the document. May contain templates.
    pub headers: BTreeMap<String, String>,
    pub auth: Option<Auth>,
    /// Whether a document from a URL may lead to private IP addresses.
    pub allow_private: bool,
    /// Further targets that `$ref` may lead to: URL prefixes or directories.
    pub allow_refs: Vec<String>,
    /// Values for server variables of the document and for templates in `base_url` and `headers`.
    pub variables: BTreeMap<String, String>,
    /// Operations that start an asynchronous job, by a glob on the tool name, and how to poll for its result.
    pub poll: BTreeMap<String, PollSettings>,
}

/// How to poll for the result of an asynchronous job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PollSettings {
    /// URL to poll, relative to the server. May contain runtime expressions such as `{$response.body#/id}`.
    pub url: String,
    /// JSON pointer to the status in the polled response.
    pub status: String,
    /// JSON pointer to the result in the polled response; the whole response if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Status values that mean success. A status in neither list means that the job still runs.
    pub done: Vec<String>,
    /// Status values that mean failure.
    #[serde(default)]
    pub failed: Vec<String>,
    /// Time between polls, at least [`PollSettings::MIN_INTERVAL`].
    #[serde(default, with = "millis", skip_serializing_if = "Option::is_none")]
    pub interval: Option<Duration>,
}

impl PollSettings {
    /// Minimum polling interval, to protect the API.
    pub const MIN_INTERVAL: Duration = Duration::from_millis(100);
}

/// Workflows that are described by an Arazzo document.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct WorkflowSource {
    /// Path of the document.
    pub document: String,
}

/// Where an API key is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyLocation {
    Header,
    Query,
    Cookie,
}

// OpenAPI and the configuration share these names.
crate::name_variants!(KeyLocation { Header => "header", Query => "query", Cookie => "cookie" });

/// Tools that are built into Toolcrib.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BuiltinSource {
    /// `all`, or names of built-in tools.
    pub tools: Vec<String>,
    /// Directories that the file tools may access.
    #[serde(default)]
    pub roots: Vec<String>,
    /// Whether `url_fetch` may reach private and loopback addresses.
    #[serde(default)]
    pub allow_private: bool,
}

/// Settings of a source. The first group is allowed under `defaults` too. `None` means the default value.
///
/// More than twelve fields: the keys of a source in the configuration, which are flat.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceSettings {
    #[serde(with = "millis", skip_serializing_if = "Option::is_none")]
    /// Age after which the tool list is stale.
    pub ttl: Option<Duration>,
    #[serde(with = "millis", skip_serializing_if = "Option::is_none")]
    /// Bound on all attempts of a handshake together.
    pub connect_timeout: Option<Duration>,
    #[serde(with = "millis", skip_serializing_if = "Option::is_none")]
    /// Bound on the first discovery of a server that Toolcrib starts.
    pub first_start_timeout: Option<Duration>,
    #[serde(with = "millis", skip_serializing_if = "Option::is_none")]
    /// Bound on fetching the tool list.
    pub discovery_timeout: Option<Duration>,
    #[serde(with = "millis", skip_serializing_if = "Option::is_none")]
    /// Bound on one tool call.
    pub call_timeout: Option<Duration>,
    #[serde(with = "millis", skip_serializing_if = "Option::is_none")]
    /// Time without calls after which a connection is closed.
    pub idle: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Size in bytes above which a result is split into pages.
    pub result_limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Treatment of tools that have the name of a built-in tool.
    pub on_conflict: Option<OnConflict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Lifetime of a started server process.
    pub lifecycle: Option<Lifecycle>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Whether hidden characters are removed from results.
    pub results: Option<ResultText>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Treatment of arguments that do not match the tool's schema.
    pub validate: Option<ArgumentValidation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Whether the risk of a tool follows from the hints of its server.
    pub trust_hints: Option<bool>,

    #[serde(skip_serializing_if = "Option::is_none")]
    /// The only protocol version to speak with an MCP server; `None` negotiates it.
    pub protocol: Option<ProtocolVersion>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Initial state of the source; commands may change it later.
    pub enabled: Option<bool>,
    /// Name for display instead of the id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Labels for filtering.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Globs of tools that are always listed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub essential: Vec<String>,
    /// Rules on the source's tools.
    #[serde(skip_serializing_if = "Rules::is_empty")]
    pub tools: Rules,
    /// Limits on calls of all callers together.
    #[serde(skip_serializing_if = "CallLimits::is_empty")]
    pub limits: CallLimits,
    /// Labels of the nodes that may start the source; empty for every node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Settings that are references to environment variables, such as `${env:TTL}`, by key. The fields of these
    /// settings are unset here: each process fills them in with its own values, so that a stored definition does not
    /// depend on the environment of the process that declared it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub references: BTreeMap<String, String>,
}

/// Treatment of a tool that has the name of a built-in tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnConflict {
    /// The built-in tool keeps the name, and the other one is listed as skipped.
    Exclude,
    /// Both are listed; the prefix tells them apart.
    Keep,
}

/// Lifetime of a started server process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifecycle {
    /// One process for all callers, stopped when it has been idle.
    Shared,
    /// One process per call.
    Transient,
    /// One process per client connection.
    PerClient,
}

/// Version of the Model Context Protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProtocolVersion {
    #[serde(rename = "2024-11-05")]
    V2024_11_05,
    #[serde(rename = "2025-03-26")]
    V2025_03_26,
    #[serde(rename = "2025-06-18")]
    V2025_06_18,
    #[serde(rename = "2025-11-25")]
    V2025_11_25,
    #[serde(rename = "2026-07-28")]
    V2026_07_28,
}

/// How text blocks of tool results are passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResultText {
    /// Without hidden and control characters, see [`text::sanitize`](crate::text::sanitize).
    Clean,
    /// Unchanged.
    Raw,
}

impl ProtocolVersion {
    /// All versions, oldest first.
    pub const ALL: [ProtocolVersion; 5] = [
        ProtocolVersion::V2024_11_05,
        ProtocolVersion::V2025_03_26,
        ProtocolVersion::V2025_06_18,
        ProtocolVersion::V2025_11_25,
        ProtocolVersion::V2026_07_28,
    ];

    /// Returns the version as the protocol writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            ProtocolVersion::V2024_11_05 => "2024-11-05",
            ProtocolVersion::V2025_03_26 => "2025-03-26",
            ProtocolVersion::V2025_06_18 => "2025-06-18",
            ProtocolVersion::V2025_11_25 => "2025-11-25",
            ProtocolVersion::V2026_07_28 => "2026-07-28",
        }
    }
}

/// Treatment of arguments that do not match the schema of their tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArgumentValidation {
    /// The call is refused.
    Strict,
    /// The call is sent, and its result has a note.
    Lenient,
}

impl Source {
    /// Whether connection and tools of two definitions are the same. `results` and `limits` may differ, since they
    /// affect only how results are passed on and when calls are sent.
    pub fn has_same_connection(&self, other: &Source) -> bool {
        let SourceSettings { results, limits, .. } = other.settings;
        let comparable = SourceSettings { results, limits, ..self.settings.clone() };
        self.id == other.id && self.kind == other.kind && comparable == other.settings
    }

    /// Returns the source of tools that an embedding program registers. It cannot be declared.
    pub fn embedded() -> Source {
        Source {
            id: SourceId::embedded(),
            kind: SourceKind::Builtin(BuiltinSource::default()),
            settings: SourceSettings::default(),
        }
    }
}

impl SourceKind {
    /// Kind for display: `mcp`, `openapi`, `workflow` or `builtin`.
    pub fn name(&self) -> &'static str {
        match self {
            SourceKind::Stdio(_) | SourceKind::Http(_) | SourceKind::Sse(_) => "mcp",
            SourceKind::OpenApi(_) => "openapi",
            SourceKind::Workflow(_) => "workflow",
            SourceKind::Builtin(_) => "builtin",
        }
    }

    /// Transport for display; the kind itself where there is no MCP transport.
    pub fn transport(&self) -> &'static str {
        match self {
            SourceKind::Stdio(_) => "stdio",
            SourceKind::Http(_) => "http",
            SourceKind::Sse(_) => "sse",
            SourceKind::OpenApi(_) => "openapi",
            SourceKind::Workflow(_) => "workflow",
            SourceKind::Builtin(_) => "builtin",
        }
    }

    pub fn is_builtin(&self) -> bool {
        matches!(self, SourceKind::Builtin(_))
    }
}

impl SourceSettings {
    /// Returns these settings with unset ones taken from `defaults`.
    /// Settings of the second group belong to a single source and are never taken from `defaults`.
    pub fn with_defaults(&self, defaults: &SourceSettings) -> SourceSettings {
        SourceSettings {
            ttl: self.ttl.or(defaults.ttl),
            connect_timeout: self.connect_timeout.or(defaults.connect_timeout),
            first_start_timeout: self.first_start_timeout.or(defaults.first_start_timeout),
            discovery_timeout: self.discovery_timeout.or(defaults.discovery_timeout),
            call_timeout: self.call_timeout.or(defaults.call_timeout),
            idle: self.idle.or(defaults.idle),
            result_limit: self.result_limit.or(defaults.result_limit),
            on_conflict: self.on_conflict.or(defaults.on_conflict),
            lifecycle: self.lifecycle.or(defaults.lifecycle),
            results: self.results.or(defaults.results),
            validate: self.validate.or(defaults.validate),
            trust_hints: self.trust_hints.or(defaults.trust_hints),
            ..self.clone()
        }
    }

    /// Whether the node with this label may start the source.
    pub fn is_allowed_on(&self, node_label: &str) -> bool {
        self.nodes.is_empty() || self.nodes.iter().any(|node| node == node_label)
    }

    /// Time after which the tool list counts as stale.
    pub fn ttl(&self) -> Duration {
        self.ttl.unwrap_or(Duration::from_secs(300))
    }

    /// Timeout for opening a connection.
    pub fn connect_timeout(&self) -> Duration {
        self.connect_timeout.unwrap_or(Duration::from_secs(5))
    }

    /// Timeout of the first discovery of a server that Toolcrib starts. Longer than others, since `npx` and `uvx` may
    /// have to install the server first. Falls back to `discovery_timeout` where only that is set.
    pub fn first_start_timeout(&self) -> Duration {
        self.first_start_timeout.or(self.discovery_timeout).unwrap_or(Duration::from_secs(120))
    }

    /// Timeout of a discovery.
    pub fn discovery_timeout(&self) -> Duration {
        self.discovery_timeout.unwrap_or(Duration::from_secs(30))
    }

    /// Timeout of a tool call.
    pub fn call_timeout(&self) -> Duration {
        self.call_timeout.unwrap_or(Duration::from_secs(60))
    }

    /// Time without calls after which a connection is closed.
    pub fn idle(&self) -> Duration {
        self.idle.unwrap_or(Duration::from_secs(300))
    }

    /// Maximum size of a result in bytes before it is split into pages.
    pub fn result_limit(&self) -> u64 {
        self.result_limit.unwrap_or(256 * 1024)
    }

    pub fn on_conflict(&self) -> OnConflict {
        self.on_conflict.unwrap_or(OnConflict::Exclude)
    }

    pub fn lifecycle(&self) -> Lifecycle {
        self.lifecycle.unwrap_or(Lifecycle::Shared)
    }

    pub fn results(&self) -> ResultText {
        self.results.unwrap_or(ResultText::Clean)
    }

    pub fn validate(&self) -> ArgumentValidation {
        self.validate.unwrap_or(ArgumentValidation::Strict)
    }

    /// Whether the hints of the server (`readOnlyHint`, `destructiveHint`, `openWorldHint`) say how risky its tools are.
    pub fn trust_hints(&self) -> bool {
        self.trust_hints.unwrap_or(false)
    }
}

/// Serialises durations of a stored definition as whole milliseconds.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        duration.map(|duration| duration.as_millis() as u64).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_round_trips_through_json() {
        let source = Source {
            id: SourceId::parse("files").unwrap(),
            kind: SourceKind::Stdio(StdioSource {
                command: "npx".into(),
                args: vec!["-y".into()],
                ..StdioSource::default()
            }),
            settings: SourceSettings { ttl: Some(Duration::from_secs(60)), ..SourceSettings::default() },
        };
        let text = serde_json::to_string(&source).unwrap();
        assert_eq!(serde_json::from_str::<Source>(&text).unwrap(), source);
    }
}
