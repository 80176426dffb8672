//! OpenAPI documents: from their text to tools, and from a call to the request that the document asks for.
//!
//! The document is walked as the untyped value it is, operation by operation: what is broken is set aside with its
//! pointer and its reason, and the rest is served.

pub mod request;

mod convert;
mod description;
mod document_set;
mod key_kind;
mod object_schema;
mod operation;
mod parameters;
mod parser;
mod schema;
mod security;
mod servers;
mod tool;
mod tool_names;

pub use convert::{ConversionOptions, ConvertedDocument, convert};
pub use document_set::DocumentSet;
pub use parser::{parse, parse_with_examples};
pub use tool_names::sanitize_name;
