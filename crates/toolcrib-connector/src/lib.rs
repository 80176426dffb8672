//! Interface between the registry and a kind of source: the [`Connector`] trait, the types that pass through it, and
//! what every implementation needs.
//!
//! A connector speaks the protocol of one kind of source: MCP, OpenAPI, Arazzo workflows, built-in tools. It knows no
//! journal and evaluates no policy; refreshes and the call path of the library do, and call connectors.

#![warn(missing_docs)]

// The interface, and what passes through it.
mod connector;
mod context;
pub mod document;
mod output;
mod tool_caller;
mod tool_result;

// Needed by every kind of source: secrets, addresses, time, traces.
pub mod address_policy;
pub mod clock;
mod http_rejection;
pub mod redact;
pub mod secret;
mod templates;
pub mod trace;

// Tools whose handlers are functions of this process.
pub mod builtin;

pub use connector::{
    CallFailure, Connector, Discovered, Discovery, FeatureReading, PendingFeatures, SourceRequest, SourceSubscriptions,
    SubscribersByUri, ToolCall,
};
pub use context::{
    CallContext, CallDeadline, ClientId, EraPreference, InputRelay, NotificationListener, ProgressListener,
    QuestionError, QuestionHandler, ResultOwner, SourceQuestion,
};
pub use document::run_blocking;
pub use http_rejection::{HttpRejection, parse_retry_after};
pub use output::{CallOutput, ResultPage};
pub use templates::fill_openapi;
pub use tool_caller::{CallRequest, RedirectMode, ResponseRecorder, ResultPaging, ToolCaller, UndeclaredParameters};
pub use tool_result::{HTTP_KEY, NOTES_KEY, PAGINATION_KEY, ResultLayout, ToolResult, without_protocol_fields};
