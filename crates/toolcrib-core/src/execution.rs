//! How a call to a tool is carried out where that is not simply passed on: the request that an operation of an OpenAPI
//! document wants, as the manifest keeps it. Making requests of it is `openapi::request`, sending them is left to others.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::manifest::shown_schema;
use crate::source::{KeyPlace, Poll};

/// What lies behind a tool that its list does not show. Stored with it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Backing {
    pub execution: Execution,
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
pub enum Execution {
    /// Passed on to an MCP server.
    McpCall,
    /// One HTTP request and its answer.
    SyncHttp(Operation),
    /// A request that starts something, and then a look at how it goes until it is done.
    AsyncPoll { operation: Operation, poll: Poll },
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
    pub parameters: Vec<Parameter>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Body>,
    /// Any one of these will do; an empty one means that nobody need say who they are. None at all where the document
    /// says nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub security: Vec<Vec<Needed>>,
    /// The document says in so many words that this one needs no credentials.
    #[serde(skip_serializing_if = "is_false")]
    pub public: bool,
    /// The media types that it answers with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accept: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// The name agents use.
    pub argument: String,
    /// The name on the wire.
    pub name: String,
    pub place: Place,
    #[serde(default, skip_serializing_if = "is_false")]
    pub required: bool,
    pub form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
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
pub enum Form {
    Style {
        style: Style,
        explode: bool,
        #[serde(default, skip_serializing_if = "is_false")]
        allow_reserved: bool,
    },
    /// As a document of this media type.
    Content { media_type: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Style {
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
pub struct Body {
    /// The name agents use.
    pub argument: String,
    #[serde(default, skip_serializing_if = "is_false")]
    pub required: bool,
    pub media_type: String,
    pub content: Content,
    /// What the document says of single properties of a form.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, Field>,
}

/// What a body is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Content {
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
pub struct Field {
    /// The argument is base64, or `{"name","base64"}`; of an array, each item is.
    #[serde(skip_serializing_if = "is_false")]
    pub binary: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// As a parameter of a query is written, where the document says how.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub form: Option<Form>,
    /// A list or an object that must be there, of which something must be sent: empty, it would leave no trace.
    #[serde(skip_serializing_if = "is_false")]
    pub required: bool,
}

/// One security scheme that a request must satisfy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Needed {
    /// The document's name for it.
    pub scheme: String,
    pub kind: Scheme,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheme {
    Bearer,
    Basic,
    ApiKey {
        name: String,
        place: KeyPlace,
    },
    Oauth2,
    OpenIdConnect,
    /// A kind that nothing here can satisfy, in the document's words.
    Other(String),
}

impl Backing {
    /// With the texts of its schemas cleaned as those of a list are.
    pub(crate) fn fit_to_be_shown(mut self) -> Backing {
        for schema in [&mut self.input_schema, &mut self.output_schema].into_iter().flatten() {
            if let Some(clean) = shown_schema(schema) {
                *schema = clean;
            }
        }
        self
    }
}

impl Scheme {
    /// As surfaces show it.
    pub fn name(&self) -> &str {
        match self {
            Scheme::Bearer => "bearer",
            Scheme::Basic => "basic",
            Scheme::ApiKey { .. } => "api_key",
            Scheme::Oauth2 => "oauth2",
            Scheme::OpenIdConnect => "openid_connect",
            Scheme::Other(words) => words,
        }
    }
}

impl Execution {
    /// As surfaces show it.
    pub fn mode(&self) -> &'static str {
        match self {
            Execution::McpCall => "mcp_call",
            Execution::SyncHttp(_) => "sync_http",
            Execution::AsyncPoll { .. } => "async_poll",
            Execution::Workflow { .. } => "workflow",
        }
    }

    /// The request that a call begins with, where it is one over HTTP.
    pub fn operation(&self) -> Option<&Operation> {
        match self {
            Execution::SyncHttp(operation) | Execution::AsyncPoll { operation, .. } => Some(operation),
            Execution::McpCall | Execution::Workflow { .. } => None,
        }
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}
