//! The catalogue that agents read: the tools of all sources as an immutable value, with search, rendering for model
//! providers, and summaries.
//!
//! [`Catalog`] is built from the inventory and the manifests of `toolcrib_core`. Search and rendering are in the same
//! crate, because a [`Segment`] caches what they compute for the tools of one source.

mod catalog;

pub mod filter;
pub mod outline;
pub mod render;
pub mod search;
pub mod summary;
pub mod token_count;

pub use catalog::{
    CallSpec, Catalog, CatalogSource, Segment, SegmentEntry, SourceOptions, ToolRef, ToolStatus, View, ViewKey,
};
