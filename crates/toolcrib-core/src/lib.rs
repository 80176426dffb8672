//! Domain model of Toolcrib: sources, tools and manifests; the inventory folded from events; and the catalogue that
//! agents read, with search, rendering and summaries. OpenAPI and Arazzo documents are converted here as well.
//!
//! The flow through the modules, from left to right:
//!
//! ```text
//! config ─▶ source ─▶ (discovery, in the library) ─▶ manifest ─▶ inventory ─▶ catalog ─▶ search, render, summary
//!                                                       │            │
//!                                                    compare      history
//! ```
//!
//! Pure: nothing here reads a clock, a file or a socket, and every function depends on its arguments alone.
//! Times, file contents and answers of servers are passed in, which is why all of it can be tested without I/O. The
//! crate `toolcrib` does the I/O around it: store, connectors, secrets, processes.

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

// Helpers without a notion of tools, used by most modules above.
pub mod json;
pub mod text;

pub use error::{Code, Error, Result, ResultExt};
pub use source::{Source, SourceId};
pub use time::Timestamp;
pub use tool::{Tool, ToolId, ToolName};
