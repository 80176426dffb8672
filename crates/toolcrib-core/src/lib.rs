//! The pure heart of Toolcrib: what a source, a tool and a manifest are, how facts become an inventory,
//! and how an inventory becomes the catalogue that agents read.
//!
//! Nothing here reads a clock, a file or a socket: every function depends on its arguments alone.

pub mod config;
pub mod error;
pub mod freshness;
pub mod policy;
pub mod reference;
pub mod source;
pub mod time;

mod json;
mod text;

pub use error::{Code, Error, Result, ResultExt};
pub use source::{Source, SourceId};
pub use time::Timestamp;
