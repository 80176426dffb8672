//! Domain model of Toolcrib: sources, tools and manifests, and the inventory that is folded from the events of the
//! journal.
//!
//! ```text
//! source ─▶ (discovery, in the library) ─▶ manifest ─▶ command ─▶ event ─▶ inventory
//! ```
//!
//! Pure, like the crates for schemas, the catalogue, differences and configuration that build on it: no function reads a
//! clock, a file or a socket, and every function depends on its arguments alone. Times, file contents and answers of
//! servers are passed in, which is why all of it can be tested without I/O. The crate `toolcrib` does the I/O around it:
//! store, connectors, secrets, processes.

// Sources and their tools.
pub mod source;

pub mod tool;

pub mod execution;

pub mod policy;

pub mod limits;

pub mod node_label;

// Lists of tools and other features, and the state that events make of them.
pub mod manifest;

pub mod features;

pub mod delta;

pub mod inventory;

pub mod freshness;

pub mod access;

pub mod principal;

pub mod access_rules;

pub mod expose;

// Helpers without a notion of tools, used by most modules above.
pub mod error;
pub mod fingerprint;
pub mod json;
mod names;
pub mod percent;
pub mod text;
pub mod time;

pub use error::{Code, Error, Result, ResultExt};
pub use source::{Source, SourceId};
pub use time::Timestamp;
pub use tool::{Tool, ToolId, ToolName};
