//! Execution specification stored with a tool: for OpenAPI operations, how arguments map to an HTTP request; for
//! workflows, which one to run. Built by `openapi::convert` and `arazzo`, turned into a request by `openapi::request`,
//! sent by the connector. The serialised form is stored in manifests.
//!
//! ```json
//! {"execution": {"mode": "sync_http", "method": "GET", "server": "https://shop.example/v1", "path": "/orders/{id}",
//!                "parameters": [{"argument": "id", "name": "id", "place": "path", "required": true,
//!                                "form": {"style": {"style": "simple", "explode": false}}}]}}
//! ```
//!
//! It is part of the tool as offered, and so of its fingerprint: an operation at another path is a changed tool. Empty
//! optional fields are left out. Names of fields and variants are stored and must stay compatible.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::manifest::sanitize_schema;
use crate::source::{KeyLocation, PollSettings};

/// How Toolcrib executes a tool itself, and what its listing leaves out. Stored with the tool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecutionSpec {
    pub execution: ExecutionMode,
    /// Full input schema, if the listed one was pruned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Box<RawValue>>,
    /// Schema of a successful response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Box<RawValue>>,
    /// Tags of the OpenAPI operation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(default, skip_serializing_if = "is_false")]
    /// The document marks the operation as deprecated.
    pub deprecated: bool,
}

/// Kind of execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum ExecutionMode {
    /// The call is forwarded to an MCP server.
    McpCall,
    /// One HTTP request and its response.
    SyncHttp(Operation),
    /// A request that starts a job, followed by polling until the job is done.
    AsyncPoll { operation: Operation, poll: PollSettings },
    /// A workflow of an Arazzo document, by id; the steps stay in the document.
    Workflow { id: String },
}

/// Response to an operation.
#[derive(Debug, Clone)]
pub struct OperationResponse {
    pub status: u16,
    /// Names in any case; a name can occur more than once.
    pub headers: Vec<(String, String)>,
    /// Parsed if it is JSON, else a string. `None` if it is empty, truncated, compressed or binary.
    pub body: Option<Value>,
    /// URL and method of the request that was sent.
    pub url: String,
    pub method: String,
}

/// Operation of an OpenAPI document: the target of its request and how arguments map to it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Operation {
    /// HTTP method in upper case.
    pub method: String,
    /// Base URL of the operation with variables filled in and without trailing slash. Empty if the document has no
    /// servers.
    pub server: String,
    /// Path template of the document, with `{name}` placeholders.
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<OperationParameter>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<BodySpec>,
    /// Other media types of the body, if the document has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_choice: Option<BodyChoice>,
    /// Alternative sets of security schemes; a request must satisfy all schemes of one set. An empty set allows
    /// anonymous requests. Empty if the document does not specify security.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub security: Vec<Vec<SecurityRequirement>>,
    /// The document states explicitly that the operation needs no credentials.
    #[serde(skip_serializing_if = "is_false")]
    pub public: bool,
    /// Schemes of the document, if neither it nor the operation says which of them apply.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub declared_schemes: Vec<SecurityRequirement>,
    /// OAuth 2 token URLs by the name of the scheme. May be relative to the server.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub token_urls: BTreeMap<String, String>,
    /// Media types of its responses, for the `Accept` header.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accept: Vec<String>,
    /// Arguments of the next page, as runtime expressions over a response, where the document links the operation to
    /// itself.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub next_page: BTreeMap<String, String>,
}

/// Parameter of an operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperationParameter {
    /// Name of the argument in the tool's input schema.
    pub argument: String,
    /// Name in the HTTP request.
    pub name: String,
    #[serde(rename = "place")]
    pub location: ParameterLocation,
    #[serde(default, skip_serializing_if = "is_false")]
    pub required: bool,
    #[serde(rename = "form")]
    pub serialization: Serialization,
}

/// Part of the request that a parameter goes into (`in` of OpenAPI).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ParameterLocation {
    Path,
    Query,
    Header,
    Cookie,
    /// The parameter is the entire query string (OpenAPI 3.2).
    Querystring,
}

// Names in OpenAPI and in stored specifications.
crate::name_variants!(ParameterLocation {
    Path => "path",
    Query => "query",
    Header => "header",
    Cookie => "cookie",
    Querystring => "querystring",
});

/// How a value is serialised as text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Serialization {
    /// As OpenAPI's `style` and `explode` say.
    Style {
        style: ParameterStyle,
        explode: bool,
        #[serde(default, skip_serializing_if = "is_false")]
        allow_reserved: bool,
    },
    /// As a document of a media type, e.g. JSON in a query parameter.
    Content { media_type: String },
}

/// Serialisation styles of OpenAPI (`style`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ParameterStyle {
    /// `a,b`, the default of paths and headers.
    Simple,
    /// `.a.b`, in paths.
    Label,
    /// `;x=a;x=b`, in paths.
    Matrix,
    /// `x=a&x=b`, the default of queries and cookies.
    Form,
    /// `x=a%20b`, in queries.
    SpaceDelimited,
    /// `x=a%7Cb`, in queries.
    PipeDelimited,
    /// Swagger 2.0 only (`collectionFormat: tsv`).
    TabDelimited,
    /// `x[key]=a`, in queries.
    DeepObject,
    /// OpenAPI 3.2: `a=x; b=y` without percent-encoding.
    Cookie,
}

