//! OpenAPI documents: from their text to tools, and from a call to the request that the document asks for.
//!
//! The document is walked as the untyped value it is, operation by operation: what is broken is set aside with its
//! pointer and its reason, and the rest is served.

pub mod request;

mod convert;
mod keys;
mod library;
mod names;
mod object;
mod operation;
mod parameters;
mod schema;
mod security;
mod server;
mod text;
mod tool;
mod wording;

pub use convert::{Conversion, Converted, convert};
pub use library::Library;
pub use names::legal;
pub use text::{parse, parse_whole};
