//! Domain model of Toolcrib: sources, tools and manifests; the inventory folded from events; and the catalogue that
//! agents read, with search, rendering and summaries.
//!
//! Pure: nothing here reads a clock, a file or a socket, and every function depends on its arguments alone.

pub mod access;
pub mod arazzo;
pub mod catalog;
pub mod compare;
pub mod config;
pub mod diff;
pub mod error;
pub mod execution;
pub mod expression;
pub mod fingerprint;
pub mod freshness;
pub mod history;
pub mod inventory;
pub mod lockfile;
pub mod manifest;
pub mod openapi;
pub mod outline;
pub mod policy;
pub mod reference;
pub mod render;
pub mod schema;
pub mod search;
pub mod source;
pub mod summary;
pub mod time;
pub mod tokens;
pub mod tool;

pub mod json;
pub mod text;

pub use error::{Code, Error, Result, ResultExt};
pub use source::{Source, SourceId};
pub use time::Timestamp;
pub use tool::{Tool, ToolId, ToolName};