/// Request body of an operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BodySpec {
    /// Name of the argument in the tool's input schema.
    pub argument: String,
    #[serde(default, skip_serializing_if = "is_false")]
    pub required: bool,
    pub media_type: String,
    pub content: BodyEncoding,
    /// Encoding of individual form fields, where the document specifies it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, BodyField>,
}

/// Choice between the media types of a body; [`Operation::body`] is the default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BodyChoice {
    /// Name of the argument that chooses by media type.
    pub argument: String,
    pub alternatives: Vec<BodyAlternative>,
}

/// Another media type of a body.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BodyAlternative {
    pub body: BodySpec,
    /// Form fields for files that the default media type does not have, or has as files too. A value for one of them
    /// chooses this form.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub file_fields: Vec<String>,
    /// JSON types of a body that choose this media type (`array`, `string`), because the default does not accept them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub value_types: Vec<String>,
}

/// Encoding of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BodyEncoding {
    /// The argument as one JSON document.
    Json,
    /// One JSON value per line.
    JsonLines,
    /// `a=1&b=2`.
    Urlencoded,
    /// `multipart/form-data`, one part per field.
    Multipart,
    /// Text passed on unchanged, including XML.
    Text,
    /// The argument is base64 and decoded before sending.
    Binary,
}

/// Encoding of one field of a form body.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BodyField {
    /// The argument is base64, or an object `{"name","base64"}`; for arrays, each item is.
    #[serde(skip_serializing_if = "is_false")]
    pub binary: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Serialisation as for query parameters, where the document specifies it.
    #[serde(rename = "form", skip_serializing_if = "Option::is_none")]
    pub serialization: Option<Serialization>,
    /// A required list or object. It must not be empty: serialised as form fields, it would vanish from the request.
    #[serde(skip_serializing_if = "is_false")]
    pub required: bool,
}

/// One security scheme that a request must satisfy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SecurityRequirement {
    /// Name of the scheme in the document.
    pub scheme: String,
    pub kind: SecurityScheme,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
}

/// Kind of authentication that a scheme requires.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecurityScheme {
    Bearer,
    Basic,
    ApiKey {
        name: String,
        #[serde(rename = "place")]
        location: KeyLocation,
    },
    Oauth2,
    OpenIdConnect,
    /// Unsupported kind, as the document names it.
    Other(String),
}

/// Request of an operation as it will be sent, for display: `{name}` for arguments, references for credentials.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct RequestOutline {
    /// Headers by name.
    pub headers: Map<String, Value>,
    /// Query parameters by name.
    pub query: Map<String, Value>,
    pub body: Option<BodyOutline>,
    /// Why no credentials can be sent, if so.
    pub auth_error: Option<String>,
}

/// Body of a request, for display.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BodyOutline {
    /// Content as it is sent: `{body}`, or the fields of a form.
    pub template: String,
    pub content_type: String,
    pub encoding: BodyEncoding,
    pub required: bool,
    /// Other media types that an argument can choose.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<String>,
}

impl RequestOutline {
    /// Sets a header. Names are compared without regard to case.
    pub fn set_header(&mut self, name: &str, value: &str) {
        let known = self.headers.keys().find(|known| known.eq_ignore_ascii_case(name)).cloned();
        self.headers.insert(known.unwrap_or_else(|| name.to_owned()), value.into());
    }
}

impl ExecutionSpec {
    /// Removes hidden characters from the texts of its schemas, as lists do.
    pub fn sanitized(mut self) -> ExecutionSpec {
        for schema in [&mut self.input_schema, &mut self.output_schema].into_iter().flatten() {
            if let Some(clean) = sanitize_schema(schema) {
                *schema = clean;
            }
        }
        self
    }
}

impl SecurityScheme {
    /// Name in API responses and command output.
    pub fn name(&self) -> &str {
        match self {
            SecurityScheme::Bearer => "bearer",
            SecurityScheme::Basic => "basic",
            SecurityScheme::ApiKey { .. } => "api_key",
            SecurityScheme::Oauth2 => "oauth2",
            SecurityScheme::OpenIdConnect => "openid_connect",
            SecurityScheme::Other(name) => name,
        }
    }
}

impl ExecutionMode {
    /// Name in API responses and command output; equals the serialised `mode`.
    pub fn mode(&self) -> &'static str {
        match self {
            ExecutionMode::McpCall => "mcp_call",
            ExecutionMode::SyncHttp(_) => "sync_http",
            ExecutionMode::AsyncPoll { .. } => "async_poll",
            ExecutionMode::Workflow { .. } => "workflow",
        }
    }

    /// The HTTP operation that a call starts with, if it is executed over HTTP.
    pub fn operation(&self) -> Option<&Operation> {
        match self {
            ExecutionMode::SyncHttp(operation) | ExecutionMode::AsyncPoll { operation, .. } => Some(operation),
            ExecutionMode::McpCall | ExecutionMode::Workflow { .. } => None,
        }
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}
