//! A source: a declared origin of tools, and the id that prefixes them.

mod id;
mod references;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::policy::Rules;

pub use id::SourceId;

/// A declaration, as a config or a command states it. References to secrets stay references here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Source {
    pub id: SourceId,
    pub kind: SourceKind,
    #[serde(default)]
    pub settings: SourceSettings,
}

/// Where the tools come from and how it is reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    Stdio(StdioSource),
    Http(RemoteSource),
    Sse(RemoteSource),
    #[serde(rename = "openapi")]
    OpenApi(OpenApiSource),
    Workflow(WorkflowSource),
    Builtin(BuiltinSource),
}

/// An MCP server that we start.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StdioSource {
    pub command: String,
    #[serde(default)]
    pub args: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub cwd: Option<String>,
    /// Names of our own variables that the server gets too.
    #[serde(default)]
    pub inherit_env: Vec<String>,
}

/// An MCP server that runs elsewhere.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RemoteSource {
    pub url: String,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    #[serde(default)]
    pub auth: Option<Auth>,
}

/// How we present ourselves to a remote source. Values may be references.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Auth {
    Bearer(String),
    Basic {
        user: String,
        password: String,
    },
    ApiKey {
        name: String,
        place: KeyLocation,
        value: String,
    },
    /// Client credentials.
    Oauth2 {
        token_url: String,
        client_id: String,
        client_secret: String,
        #[serde(default)]
        scopes: Vec<String>,
    },
    /// By the names that an OpenAPI document has for its security schemes.
    Schemes(BTreeMap<String, Auth>),
}

/// An API that an OpenAPI document describes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenApiSource {
    /// The document: a file, or an address.
    pub document: String,
    /// Where requests go, whatever the document says.
    pub base_url: Option<String>,
    /// Globs on the names of tools and on `METHOD /path`.
    pub include: Vec<String>,
    pub exclude: Vec<String>,
    /// Only operations with one of these tags.
    pub include_tags: Vec<String>,
    /// Methods that become tools too: HEAD, OPTIONS, TRACE.
    pub methods: Vec<String>,
    /// Headers of every request, the one for the document included. Templates.
    pub headers: BTreeMap<String, String>,
    pub auth: Option<Auth>,
    /// Whether a document from an address may lead to private addresses.
    pub allow_private: bool,
    /// Other places that `$ref` may lead to: the beginnings of addresses, or directories.
    pub allow_refs: Vec<String>,
    /// Values for the document's server variables and for the templates in `base_url` and `headers`.
    pub variables: BTreeMap<String, String>,
    /// Operations that start something, by a glob on the name of the tool, and how to see when it is done.
    pub poll: BTreeMap<String, PollSettings>,
}

/// How to see when something that a request started is done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PollSettings {
    /// The address to look at, relative to the server, with runtime expressions such as `{$response.body#/id}` in it.
    pub url: String,
    /// JSON pointers into what is found there: to the status, and to the result (the whole where there is none).
    pub status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The values of the status that mean it is done, or has failed. Any other means that it goes on.
    pub done: Vec<String>,
    #[serde(default)]
    pub failed: Vec<String>,
    #[serde(default, with = "millis", skip_serializing_if = "Option::is_none")]
    pub interval: Option<Duration>,
}

impl PollSettings {
    /// Nobody is asked more often.
    pub const MIN_INTERVAL: Duration = Duration::from_millis(100);
}

/// Workflows that an Arazzo document describes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct WorkflowSource {
    /// The document: a file.
    pub document: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyLocation {
    Header,
    Query,
    Cookie,
}

/// The tools that Toolcrib brings along.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BuiltinSource {
    /// `all`, or names of built-in tools.
    pub tools: Vec<String>,
    /// The directories that file tools may touch.
    #[serde(default)]
    pub roots: Vec<String>,
    /// Whether `url_fetch` may reach private and loopback addresses.
    #[serde(default)]
    pub allow_private: bool,
}

/// What may stand on a source and, for the first group, under `defaults` too.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceSettings {
    #[serde(with = "millis", skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Duration>,
    #[serde(with = "millis", skip_serializing_if = "Option::is_none")]
    pub connect_timeout: Option<Duration>,
    #[serde(with = "millis", skip_serializing_if = "Option::is_none")]
    pub first_start_timeout: Option<Duration>,
    #[serde(with = "millis", skip_serializing_if = "Option::is_none")]
    pub discovery_timeout: Option<Duration>,
    #[serde(with = "millis", skip_serializing_if = "Option::is_none")]
    pub call_timeout: Option<Duration>,
    #[serde(with = "millis", skip_serializing_if = "Option::is_none")]
    pub idle: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_conflict: Option<OnConflict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub results: Option<ResultText>,

    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub essential: Vec<String>,
    #[serde(skip_serializing_if = "Rules::is_empty")]
    pub tools: Rules,
}

/// What happens to a tool whose own name equals a built-in's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnConflict {
    Exclude,
    Keep,
}

/// How long a started server lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifecycle {
    /// One for all callers, until it has been idle.
    Shared,
    /// One for each call.
    Transient,
    /// One for each client connection.
    PerClient,
}

/// What becomes of the text blocks of results on their way to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResultText {
    /// Without characters that hide or steer, see [`text::shown`](crate::text::shown).
    Clean,
    /// As the source sent them.
    Raw,
}

impl Source {
    /// Whether two declarations differ in nothing that its connection or its tools depend on.
    pub fn has_same_connection(&self, other: &Source) -> bool {
        let results = other.settings.results;
        let like_other = SourceSettings { results, ..self.settings.clone() };
        self.id == other.id && self.kind == other.kind && like_other == other.settings
    }

    /// The source that an embedding program's own tools belong to. Nobody declares it.
    pub fn embedded() -> Source {
        Source {
            id: SourceId::embedded(),
            kind: SourceKind::Builtin(BuiltinSource::default()),
            settings: SourceSettings::default(),
        }
    }
}

impl SourceKind {
    /// `mcp`, `openapi`, `workflow` or `builtin`, as surfaces show it.
    pub fn name(&self) -> &'static str {
        match self {
            SourceKind::Stdio(_) | SourceKind::Http(_) | SourceKind::Sse(_) => "mcp",
            SourceKind::OpenApi(_) => "openapi",
            SourceKind::Workflow(_) => "workflow",
            SourceKind::Builtin(_) => "builtin",
        }
    }

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
    /// These settings, with what they leave open taken from `defaults`.
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
            ..self.clone()
        }
    }

    pub fn ttl(&self) -> Duration {
        self.ttl.unwrap_or(Duration::from_secs(300))
    }

    pub fn connect_timeout(&self) -> Duration {
        self.connect_timeout.unwrap_or(Duration::from_secs(5))
    }

    /// For the first discovery of a server that Toolcrib starts, which may have to be installed: `first_start_timeout`,
    /// or `discovery_timeout` where only that is set.
    pub fn first_start_timeout(&self) -> Duration {
        self.first_start_timeout.or(self.discovery_timeout).unwrap_or(Duration::from_secs(120))
    }

    pub fn discovery_timeout(&self) -> Duration {
        self.discovery_timeout.unwrap_or(Duration::from_secs(30))
    }

    pub fn call_timeout(&self) -> Duration {
        self.call_timeout.unwrap_or(Duration::from_secs(60))
    }

    pub fn idle(&self) -> Duration {
        self.idle.unwrap_or(Duration::from_secs(300))
    }

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
}

/// Durations in a stored definition are whole milliseconds.
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
    fn a_definition_survives_its_storage() {
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
