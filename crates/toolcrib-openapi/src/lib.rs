//! OpenAPI documents: converts their operations into tools, and builds the HTTP request for a call.
//!
//! Documents are read as untyped JSON, operation by operation: real documents often violate the specification, and a
//! broken part does not affect the others. It is reported with its JSON pointer and a reason.
//!
//! ```text
//! parser        text -> untyped value, without examples
//! document_set  `$ref` across documents
//! convert       finds operations, names them (tool_names), converts each (operation, parameters, schema,
//!               security, servers) and builds tools with an execution specification (tool)
//! request       execution specification + arguments -> HTTP request, on every call
//! client        the connector (feature `http`): loads documents, sends requests, returns results
//! ```
//!
//! The document is only needed for the conversion; a call reads the stored execution specification.

pub mod expression;
pub mod request;

#[cfg(feature = "http")]
pub mod client;

mod convert;
mod operation;
mod parameters;
mod schema;
mod security;
mod servers;
mod tool;
mod tool_names;

mod description;
mod document_set;
mod key_kind;
mod object_schema;
mod parser;

pub use convert::{ConversionOptions, ConvertedDocument, convert};
pub use document_set::DocumentSet;
pub use operation::body_encoding;
pub use parser::{parse, parse_with_examples};
pub use tool_names::sanitize_name;
