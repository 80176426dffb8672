//! How a call to a tool is carried out where that is not simply passed on: the request that an operation of an OpenAPI
//! document wants, as the manifest keeps it. Making requests of it is `openapi::request`, sending them is left to others.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::manifest::sanitize_schema;
use crate::source::{KeyLocation, PollSettings};

/// What lies behind a tool that its list does not show. Stored with it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecutionSpec {
    pub execution: ExecutionMode,
    /// The whole input schema, where the one that is listed was pruned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Box<RawValue>>,
    /// Of a successful answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub deprecated: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum ExecutionMode {
    /// Passed on to an MCP server.
    McpCall,
    /// One HTTP request and its answer.
    SyncHttp(Operation),
    /// A request that starts something, and then a look at how it goes until it is done.
    AsyncPoll { operation: Operation, poll: PollSettings },
    /// The steps of a workflow; its document has them.
    Workflow { id: String },
}

/// An operation of an OpenAPI document: where its request goes and how arguments become parts of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Operation {
    /// In capitals.
    pub method: String,
    /// The address that paths begin at, variables filled, without a slash at its end. Empty where the document has none.
    pub server: String,
    /// As the document has it, with `{name}` in it.
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<OperationParameter>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<BodySpec>,
    /// Any one of these will do; an empty one means that nobody need say who they are. None at all where the document
    /// says nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub security: Vec<Vec<SecurityRequirement>>,
    /// The document says in so many words that this one needs no credentials.
    #[serde(skip_serializing_if = "is_false")]
    pub public: bool,
    /// The media types that it answers with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accept: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperationParameter {
    /// The name agents use.
    pub argument: String,
    /// The name on the wire.
    pub name: String,
    #[serde(rename = "place")]
    pub location: ParameterLocation,
    #[serde(default, skip_serializing_if = "is_false")]
    pub required: bool,
    #[serde(rename = "form")]
    pub serialization: Serialization,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ParameterLocation {
    Path,
    Query,
    Header,
    Cookie,
    /// The whole query at once (OpenAPI 3.2).
    Querystring,
}

/// How a value is written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Serialization {
    Style {
        style: ParameterStyle,
        explode: bool,
        #[serde(default, skip_serializing_if = "is_false")]
        allow_reserved: bool,
    },
    /// As a document of this media type.
    Content { media_type: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ParameterStyle {
    Simple,
    Label,
    Matrix,
    Form,
    SpaceDelimited,
    PipeDelimited,
    /// Swagger 2.0 alone.
    TabDelimited,
    DeepObject,
    /// OpenAPI 3.2: `a=x; b=y`, nothing encoded.
    Cookie,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BodySpec {
    /// The name agents use.
    pub argument: String,
    #[serde(default, skip_serializing_if = "is_false")]
    pub required: bool,
    pub media_type: String,
    pub content: BodyEncoding,
    /// What the document says of single properties of a form.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, FormField>,
}

/// What a body is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BodyEncoding {
    Json,
    /// One JSON text a line.
    JsonLines,
    Urlencoded,
    Multipart,
    /// Text as it is, XML included.
    Text,
    /// The argument is base64.
    Binary,
}

/// One property of a form.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FormField {
    /// The argument is base64, or `{"name","base64"}`; of an array, each item is.
    #[serde(skip_serializing_if = "is_false")]
    pub binary: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// As a parameter of a query is written, where the document says how.
    #[serde(rename = "form", skip_serializing_if = "Option::is_none")]
    pub serialization: Option<Serialization>,
    /// A list or an object that must be there, of which something must be sent: empty, it would leave no trace.
    #[serde(skip_serializing_if = "is_false")]
    pub required: bool,
}

/// One security scheme that a request must satisfy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SecurityRequirement {
    /// The document's name for it.
    pub scheme: String,
    pub kind: SecurityScheme,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecurityScheme {
    Bearer,
    Basic,
    ApiKey {
        name: String,
        place: KeyLocation,
    },
    Oauth2,
    OpenIdConnect,
    /// A kind that nothing here can satisfy, in the document's words.
    Other(String),
}

impl ExecutionSpec {
    /// With the texts of its schemas cleaned as those of a list are.
    pub(crate) fn sanitized(mut self) -> ExecutionSpec {
        for schema in [&mut self.input_schema, &mut self.output_schema].into_iter().flatten() {
            if let Some(clean) = sanitize_schema(schema) {
                *schema = clean;
            }
        }
        self
    }
}

impl SecurityScheme {
    /// As surfaces show it.
    pub fn name(&self) -> &str {
        match self {
            SecurityScheme::Bearer => "bearer",
            SecurityScheme::Basic => "basic",
            SecurityScheme::ApiKey { .. } => "api_key",
            SecurityScheme::Oauth2 => "oauth2",
            SecurityScheme::OpenIdConnect => "openid_connect",
            SecurityScheme::Other(words) => words,
        }
    }
}

impl ExecutionMode {
    /// As surfaces show it.
    pub fn mode(&self) -> &'static str {
        match self {
            ExecutionMode::McpCall => "mcp_call",
            ExecutionMode::SyncHttp(_) => "sync_http",
            ExecutionMode::AsyncPoll { .. } => "async_poll",
            ExecutionMode::Workflow { .. } => "workflow",
        }
    }

    /// The request that a call begins with, where it is one over HTTP.
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
